//! Finds memtables that hold much memory and have stopped growing.

use std::time::Duration;

/// Time between two looks at the memtables.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A memtable below this part of its full size may rest: a table of its own would cost more than its memory.
const PART_KEPT: u64 = 4;
/// A memtable that gained less than this part of its full size between two looks has stopped growing. Heartbeats of the gateway
/// write a few rows in any case.
const PART_GROWN: u64 = 64;

/// The sizes of the memtables at the last look.
#[derive(Debug, Default)]
pub(crate) struct QuietMemtables {
    looked: Duration,
    bytes: [u64; 3],
}

impl QuietMemtables {
    /// Which memtables of these sizes are to be sealed; `full` is the size of a full one, all in bytes. None between two looks.
    pub(crate) fn due(&mut self, now: Duration, bytes: [u64; 3], full: u64) -> [bool; 3] {
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return [false; 3];
        }
        self.looked = now;
        let before = std::mem::replace(&mut self.bytes, bytes);
        // A smaller one than before was sealed in between: it is a new one, which grows.
        let rests = |now: u64, before: u64| now >= before && now - before < full / PART_GROWN;
        std::array::from_fn(|tree| bytes[tree] >= full / PART_KEPT && rests(bytes[tree], before[tree]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = 64 << 20;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_memtable_that_rests_is_sealed_at_the_second_look() {
        let mut quiet = QuietMemtables::default();
        let large = [FULL / 2, FULL / 8, 0];
        assert_eq!(quiet.due(at(10), large, FULL), [false; 3], "it grew since the start");
        assert_eq!(quiet.due(at(15), large, FULL), [false; 3], "the looks are ten seconds apart");
        assert_eq!(quiet.due(at(20), large, FULL), [true, false, false], "the small one stays");
    }

    #[test]
    fn a_memtable_that_grows_is_left_until_it_is_full() {
        let mut quiet = QuietMemtables::default();
        for second in 1..6 {
            let bytes = [FULL / 4 + second * FULL / 32, 0, 0];
            assert_eq!(quiet.due(at(10 * second), bytes, FULL), [false; 3]);
        }
    }

    #[test]
    fn heartbeats_do_not_keep_a_memtable_awake() {
        let mut quiet = QuietMemtables::default();
        quiet.due(at(10), [FULL / 2, 0, 0], FULL);
        assert_eq!(quiet.due(at(20), [FULL / 2 + 4096, 0, 0], FULL), [true, false, false]);
    }

    #[test]
    fn a_new_memtable_of_the_size_of_the_old_one_is_no_resting_one() {
        let mut quiet = QuietMemtables::default();
        quiet.due(at(10), [FULL / 2, 0, 0], FULL);
        assert_eq!(quiet.due(at(20), [FULL / 3, 0, 0], FULL), [false; 3], "it was sealed in between");
    }
}
