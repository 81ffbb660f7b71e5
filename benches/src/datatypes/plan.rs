//! The amounts of a run.

use std::time::Duration;

use crate::common_args::CommonArgs;
use crate::numbered_work::CONNECTIONS;
use crate::turns::Rounds;

/// The amounts of a run.
#[derive(Debug, Clone)]
pub(super) struct DatatypesPlan {
    /// The rounds of the comparisons.
    pub(super) rounds: Rounds,
    /// Elements of the sets, ascending.
    pub(super) set_sizes: [usize; 4],
    /// Adds, and removals, of a turn of each size.
    pub(super) edits: u64,
    /// Fields of the maps, ascending.
    pub(super) map_sizes: [usize; 2],
    /// Distinct elements of the HyperLogLogs, ascending.
    pub(super) distinct: [u64; 3],
    /// HyperLogLogs of each number of elements.
    pub(super) sketches: u64,
    /// Whole fetches of the largest set.
    pub(super) fetches: u64,
    /// How long the data folder keeps its size before it counts as compacted, and the longest wait for that.
    pub(super) settled: (Duration, Duration),
    /// The pause after which a server counts as idle.
    pub(super) idle: Duration,
}

impl DatatypesPlan {
    /// The plan of a full or quick run.
    pub(super) fn new(args: &CommonArgs) -> Self {
        Self::of(args.quick, args.seconds)
    }

    fn of(quick: bool, seconds: Option<u64>) -> Self {
        let milliseconds = seconds.map_or(if quick { 300 } else { 2_000 }, |seconds| seconds * 1_000);
        let seconds = |quick_seconds, full| Duration::from_secs(if quick { quick_seconds } else { full });
        Self {
            rounds: Rounds { count: if quick { 1 } else { 5 }, length: Duration::from_millis(milliseconds) },
            set_sizes: if quick { [10, 100, 1_000, 10_000] } else { [10, 1_000, 100_000, 1_000_000] },
            edits: if quick { 160 } else { 20_000 },
            map_sizes: if quick { [10, 1_000] } else { [10, 10_000] },
            distinct: if quick { [100, 1_000, 10_000] } else { [100, 10_000, 1_000_000] },
            sketches: if quick { 4 } else { 8 },
            fetches: if quick { 2 } else { 5 },
            settled: (seconds(1, 25), seconds(3, 180)),
            idle: seconds(1, 5),
        }
    }

    /// Adds of all rounds, and removals, to sets of one size.
    pub(super) fn all_edits(&self) -> u64 {
        self.edits * self.rounds.count
    }

    /// Sets of this size: so many that all adds, and all removals, change a tenth of each at most. So each size holds about as
    /// many elements in all, and the engine as many rows. Of each size but the largest each connection has a set of its own.
    pub(super) fn sets(&self, size: usize) -> u64 {
        let least = if size == self.set_sizes[3] { 1 } else { CONNECTIONS as u64 };
        (self.all_edits() * 10).div_ceil(size as u64).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_change_a_tenth_of_each_set_at_most() {
        for quick in [false, true] {
            let plan = DatatypesPlan::of(quick, None);
            for size in plan.set_sizes {
                let per_set = plan.all_edits().div_ceil(plan.sets(size));
                assert!(per_set * 10 <= size as u64, "{per_set} edits of a set of {size}");
            }
            assert_eq!(plan.edits % CONNECTIONS as u64, 0, "each connection has as many");
            let [smaller @ .., largest] = plan.set_sizes;
            assert!(
                smaller.iter().all(|size| plan.sets(*size) >= CONNECTIONS as u64),
                "no two connections share a set"
            );
            assert_eq!(plan.sets(largest), 1);
        }
    }
}
