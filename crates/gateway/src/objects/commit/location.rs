//! The location of an object: bucket and key.

use bytes::Bytes;
use larder_model::keyspace::entry_shard;
use larder_model::objects::{Bucket, BucketId};
use larder_store::{DerivedRow, Partition};

/// A key of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::objects) struct ObjectLocation {
    /// The bucket's name.
    pub(in crate::objects) name: String,
    /// The bucket's id.
    pub(in crate::objects) id: BucketId,
    /// The key.
    pub(in crate::objects) key: Bytes,
}

impl ObjectLocation {
    /// The location of `key` in this bucket.
    pub(in crate::objects) fn of(bucket: &Bucket, key: &Bytes) -> Self {
        Self { name: bucket.name.clone(), id: bucket.id, key: key.clone() }
    }

    /// The partition of the key's head and versions.
    pub(in crate::objects) fn partition(&self) -> Partition {
        Partition::head(self.id, &self.key)
    }
}

/// The derived row of a key's head: its listing entry.
pub(super) fn derived_row(bucket: BucketId, key: &Bytes, value: Option<Bytes>) -> DerivedRow {
    DerivedRow { partition: Partition::entries(bucket, entry_shard(key)), name: key.clone(), value }
}
