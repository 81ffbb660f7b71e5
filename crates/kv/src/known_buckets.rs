//! The buckets that a gateway has listed: a write adds the row of its bucket unless it is known to exist.

use std::collections::HashSet;

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use larder_rows::{BucketRow, Change, Row, Timestamp};
use parking_lot::RwLock;

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
