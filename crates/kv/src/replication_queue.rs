//! The queue that a Riak fetches changes of this store from, as its real-time replication does.

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::Result;

/// A replication queue. Each element is handed out once.
#[async_trait]
pub trait ReplicationQueue: Send + Sync {
    /// The next answer of the queue of this name, in the form of a node of Riak, with an element or without; `None`: there is no such
    /// queue now.
    ///
    /// # Errors
    /// The store's. The element is not lost: a later pass hands it out again.
    async fn next(&self, name: &[u8]) -> Result<Option<Bytes>>;
}
