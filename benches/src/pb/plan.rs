//! The amounts of a run.

use std::time::Duration;

use super::run::PbBenchArgs;
use crate::cells::CONNECTIONS;
use crate::turns::Rounds;

/// The amounts of a run.
#[derive(Debug, Clone)]
pub(super) struct PbPlan {
    /// The rounds of the comparisons.
    pub(super) rounds: Rounds,
    /// The rounds of the comparison of large bodies.
    pub(super) large_rounds: Rounds,
    /// The connections of the cells.
    pub(super) connections: Vec<usize>,
    /// The keys that reads choose from.
    pub(super) keys: u64,
    /// The keys with large bodies.
    pub(super) large_keys: u64,
    /// The puts before memory is measured.
    pub(super) puts: u64,
    /// The pause between these puts and the measurement of memory.
    pub(super) idle: Duration,
    /// The length of the load while tables are compacted.
    pub(super) tail: Duration,
    /// The bytes of the values that are overwritten at random are divided by this.
    pub(super) churn_part: u64,
    /// The length of these overwrites, for each size of a value, paced and again without a pause.
    pub(super) churn: Duration,
}

impl PbPlan {
    /// The plan of a full or quick run.
    pub(super) fn new(options: &PbBenchArgs) -> Self {
        let (quick, args) = (options.args.quick, &options.args);
        let milliseconds = args.seconds.map_or(if quick { 500 } else { 2_000 }, |seconds| seconds * 1_000);
        let length = Duration::from_millis(milliseconds);
        let seconds = |quick_seconds, full| Duration::from_secs(if quick { quick_seconds } else { full });
        Self {
            rounds: Rounds { count: if quick { 2 } else { 5 }, length },
            large_rounds: Rounds { count: if quick { 1 } else { 5 }, length: length.max(seconds(1, 3)) },
            connections: if quick { vec![CONNECTIONS[2]] } else { CONNECTIONS.to_vec() },
            keys: if quick { 2_000 } else { 10_000 },
            large_keys: if quick { 2 } else { 8 },
            puts: args.keys.unwrap_or(if quick { 100_000 } else { 900_000 }),
            idle: seconds(2, 60),
            tail: seconds(8, 60),
            churn_part: if quick { 10 } else { 1 },
            churn: args.seconds.map_or(seconds(8, 600), Duration::from_secs),
        }
    }
}
