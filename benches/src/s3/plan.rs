//! The amounts of a run.

use std::time::Duration;

use super::cells::VALUE_BYTES;
use crate::turns::Rounds;

/// The shortest cell of the largest values: in a shorter one perhaps no operation ends.
const LARGE_LENGTH_MIN: Duration = Duration::from_secs(3);

/// The amounts of a run.
#[derive(Debug, Clone)]
pub(crate) struct S3Plan {
    /// The length of a cell of small values.
    pub(crate) length: Duration,
    /// The rounds of the comparison with the bare server.
    pub(crate) rounds: Rounds,
    /// Whether the loads are small.
    pub(crate) is_quick: bool,
}

impl S3Plan {
    /// The plan of a full or quick run, with this length of a cell if given.
    pub(crate) fn new(is_quick: bool, seconds: Option<u64>) -> Self {
        let length = Duration::from_secs(seconds.unwrap_or(if is_quick { 1 } else { 5 }));
        let rounds = Rounds { count: if is_quick { 2 } else { 5 }, length: length.max(LARGE_LENGTH_MIN) };
        Self { length, rounds, is_quick }
    }

    /// The length of a cell of this value size.
    pub(crate) fn length(&self, value_bytes: usize) -> Duration {
        if value_bytes == VALUE_BYTES[2] { self.length.max(LARGE_LENGTH_MIN) } else { self.length }
    }

    /// The number of loaded keys of this value size.
    pub(crate) fn loaded(&self, value_bytes: usize) -> u64 {
        let counts = if self.is_quick { [4_000, 64, 4] } else { [10_000, 256, 8] };
        VALUE_BYTES.iter().zip(counts).find(|(bytes, _)| **bytes == value_bytes).map_or(1, |(_, count)| count)
    }

    /// The least keys of this value size for a measurement of deletes.
    pub(crate) fn deleted_min(&self, value_bytes: usize) -> u64 {
        let counts = if self.is_quick { [1_600, 160, 16] } else { [16_000, 640, 16] };
        VALUE_BYTES.iter().zip(counts).find(|(bytes, _)| **bytes == value_bytes).map_or(1, |(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_smallest_keys_is_always_full() {
        for is_quick in [true, false] {
            let plan = S3Plan::new(is_quick, None);
            assert!(plan.loaded(VALUE_BYTES[0]) / 2 > super::super::driver::PAGE_MAX);
        }
    }

    #[test]
    fn cells_of_large_values_are_long_enough() {
        let plan = S3Plan::new(true, None);
        assert_eq!(plan.length(VALUE_BYTES[0]), Duration::from_secs(1));
        assert_eq!(plan.length(VALUE_BYTES[2]), LARGE_LENGTH_MIN);
        assert_eq!(S3Plan::new(true, Some(9)).length(VALUE_BYTES[2]), Duration::from_secs(9));
    }
}
