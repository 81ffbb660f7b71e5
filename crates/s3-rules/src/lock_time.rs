//! The time by which locks end.
//!
//! A lock must not end because the clock of a machine is wrong. So it ends by a time of its own, which goes forward with the
//! machine's clock and never back, and never faster than [`CATCH_UP`] times real time, which a monotonic clock measures: after a
//! standstill it lags for a while, and a clock that is set ahead moves it by minutes, not by years.

use std::time::Duration;

use larder_rows::Timestamp;

/// How much faster than real time the lock time catches up with the machine's clock.
pub const CATCH_UP: u64 = 60;
/// Most that one step catches up, in microseconds.
const STEP_MICROS_MAX: u64 = 3_600_000_000;

/// The time by which locks end, at a moment of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTime {
    /// The time.
    pub time: Timestamp,
    /// The monotonic time at which it last went forward.
    pub at: Duration,
}

impl LockTime {
    /// This time after the machine's clock shows `wall`, at a later monotonic time.
    #[must_use]
    pub fn advanced(self, wall: Timestamp, monotonic: Duration) -> Self {
        if wall <= self.time {
            return self;
        }
        let passed = self.passed(monotonic);
        let ahead = passed.saturating_mul(CATCH_UP).min(STEP_MICROS_MAX);
        let latest = self.time.saturating_add(passed).saturating_add(ahead);
        Self { time: wall.min(latest), at: monotonic }
    }

    /// This time or one that another gateway has stored, whichever is later.
    #[must_use]
    pub fn raised_to(self, stored: Timestamp, monotonic: Duration) -> Self {
        if stored > self.time { Self { time: stored, at: monotonic } } else { self }
    }

    /// The time at which a lock that begins now begins: no clock that was set back makes it earlier.
    #[must_use]
    pub fn beginning(self, wall: Timestamp, monotonic: Duration) -> Timestamp {
        wall.max(self.time.saturating_add(self.passed(monotonic)))
    }

    fn passed(self, monotonic: Duration) -> u64 {
        u64::try_from(monotonic.saturating_sub(self.at).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;

    fn at(time: u64, seconds: u64) -> LockTime {
        LockTime { time: Timestamp(time), at: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_clock_that_goes_right_is_followed() {
        let mut lock = at(DAY, 10);
        for second in 11..100 {
            lock = lock.advanced(Timestamp(DAY + (second - 10) * SECOND), Duration::from_secs(second));
            assert_eq!(lock, at(DAY + (second - 10) * SECOND, second));
        }
        let after_a_month = lock.advanced(Timestamp(DAY + 30 * DAY), Duration::from_secs(10 + 30 * 86_400));
        assert_eq!(after_a_month.time, Timestamp(31 * DAY), "however long no lock was looked at");
    }

    #[test]
    fn a_clock_that_is_set_ahead_frees_nothing_for_days() {
        let mut lock = at(DAY, 0);
        let year = Timestamp(366 * DAY);
        for second in 1..=3_600 {
            lock = lock.advanced(year, Duration::from_secs(second));
        }
        assert_eq!(lock.time, Timestamp(DAY + 3_600 * (CATCH_UP + 1) * SECOND));
        let idle = at(DAY, 0).advanced(year, Duration::from_secs(86_400));
        assert_eq!(idle.time, Timestamp(2 * DAY + STEP_MICROS_MAX), "a long pause allows no long jump");
    }

    #[test]
    fn a_clock_that_is_set_back_shortens_nothing() {
        let lock = at(10 * DAY, 5);
        let back = lock.advanced(Timestamp(DAY), Duration::from_secs(65));
        assert_eq!(back, lock);
        assert_eq!(back.beginning(Timestamp(DAY), Duration::from_secs(65)), Timestamp(10 * DAY + 60 * SECOND));
        assert_eq!(back.beginning(Timestamp(11 * DAY), Duration::from_secs(65)), Timestamp(11 * DAY));
    }

    proptest! {
        #[test]
        fn the_time_never_goes_back_and_never_beyond_the_machines(
            start in 0..10 * DAY,
            steps in proptest::collection::vec((0..20 * DAY, 0..10_000_u64), 1..50),
        ) {
            let (mut lock, mut monotonic, mut greatest) = (at(start, 0), Duration::ZERO, start);
            for (wall, seconds) in steps {
                monotonic += Duration::from_secs(seconds);
                greatest = greatest.max(wall);
                let next = lock.advanced(Timestamp(wall), monotonic);
                prop_assert!(next.time >= lock.time && next.time.0 <= greatest);
                prop_assert!(next.time.0 <= start + (CATCH_UP + 1) * monotonic.as_secs() * SECOND);
                prop_assert!(next.beginning(Timestamp(wall), monotonic) >= next.time);
                lock = next;
            }
        }
    }
}
