//! Key-value objects: get, put, delete.

use std::sync::Arc;

use larder_core::blobs::BlobCollector;
use larder_core::clock_issuer::ClockIssuer;
use larder_core::gateway_core::GatewayCore;
use larder_core::types::CatalogueCopy;
use larder_core::{BlobSweep, Result};

use crate::datatypes::writers::DatatypeWriters;
use crate::epochs::IndexGrowth;
use crate::hooks::CommitHooks;
use crate::known_buckets::KnownBuckets;
use crate::slots::SlotAllocator;

/// Key-value objects, and the listings of their keys and buckets.
pub struct Kv {
    pub(crate) core: Arc<GatewayCore>,
    pub(crate) issuer: Arc<ClockIssuer>,
    pub(crate) catalogue: Arc<CatalogueCopy>,
    pub(crate) blobs: Arc<BlobCollector>,
    pub(crate) known_buckets: KnownBuckets,
    pub(crate) slots: SlotAllocator,
    pub(crate) datatype_writers: Arc<DatatypeWriters>,
    pub(crate) hooks: Arc<CommitHooks>,
    pub(crate) index_growth: Arc<IndexGrowth>,
}

impl Kv {
    /// The key-value side of a gateway.
    pub(crate) fn new(
        core: Arc<GatewayCore>,
        issuer: Arc<ClockIssuer>,
        catalogue: Arc<CatalogueCopy>,
        blobs: Arc<BlobCollector>,
        hooks: Arc<CommitHooks>,
    ) -> Self {
        let slots = SlotAllocator::for_engine(&core.ports.store.limits(), core.config.siblings_max);
        let growth = IndexGrowth::new(core.config.index_splitting, &core.ports.store.limits());
        let index_growth = Arc::new(growth);
        let datatype_writers = DatatypeWriters::new(
            Arc::clone(&core),
            Arc::clone(&issuer),
            Arc::clone(&catalogue),
            Arc::clone(&index_growth),
        );
        let known_buckets = KnownBuckets::default();
        Self { core, issuer, catalogue, blobs, known_buckets, slots, datatype_writers, hooks, index_growth }
    }

    /// Checks every blob of the key-value side once. Safe beside any traffic of this gateway and others. Failures are logged,
    /// counted and left to the next pass. Beside S3, its sweeper of objects does this too.
    ///
    /// # Errors
    /// The store's when it cannot list blobs; blobs removed before stay removed.
    pub async fn sweep_blobs(&self) -> Result<BlobSweep> {
        self.blobs.sweep(&[self]).await
    }
}
