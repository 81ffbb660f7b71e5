//! Gateways over an engine of the laws, each with its own clock and faults.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::{Config, GatewayPorts};
use larder_kv::Gateway;
use larder_rows::ActorId;
use larder_store::Store;
use larder_store::memory::MemoryStore;
use larder_testkit::faulty::{Faulty, StoreFaults, StoreHistory};
use larder_testkit::replicas::NetworkFaults;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::engine::{LawEngine, LawEngineKind};
use crate::simulation::world::{SimClock, let_pass};

/// A gateway with its connection.
pub(super) struct LawGateway {
    pub(super) gateway: Arc<Gateway>,
    faulty: Arc<Faulty<dyn Store>>,
    clock: Arc<SimClock>,
    actor: u64,
}

/// The gateways of a schedule.
pub(super) struct LawWorld {
    engine: Mutex<LawEngine>,
    nodes: Mutex<Vec<Arc<LawGateway>>>,
    history: Arc<StoreHistory>,
    faults: Mutex<StoreFaults>,
    start: Instant,
    seed: u64,
    actors: Mutex<u64>,
    is_single: bool,
}

impl LawWorld {
    /// So many gateways over an empty engine; one has it for itself.
    pub(super) async fn new(kind: LawEngineKind, seed: u64, count: usize) -> Self {
        let start = Instant::now();
        let world = Self {
            engine: Mutex::new(LawEngine::new(kind, SimClock::new(start), seed)),
            nodes: Mutex::default(),
            history: StoreHistory::none(),
            faults: Mutex::default(),
            start,
            seed,
            actors: Mutex::default(),
            is_single: count == 1,
        };
        for at in 0..count {
            let actor = world.new_actor();
            let node = world.node(at, actor, 0).await;
            world.nodes.lock().push(node);
        }
        world
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.lock().len()
    }

    pub(super) fn is_single(&self) -> bool {
        self.is_single
    }

    pub(super) fn gateway(&self, at: usize) -> Arc<Gateway> {
        Arc::clone(&self.nodes.lock()[at].gateway)
    }

    /// Makes the only type of the schedule.
    pub(super) async fn add_type(&self, kind: &'static str) {
        let props = serde_json::json!({ "datatype": kind });
        let gateway = self.gateway(0);
        let name = Bytes::from_static(kind.as_bytes());
        gateway.types().create(&name, props.as_object().expect("an object")).await.expect("a healthy engine");
        while gateway.types().activate(&name).await.is_err() {
            self.advance(100).await;
        }
    }

    /// Sets the faults of all connections; those before.
    pub(super) fn set_faults(&self, faults: StoreFaults) -> StoreFaults {
        self.nodes.lock().iter().for_each(|node| node.faulty.set_faults(faults));
        std::mem::replace(&mut *self.faults.lock(), faults)
    }

    pub(super) fn is_replicated(&self) -> bool {
        self.engine.lock().replicas().is_some()
    }

    /// Sets the faults between the replicas, if there are any.
    pub(super) fn set_network_faults(&self, faults: NetworkFaults) {
        if let Some(replicas) = self.engine.lock().replicas() {
            replicas.set_network_faults(faults);
        }
    }

    /// Gives every replica what another one has.
    pub(super) fn repair(&self) {
        if let Some(replicas) = self.engine.lock().replicas() {
            replicas.repair();
        }
    }

    /// Sets the clocks of all gateways.
    pub(super) fn set_skews(&self, mut skew: impl FnMut() -> i64) {
        self.nodes.lock().iter().for_each(|node| node.clock.set_skew(skew()));
    }

    pub(super) async fn advance(&self, ms: u64) {
        let_pass(Duration::from_millis(ms)).await;
    }

    /// Kills a gateway, and starts it again with another clock; `forgets`: as the same actor, which only forgot everything, where
    /// a gateway is alone. One of several is a new actor after each start, since no mark keeps its clock from falling.
    pub(super) async fn restart(&self, at: usize, skew: i64, forgets: bool) {
        let old = Arc::clone(&self.nodes.lock()[at]);
        old.end();
        let actor = if forgets && self.is_single { old.actor } else { self.new_actor() };
        let node = self.node(at, actor, skew).await;
        node.faulty.set_faults(*self.faults.lock());
        self.nodes.lock()[at] = node;
    }

    /// Kills the whole process with its engine, and starts it again.
    pub(super) async fn kill(&self, skews: &[i64]) {
        let count = {
            let nodes = self.nodes.lock();
            nodes.iter().for_each(|node| node.end());
            nodes.len()
        };
        self.engine.lock().kill();
        for at in 0..count {
            self.restart(at, skews[at % skews.len()], false).await;
        }
    }

    /// Takes a replica down, or brings it back: with the hints for it, or after they are lost.
    pub(super) fn set_replica(&self, replica: usize, is_up: bool, loses_hints: bool) {
        let engine = self.engine.lock();
        let Some(replicas) = engine.replicas() else { return };
        match is_up {
            false => replicas.kill(replica),
            true => {
                if loses_hints {
                    replicas.lose_hints();
                }
                replicas.revive(replica);
            }
        }
    }

    fn new_actor(&self) -> u64 {
        let mut actors = self.actors.lock();
        *actors += 1;
        *actors
    }

    async fn node(&self, at: usize, actor: u64, skew: i64) -> Arc<LawGateway> {
        let seed = self.seed.wrapping_mul(31).wrapping_add(actor);
        let inner = self.engine.lock().connect();
        let faulty: Arc<Faulty<dyn Store>> = Arc::new(Faulty::new(inner, Arc::clone(&self.history), seed));
        let clock = SimClock::new(self.start);
        clock.set_skew(skew);
        let blobs = Arc::new(MemoryStore::new(SimClock::new(self.start)));
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store: Arc::clone(&faulty) as _,
            blobs,
            clock: Arc::clone(&clock) as _,
            actor: ActorId(actor),
            engine: Arc::new("laws"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let config = Config { node: format!("g{at}"), single_process: self.is_single, ..Config::default() };
        // Replicas may be down, and messages lost: whoever starts it tries again.
        let gateway = loop {
            match Gateway::start(ports.clone(), config.clone()).await {
                Ok(gateway) => break gateway,
                Err(_) => self.advance(200).await,
            }
        };
        Arc::new(LawGateway { gateway, faulty, clock, actor })
    }
}

impl LawGateway {
    /// Its process is gone: no call of it reaches the engine any more.
    fn end(&self) {
        self.faulty.cut(true);
        self.gateway.abandon();
    }
}
