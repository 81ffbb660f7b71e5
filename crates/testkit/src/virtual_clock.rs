//! The runtime's time as a clock, for tests whose runtime starts paused.

use std::time::Duration;

use larder_store::{Clock, Timestamp};
use tokio::time::Instant;

/// A clock that begins at [`VirtualClock::BEGIN`] and follows the time of the runtime. Its monotonic time begins at a second.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock(pub Instant);

impl VirtualClock {
    /// Its time at its instant.
    pub const BEGIN: Timestamp = Timestamp(1_800_000_000_000_000);

    /// A clock that begins now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Self::BEGIN + self.0.elapsed().as_micros() as u64
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed() + Duration::from_secs(1)
    }
}
