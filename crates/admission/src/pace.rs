//! How slow a client may be that holds a shared place.

use std::time::Duration;

use tokio::time::Instant;

/// How long a transfer may take to get going.
const PACE_GRACE: Duration = Duration::from_secs(20);
/// The least rate on average once it should, in bytes a second.
const PACE_BYTES_PER_SECOND: u64 = 16 * 1024;

/// The pace of one transfer, in either direction: a time for a start, then a least rate on average.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    begun: Instant,
    bytes: u64,
}

impl Pace {
    /// The clock starts now.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now(), bytes: 0 }
    }

    /// Counts bytes that came or went.
    pub fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// When the next bytes have to come or go at the latest.
    #[must_use]
    pub fn latest(&self) -> Instant {
        let at_least = Duration::from_millis(self.bytes.saturating_mul(1000) / PACE_BYTES_PER_SECOND);
        self.begun + PACE_GRACE + at_least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_keeps_the_least_rate_is_never_late() {
        let mut pace = Pace::begin();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(Instant::now() < pace.latest());
            pace.count(PACE_BYTES_PER_SECOND);
        }
        tokio::time::sleep(PACE_GRACE + Duration::from_secs(1)).await;
        assert!(Instant::now() > pace.latest(), "who stops is late after the time for a start");
    }
}
