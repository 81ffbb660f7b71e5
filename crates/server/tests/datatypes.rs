//! Data types over the embedded engine: exact values after restarts, and under many writers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test in real time")]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_core::{Config, GatewayPorts};
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch};
use larder_kv::rules::datatypes::{DatatypeUpdate, DatatypeValue, SetEdit};
use larder_kv::{Gateway, Quorums};
use larder_rows::ActorId;
use larder_rows::address::{Address, BucketAddress};
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use larder_store_local::{LocalStore, OpenOptions};
use tokio::task::JoinSet;

/// One run of a server without listeners.
struct ServerRun {
    gateway: Arc<Gateway>,
    store: LocalStore,
}

impl ServerRun {
    async fn start(dir: &Path, actor: u64, durable: bool) -> Self {
        let clock = Arc::new(SystemClock::default());
        let options = OpenOptions {
            dir: dir.to_owned(),
            cache_bytes: 64 << 20,
            memtables_bytes: 64 << 20,
            durable,
            accept_damaged_journal: false,
            sizes: None,
            clock: clock.clone(),
        };
        let store = LocalStore::open(options).unwrap();
        let ports = GatewayPorts {
            store: Arc::new(store.clone()),
            blobs: Arc::new(MemoryStore::new(clock.clone())),
            clock,
            actor: ActorId(actor),
            random: |bytes| bytes.fill(7),
            engine: Arc::new("local"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let gateway = Gateway::start(ports, Config { durable, ..Config::default() }).await.unwrap();
        Self { gateway, store }
    }

    async fn add_type(&self, name: &'static str) {
        let props = serde_json::json!({ "datatype": name });
        self.gateway.types().create(&name.into(), props.as_object().unwrap()).await.unwrap();
        self.gateway.types().activate(&name.into()).await.unwrap();
    }

    async fn update(&self, kind: &'static str, update: DatatypeUpdate) {
        let change = DatatypeChange {
            address: address(kind),
            update,
            context: None,
            request_id: None,
            quorums: Quorums::default(),
            timeout: None,
        };
        self.gateway.kv.update_datatype(change).await.unwrap();
    }

    async fn value(&self, kind: &'static str) -> DatatypeValue {
        let found = self.gateway.kv.fetch_datatype(fetch(kind)).await.unwrap().unwrap();
        found.whole(usize::MAX).await.unwrap().0
    }

    async fn end(self) {
        self.gateway.abandon();
        self.store.close().await.unwrap();
    }
}

fn address(kind: &'static str) -> Address {
    Address::new(BucketAddress::new(kind.into(), "b".into()).unwrap(), "k".into()).unwrap()
}

fn fetch(kind: &'static str) -> DatatypeFetch {
    DatatypeFetch {
        address: address(kind),
        quorums: Quorums::default(),
        include_context: true,
        begin: DatatypeBegin::First,
        timeout: None,
    }
}

fn element(at: usize) -> Bytes {
    format!("element-{at:08}").into()
}

fn adds(range: std::ops::Range<usize>) -> DatatypeUpdate {
    DatatypeUpdate::Set(range.map(|at| SetEdit::Add(element(at))).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_exact_after_every_restart() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4_usize {
        let run = Arc::new(ServerRun::start(dir.path(), round as u64 + 1, true).await);
        if round == 0 {
            run.add_type("counter").await;
            run.add_type("set").await;
            run.add_type("hll").await;
        } else {
            assert_eq!(run.value("counter").await, DatatypeValue::Counter(round as i128 * 64 * 10));
        }
        let mut tasks = JoinSet::new();
        for task in 0..64 {
            let run = Arc::clone(&run);
            tasks.spawn(async move {
                for by in 0..5 {
                    run.update("counter", DatatypeUpdate::Counter(by)).await;
                }
                let at = round * 64 + task;
                run.update("set", adds(at..at + 1)).await;
                run.update("hll", DatatypeUpdate::Hll(vec![element(at)])).await;
            });
        }
        tasks.join_all().await;
        let count = (round + 1) * 64;
        assert_eq!(run.value("counter").await, DatatypeValue::Counter(count as i128 * 10));
        assert_eq!(run.value("set").await, DatatypeValue::Set((0..count).map(element).collect()));
        let DatatypeValue::Hll(estimate) = run.value("hll").await else { panic!("no estimate") };
        assert!(estimate.abs_diff(count as u64) <= 5, "{estimate}");
        Arc::into_inner(run).unwrap().end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_increment_that_comes_as_the_writer_of_its_key_ends_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let run = Arc::new(ServerRun::start(dir.path(), 1, false).await);
    run.add_type("counter").await;
    let mut tasks = JoinSet::new();
    // Few at a time: the writer of the key ends and begins again all the time.
    for _ in 0..3 {
        let run = Arc::clone(&run);
        tasks.spawn(async move {
            for _ in 0..1_500 {
                run.update("counter", DatatypeUpdate::Counter(1)).await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(run.value("counter").await, DatatypeValue::Counter(4_500));
    Arc::into_inner(run).unwrap().end().await;
}
