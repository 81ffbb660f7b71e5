//! Where an object is.

use bytes::Bytes;
use larder_model::keyspace::entry_shard;
use larder_model::objects::{Bucket, BucketId};
use larder_store::{Partition, Shadow};

/// A key of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::objects) struct Place {
    /// The bucket's name.
    pub(in crate::objects) name: String,
    /// The bucket.
    pub(in crate::objects) id: BucketId,
    /// The key.
    pub(in crate::objects) key: Bytes,
}

impl Place {
    /// A key of this bucket.
    pub(in crate::objects) fn of(bucket: &Bucket, key: &Bytes) -> Self {
        Self { name: bucket.name.clone(), id: bucket.id, key: key.clone() }
    }

    /// The partition of its head and versions.
    pub(in crate::objects) fn partition(&self) -> Partition {
        Partition::head(self.id, &self.key)
    }
}

/// The shadow of a key's head: its listing entry.
pub(super) fn shadow(bucket: BucketId, key: &Bytes, value: Option<Bytes>) -> Shadow {
    Shadow { partition: Partition::entries(bucket, entry_shard(key)), name: key.clone(), value }
}
