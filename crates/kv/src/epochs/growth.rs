//! How much the indexes of buckets may have grown since their shards were last counted: a sample of the writes, in bounded memory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use larder_core::IndexSplitting;
use larder_rows::address::BucketAddress;
use larder_rows::hash::fast64;
use larder_rows::limits::{SHARD_ROW_BYTES, SHARD_ROW_OVERHEAD, SHARD_ROWS_MAX};
use larder_rows::{Change, Row};
use larder_store::EngineLimits;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::rules::causality::KeyWrite;

/// Most indexes that are watched; when there are more, all are forgotten, and each is counted again.
const WATCHED_MAX: usize = 1024;
/// Most indexes that wait for their count.
const DUE_MAX: usize = 64;
/// Of so many writes about one is looked at, where shards are large.
const SAMPLE: u64 = 64;
/// A sample is looked at for every so many rows of a full shard, at least.
const SAMPLES_PER_SHARD: u64 = 1024;

/// An index of a bucket; without a field its `$key` view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct IndexName {
    pub(super) bucket: BucketAddress,
    pub(super) field: Option<Bytes>,
}

/// Watches the growth of indexes.
#[derive(Debug)]
pub(crate) struct IndexGrowth {
    /// Rows of a full shard; `None`: shards are not split.
    shard_rows: Option<u64>,
    watched: Mutex<WatchedIndexes>,
    is_due: Notify,
}

#[derive(Debug, Default)]
struct WatchedIndexes {
    /// For each index the usual rows that it may gain until its next count.
    rows_left: HashMap<IndexName, u64>,
    due: VecDeque<IndexName>,
}

impl IndexGrowth {
    /// Watches nothing where shards are not split.
    pub(crate) fn new(splitting: IndexSplitting, engine: &EngineLimits) -> Self {
        let by_engine = if engine.large_partitions_burden { SHARD_ROWS_MAX } else { 0 };
        let shard_rows = Some(splitting.shard_rows.unwrap_or(by_engine)).filter(|rows| *rows > 0);
        Self { shard_rows, watched: Mutex::default(), is_due: Notify::new() }
    }

    /// Rows of a full shard; `None`: shards are not split.
    pub(super) fn shard_rows(&self) -> Option<u64> {
        self.shard_rows
    }

    /// Notes a write with its changes to one index.
    pub(crate) fn note(&self, bucket: &BucketAddress, field: Option<&Bytes>, write: &KeyWrite, changes: &[Change]) {
        let Some(shard_rows) = self.shard_rows else { return };
        let one_of = (shard_rows / SAMPLES_PER_SHARD).clamp(1, SAMPLE);
        // By a hash: buckets that are written in turn are sampled alike.
        if fast64(&[&write.clock.0.to_be_bytes()]).is_multiple_of(one_of) {
            self.note_rows(bucket, field, one_of * grown_rows(field, write, changes));
        }
    }

    /// Notes that an index may have gained so many rows.
    pub(crate) fn note_rows(&self, bucket: &BucketAddress, field: Option<&Bytes>, rows: u64) {
        if self.shard_rows.is_none() || rows == 0 {
            return;
        }
        // Copies: the names of a request may be views of a buffer that is larger than they are.
        let copy = |name: &Bytes| Bytes::copy_from_slice(name);
        let bucket = BucketAddress { bucket_type: copy(&bucket.bucket_type), bucket: copy(&bucket.bucket) };
        let index = IndexName { bucket, field: field.map(copy) };
        let mut watched = self.watched.lock();
        if watched.note(index, rows) {
            self.is_due.notify_one();
        }
    }

    /// Sets the rows that an index may gain until its next count.
    pub(super) fn set_rows_left(&self, index: &IndexName, rows: u64) {
        if let Some(left) = self.watched.lock().rows_left.get_mut(index) {
            *left = rows;
        }
    }

    /// Waits for an index that is due for a count.
    pub(super) async fn next_due(&self) -> IndexName {
        loop {
            if let Some(index) = self.watched.lock().due.pop_front() {
                return index;
            }
            self.is_due.notified().await;
        }
    }
}

impl WatchedIndexes {
    /// Notes the growth of an index; whether its count became due.
    fn note(&mut self, index: IndexName, rows: u64) -> bool {
        // Bound: forgetting costs each index one more count.
        if self.rows_left.len() >= WATCHED_MAX && !self.rows_left.contains_key(&index) {
            self.rows_left.clear();
        }
        let left = match self.rows_left.entry(index.clone()) {
            // The first sight of an index after a start: it may have grown before.
            Entry::Vacant(new) => new.insert(0),
            Entry::Occupied(known) => {
                let left = known.into_mut();
                *left = left.saturating_sub(rows);
                left
            }
        };
        if *left > 0 || self.due.len() >= DUE_MAX || self.due.contains(&index) {
            return false;
        }
        self.due.push_back(index);
        true
    }
}

/// Usual rows that an index may gain by a write: one for a key that its writer knew nothing of, one for each term that the replaced
/// versions did not have; more where rows are long.
fn grown_rows(field: Option<&Bytes>, write: &KeyWrite, changes: &[Change]) -> u64 {
    let mut added = ShardSize::default();
    for change in changes {
        if let Change::Put(row) = change {
            added.add(row);
        }
    }
    let replaced = match field {
        None => write.superseded.len(),
        Some(field) => {
            let terms = write.superseded_terms.iter().flat_map(|gone| &gone.terms);
            terms.filter(|term| term.field == field).count()
        }
    };
    let grown = added.rows.saturating_sub(replaced as u64);
    (added.usual_rows() * grown).checked_div(added.rows).unwrap_or_default()
}

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
    use super::*;

    fn growth(shard_rows: u64) -> IndexGrowth {
        let splitting = IndexSplitting { shard_rows: Some(shard_rows), ..IndexSplitting::default() };
        let engine = EngineLimits {
            inline_max: 0,
            batch_max: 0,
            nodes: 1,
            replicated: false,
            syncs: true,
            tombstones_slow_reads: false,
            large_partitions_burden: false,
        };
        IndexGrowth::new(splitting, &engine)
    }

    fn bucket(name: u64) -> BucketAddress {
        BucketAddress { bucket_type: "t".into(), bucket: name.to_string().into() }
    }

    fn due(growth: &IndexGrowth) -> Option<IndexName> {
        growth.watched.lock().due.pop_front()
    }

    #[test]
    fn an_index_is_due_at_first_sight_and_after_its_growth() {
        let growth = growth(100);
        growth.note_rows(&bucket(1), None, 1);
        let first = due(&growth).unwrap();
        assert_eq!((first.bucket.clone(), due(&growth)), (bucket(1), None));
        growth.set_rows_left(&first, 10);
        growth.note_rows(&bucket(1), None, 9);
        assert_eq!(due(&growth), None);
        growth.note_rows(&bucket(1), None, 1);
        assert_eq!(due(&growth), Some(first));
    }

    #[test]
    fn very_many_indexes_take_bounded_memory() {
        let growth = growth(100);
        for name in 0..10 * WATCHED_MAX as u64 {
            growth.note_rows(&bucket(name), Some(&"f_bin".into()), 1);
        }
        let watched = growth.watched.lock();
        assert!(watched.rows_left.len() <= WATCHED_MAX && watched.due.len() <= DUE_MAX);
    }

    #[test]
    fn without_a_bound_nothing_is_watched() {
        let growth = growth(0);
        growth.note_rows(&bucket(1), None, 1_000_000);
        assert!(growth.watched.lock().rows_left.is_empty());
    }
}

#[cfg(test)]
mod shard_size_tests {
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
