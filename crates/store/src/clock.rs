//! Time, handed in: the simulation owns it.

use std::time::Duration;

use larder_model::rows::Micros;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Wall clock in microseconds since 1970. It may be set back.
    fn now(&self) -> Micros;

    /// Time since some fixed moment; never goes back, runs on while the process is stopped.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

/// A duration in whole microseconds; the longest there is where it has more.
#[must_use]
pub fn micros_of(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else takes")]
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else takes")]
    fn now(&self) -> Micros {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, micros_of)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
