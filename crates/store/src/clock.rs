//! The clock, passed in by the caller, so that the simulation controls time.

use std::time::Duration;

use larder_rows::Timestamp;

/// A source of wall-clock and monotonic time.
pub trait Clock: Send + Sync {
    /// Wall clock in microseconds since 1970. An operator may set it back.
    fn now(&self) -> Timestamp;

    /// Time since a fixed moment. It never goes back, and it runs on while the process is stopped.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

/// A duration in whole microseconds, saturating.
#[must_use]
pub fn as_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "every other component gets its time from this clock")]
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "every other component gets its time from this clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(Timestamp::ZERO, |since| Timestamp(as_micros(since)))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
