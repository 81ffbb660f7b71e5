//! Key-value objects: get, put, delete.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use larder_core::blobs::BlobCollector;
use larder_core::clock_issuer::ClockIssuer;
use larder_core::core::Core;
use larder_core::metrics::{KvOp, RequestOutcome};
use larder_core::node_context::NodeContext;
use larder_core::types::CatalogueCopy;
use larder_core::{BlobSweep, Result};
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::datatypes::writers::DatatypeWriters;
use crate::epochs::IndexGrowth;
use crate::hooks::CommitHooks;
use crate::known_buckets::KnownBuckets;
use crate::replication_queue::ReplicationQueue;
use crate::requests::{FetchedObject, KvDelete, KvDeleteOutcome, KvGet, KvPut};
use crate::slots::SlotAllocator;

/// Most values of more than a page that are put into Riak's form at a time: each takes five times its bytes meanwhile.
const FORMS_AT_ONCE: usize = 4;

/// Key-value objects, and the listings of their keys and buckets.
pub struct Kv {
    pub(crate) context: Arc<NodeContext>,
    pub(crate) issuer: Arc<ClockIssuer>,
    pub(crate) catalogue: Arc<CatalogueCopy>,
    pub(crate) blobs: Arc<BlobCollector>,
    pub(crate) known_buckets: KnownBuckets,
    pub(crate) slots: SlotAllocator,
    pub(crate) datatype_writers: Arc<DatatypeWriters>,
    /// Places for large data types that are read as objects.
    pub(crate) riak_forms: Semaphore,
    pub(crate) hooks: Arc<CommitHooks>,
    pub(crate) index_growth: Arc<IndexGrowth>,
    /// What a Riak fetches changes from.
    pub(crate) replication_queue: RwLock<Option<Weak<dyn ReplicationQueue>>>,
}

impl Kv {
    /// The key-value side of a gateway.
    pub(crate) fn new(core: &Core, hooks: Arc<CommitHooks>) -> Self {
        let (context, issuer, catalogue) = (core.context(), core.issuer(), core.catalogue());
        let limits = context.ports.store.limits();
        let index_growth = Arc::new(IndexGrowth::new(context.config.index_splitting, &limits));
        let datatype_writers = DatatypeWriters::new(
            Arc::clone(context),
            Arc::clone(issuer),
            Arc::clone(catalogue),
            Arc::clone(&index_growth),
        );
        Self {
            slots: SlotAllocator::for_engine(&limits, context.config.siblings_max),
            known_buckets: KnownBuckets::default(),
            context: Arc::clone(context),
            issuer: Arc::clone(issuer),
            catalogue: Arc::clone(catalogue),
            blobs: Arc::clone(core.blobs()),
            datatype_writers,
            riak_forms: Semaphore::new(FORMS_AT_ONCE),
            hooks,
            index_growth,
            replication_queue: RwLock::default(),
        }
    }

    /// Reads an object. A key that was never written, or is deleted, has no siblings.
    ///
    /// # Errors
    /// [`larder_core::Error`] of the address, of the replica counts or of the store.
    pub async fn get(&self, request: KvGet) -> Result<FetchedObject> {
        let measured = self.context.begin(KvOp::Get)?;
        let result = self.get_admitted(request).await;
        measured.end(result, FetchedObject::outcome)
    }

    /// Writes an object; returns it as a read after the write shows it, if `return_body` asks for that. Never for `write_once`
    /// (as Riak).
    ///
    /// # Errors
    /// [`larder_core::Error`]; nothing remains of a refused put, while a timed-out one may or may not take effect.
    pub async fn put(&self, request: KvPut) -> Result<Option<FetchedObject>> {
        let measured = self.context.begin(KvOp::Put)?;
        let result = self.put_admitted(request).await;
        measured.end(result, |_| RequestOutcome::Ok)
    }

    /// Deletes an object: with a context the versions that it names, without a read; otherwise the versions that a read shows.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub async fn delete(&self, request: KvDelete) -> Result<KvDeleteOutcome> {
        let measured = self.context.begin(KvOp::Delete)?;
        let result = self.delete_admitted(request).await;
        measured.end(result, KvDeleteOutcome::outcome)
    }

    /// Checks every blob of the key-value side once. Safe beside any traffic of this gateway and others. Failures are logged,
    /// counted and left to the next pass. Beside S3, its sweeper of objects does this too.
    ///
    /// # Errors
    /// The store's when it cannot list blobs; blobs removed before stay removed.
    pub async fn sweep_blobs(&self) -> Result<BlobSweep> {
        self.blobs.sweep(&[self]).await
    }

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
