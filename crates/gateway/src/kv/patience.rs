//! How long a call waits for the replicas of its level before it is made at a lower one.
//!
//! ```text
//! calm      a call waits 1 s ──no answer──> hurried    it waits 500 ms
//!   ^                                          │  after 10 s
//!   └──────────────────────────────────────────┘
//! ```
//! A cluster believes for 10 to 20 seconds that a replica that died is up, and waits for it as long as a request may take. So a
//! call that may be made at a lower level is not waited for to its end: the first one without an answer costs a second, those
//! that follow a fraction. Every call is tried at its own level first, so levels are met again as soon as they can be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::micros_of;

/// The longest wait of a calm call: many times what a healthy cluster takes.
const CALM: Duration = Duration::from_secs(1);
/// The longest wait of a hurried call: the engine has time to ask another node when one hangs.
const HURRIED: Duration = Duration::from_millis(500);
/// How long calls are hurried after a calm one that got no answer. What hurried ones meet does not prolong it: a cluster that
/// is only slow would never be calm again.
const HURRY: Duration = Duration::from_secs(10);

/// The patience of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Until when calls are hurried, in microseconds of the monotonic clock.
    hurried_until: AtomicU64,
}

impl Patience {
    /// The wait of a call that is made now.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        if micros_of(now) < self.hurried_until.load(Ordering::Relaxed) { HURRIED } else { CALM }
    }

    /// Notes a call that got no answer in that time.
    pub(crate) fn lost(&self, now: Duration) {
        if self.wait(now) == CALM {
            self.hurried_until.fetch_max(micros_of(now + HURRY), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_call_without_an_answer_costs_a_second_and_the_next_ones_a_fraction() {
        let (patience, at) = (Patience::default(), Duration::from_secs);
        assert_eq!(patience.wait(at(5)), CALM);
        patience.lost(at(5));
        assert_eq!(patience.wait(at(14)), HURRIED);
        patience.lost(at(14));
        assert_eq!(patience.wait(at(15)), CALM, "a hurried call proves nothing");
    }
}
