//! Finds memtables that have stopped growing.

use std::time::Duration;

use crate::tree_id::PerTree;

/// Time between two looks at the memtables.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A memtable below this part of its full size stays while it rests: a table of its own would cost more than its memory.
const PART_KEPT: u64 = 4;
/// A memtable that gained less than this part of its full size between two looks has stopped growing. Heartbeats of the gateway
/// write a few rows in any case.
const PART_GROWN: u64 = 64;

/// The sizes of the memtables at the last look.
#[derive(Debug, Default)]
pub(crate) struct QuietMemtables {
    looked: Duration,
    bytes: PerTree<u64>,
}

impl QuietMemtables {
    /// Which memtables of these sizes have stopped growing; `full` is the size of a full one, all in bytes. `None` between two looks.
    pub(crate) fn look(&mut self, now: Duration, bytes: PerTree<u64>, full: u64) -> Option<PerTree<bool>> {
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return None;
        }
        self.looked = now;
        let before = std::mem::replace(&mut self.bytes, bytes);
        // A smaller one than before was sealed in between: it is a new one, which grows.
        let rests = |now: u64, before: u64| now >= before && now - before < full / PART_GROWN;
        Some(std::array::from_fn(|tree| rests(bytes[tree], before[tree])))
    }

    /// Whether a memtable of this size that rests holds much memory.
    pub(crate) fn is_large(bytes: u64, full: u64) -> bool {
        bytes >= full / PART_KEPT
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
    fn a_memtable_rests_at_the_second_look() {
        let mut quiet = QuietMemtables::default();
        let large = [FULL / 2, FULL / 8, 0, 0];
        assert_eq!(quiet.look(at(10), large, FULL), Some([false, false, true, true]), "it grew since the start");
        assert_eq!(quiet.look(at(15), large, FULL), None, "the looks are ten seconds apart");
        assert_eq!(quiet.look(at(20), large, FULL), Some([true; 4]));
        assert_eq!(
            large.map(|bytes| QuietMemtables::is_large(bytes, FULL)),
            [true, false, false, false],
            "the small one stays"
        );
    }

    #[test]
    fn a_memtable_that_grows_is_left_until_it_is_full() {
        let mut quiet = QuietMemtables::default();
        for second in 1..6 {
            let bytes = [FULL / 4 + second * FULL / 32, 0, 0, 0];
            assert_eq!(quiet.look(at(10 * second), bytes, FULL).map(|rests| rests[0]), Some(false));
        }
    }

    #[test]
    fn heartbeats_do_not_keep_a_memtable_awake() {
        let mut quiet = QuietMemtables::default();
        quiet.look(at(10), [FULL / 2, 0, 0, 0], FULL);
        assert_eq!(quiet.look(at(20), [FULL / 2 + 4096, 0, 0, 0], FULL), Some([true; 4]));
    }

    #[test]
    fn a_new_memtable_of_the_size_of_the_old_one_is_no_resting_one() {
        let mut quiet = QuietMemtables::default();
        quiet.look(at(10), [FULL / 2, 0, 0, 0], FULL);
        assert_eq!(
            quiet.look(at(20), [FULL / 3, 0, 0, 0], FULL),
            Some([false, true, true, true]),
            "it was sealed in between"
        );
    }
}
