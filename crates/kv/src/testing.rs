//! Gateways over a store that may lose its power.

use std::sync::Arc;

use larder_core::types::NoProductRows;
use larder_core::{Config, GatewayPorts};
use larder_rows::ActorId;
use larder_testkit::{VolatileStore, unique_bytes};

use crate::Gateway;

/// A gateway alone on this store.
pub(crate) async fn gateway_over(store: &Arc<VolatileStore>) -> Arc<Gateway> {
    let ports = GatewayPorts {
        store: Arc::clone(store) as _,
        blobs: Arc::clone(store) as _,
        clock: store.clock(),
        actor: ActorId(1),
        random: unique_bytes,
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        product: Arc::new(NoProductRows),
        webhooks: None,
    };
    Gateway::start(ports, Config { durable: store.is_durable(), ..Config::default() }).await.unwrap()
}
