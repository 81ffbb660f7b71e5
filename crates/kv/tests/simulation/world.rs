//! The simulated world: a store, gateways with their own clocks, and a client's view of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_core::body::{GetBody, PutBody};
use larder_core::{Config, Error, GatewayPorts, IndexSplitting};
use larder_kv::rules::causality::Conditions;
use larder_kv::{FetchedObject, Gateway, KvDelete, KvDeleteOutcome, KvGet, KvPut, Quorums};
use larder_rows::ActorId;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_store::memory::MemoryStore;
use larder_store::{Clock, Timestamp};
use larder_testkit::faulty::{Faulty, StoreFaults, StoreHistory};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::simulation::batch_fates::{BatchFates, FatedStore};
use crate::simulation::recording_store::{RecordingStore, StoreTraffic};

/// Begin of virtual time.
const BEGIN: Timestamp = Timestamp(1_800_000_000_000_000);

/// Outcome of a schedule; the error says which promise was broken.
pub(crate) type ScheduleResult = Result<(), String>;

/// A clock on the runtime's virtual time, with a skew of its own.
pub(crate) struct SimClock {
    start: Instant,
    skew: AtomicI64,
}

impl SimClock {
    pub(crate) fn new(start: Instant) -> Arc<Self> {
        Arc::new(Self { start, skew: AtomicI64::new(0) })
    }

    /// The skew of the wall clock in microseconds.
    pub(crate) fn skew(&self) -> i64 {
        self.skew.load(Ordering::Relaxed)
    }

    /// Sets the skew of the wall clock in microseconds.
    pub(crate) fn set_skew(&self, micros: i64) {
        self.skew.store(micros, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let now = BEGIN + self.start.elapsed().as_micros() as u64;
        Timestamp(now.0.saturating_add_signed(self.skew.load(Ordering::Relaxed)))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// One gateway and its connection to the store.
pub(crate) struct SimGateway {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) faulty: Arc<Faulty<MemoryStore>>,
    pub(crate) clock: Arc<SimClock>,
    actor: u64,
}

/// A simulated cluster over one store.
pub(crate) struct SimWorld {
    pub(crate) nodes: Vec<SimGateway>,
    pub(crate) store: Arc<MemoryStore>,
    /// Traffic to a store where tombstones slow reads.
    pub(crate) traffic: Option<Arc<Mutex<StoreTraffic>>>,
    /// The fate of the next batch of a data type, if the schedule sets one.
    fates: Option<Arc<BatchFates>>,
    history: Arc<StoreHistory>,
    start: Instant,
    seed: u64,
    actors: u64,
    /// Whether the only gateway knows that it is alone.
    single: bool,
    /// When indexes are split.
    splitting: IndexSplitting,
}

/// A key as a client reads it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ShownObject {
    pub(crate) texts: Vec<String>,
    pub(crate) context: Option<Bytes>,
    pub(crate) deleted: bool,
}

/// Indexes are split above so many rows of a shard, as fast as gateways show the stages.
pub(crate) fn split_above(rows: u64) -> IndexSplitting {
    IndexSplitting { shard_rows: Some(rows), stage: Duration::from_millis(1), pause: Duration::from_millis(1) }
}

/// Runs one schedule under virtual time.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

/// A longer wait passes in one leap but for its end: a day has 86,400 heartbeats.
const LEAP_MIN: Duration = Duration::from_secs(600);
/// The end of a leap, in which gateways beat and serve again.
const AFTER_LEAP: Duration = Duration::from_secs(60);

/// Lets virtual time pass. Gateways notice a leap as machines do that slept.
pub(crate) async fn let_pass(time: Duration) {
    if time < LEAP_MIN {
        return tokio::time::sleep(time).await;
    }
    tokio::time::advance(time - AFTER_LEAP).await;
    tokio::time::sleep(AFTER_LEAP).await;
}

impl SimWorld {
    /// `count` gateways over an empty store.
    pub(crate) async fn new(seed: u64, count: usize) -> Self {
        Self::build(seed, count, None, false, IndexSplitting::default()).await
    }

    /// `count` gateways over an empty store where tombstones slow reads, so that they reuse slots.
    pub(crate) async fn keeping_tombstones(seed: u64, count: usize) -> Self {
        Self::build(seed, count, Some(Arc::default()), false, IndexSplitting::default()).await
    }

    /// One gateway that has the store for itself.
    pub(crate) async fn alone(seed: u64) -> Self {
        Self::build(seed, 1, None, true, IndexSplitting::default()).await
    }

