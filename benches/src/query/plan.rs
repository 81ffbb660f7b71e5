//! The amounts of a run.

use std::time::Duration;

use crate::common_args::CommonArgs;
use crate::turns::Rounds;

/// The amounts of a run.
#[derive(Debug, Clone)]
pub(super) struct QueryBenchPlan {
    /// The rounds of cells that last a time.
    pub(super) rounds: Rounds,
    /// Objects that are loaded for the index and for the jobs.
    pub(super) objects: u64,
    /// Results of the ranges, ascending; the largest is of all objects.
    pub(super) ranges: [usize; 3],
    /// Queries of a turn of the largest range.
    pub(super) large_queries: u64,
    /// Keys that are overwritten.
    pub(super) overwritten: u64,
    /// Turns of each job.
    pub(super) jobs: u64,
}

impl QueryBenchPlan {
    /// The plan of a full or quick run.
    pub(super) fn new(args: &CommonArgs) -> Self {
        Self::of(args.quick, args.seconds)
    }

    fn of(quick: bool, seconds: Option<u64>) -> Self {
        let milliseconds = seconds.map_or(if quick { 300 } else { 1_500 }, |seconds| seconds * 1_000);
        let objects = if quick { 2_000 } else { 100_000 };
        Self {
            rounds: Rounds { count: if quick { 1 } else { 5 }, length: Duration::from_millis(milliseconds) },
            objects,
            ranges: if quick { [10, 100, 2_000] } else { [10, 1_000, 100_000] },
            large_queries: if quick { 2 } else { 3 },
            overwritten: if quick { 1_000 } else { 10_000 },
            jobs: if quick { 1 } else { 3 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_is_of_all_objects() {
        for quick in [false, true] {
            let plan = QueryBenchPlan::of(quick, None);
            assert_eq!(plan.ranges[2] as u64, plan.objects);
            assert!(plan.ranges.is_sorted());
        }
        assert_eq!(QueryBenchPlan::of(false, None).jobs, 3, "a median of three turns");
    }
}
