//! The buckets that a gateway has listed: a write adds the row of its bucket unless it is known to exist.
//!
//! The shards of a key in an index or in the `$key` view, one in each epoch of its bucket: additions go to the newest epoch,
//! removals to every one.

use std::collections::HashSet;

use bytes::Bytes;
use larder_core::types::CatalogueCopy;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::{BucketEpochs, BucketRow, Change, PartitionChanges, Row, Timestamp};
use larder_store::Partition;
use parking_lot::RwLock;

use crate::Kv;

/// Most bytes of remembered bucket names; above it all are forgotten.
const KNOWN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a remembered bucket beside its names.
const KNOWN_OVERHEAD_BYTES: usize = 128;

/// Every gateway writes the same row at this stamp, below every clock.
const ROW_STAMP: Timestamp = Timestamp(1);

/// Buckets whose row this gateway has written: a cache that only saves writes.
#[derive(Debug, Default)]
pub(crate) struct KnownBuckets {
    known: RwLock<RememberedBuckets>,
}

#[derive(Debug, Default)]
struct RememberedBuckets {
    buckets: HashSet<BucketAddress>,
    bytes: usize,
}

impl KnownBuckets {
    /// The change that lists the bucket, unless its row is known to exist.
    pub(crate) fn bucket_row_change(&self, bucket: &BucketAddress) -> Option<Change> {
        if self.known.read().buckets.contains(bucket) {
            return None;
        }
        let value = BucketRow.encode();
        Some(Change::Put(Row { name: bucket.bucket.clone(), value, stamp: ROW_STAMP, expires: None }))
    }

    /// Notes that the row exists.
    pub(crate) fn note_written(&self, bucket: &BucketAddress) {
        let mut known = self.known.write();
        // Bound: forgetting costs each bucket one more write of its row.
        if known.bytes >= KNOWN_BYTES_MAX {
            *known = RememberedBuckets::default();
        }
        // A copy: the names of a request may be views of a buffer that is larger than they are.
        let copy = |name: &Bytes| Bytes::copy_from_slice(name);
        let bucket = BucketAddress { bucket_type: copy(&bucket.bucket_type), bucket: copy(&bucket.bucket) };
        let bytes = bucket.bucket_type.len() + bucket.bucket.len() + KNOWN_OVERHEAD_BYTES;
        if known.buckets.insert(bucket) {
            known.bytes += bytes;
        }
    }
}

impl Kv {
    /// The shards of the `$key` view that have, or may have, an object's entries, the oldest epoch first.
    pub(crate) fn key_view_shards(&self, address: &Address) -> Vec<Partition> {
        let (copies, epochs) = (self.catalogue.copies(&address.bucket), self.catalogue.epochs(&address.bucket));
        let shard = |epoch, shard| Partition::keys(&address.bucket, epoch, shard, copies);
        epochs.key_shards(&address.key).map(|epoch_shard| shard(epoch_shard.epoch, epoch_shard.shard)).collect()
    }
}

/// Changes to the `$key` entries of an object, by shard.
pub(crate) fn key_view_changes(
    catalogue: &CatalogueCopy,
    address: &Address,
    changes: Vec<Change>,
    fresh: bool,
) -> Vec<PartitionChanges> {
    if changes.is_empty() {
        return Vec::new();
    }
    let (copies, epochs) = (catalogue.copies(&address.bucket), catalogue.epochs(&address.bucket));
    let shard = |epoch, shard| Partition::keys(&address.bucket, epoch, shard, copies);
    key_shards(epochs, &address.key, changes, fresh, shard)
}

/// Spreads changes to the rows of a key in one index over its epochs.
pub(super) fn key_shards(
    epochs: BucketEpochs,
    key: &[u8],
    changes: Vec<Change>,
    fresh: bool,
    shard: impl Fn(u8, u8) -> Partition,
) -> Vec<PartitionChanges> {
    if epochs.is_single() {
        let newest = epochs.newest_shard(key);
        return vec![PartitionChanges { fresh, ..PartitionChanges::new(shard(newest.epoch, newest.shard), changes) }];
    }
    let in_epoch = |epoch_shard: larder_rows::EpochShard| {
        // Race: a row may be in any epoch, so a removal goes to all that readers merge; a gateway one stage ahead writes to one
        // that this one knows [invariant 132].
        let is_due = |change: &&Change| epochs.is_written(epoch_shard.epoch) || !matches!(change, Change::Put(_));
        let changes: Vec<Change> = changes.iter().filter(is_due).cloned().collect();
        PartitionChanges { fresh, ..PartitionChanges::new(shard(epoch_shard.epoch, epoch_shard.shard), changes) }
    };
    epochs.key_shards(key).map(in_epoch).filter(|part| !part.changes.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use larder_rows::Row;
    use larder_rows::Timestamp;
    use larder_rows::address::BucketAddress;

    use super::*;

    #[test]
    fn rows_are_added_in_written_epochs_and_removed_in_all() {
        let bucket = BucketAddress::new("t".into(), "b".into()).unwrap();
        let put = Row { name: "new".into(), value: "".into(), stamp: Timestamp(2), expires: None };
        let changes = vec![Change::Put(put), Change::Remove { name: "old".into(), stamp: Timestamp(1) }];
        let spread = |epochs: BucketEpochs| {
            let shard = |epoch, shard| Partition::keys(&bucket, epoch, shard, 3);
            let parts = key_shards(epochs, b"k", changes.clone(), true, shard);
            let in_place = |part: &PartitionChanges, epoch_shard: larder_rows::EpochShard| {
                part.partition == shard(epoch_shard.epoch, epoch_shard.shard)
            };
            assert!(parts.iter().zip(epochs.key_shards(b"k")).all(|(part, epoch_shard)| in_place(part, epoch_shard)));
            parts.iter().map(|part| part.changes.len()).collect::<Vec<_>>()
        };
        let single_epoch = BucketEpochs::ONE;
        let known = single_epoch.with_new_epoch().unwrap();
        let both = known.in_next_stage().unwrap();
        let open = both.in_next_stage().unwrap();
        assert_eq!([single_epoch, known, both, open].map(spread), [vec![2], vec![2, 1], vec![2, 2], vec![1, 2]]);
    }
}