    /// `count` gateways over an empty store that split indexes above so many rows of a shard.
    pub(crate) async fn splitting(seed: u64, count: usize, rows: u64) -> Self {
        Self::build(seed, count, None, false, split_above(rows)).await
    }

    /// This world with batches of data types whose fates the schedule sets. Its gateways start again.
    pub(crate) async fn with_fates(mut self) -> (Self, Arc<BatchFates>) {
        let fates = Arc::<BatchFates>::default();
        self.fates = Some(Arc::clone(&fates));
        for at in 0..self.nodes.len() {
            self.restart(at, 0).await;
        }
        (self, fates)
    }

    async fn build(
        seed: u64,
        count: usize,
        traffic: Option<Arc<Mutex<StoreTraffic>>>,
        single: bool,
        splitting: IndexSplitting,
    ) -> Self {
        let start = Instant::now();
        let store = Arc::new(MemoryStore::new(SimClock::new(start)));
        let history = StoreHistory::new(Duration::from_secs(1));
        let nodes = Vec::new();
        let mut world = Self { nodes, store, traffic, fates: None, history, start, seed, actors: 0, single, splitting };
        for at in 0..count {
            let actor = world.new_actor();
            let node = world.node(at, actor, 0).await;
            world.nodes.push(node);
        }
        world
    }

    fn config(&self, at: usize) -> Config {
        let (single_process, index_splitting) = (self.single, self.splitting);
        Config { node: format!("g{at}"), single_process, index_splitting, ..Config::default() }
    }

    fn new_actor(&mut self) -> u64 {
        self.actors += 1;
        self.actors
    }

    async fn node(&self, at: usize, actor: u64, skew: i64) -> SimGateway {
        let seed = self.seed.wrapping_mul(31).wrapping_add(actor);
        let faulty = Arc::new(Faulty::new(Arc::clone(&self.store), Arc::clone(&self.history), seed));
        let clock = SimClock::new(self.start);
        clock.set_skew(skew);
        let mut ports = ports(&faulty, &clock, actor);
        if let Some(traffic) = &self.traffic {
            ports.store = RecordingStore::new(ports.store, Arc::clone(traffic));
        }
        if let Some(fates) = &self.fates {
            ports.store = FatedStore::new(ports.store, Arc::clone(fates));
        }
        let gateway = Gateway::start(ports, self.config(at)).await;
        let gateway = gateway
            .unwrap_or_else(|error| panic!("seed {}: over a healthy store no gateway starts: {error}", self.seed));
        SimGateway { gateway, faulty, clock, actor }
    }

    /// Starts a second gateway under the name of a running one.
    pub(crate) async fn start_twin(&mut self, at: usize) -> Result<(), Error> {
        let actor = self.new_actor();
        let SimGateway { faulty, clock, .. } = &self.nodes[at];
        let ports = ports(faulty, clock, actor);
        Gateway::start(ports, self.config(at)).await.map(|twin| twin.abandon())
    }

    /// Kills a gateway and starts it again with its clock off by `skew` microseconds.
    pub(crate) async fn restart(&mut self, at: usize, skew: i64) {
        self.nodes[at].gateway.abandon();
        let actor = self.new_actor();
        self.nodes[at] = self.node(at, actor, skew).await;
    }

    /// Restarts a gateway that splits indexes above so many rows of a shard.
    pub(crate) async fn split_above(&mut self, at: usize, rows: u64) {
        self.splitting = split_above(rows);
        self.restart(at, 0).await;
    }

    /// Makes a gateway forget its slots of all keys, as eviction does key by key: it starts again as the same actor.
    pub(crate) async fn forget_slots(&mut self, at: usize) {
        let SimGateway { gateway, clock, actor, .. } = &self.nodes[at];
        gateway.abandon();
        self.nodes[at] = self.node(at, *actor, clock.skew()).await;
    }

    /// Injects these faults into every connection to the store.
    pub(crate) fn set_faults(&self, faults: StoreFaults) {
        for node in &self.nodes {
            node.faulty.set_faults(faults);
        }
    }

    /// Time since the beginning, the same for all.
    pub(crate) fn micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Lets time pass.
    pub(crate) async fn advance(&self, ms: u64) {
        let_pass(Duration::from_millis(ms)).await;
    }

