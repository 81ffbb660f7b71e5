//! The port to the source of a move, which has the keys that are not here yet.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::Timestamp;

use crate::rules::{Bucket, Etag};

/// The source of a move did not give what a request needs: the request may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceAway;

/// The source of the move that brings the keys of moving buckets.
#[async_trait]
pub trait ObjectSource: Send + Sync {
    /// Imports a key that has no version here, or not yet the newest one, if the source has it.
    ///
    /// # Errors
    /// [`SourceAway`]: the source does not answer, or the key takes longer than a request waits.
    async fn bring(&self, bucket: &str, key: &Bytes) -> std::result::Result<(), SourceAway>;

    /// A page of the keys that the source lists with a prefix and after a key; empty: from the first one.
    ///
    /// # Errors
    /// [`SourceAway`]: the source does not answer.
    async fn keys(&self, bucket: &str, prefix: &Bytes, after: &Bytes)
    -> std::result::Result<RemoteKeyPage, SourceAway>;
}

/// A page of keys of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteKeyPage {
    /// The keys, in their order.
    pub keys: Vec<RemoteKey>,
    /// The key after which the next page begins; `None` at the end.
    pub next: Option<Bytes>,
}

/// A key as its source lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteKey {
    /// The key.
    pub key: Bytes,
    /// Its entity tag.
    pub etag: Etag,
    /// Its length in bytes.
    pub length: u64,
    /// Its last modification.
    pub modified: Timestamp,
    /// Whether the move has copied the key, or leaves it to clients: if it has no version here, a client has removed it.
    pub is_settled: bool,
}

/// The source of the moving buckets, once there is one.
#[derive(Default)]
pub(super) struct ReadThrough(OnceLock<Weak<dyn ObjectSource>>);

impl ReadThrough {
    /// The source that has the missing keys of a bucket; `None`: it has all of its keys.
    pub(super) fn source(&self, bucket: &Bucket) -> Option<Arc<dyn ObjectSource>> {
        if bucket.moving.is_some() { self.0.get().and_then(Weak::upgrade) } else { None }
    }

    /// Names the source. The first one counts.
    pub(super) fn set(&self, source: Weak<dyn ObjectSource>) {
        // A second source would be one of the same move.
        let _ = self.0.set(source);
    }
}
