//! A gateway in memory, and a connection to it without a socket.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_admission::MemoryBudget;
use larder_core::{Config, GatewayPorts};
use larder_kv::Gateway;
use larder_net::RequestSource;
use larder_rows::ActorId;
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use tokio::io::DuplexStream;

use super::connection::PbConnection;
use super::session::PbSession;

/// Active types: one whose buckets keep siblings, and one for each data type.
const TYPES: [(&str, &str); 6] = [
    ("many", r#"{"allow_mult":true}"#),
    ("counters", r#"{"datatype":"counter"}"#),
    ("sets", r#"{"datatype":"set"}"#),
    ("gsets", r#"{"datatype":"gset"}"#),
    ("hlls", r#"{"datatype":"hll"}"#),
    ("maps", r#"{"datatype":"map"}"#),
];

/// A gateway with those types.
pub(super) async fn gateway() -> Arc<Gateway> {
    let clock = Arc::new(SystemClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let ports = GatewayPorts {
        random: |bytes| bytes.fill(7),
        store: store.clone(),
        blobs: store,
        clock,
        actor: ActorId(7),
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        webhooks: None,
        product: Arc::new(larder_core::types::NoProductRows),
    };
    let gateway = Gateway::start(ports, Config::default()).await.unwrap();
    for (name, props) in TYPES {
        let name = Bytes::from_static(name.as_bytes());
        gateway.types().create(&name, &serde_json::from_str(props).unwrap()).await.unwrap();
        gateway.types().activate(&name).await.unwrap();
    }
    gateway
}

/// A client's end, and the connection at the other one. Each end holds up to `buffered` bytes that the other has not read.
pub(super) fn connection(gateway: &Arc<Gateway>, buffered: usize) -> (DuplexStream, PbConnection<DuplexStream>) {
    let (client, socket) = tokio::io::duplex(buffered);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let connection = PbConnection {
        socket,
        account: MemoryBudget::new(1 << 30, 0).account("pb", address),
        gateway: Arc::clone(gateway),
        slow_after: None,
        idle_timeout: Duration::from_secs(300),
        input: BytesMut::new(),
        output: BytesMut::new(),
        session: PbSession::new(RequestSource::plain(address)),
    };
    (client, connection)
}
