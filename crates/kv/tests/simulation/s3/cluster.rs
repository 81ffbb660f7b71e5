//! The simulated S3 cluster: gateways over one store that keeps derived rows by protocol, each with its own leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_core::{Config, GatewayPorts};
use larder_kv::Gateway;
use larder_rows::ActorId;
use larder_s3::{Objects, ObjectsConfig};
use larder_store::derived_rows::DerivedRowStore;
use larder_store::memory::MemoryStore;
use larder_store::{Blobs as _, CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, Store as _, Table};
use larder_testkit::faulty::{Faulty, LATE_MAX, StoreFaults, StoreHistory};
use larder_testkit::hooked::Hooked;
use tokio::time::Instant;

use super::client::SimClient;
use super::gate::{GatedStore, Stop, StoreStep};
use crate::simulation::world::{SimClock, let_pass};

/// The bucket of all keys.
pub(crate) const BUCKET: &str = "bucket";
/// Longer bodies are blobs.
const INLINE_MAX: usize = 64;
/// Time after which a running completion counts as abandoned.
const COMPLETING_MAX: Duration = Duration::from_secs(5);

/// One gateway and its path to the store.
pub(crate) struct ClusterNode {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) gate: Arc<GatedStore<Faulty<MemoryStore>>>,
    pub(crate) faulty: Arc<Faulty<MemoryStore>>,
    pub(crate) clock: Arc<SimClock>,
    skew: i64,
}

/// All gateways over one store.
pub(crate) struct S3Cluster {
    pub(crate) nodes: Vec<ClusterNode>,
    /// The store below all faults.
    pub(crate) store: Arc<MemoryStore>,
    clock: Arc<SimClock>,
    start: Instant,
    leaped: i64,
    seed: u64,
    actors: u64,
}

impl S3Cluster {
    /// `count` gateways over an empty store.
    pub(crate) async fn new(seed: u64, count: usize) -> Self {
        let start = Instant::now();
        let clock = SimClock::new(start);
        let store = Arc::new(MemoryStore::with_inline_max(Arc::clone(&clock) as _, INLINE_MAX));
        let mut cluster = Self { nodes: Vec::new(), store, clock, start, leaped: 0, seed, actors: 0 };
        for at in 0..count {
            let node = cluster.node(at, 0).await;
            cluster.nodes.push(node);
        }
        cluster
    }

    /// As [`Self::new`], with the bucket.
    pub(crate) async fn with_bucket(seed: u64, count: usize) -> Self {
        let cluster = Self::new(seed, count).await;
        cluster.client(0).create_bucket().await.expect("a store without faults creates a bucket");
        cluster.advance(3_000).await;
        cluster
    }

    async fn node(&mut self, at: usize, skew: i64) -> ClusterNode {
        self.actors += 1;
        let seed = self.seed.wrapping_mul(31).wrapping_add(self.actors);
        let faulty = Arc::new(Faulty::new(Arc::new(self.store.as_other_process()), StoreHistory::none(), seed));
        let gate = GatedStore::new(Arc::clone(&faulty));
        let clock = SimClock::new(self.start);
        clock.set_skew(self.leaped + skew);
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store: Arc::new(DerivedRowStore::new(Arc::new(Hooked(Arc::clone(&gate))))),
            blobs: Arc::clone(&gate) as _,
            clock: Arc::clone(&clock) as _,
            actor: ActorId(self.actors),
            engine: Arc::new("memory"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let config = Config { node: format!("g{at}"), single_process: false, ..Config::default() };
        let gateway = Gateway::start(ports, config).await.expect("a gateway starts over a store without faults");
        let settings = ObjectsConfig {
            part_bytes_min: 1,
            completing_max: COMPLETING_MAX,
            single_process: false,
            ..ObjectsConfig::default()
        };
        let objects = Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], settings);
        ClusterNode { gateway, objects, gate, faulty, clock, skew }
    }

    /// Sets the skew of a gateway's clock, in microseconds.
    pub(crate) fn set_skew(&mut self, at: usize, skew: i64) {
        self.nodes[at].skew = skew;
        self.nodes[at].clock.set_skew(self.leaped + skew);
    }

    /// Skips days, after all delayed writes have arrived: no write takes a day.
    pub(crate) async fn leap(&mut self, days: i64) {
        tokio::time::sleep(LATE_MAX).await;
        self.leaped += days * 86_400_000_000;
        self.clock.set_skew(self.leaped);
        for node in &self.nodes {
            node.clock.set_skew(self.leaped + node.skew);
        }
        self.advance(5_000).await;
    }

    /// Kills a gateway and starts it again. Its running calls end, and it makes no further ones.
    pub(crate) async fn restart(&mut self, at: usize) {
        let dead = &self.nodes[at];
        let (skew, faults) = (dead.skew, dead.faulty.faults());
        dead.gateway.abandon();
        dead.faulty.cut(true);
        self.nodes[at] = self.node(at, skew).await;
        self.nodes[at].faulty.set_faults(faults);
    }

    /// Sets the faults of every path to the store.
    pub(crate) fn set_faults(&self, faults: StoreFaults) {
        for node in &self.nodes {
            node.faulty.set_faults(faults);
        }
    }

    /// A client of a gateway.
    pub(crate) fn client(&self, at: usize) -> SimClient {
        SimClient::new(Arc::clone(&self.nodes[at].objects))
    }

    /// Pauses the next call of a gateway at this step.
    pub(crate) fn stop(&self, at: usize, step: StoreStep) -> Stop {
        self.nodes[at].gate.stop(step)
    }

    /// Advances virtual time.
    pub(crate) async fn advance(&self, ms: u64) {
        let_pass(Duration::from_millis(ms)).await;
    }

    /// Number of blobs, and of live partitions in each table that failures may leave rows in.
    pub(crate) async fn leftovers(&self) -> BTreeMap<&'static str, usize> {
        let tables = [Table::Heads, Table::Uploads, Table::Parts, Table::Manifests, Table::GcMarks];
        let mut found = BTreeMap::new();
        for table in tables {
            let page =
                self.store.partitions(table, None, 1000, &options()).await.expect("the memory store has no faults");
            found.insert(table.name(), page.partitions.len());
        }
        found.insert(
            "blobs",
            self.store.as_other_process().list(None, 1000).await.expect("the memory store has no faults").len(),
        );
        found.retain(|_, count| *count > 0);
        found
    }

    /// Number of rows of a partition, below the protocol of derived rows.
    pub(crate) async fn rows(&self, partition: &Partition) -> usize {
        self.store
            .read(partition, &ReadQuery::all(1000), &options())
            .await
            .expect("the memory store has no faults")
            .rows
            .len()
    }
}

fn options() -> CallOptions {
    CallOptions::new(ConsistencyLevel::All, Instant::now() + Duration::from_secs(5), Durability::Buffered)
}