    /// Creates and activates a type through the first gateway.
    pub(crate) async fn add_type(&self, name: &'static str, props: &str) {
        let name = Bytes::from_static(name.as_bytes());
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        let gateway = &self.nodes[0].gateway;
        gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
        while gateway.types().activate(&name).await.is_err() {
            self.advance(100).await;
        }
    }

    /// Sets properties of the bucket all keys are in.
    pub(crate) async fn set_props(&self, at: usize, kind: &'static str, props: &str) -> Result<(), Error> {
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        self.nodes[at].gateway.types().set_bucket_props(&bucket(kind), props.as_object().unwrap()).await
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

    /// A put that returns the object as a read shows it afterwards.
    pub(crate) async fn put_returning_body(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        text: &str,
        context: Option<&Bytes>,
    ) -> Result<ShownObject, Error> {
        let found = self.put_full(at, kind, key, text, context, true).await?;
        shown(found.expect("returnbody")).await
    }

    #[expect(clippy::too_many_arguments, reason = "all parameters of a client's put")]
    async fn put_full(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        text: &str,
        context: Option<&Bytes>,
        return_body: bool,
    ) -> Result<Option<FetchedObject>, Error> {
        let request = KvPut {
            address: address(kind, key),
            context: context.cloned(),
            conditions: Conditions::default(),
            if_not_modified: None,
            content: KvContent::default(),
            upload: PutBody::Bytes(Bytes::copy_from_slice(padded(text).as_bytes())),
            quorums: Quorums::default(),
            return_body,
            timeout: None,
        };
        self.nodes[at].gateway.kv.put(request).await
    }

    pub(crate) async fn read(&self, at: usize, kind: &'static str, key: &str) -> Result<ShownObject, Error> {
        shown(self.nodes[at].gateway.kv.get(get_of(kind, key)).await?).await
    }

    /// The listed keys and buckets.
    pub(crate) async fn list(&self, at: usize, kind: &'static str) -> Result<(Vec<Bytes>, Vec<Bytes>), Error> {
        let bucket = bucket(kind);
        let keys = self.nodes[at].gateway.kv.list_keys(&bucket, None, None).await?.names;
        let buckets = self.nodes[at].gateway.kv.list_buckets(&bucket.bucket_type, None, None).await?.names;
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
        Ok(matches!(self.nodes[at].gateway.kv.delete(delete_of(kind, key, context)).await?, KvDeleteOutcome::Done))
    }
}

/// A read with default parameters.
pub(crate) fn get_of(kind: &'static str, key: &str) -> KvGet {
    KvGet { address: address(kind, key), quorums: Quorums::default(), bodies: true, timeout: None }
}

/// A delete with default parameters.
pub(crate) fn delete_of(kind: &'static str, key: &str, context: Option<&Bytes>) -> KvDelete {
    KvDelete {
        address: address(kind, key),
        context: context.cloned(),
        conditions: Conditions::default(),
        quorums: Quorums::default(),
        timeout: None,
    }
}

fn ports(faulty: &Arc<Faulty<MemoryStore>>, clock: &Arc<SimClock>, actor: u64) -> GatewayPorts {
    GatewayPorts {
        random: |bytes| bytes.fill(7),
        store: Arc::clone(faulty) as _,
        blobs: Arc::clone(faulty) as _,
        clock: Arc::clone(clock) as _,
        actor: ActorId(actor),
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        webhooks: None,
        product: larder_s3::S3Catalogue::empty(),
    }
}

/// Every third text is long enough to become a blob.
pub(crate) fn padded(text: &str) -> String {
    let long = text.bytes().map(usize::from).sum::<usize>() % 3 == 0;
    if long { format!("{text:<2000}") } else { text.to_owned() }
}

pub(crate) async fn shown(found: FetchedObject) -> Result<ShownObject, Error> {
    let mut texts = Vec::new();
    for mut body in found.bodies {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.length() {
            bytes.extend_from_slice(&GetBody::piece(&mut body, bytes.len() as u64, 64 * 1024).await?);
        }
        texts.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
    }
    Ok(ShownObject { texts, context: found.context, deleted: found.versions.deleted })
}

pub(crate) fn bucket(kind: &'static str) -> BucketAddress {
    BucketAddress::new(Bytes::from_static(kind.as_bytes()), Bytes::from_static(b"b")).unwrap()
}

/// A key of the bucket all keys are in, under a type.
pub(crate) fn address(kind: &'static str, key: &str) -> Address {
    Address::new(bucket(kind), Bytes::copy_from_slice(key.as_bytes())).unwrap()
}
