//! How long a call waits for the replicas of its level before it is downgraded.
//!
//! ```text
//! normal    a call waits 1 s ──no answer──> shortened    a call waits 500 ms
//!   ^                                          │  after 10 s
//!   └──────────────────────────────────────────┘
//! ```
//! A cluster counts a dead replica as up for 10 to 20 seconds, and waits for it until the request's deadline. So a call that
//! can be downgraded is cut short: the first unanswered call costs a second, the following ones half of it. Every call starts
//! at its own level, so the level is met again as soon as the replica is back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::as_micros;

/// Normal timeout: many times what a healthy cluster takes.
const NORMAL: Duration = Duration::from_secs(1);
/// Shortened timeout: long enough for the engine to ask another node when one hangs.
const SHORTENED: Duration = Duration::from_millis(500);
/// How long timeouts stay shortened after an unanswered call with the normal one. Unanswered shortened calls do not prolong
/// it: a cluster that is only slow would stay there for ever.
const SHORTENED_FOR: Duration = Duration::from_secs(10);

/// The timeout of calls that can be downgraded, per gateway.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveTimeout {
    /// End of the shortened period, in microseconds of the monotonic clock.
    shortened_until: AtomicU64,
}

impl AdaptiveTimeout {
    /// The timeout of a call that starts now.
    pub(crate) fn current(&self, now: Duration) -> Duration {
        if as_micros(now) < self.shortened_until.load(Ordering::Relaxed) { SHORTENED } else { NORMAL }
    }

    /// Notes a call that got no answer within its timeout.
    pub(crate) fn note_unanswered(&self, now: Duration) {
        if self.current(now) == NORMAL {
            self.shortened_until.fetch_max(as_micros(now + SHORTENED_FOR), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_call_without_an_answer_costs_a_second_and_the_next_ones_a_fraction() {
        let (timeout, at) = (AdaptiveTimeout::default(), Duration::from_secs);
        assert_eq!(timeout.current(at(5)), NORMAL);
        timeout.note_unanswered(at(5));
        assert_eq!(timeout.current(at(14)), SHORTENED);
        timeout.note_unanswered(at(14));
        assert_eq!(timeout.current(at(15)), NORMAL, "an unanswered shortened call prolongs nothing");
    }
}
