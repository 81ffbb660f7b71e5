//! How much the indexes of buckets may have grown since their shards were last counted: a sample of the writes, in bounded memory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use larder_core::IndexSplitting;
use larder_rows::Change;
use larder_rows::address::BucketAddress;
use larder_rows::hash::fast64;
use larder_rows::limits::SHARD_ROWS_MAX;
use larder_store::EngineLimits;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::shard_size::ShardSize;
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
