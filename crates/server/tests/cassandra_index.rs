//! Secondary indexes over a real node: random schedules against a scan of all objects, and the sizes of partitions.
//!
//! Runs if `LARDER_CASSANDRA` names a node, such as `127.0.0.1:9042`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test in real time, whose environment names the node"
)]

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::{Config, DeleteMode, GatewayPorts, IndexSplitting};
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::index::IndexQuery;
use larder_kv::{Gateway, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::{KvContent, Term};
use larder_rows::{ActorId, BucketEpochs, EpochStage};
use larder_store::{CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, SystemClock};
use larder_store_cassandra::blobs::{BlobOptions, CassandraBlobs, GRACE, LEASE};
use larder_store_cassandra::{CassandraStore, ConnectOptions, Replication};
use larder_testkit::case_seeds;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::walk::{IndexWalk, TYPES, hits};

/// Schedules of a test run, and of a soak.
const SCHEDULES: u64 = 100;
const SOAK_SCHEDULES: u64 = 10_000;
/// Schedules at a time, each in a bucket of its own.
const TOGETHER: u64 = 12;
const STEPS: usize = 12;
/// Longest wait for the late half of a write whose gateway was killed.
const LATE: Duration = Duration::from_secs(10);

/// Gateways over keyspaces of their own on a real node.
struct CassandraGateways {
    store: CassandraStore,
    running: Mutex<Vec<Arc<Gateway>>>,
    shard_rows: u64,
    actors: AtomicU64,
}

impl CassandraGateways {
    /// Two gateways that split indexes above `shard_rows` rows of a shard; `None`, with a message, without a node.
    async fn start(shard_rows: u64) -> Option<Self> {
        let Ok(node) = std::env::var("LARDER_CASSANDRA") else {
            println!("skipped: LARDER_CASSANDRA names no node to run on");
            return None;
        };
        let options = ConnectOptions {
            contact_points: vec![node],
            keyspace: format!("h2_{:08x}", RandomState::new().hash_one("prefix") as u32),
            replication: Replication::Simple,
            credentials: None,
            tls: None,
            clock: None,
        };
        let store = CassandraStore::connect(options).await.expect("the node answers");
        let gateways = Self { store, running: Mutex::default(), shard_rows, actors: AtomicU64::new(0) };
        for _ in 0..2 {
            let started = gateways.another().await;
            gateways.running.lock().unwrap().push(started);
        }
        Some(gateways)
    }

    /// A further gateway.
    async fn another(&self) -> Arc<Gateway> {
        let actor = 1 + self.actors.fetch_add(1, Ordering::Relaxed);
        let clock = Arc::new(SystemClock::default());
        let blobs = BlobOptions { grace: GRACE, lease: LEASE, clock: clock.clone(), process: actor };
        let keyspace = self.store.keyspace(Partition::DEFAULT_COPIES);
        let blobs = CassandraBlobs::open(self.store.session().clone(), &keyspace, blobs).await.unwrap();
        let ports = GatewayPorts {
            store: Arc::clone(self.store.rows()),
            blobs: Arc::new(blobs),
            clock,
            actor: ActorId(actor),
            random: |bytes| bytes.fill(7),
            engine: Arc::new("cassandra"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let stage = Duration::from_millis(100);
        let config = Config {
            node: format!("g{actor}"),
            single_process: false,
            delete_mode: DeleteMode::After(Duration::from_millis(20)),
            index_splitting: IndexSplitting { shard_rows: Some(self.shard_rows), stage, pause: stage / 100 },
            ..Config::default()
        };
        Gateway::start(ports, config).await.expect("a gateway starts")
    }

    fn gateway(&self, at: usize) -> Arc<Gateway> {
        Arc::clone(&self.running.lock().unwrap()[at])
    }

    /// Kills a gateway: another one of a new name takes its place.
    async fn replace(&self, at: usize) {
        let next = self.another().await;
        let dead = std::mem::replace(&mut self.running.lock().unwrap()[at], next);
        dead.abandon();
    }

    async fn add_types(&self) {
        for (name, props) in TYPES {
            let props: serde_json::Value = serde_json::from_str(props).unwrap();
            let types = self.gateway(0);
            types.types().create(&name.into(), props.as_object().unwrap()).await.unwrap();
            while types.types().activate(&name.into()).await.is_err() {
                sleep(Duration::from_millis(200)).await;
            }
        }
    }

    async fn drop_keyspaces(self) {
        for gateway in self.running.lock().unwrap().drain(..) {
            gateway.abandon();
        }
        for copies in 1..=7 {
            let text = format!("DROP KEYSPACE IF EXISTS {}", self.store.keyspace(copies));
            self.store.session().driver().query_unpaged(text, ()).await.expect("the keyspace is dropped");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_schedules_over_a_node_leave_indexes_that_show_the_terms_of_the_objects() {
    // Some buckets are split in the midst of their schedules.
    let Some(gateways) = CassandraGateways::start(2).await else { return };
    gateways.add_types().await;
    let gateways = Arc::new(gateways);
    let seeds = case_seeds(SCHEDULES, SOAK_SCHEDULES);
    let count = seeds.end - seeds.start;
    let mut schedules = JoinSet::new();
    for seed in seeds {
        if schedules.len() as u64 >= TOGETHER {
            schedules.join_next().await.unwrap().unwrap();
        }
        schedules.spawn(schedule(Arc::clone(&gateways), seed));
    }
    schedules.join_all().await;
    let split = gateways.gateway(0).kv.split_buckets().await.unwrap();
    println!("{count} schedules, {} buckets split", split.len());
    assert!(!split.is_empty(), "nothing was split");
    Arc::into_inner(gateways).expect("all schedules ended").drop_keyspaces().await;
}

/// One client through two gateways; some of its writes end half-way, and now and then a gateway does.
async fn schedule(gateways: Arc<CassandraGateways>, seed: u64) {
    let mut walk = IndexWalk::new(seed, &format!("b{seed}"));
    for _ in 0..STEPS {
        let at = walk.dice.below(2);
        if walk.dice.below(500) == 0 {
            gateways.replace(at).await;
        }
        let gateway = gateways.gateway(at);
        // A client or a gateway that ends in the midst of its writes.
        let patience = if walk.dice.below(10) == 0 { walk.dice.below(10_000) as u64 } else { 60_000_000 };
        let _ = timeout(Duration::from_micros(patience), walk.step(&gateway)).await;
    }
    let begun = Instant::now();
    while let Err(wrong) = walk.check(&gateways.gateway(seed as usize % 2)).await {
        // The node may still carry out a batch that its gateway no longer waits for, between the reads of a check.
        assert!(begun.elapsed() < LATE, "seed {seed}: {wrong}");
        sleep(Duration::from_millis(300)).await;
    }
}

/// Decision 29 on a real node, at a bound of 100 rows a shard instead of a million: keys by thousands, three epochs.
#[tokio::test(flavor = "multi_thread")]
async fn no_partition_of_a_growing_bucket_has_twice_the_rows_of_a_full_shard() {
    const FULL: u64 = 100;
    let Some(gateways) = CassandraGateways::start(FULL).await else { return };
    let bucket = BucketAddress::new("default".into(), "large".into()).unwrap();
    let (mut written, mut shards) = (0, 4);
    for epochs in 2..=3 {
        // A quarter more than fills the shards of the newest epoch.
        for _ in 0..shards * FULL * 5 / 4 {
            put_numbered(&gateways.gateway(written as usize % 2), &bucket, written).await;
            written += 1;
        }
        let begun = Instant::now();
        while open_epochs(&gateways, &bucket).await.counts().len() < epochs {
            assert!(begun.elapsed() < Duration::from_secs(60), "epoch {epochs} does not open after {written} keys");
            put_numbered(&gateways.gateway(0), &bucket, written).await;
            written += 1;
            sleep(Duration::from_millis(50)).await;
        }
        shards *= 4;
    }
    let epochs = open_epochs(&gateways, &bucket).await;
    let rows = rows_of_partitions(&gateways, &bucket, epochs).await;
    let (largest, total): (usize, usize) = (*rows.iter().max().unwrap(), rows.iter().sum());
    println!("{written} keys in {epochs:?}, {} partitions, {largest} rows in the largest", rows.len());
    assert!(largest as u64 <= FULL * 2, "{largest} rows in one partition: {rows:?}");
    assert!(total as u64 >= written * 2, "a row of the term and one of the key for each of {written} keys: {total}");
    let query = IndexQuery::range(bucket.clone(), &"n_int".into(), &"0".into(), &"999999".into()).unwrap();
    let found = hits(&gateways.gateway(1), &query, None, usize::MAX).await.unwrap();
    let found: BTreeSet<Bytes> = found.into_iter().map(|(_, (_, key))| key).collect();
    assert_eq!(found.len() as u64, written);
    gateways.drop_keyspaces().await;
}

async fn put_numbered(gateway: &Gateway, bucket: &BucketAddress, number: u64) {
    let terms = vec![Term { field: "n_int".into(), value: number.to_string().into() }];
    let put = KvPut {
        address: Address::new(bucket.clone(), format!("key {number}").into()).unwrap(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent { terms, ..KvContent::default() },
        upload: PutBody::Bytes("value".into()),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    };
    gateway.kv.put(put).await.expect("a put is answered");
}

/// The epochs of a bucket once the newest is open.
async fn open_epochs(gateways: &CassandraGateways, bucket: &BucketAddress) -> BucketEpochs {
    let split = gateways.gateway(0).kv.split_buckets().await.unwrap();
    let found = split.into_iter().find(|(found, _)| found == bucket).map(|(_, epochs)| epochs);
    found.filter(|epochs| epochs.stage() == EpochStage::Open).unwrap_or_default()
}

/// The rows of each partition of the index of a bucket, and of its keys.
async fn rows_of_partitions(gateways: &CassandraGateways, bucket: &BucketAddress, epochs: BucketEpochs) -> Vec<usize> {
    let options =
        CallOptions::new(ConsistencyLevel::Quorum, Instant::now() + Duration::from_secs(60), Durability::Buffered);
    let mut rows = Vec::new();
    for place in epochs.shards() {
        let copies = Partition::DEFAULT_COPIES;
        for partition in [
            Partition::index(bucket, b"n_int", place.epoch, place.shard, copies),
            Partition::keys(bucket, place.epoch, place.shard, copies),
        ] {
            let page = gateways.store.rows().read(&partition, &ReadQuery::all(10_000), &options).await.unwrap();
            rows.push(page.rows.len());
        }
    }
    rows
}
