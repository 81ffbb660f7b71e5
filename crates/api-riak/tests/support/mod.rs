//! A server over a gateway in this process.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use bytes::Bytes;
use larder_api_riak::http::{HttpSettings, serve};
use larder_core::{Config, GatewayPorts};
use larder_kv::Gateway;
use larder_net::ConnectionSettings;
use larder_rows::ActorId;
use larder_store::memory::MemoryStore;
use larder_store::{Store, SystemClock};
use larder_testkit::BackgroundServer;
use larder_testkit::http::{HttpClient, HttpConnection};
use larder_testkit::pb::PbClient;
use larder_testkit::replicas::{ClusterSetup, Replicas};
use tokio::net::TcpListener;

/// A running server.
pub(crate) struct RiakServer {
    pub(crate) background: BackgroundServer,
    gateway: Arc<Gateway>,
}

impl RiakServer {
    pub(crate) fn start() -> Self {
        Self::start_with(Config::default(), HttpSettings::default())
    }

    pub(crate) fn start_with(config: Config, settings: HttpSettings) -> Self {
        let clock = Arc::new(SystemClock::default());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        Self::start_over(memory.clone(), memory, clock, config, settings)
    }

    /// A server over three nodes of a cluster in memory, and the nodes.
    pub(crate) fn start_over_three_nodes() -> (Self, Replicas) {
        let clock = Arc::new(SystemClock::default());
        let replicas = Replicas::new(clock.clone(), ClusterSetup::default(), 1);
        let blobs = Arc::new(MemoryStore::new(clock.clone()));
        let (config, settings) = (Config { single_process: false, ..Config::default() }, HttpSettings::default());
        (Self::start_over(Arc::new(replicas.clone()), blobs, clock, config, settings), replicas)
    }

    /// A server that stores rows in `store` and bodies in `blobs`.
    pub(crate) fn start_over(
        store: Arc<dyn Store>,
        blobs: Arc<MemoryStore>,
        clock: Arc<SystemClock>,
        config: Config,
        settings: HttpSettings,
    ) -> Self {
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store,
            blobs,
            clock,
            actor: ActorId(7),
            engine: Arc::new("memory"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: Arc::new(larder_core::types::NoProductRows),
        };
        let (background, gateway) = BackgroundServer::start(async |listener, stop| {
            let gateway = Gateway::start(ports, config).await.unwrap();
            (gateway.clone(), serve(listener.into(), gateway, settings, stop))
        });
        Self { background, gateway }
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// A second listener of the same gateway, for protocol buffers; it lives as long as the server.
    pub(crate) fn pb(&self) -> PbClient {
        self.pb_with(ConnectionSettings::default())
    }

    pub(crate) fn pb_with(&self, settings: ConnectionSettings) -> PbClient {
        let gateway = self.gateway.clone();
        let address = self.background.run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let forever = Box::pin(std::future::pending());
            tokio::spawn(larder_api_riak::pb::serve(listener.into(), gateway, settings.into(), forever));
            address
        });
        PbClient::connect(address)
    }

    pub(crate) fn client(&self) -> HttpClient {
        HttpClient::new(self.background.address)
    }

    pub(crate) fn connect(&self) -> HttpConnection {
        HttpConnection::open(self.background.address)
    }

    pub(crate) fn make_type(&self, name: &str, props: &str, active: bool) {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.background.run(async {
            self.gateway.types().create(&name, &serde_json::from_str(props).unwrap()).await.unwrap();
            if active {
                self.gateway.types().activate(&name).await.unwrap();
            }
        });
    }

    pub(crate) fn stop(self) {
        self.background.stop(self.gateway.shutdown());
    }
}
