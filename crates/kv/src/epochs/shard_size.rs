//! The size of a shard as a count found it, and what follows from it.

use larder_rows::Row;
use larder_rows::limits::{SHARD_ROW_BYTES, SHARD_ROW_OVERHEAD};

/// A count comes again at the latest when an index may have gained so much of a full shard, divided by this.
const LEAST_SHARE: u64 = 16;

/// Rows of a shard, and the bytes that they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ShardSize {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl ShardSize {
    /// Adds a row.
    pub(super) fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.bytes += row.name.len() as u64 + SHARD_ROW_OVERHEAD;
    }

    /// Its usual rows: those that it has, or more where they are long.
    pub(super) fn usual_rows(self) -> u64 {
        self.rows.max(self.bytes / SHARD_ROW_BYTES)
    }

    /// Whether the shard has `shard_rows` usual rows.
    pub(super) fn is_full(self, shard_rows: u64) -> bool {
        self.usual_rows() >= shard_rows
    }

    /// The usual rows that the index may gain through one of `members` gateways until the next count: half of the room that it has
    /// in `shards` shards of this size, divided among them.
    pub(super) fn rows_until_next_count(self, shard_rows: u64, shards: u64, members: u64) -> u64 {
        let room = shard_rows.saturating_sub(self.usual_rows());
        let share = room.saturating_mul(shards) / (2 * members.max(1));
        share.max(shard_rows / LEAST_SHARE).max(1)
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::BucketEpochs;
    use larder_rows::limits::SHARD_ROWS_MAX;

    use super::*;

    /// Bytes that an index gains between the begin of a count and the first write to the new epoch alone: 10,000 rows of 64 bytes a
    /// second for a minute. The count takes half of it, with 1000 pages at 50 a second, and the stages less than the rest.
    const BYTES_WHILE_OPENING: u64 = 10_000 * 64 * 60;

    /// The largest partition of a bucket of so many keys, in bytes, with rows of `row_bytes`, written through `members` gateways.
    fn largest_partition(keys: u64, row_bytes: u64, members: u64) -> u64 {
        let (mut epochs, mut written, mut rows, mut largest) = (BucketEpochs::ONE, 0, 0, 0);
        while written < keys {
            let shards = u64::from(*epochs.counts().last().unwrap());
            let size = ShardSize { rows: rows / shards, bytes: rows / shards * row_bytes };
            let full = size.is_full(SHARD_ROWS_MAX);
            // Each gateway counts after its own share, and all of them may have written nearly that much.
            let more = match full {
                true => BYTES_WHILE_OPENING / row_bytes,
                false => {
                    let usual = size.rows_until_next_count(SHARD_ROWS_MAX, shards, members) * members;
                    usual * SHARD_ROW_BYTES / row_bytes.max(SHARD_ROW_BYTES)
                }
            };
            rows += more.min(keys - written);
            written += more;
            largest = largest.max(rows.div_ceil(shards) * row_bytes);
            if let Some(next) = epochs.with_new_epoch().filter(|_| full) {
                epochs = next.in_next_stage().unwrap().in_next_stage().unwrap();
                rows = 0;
            }
        }
        largest
    }

    /// Cassandra advises partitions below 100 MB. Bytes of a row: a `$key` entry of a key of 20 bytes has a name of 38 and 24 of
    /// stamp, flags and lengths; an index row has its term besides.
    #[test]
    fn ten_million_keys_make_no_partition_above_100_megabytes() {
        for row_bytes in [40, 62, 80, 150, 400, 1000] {
            for members in [1, 3, 8] {
                let largest = largest_partition(10_000_000, row_bytes, members);
                assert!(largest < 100_000_000, "{row_bytes} bytes, {members} gateways: {largest}");
            }
        }
        assert!(largest_partition(100_000_000, 62, 3) < 100_000_000);
        let unsplit = 10_000_000 / 4 * 62;
        assert!(unsplit > 100_000_000, "one epoch would not do");
    }

    #[test]
    fn the_next_count_comes_before_a_shard_is_full() {
        let empty = ShardSize::default();
        assert_eq!(empty.rows_until_next_count(1_000_000, 4, 1), 2_000_000);
        let half = ShardSize { rows: 500_000, bytes: 500_000 * 62 };
        assert_eq!(half.rows_until_next_count(1_000_000, 16, 2), 2_000_000);
        let wide = ShardSize { rows: 100_000, bytes: 100_000 * 320 };
        assert_eq!(wide.rows_until_next_count(1_000_000, 4, 1), 1_000_000, "as 500,000 usual ones");
        assert_eq!(wide.rows_until_next_count(1_000_000, 4, 100), 62_500);
        assert!(!wide.is_full(1_000_000) && ShardSize { rows: 200_000, bytes: 200_000 * 320 }.is_full(1_000_000));
    }
}
