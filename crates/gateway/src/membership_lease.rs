//! The membership lease: until when the other gateways wait for this one.
//!
//! ```text
//! heartbeat ──9 s──┐       heartbeat ──9 s──┐
//!       heartbeat ──9 s──┐  lapsed          │
//! ├── one span ──────────┤        ├── the next span: the catalogue is checked anew in it
//! ```
//! A gateway answers a change of the catalogue once every live heartbeat advertises it. A gateway whose heartbeats fail while its
//! reads succeed would rely on a catalogue that the others no longer wait for. So a write to a bucket needs a live heartbeat
//! from its check of the catalogue to its commit [invariant 81].

use std::time::Duration;

use parking_lot::Mutex;

/// A lease ends this much before its heartbeat: the clocks of the engine's nodes may differ, and the answer took time.
const MARGIN: Duration = Duration::from_secs(1);

/// The lease of one gateway, in its monotonic time.
#[derive(Debug, Default)]
pub(crate) struct MembershipLease(Mutex<Span>);

/// Heartbeats that followed each other without a gap.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    /// When the first of them was acknowledged.
    since: Duration,
    /// When the last of them expires at the earliest.
    until: Duration,
}

impl MembershipLease {
    /// Extends the lease by a heartbeat that lives for `lifetime`, was begun at `begun` and acknowledged at `acknowledged`.
    pub(crate) fn extend(&self, begun: Duration, acknowledged: Duration, lifetime: Duration) {
        let mut span = self.0.lock();
        if acknowledged >= span.until {
            span.since = acknowledged;
        }
        span.until = span.until.max(begun + lifetime.saturating_sub(MARGIN));
    }

    /// Whether the last heartbeat may have expired.
    pub(crate) fn has_lapsed(&self, now: Duration) -> bool {
        now >= self.0.lock().until
    }

    /// Until when a catalogue whose check began at `checked` may be relied on; `None` when it may not be.
    pub(crate) fn covers(&self, checked: Duration, now: Duration) -> Option<Duration> {
        let Span { since, until } = *self.0.lock();
        (checked >= since && now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    #[test]
    fn a_check_from_before_a_gap_is_not_relied_on_after_it() {
        let (lease, at) = (MembershipLease::default(), Duration::from_secs);
        lease.extend(at(10), at(11), LIFETIME);
        assert_eq!(lease.covers(at(10), at(12)), None, "the check began before the first heartbeat was there");
        assert_eq!(lease.covers(at(11), at(12)), Some(at(19)));
        lease.extend(at(17), at(18), LIFETIME);
        assert_eq!(lease.covers(at(11), at(25)), Some(at(26)), "heartbeats without a gap are one span");
        assert!(!lease.has_lapsed(at(25)) && lease.has_lapsed(at(26)));
        lease.extend(at(27), at(28), LIFETIME);
        assert_eq!(lease.covers(at(25), at(29)), None);
        assert_eq!(lease.covers(at(28), at(29)), Some(at(36)));
    }
}
