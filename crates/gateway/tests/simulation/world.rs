//! The simulated world: a store, gateways with clocks of their own, and a client's view of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_gateway::body::{Download, Upload};
use larder_gateway::kv::{DeleteObject, Deleted, Found, GetObject, PutObject, Quorums};
use larder_gateway::{Config, Error, Gateway, Ports, Rules};
use larder_model::address::{Address, BucketAddress};
use larder_model::causality::Conditions;
use larder_model::content::Content;
use larder_store::memory::MemoryStore;
use larder_store::wrappers::faulty::{Faults, Faulty, History};
use larder_store::{Clock, Micros};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ledger::{Ledger, Notes};

/// Where virtual time begins.
const BEGIN: Micros = 1_800_000_000_000_000;

/// A clock on the runtime's virtual time, with a skew of its own.
pub(crate) struct SimClock {
    start: Instant,
    skew: AtomicI64,
}

impl SimClock {
    pub(crate) fn new(start: Instant) -> Arc<Self> {
        Arc::new(Self { start, skew: AtomicI64::new(0) })
    }

    /// How far the wall clock is off, in microseconds.
    pub(crate) fn skew(&self) -> i64 {
        self.skew.load(Ordering::Relaxed)
    }

    /// Sets how far the wall clock is off, in microseconds.
    pub(crate) fn set_skew(&self, micros: i64) {
        self.skew.store(micros, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        let now = BEGIN + self.start.elapsed().as_micros() as u64;
        now.saturating_add_signed(self.skew.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// One gateway and its way to the store.
pub(crate) struct Node {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) faulty: Arc<Faulty<MemoryStore>>,
    pub(crate) clock: Arc<SimClock>,
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Arc<MemoryStore>,
    /// What was sent to the store, where it keeps tombstones.
    pub(crate) notes: Option<Arc<Mutex<Notes>>>,
    history: Arc<History>,
    start: Instant,
    rules: Rules,
    seed: u64,
    actors: u64,
}

/// What a client sees of a key.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) texts: Vec<String>,
    pub(crate) context: Option<Bytes>,
    pub(crate) deleted: bool,
}

/// Runs one schedule under virtual time.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

impl World {
    /// `count` gateways over an empty store.
    pub(crate) async fn new(seed: u64, rules: Rules, count: usize) -> Self {
        Self::build(seed, rules, count, None).await
    }

    /// `count` gateways over an empty store that keeps tombstones, so that they take their slots again.
    pub(crate) async fn keeping_tombstones(seed: u64, rules: Rules, count: usize) -> Self {
        Self::build(seed, rules, count, Some(Arc::default())).await
    }

    async fn build(seed: u64, rules: Rules, count: usize, notes: Option<Arc<Mutex<Notes>>>) -> Self {
        let start = Instant::now();
        let store = Arc::new(MemoryStore::new(SimClock::new(start)));
        let history = History::new(Duration::from_secs(1));
        let mut world = Self { nodes: Vec::new(), store, notes, history, start, rules, seed, actors: 0 };
        for at in 0..count {
            let node = world.node(at, 0).await;
            world.nodes.push(node);
        }
        world
    }

    async fn node(&mut self, at: usize, skew: i64) -> Node {
        self.actors += 1;
        let seed = self.seed.wrapping_mul(31).wrapping_add(self.actors);
        let faulty = Arc::new(Faulty::new(Arc::clone(&self.store), Arc::clone(&self.history), seed));
        let clock = SimClock::new(self.start);
        clock.set_skew(skew);
        let mut ports = ports(&faulty, &clock, self.actors, self.rules);
        if let Some(notes) = &self.notes {
            ports.store = Ledger::new(ports.store, Arc::clone(notes));
        }
        let gateway = Gateway::start(ports, config(at)).await;
        let gateway =
            gateway.unwrap_or_else(|error| panic!("seed {}: over a whole store no gateway starts: {error}", self.seed));
        Node { gateway, faulty, clock }
    }

    /// Starts a second gateway under the name of one that is there.
    pub(crate) async fn start_twin(&mut self, at: usize) -> Result<(), Error> {
        self.actors += 1;
        let Node { faulty, clock, .. } = &self.nodes[at];
        let ports = ports(faulty, clock, self.actors, self.rules);
        Gateway::start(ports, config(at)).await.map(|twin| twin.abandon())
    }

    /// Kills a gateway and starts it again with its clock off by `skew` microseconds.
    pub(crate) async fn restart(&mut self, at: usize, skew: i64) {
        self.nodes[at].gateway.abandon();
        self.nodes[at] = self.node(at, skew).await;
    }

    /// Every way to the store is this faulty from now on.
    pub(crate) fn set_faults(&self, faults: Faults) {
        for node in &self.nodes {
            node.faulty.set_faults(faults);
        }
    }

    /// Time since the beginning, the same for all.
    pub(crate) fn micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Creates and activates a type through the first gateway.
    pub(crate) async fn add_type(&self, name: &'static str, props: &str) {
        let name = Bytes::from_static(name.as_bytes());
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        let gateway = &self.nodes[0].gateway;
        gateway.create_type(&name, props.as_object().unwrap()).await.unwrap();
        while gateway.activate_type(&name).await.is_err() {
            self.pass(100).await;
        }
    }

    /// Sets properties of the bucket all keys are in.
    pub(crate) async fn set_props(&self, at: usize, kind: &'static str, props: &str) -> Result<(), Error> {
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        self.nodes[at].gateway.set_bucket_props(&bucket(kind), props.as_object().unwrap()).await
    }

    pub(crate) async fn put(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        text: &str,
        context: Option<&Bytes>,
    ) -> Result<(), Error> {
        self.put_full(at, kind, key, text, context, false).await.map(|_| ())
    }

    /// A put that wants to be told what a read shows now.
    pub(crate) async fn put_back(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        text: &str,
        context: Option<&Bytes>,
    ) -> Result<Shown, Error> {
        let found = self.put_full(at, kind, key, text, context, true).await?;
        shown(found.expect("returnbody")).await
    }

    #[expect(clippy::too_many_arguments, reason = "all that a client can say in one put")]
    async fn put_full(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        text: &str,
        context: Option<&Bytes>,
        return_body: bool,
    ) -> Result<Option<Found>, Error> {
        let request = PutObject {
            address: address(kind, key),
            context: context.cloned(),
            conditions: Conditions::default(),
            if_not_modified: None,
            content: Content::default(),
            upload: Upload::Bytes(Bytes::copy_from_slice(padded(text).as_bytes())),
            quorums: Quorums::default(),
            return_body,
            timeout: None,
        };
        Ok(self.nodes[at].gateway.put(request).await?.found)
    }

    pub(crate) async fn read(&self, at: usize, kind: &'static str, key: &str) -> Result<Shown, Error> {
        shown(self.nodes[at].gateway.get(get_of(kind, key)).await?).await
    }

    /// The keys listed, and the buckets.
    pub(crate) async fn list(&self, at: usize, kind: &'static str) -> Result<(Vec<Bytes>, Vec<Bytes>), Error> {
        let bucket = bucket(kind);
        let keys = self.nodes[at].gateway.list_keys(&bucket, None, None).await?.names;
        let buckets = self.nodes[at].gateway.list_buckets(&bucket.bucket_type, None, None).await?.names;
        Ok((keys, buckets))
    }

    /// Answers whether there was something to delete.
    pub(crate) async fn delete(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        context: Option<&Bytes>,
    ) -> Result<bool, Error> {
        Ok(matches!(self.nodes[at].gateway.delete(delete_of(kind, key, context)).await?, Deleted::Done))
    }
}

/// A read as most clients ask for it.
pub(crate) fn get_of(kind: &'static str, key: &str) -> GetObject {
    GetObject { address: address(kind, key), quorums: Quorums::default(), bodies: true, timeout: None }
}

/// A removal as most clients ask for it.
pub(crate) fn delete_of(kind: &'static str, key: &str, context: Option<&Bytes>) -> DeleteObject {
    DeleteObject {
        address: address(kind, key),
        context: context.cloned(),
        conditions: Conditions::default(),
        quorums: Quorums::default(),
        timeout: None,
    }
}

fn ports(faulty: &Arc<Faulty<MemoryStore>>, clock: &Arc<SimClock>, actor: u64, rules: Rules) -> Ports {
    Ports {
        random: |bytes| bytes.fill(7),
        store: Arc::clone(faulty) as _,
        blobs: Arc::clone(faulty) as _,
        clock: Arc::clone(clock) as _,
        actor,
        engine: Arc::new("memory"),
        rules,
    }
}

fn config(at: usize) -> Config {
    Config { node: format!("g{at}"), alone: false, ..Config::default() }
}

/// Every third text is long enough to become a blob.
pub(crate) fn padded(text: &str) -> String {
    let long = text.bytes().map(usize::from).sum::<usize>() % 3 == 0;
    if long { format!("{text:<2000}") } else { text.to_owned() }
}

pub(crate) async fn shown(found: Found) -> Result<Shown, Error> {
    let mut texts = Vec::new();
    for mut body in found.bodies {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.length() {
            bytes.extend_from_slice(&Download::piece(&mut body, bytes.len() as u64, 64 * 1024).await?);
        }
        texts.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
    }
    Ok(Shown { texts, context: found.context, deleted: found.versions.deleted })
}

pub(crate) fn bucket(kind: &'static str) -> BucketAddress {
    BucketAddress::new(Bytes::from_static(kind.as_bytes()), Bytes::from_static(b"b")).unwrap()
}

/// A key of the bucket all keys are in, under a type.
pub(crate) fn address(kind: &'static str, key: &str) -> Address {
    Address::new(bucket(kind), Bytes::copy_from_slice(key.as_bytes())).unwrap()
}
