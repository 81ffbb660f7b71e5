//! Hybrid clocks: the wall clock, but never twice the same and never behind what was seen.
//!
//! On one machine the clock's high-water mark is stored ahead of use, so a restart with the wall clock set back starts above
//! every clock issued before. Where several gateways share an engine there is no mark: the engine's own clock is what theirs
//! are held against, and a gateway that was restarted is one more gateway to the others (decision 12). A clock counts as
//! issued before the write that carries it is sent, whatever becomes of that write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_model::causality::Clock;
use larder_model::rows::Micros;

/// How far ahead of the wall clock the mark is stored, in microseconds.
pub(crate) const MARK_AHEAD_MICROS: u64 = 10_000_000;
/// How far ahead of a clock that is ahead of the wall clock: little, or every quick restart would drive it on by the whole.
const MARK_STEP_MICROS: u64 = 1_000_000;

/// One gateway's clock.
#[derive(Debug)]
pub(crate) struct HybridClock {
    last: AtomicU64,
    mark: AtomicU64,
}

impl HybridClock {
    /// A clock that begins above `mark`, the stored high-water mark.
    pub(crate) fn above(mark: Clock) -> Self {
        Self { last: AtomicU64::new(mark), mark: AtomicU64::new(mark) }
    }

    /// A clock that needs no stored mark.
    pub(crate) fn unmarked() -> Self {
        Self { last: AtomicU64::new(0), mark: AtomicU64::new(Clock::MAX) }
    }

    /// The next clock, or `None` when it would be above the stored mark: store a higher one first.
    pub(crate) fn issue(&self, now: Micros) -> Option<Clock> {
        let mark = self.mark.load(Ordering::Acquire);
        let step = |last: u64| Some(now.max(last + 1)).filter(|next| *next <= mark);
        self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).ok().map(|last| now.max(last + 1))
    }

    /// The clock that would be issued next, not issuing it: only the simulation's broken twin writes with it.
    pub(crate) fn peek(&self, now: Micros) -> Clock {
        now.max(self.last.load(Ordering::Acquire) + 1)
    }

    /// Moves past `seen`, a clock that came with a context or a row.
    pub(crate) fn pass(&self, seen: Clock) {
        self.last.fetch_max(seen, Ordering::AcqRel);
    }

    /// The time by this clock.
    pub(crate) fn reading(&self, now: Micros) -> Clock {
        now.max(self.last.load(Ordering::Acquire))
    }

    /// The mark to store next.
    pub(crate) fn next_mark(&self, now: Micros) -> Clock {
        (now + MARK_AHEAD_MICROS).max(self.reading(now) + MARK_STEP_MICROS)
    }

    /// Whether the mark should be stored anew soon.
    pub(crate) fn mark_is_near(&self, now: Micros) -> bool {
        self.mark.load(Ordering::Acquire) < self.reading(now).saturating_add(MARK_AHEAD_MICROS / 2)
    }

    /// Notes that `mark` is stored.
    pub(crate) fn marked(&self, mark: Clock) {
        self.mark.fetch_max(mark, Ordering::AcqRel);
    }
}

/// A wall clock that goes on by so much more or less than the time that passed was set, in microseconds.
const JUMP_MICROS_MIN: u64 = 1_000_000;

/// Notices when the wall clock of this machine is set while the server runs.
#[derive(Debug)]
pub(crate) struct WallClockWatch {
    wall: Micros,
    passed: Duration,
}

impl WallClockWatch {
    /// The two clocks as they are now.
    pub(crate) fn new(wall: Micros, passed: Duration) -> Self {
        Self { wall, passed }
    }

    /// By how many microseconds the wall clock was set since the last look: ahead, or back when less than 0.
    pub(crate) fn look(&mut self, wall: Micros, passed: Duration) -> Option<i128> {
        let went = i128::from(wall) - i128::from(self.wall);
        let jump = went - passed.saturating_sub(self.passed).as_micros() as i128;
        *self = Self::new(wall, passed);
        (jump.unsigned_abs() >= u128::from(JUMP_MICROS_MIN)).then_some(jump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_is_set_is_noticed_once() {
        let second = Duration::from_secs(1);
        let mut watch = WallClockWatch::new(1_000_000, second);
        assert_eq!(watch.look(2_400_000, second * 2), None, "drift is no jump");
        assert_eq!(watch.look(33_400_000, second * 3), Some(30_000_000));
        assert_eq!(watch.look(34_400_000, second * 4), None);
        assert_eq!(watch.look(400_000, second * 5), Some(-35_000_000));
        assert_eq!(watch.look(1_400_000, second * 6), None);
    }

    #[test]
    fn quick_restarts_do_not_drive_the_clock_on() {
        let (now, mut mark) = (1_000_000_000, 0);
        for _ in 0..100 {
            let clock = HybridClock::above(mark);
            mark = clock.next_mark(now);
            clock.marked(mark);
            assert!(clock.issue(now).is_some());
        }
        assert!(mark <= now + MARK_AHEAD_MICROS + 100 * MARK_STEP_MICROS, "{mark}");
    }

    #[test]
    fn a_clock_without_mark_never_wants_one() {
        let clock = HybridClock::unmarked();
        assert_eq!(clock.issue(50), Some(50));
        assert!(!clock.mark_is_near(1 << 62));
        assert_eq!(clock.issue(1 << 62), Some(1 << 62));
    }

    #[test]
    fn clocks_are_never_issued_twice_and_never_fall_back() {
        let clock = HybridClock::above(100);
        assert_eq!(clock.issue(50), None, "nothing is issued above the mark");
        clock.marked(1000);
        assert_eq!(clock.issue(50), Some(101));
        assert_eq!(clock.issue(200), Some(200));
        assert_eq!(clock.issue(200), Some(201));
        clock.pass(300);
        assert_eq!(clock.issue(200), Some(301));
        assert_eq!(clock.issue(1001), None);
    }
}
