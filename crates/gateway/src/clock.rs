//! Hybrid logical clocks: wall time, but every clock is unique and above every clock seen.
//!
//! On one machine a high-water mark of the clock is stored ahead of use, so a restart with the wall clock set back begins above
//! every clock issued before. Gateways that share an engine store no mark: their clocks are checked against the engine's, and a
//! restarted gateway is a new actor to the others (decision 12). A clock is issued before its write is sent, and stays issued
//! even if the write fails.

use larder_model::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How far ahead of the wall clock the mark is stored, in microseconds.
pub(crate) const MARK_AHEAD_MICROS: u64 = 10_000_000;
/// How far ahead of a clock that already leads the wall clock: short, so that quick restarts do not drive it far.
const MARK_STEP_MICROS: u64 = 1_000_000;

/// One gateway's clock.
#[derive(Debug)]
pub(crate) struct HybridClock {
    last: AtomicU64,
    mark: AtomicU64,
}

impl HybridClock {
    /// A clock that begins above `mark`, the stored high-water mark.
    pub(crate) fn above(mark: Timestamp) -> Self {
        Self { last: AtomicU64::new(mark.0), mark: AtomicU64::new(mark.0) }
    }

    /// A clock that needs no stored mark.
    pub(crate) fn unmarked() -> Self {
        Self { last: AtomicU64::new(0), mark: AtomicU64::new(Timestamp::MAX.0) }
    }

    /// Issues the next clock; `None` when it would exceed the stored mark: store a higher mark first.
    pub(crate) fn issue(&self, now: Timestamp) -> Option<Timestamp> {
        let mark = self.mark.load(Ordering::Acquire);
        let next = |last: u64| now.0.max(last + 1);
        let step = |last| Some(next(last)).filter(|&next| next <= mark);
        self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).ok().map(|last| Timestamp(next(last)))
    }

    /// Observes a clock from a context or a row: later clocks are above it.
    pub(crate) fn observe(&self, seen: Timestamp) {
        self.last.fetch_max(seen.0, Ordering::AcqRel);
    }

    /// The current time of this clock.
    pub(crate) fn current(&self, now: Timestamp) -> Timestamp {
        now.max(Timestamp(self.last.load(Ordering::Acquire)))
    }

    /// The mark to store next.
    pub(crate) fn next_mark(&self, now: Timestamp) -> Timestamp {
        (now + MARK_AHEAD_MICROS).max(self.current(now) + MARK_STEP_MICROS)
    }

    /// Whether a new mark should be stored soon.
    pub(crate) fn is_mark_near(&self, now: Timestamp) -> bool {
        Timestamp(self.mark.load(Ordering::Acquire)) < self.current(now).saturating_add(MARK_AHEAD_MICROS / 2)
    }

    /// Notes that `mark` is stored.
    pub(crate) fn note_stored_mark(&self, mark: Timestamp) {
        self.mark.fetch_max(mark.0, Ordering::AcqRel);
    }
}

/// Difference between wall clock and elapsed time, in microseconds, that counts as a jump.
const JUMP_MICROS_MIN: u64 = 1_000_000;

/// Detects jumps of this machine's wall clock.
#[derive(Debug)]
pub(crate) struct WallClockWatch {
    wall: Timestamp,
    passed: Duration,
}

impl WallClockWatch {
    /// Starts with the current readings of both clocks.
    pub(crate) fn new(wall: Timestamp, passed: Duration) -> Self {
        Self { wall, passed }
    }

    /// The jump of the wall clock since the last check, in microseconds; negative: back.
    pub(crate) fn check(&mut self, wall: Timestamp, passed: Duration) -> Option<i128> {
        let went = i128::from(wall.0) - i128::from(self.wall.0);
        let jump = went - passed.saturating_sub(self.passed).as_micros() as i128;
        *self = Self::new(wall, passed);
        (jump.unsigned_abs() >= u128::from(JUMP_MICROS_MIN)).then_some(jump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_is_reported_once() {
        let second = Duration::from_secs(1);
        let mut watch = WallClockWatch::new(Timestamp(1_000_000), second);
        assert_eq!(watch.check(Timestamp(2_400_000), second * 2), None, "drift is no jump");
        assert_eq!(watch.check(Timestamp(33_400_000), second * 3), Some(30_000_000));
        assert_eq!(watch.check(Timestamp(34_400_000), second * 4), None);
        assert_eq!(watch.check(Timestamp(400_000), second * 5), Some(-35_000_000));
        assert_eq!(watch.check(Timestamp(1_400_000), second * 6), None);
    }

    #[test]
    fn quick_restarts_do_not_drive_the_clock_ahead() {
        let (now, mut mark) = (1_000_000_000, 0);
        for _ in 0..100 {
            let clock = HybridClock::above(Timestamp(mark));
            mark = (clock.next_mark(Timestamp(now))).0;
            clock.note_stored_mark(Timestamp(mark));
            assert!(clock.issue(Timestamp(now)).is_some());
        }
        assert!(mark <= now + MARK_AHEAD_MICROS + 100 * MARK_STEP_MICROS, "{mark}");
    }

    #[test]
    fn a_clock_without_mark_never_asks_for_one() {
        let clock = HybridClock::unmarked();
        assert_eq!(clock.issue(Timestamp(50)), Some(Timestamp(50)));
        assert!(!clock.is_mark_near(Timestamp(1 << 62)));
        assert_eq!(clock.issue(Timestamp(1 << 62)), Some(Timestamp(1 << 62)));
    }

    #[test]
    fn clocks_are_never_issued_twice_and_never_fall_back() {
        let clock = HybridClock::above(Timestamp(100));
        assert_eq!(clock.issue(Timestamp(50)), None, "nothing is issued above the mark");
        clock.note_stored_mark(Timestamp(1000));
        assert_eq!(clock.issue(Timestamp(50)), Some(Timestamp(101)));
        assert_eq!(clock.issue(Timestamp(200)), Some(Timestamp(200)));
        assert_eq!(clock.issue(Timestamp(200)), Some(Timestamp(201)));
        clock.observe(Timestamp(300));
        assert_eq!(clock.issue(Timestamp(200)), Some(Timestamp(301)));
        assert_eq!(clock.issue(Timestamp(1001)), None);
    }
}
