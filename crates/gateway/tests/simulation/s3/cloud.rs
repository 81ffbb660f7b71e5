//! The simulated world of the S3 side: gateways over one store that keeps shadows by protocol, each seeing its own leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_gateway::objects::{Objects, ObjectsConfig};
use larder_gateway::{Config, Gateway, Ports, Rules};
use larder_store::memory::MemoryStore;
use larder_store::shadows::{self, Shadowed};
use larder_store::wrappers::faulty::{Faults, Faulty, History, LATE_MAX};
use larder_store::{Blobs as _, Durability, Level, Options, Partition, ReadQuery, Store as _, Table};
use tokio::time::Instant;

use super::client::Client;
use super::gate::{Gate, Step, Stop};
use crate::world::SimClock;

/// The bucket all keys are in.
pub(crate) const BUCKET: &str = "bucket";
/// Longer bodies are blobs.
const INLINE_MAX: usize = 64;
/// When an upload that is being completed counts as left behind.
const COMPLETING_MAX: Duration = Duration::from_secs(5);

/// The rules that are off: none, one of the gateway's, or one of the shadows'.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Laws {
    pub(crate) gateway: Rules,
    pub(crate) shadows: Option<shadows::Rule>,
}

/// One gateway and its way to the store.
pub(crate) struct Node {
    pub(crate) objects: Arc<Objects>,
    pub(crate) gate: Arc<Gate<Faulty<MemoryStore>>>,
    pub(crate) faulty: Arc<Faulty<MemoryStore>>,
    pub(crate) clock: Arc<SimClock>,
    skew: i64,
}

/// Everything there is.
pub(crate) struct Cloud {
    pub(crate) nodes: Vec<Node>,
    /// The rows and blobs themselves, below everything that can go wrong.
    pub(crate) store: Arc<MemoryStore>,
    clock: Arc<SimClock>,
    start: Instant,
    leaped: i64,
    laws: Laws,
    seed: u64,
    actors: u64,
}

impl Cloud {
    /// `count` gateways over an empty store.
    pub(crate) async fn new(seed: u64, laws: Laws, count: usize) -> Self {
        let start = Instant::now();
        let clock = SimClock::new(start);
        let store = Arc::new(MemoryStore::with_inline_max(Arc::clone(&clock) as _, INLINE_MAX));
        let mut cloud = Self { nodes: Vec::new(), store, clock, start, leaped: 0, laws, seed, actors: 0 };
        for at in 0..count {
            let node = cloud.node(at, 0).await;
            cloud.nodes.push(node);
        }
        cloud
    }

    /// As [`Self::new`], with the bucket.
    pub(crate) async fn with_bucket(seed: u64, laws: Laws, count: usize) -> Self {
        let cloud = Self::new(seed, laws, count).await;
        cloud.client(0).create_bucket().await.expect("a bucket is made in a whole store");
        cloud.pass(3_000).await;
        cloud
    }

    async fn node(&mut self, at: usize, skew: i64) -> Node {
        self.actors += 1;
        let seed = self.seed.wrapping_mul(31).wrapping_add(self.actors);
        let faulty = Arc::new(Faulty::new(Arc::new(self.store.apart()), History::none(), seed));
        let gate = Gate::new(Arc::clone(&faulty));
        let store = match self.laws.shadows {
            Some(rule) => Shadowed::without(Arc::clone(&gate), rule),
            None => Shadowed::new(Arc::clone(&gate)),
        };
        let clock = SimClock::new(self.start);
        clock.set_skew(self.leaped + skew);
        let ports = Ports {
            random: |bytes| bytes.fill(7),
            store: Arc::new(store),
            blobs: Arc::clone(&gate) as _,
            clock: Arc::clone(&clock) as _,
            actor: self.actors,
            engine: Arc::new("memory"),
            rules: self.laws.gateway,
        };
        let config = Config { node: format!("g{at}"), alone: false, ..Config::default() };
        let gateway = Gateway::start(ports, config).await.expect("a gateway starts over a whole store");
        let settings = ObjectsConfig {
            part_bytes_min: 1,
            completing_max: COMPLETING_MAX,
            alone: false,
            ..ObjectsConfig::default()
        };
        Node { objects: Objects::new(gateway, settings), gate, faulty, clock, skew }
    }

    /// Sets how far the clock of a gateway is off, in microseconds.
    pub(crate) fn set_skew(&mut self, at: usize, skew: i64) {
        self.nodes[at].skew = skew;
        self.nodes[at].clock.set_skew(self.leaped + skew);
    }

    /// Lets days pass at once, after all that is under way has arrived: no write takes a day.
    pub(crate) async fn leap(&mut self, days: i64) {
        tokio::time::sleep(LATE_MAX).await;
        self.leaped += days * 86_400_000_000;
        self.clock.set_skew(self.leaped);
        for node in &self.nodes {
            node.clock.set_skew(self.leaped + node.skew);
        }
        self.pass(5_000).await;
    }

    /// Kills a gateway and starts it again; what it is doing goes on to the end of the call it is in, and no further.
    pub(crate) async fn restart(&mut self, at: usize) {
        let dead = &self.nodes[at];
        let (skew, faults) = (dead.skew, dead.faulty.faults());
        dead.objects.gateway().abandon();
        dead.faulty.cut(true);
        self.nodes[at] = self.node(at, skew).await;
        self.nodes[at].faulty.set_faults(faults);
    }

    /// Every way to the store is this faulty from now on.
    pub(crate) fn set_faults(&self, faults: Faults) {
        for node in &self.nodes {
            node.faulty.set_faults(faults);
        }
    }

    /// A client of a gateway.
    pub(crate) fn client(&self, at: usize) -> Client {
        Client::new(Arc::clone(&self.nodes[at].objects))
    }

    /// Stops whoever comes next to a step through a gateway.
    pub(crate) fn stop(&self, at: usize, step: Step) -> Stop {
        self.nodes[at].gate.stop(step)
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// How many blobs there are, and how many live partitions of each of the tables that failures may leave rows in.
    pub(crate) async fn remains(&self) -> BTreeMap<&'static str, usize> {
        let tables = [Table::Heads, Table::Uploads, Table::Parts, Table::Manifests, Table::Doomed];
        let mut found = BTreeMap::new();
        for table in tables {
            let page = self.store.partitions(table, None, 1000, &options()).await.expect("the store is whole");
            found.insert(table.name(), page.partitions.len());
        }
        found.insert("blobs", self.store.apart().list(None, 1000).await.expect("the store is whole").len());
        found.retain(|_, count| *count > 0);
        found
    }

    /// Rows of a partition, below the protocol of shadows.
    pub(crate) async fn rows(&self, partition: &Partition) -> usize {
        self.store.read(partition, &ReadQuery::all(1000), &options()).await.expect("the store is whole").rows.len()
    }
}

fn options() -> Options {
    Options::new(Level::All, Instant::now() + Duration::from_secs(5), Durability::Buffered)
}
