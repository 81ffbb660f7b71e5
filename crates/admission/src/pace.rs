//! The least rate of a client that holds a shared place.

use std::time::Duration;

use tokio::time::Instant;

/// How long a transfer may take to start.
const PACE_GRACE: Duration = Duration::from_secs(20);
/// The least average rate after that, in bytes per second.
const PACE_BYTES_PER_SECOND: u64 = 16 * 1024;

/// The pace of one transfer, in either direction: a grace period, then a least average rate.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    begun: Instant,
    bytes: u64,
}

impl Pace {
    /// A pace that starts now.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now(), bytes: 0 }
    }

    /// Counts bytes received or sent.
    pub fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The deadline of the next bytes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let at_least = Duration::from_millis(self.bytes.saturating_mul(1000) / PACE_BYTES_PER_SECOND);
        self.begun + PACE_GRACE + at_least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_transfer_at_the_least_rate_is_never_late() {
        let mut pace = Pace::begin();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(Instant::now() < pace.deadline());
            pace.count(PACE_BYTES_PER_SECOND);
        }
        tokio::time::sleep(PACE_GRACE + Duration::from_secs(1)).await;
        assert!(Instant::now() > pace.deadline(), "a transfer that stops is late after the grace period");
    }
}
