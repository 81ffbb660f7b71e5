//! The ports of a gateway over a store that a test watches or disturbs.

use std::sync::Arc;

use larder_core::GatewayPorts;
use larder_rows::ActorId;
use larder_store::memory::MemoryStore;
use larder_store::{Clock, Store};

/// Ports over `store`, with blobs in memory and without scripts.
pub(crate) fn ports_over(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> GatewayPorts {
    GatewayPorts {
        store,
        blobs: Arc::new(MemoryStore::new(clock.clone())),
        clock,
        actor: ActorId(7),
        random: |bytes| bytes.fill(7),
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        webhooks: None,
        product: larder_s3::S3Catalogue::empty(),
    }
}
