//! The queue that a Riak fetches changes of this store from, as its real-time replication does.

use std::sync::Weak;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::Result;

use crate::Kv;

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

impl Kv {
    /// Lets a Riak fetch from this queue, which lives elsewhere, in place of the one before.
    pub fn serve_queue(&self, queue: Weak<dyn ReplicationQueue>) {
        *self.replication_queue.write() = Some(queue);
    }

    /// The next answer of a queue; `None`: there is no such queue now.
    ///
    /// # Errors
    /// As [`ReplicationQueue::next`].
    pub async fn next_in_queue(&self, name: &[u8]) -> Result<Option<Bytes>> {
        let _admitted = self.context.admit()?;
        let queue = self.replication_queue.read().as_ref().and_then(Weak::upgrade);
        match queue {
            Some(queue) => queue.next(name).await,
            None => Ok(None),
        }
    }
}
