//! A clock that moves only when a test moves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::{Clock, Timestamp};

/// Time under control of a test: pass it to the engine, then advance it.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    passed: AtomicU64,
}

impl Default for ManualClock {
    /// A day in 2023.
    fn default() -> Self {
        Self::new(Timestamp(1_700_000_000_000_000))
    }
}

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { now: AtomicU64::new(now.0), passed: AtomicU64::new(0) }
    }

    /// Advances both clocks.
    pub fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.now.fetch_add(micros, Ordering::SeqCst);
        self.passed.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the wall clock, also backwards; the monotonic clock does not change.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.passed.load(Ordering::SeqCst))
    }
}
