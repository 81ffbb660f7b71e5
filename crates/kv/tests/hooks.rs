//! Commit hooks of a gateway in memory, over scripts and a store that the test controls.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream, PutBody};
use larder_core::{
    Config, Error, Feature, GatewayPorts, PrecommitRefusal, ScriptCall, ScriptError, ScriptFunction, Scripts,
};
use larder_kv::datatypes::DatatypeChange;
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::datatypes::DatatypeUpdate;
use larder_kv::{Gateway, KvDelete, KvGet, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Clock, Error as StoreError, Kind, Result, Store, Table};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use serde_json::{Value, json};

use crate::ports::ports_over;

/// A store in memory that counts the writes of objects, and may fail each read after one.
struct WatchedStore {
    inner: MemoryStore,
    writes: AtomicUsize,
    fails_reads_after_write: AtomicBool,
}

impl StoreHook for WatchedStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let is_object = |table| matches!(table, Table::Objects | Table::Consistent);
        match call {
            StoreCall::Apply(batch) if batch.partitions.iter().any(|one| is_object(one.partition.table)) => {
                self.writes.fetch_add(1, Ordering::SeqCst);
            }
            StoreCall::ApplyIf(partition, _) if is_object(partition.table) => {
                self.writes.fetch_add(1, Ordering::SeqCst);
            }
            StoreCall::Read(partition)
                if is_object(partition.table)
                    && self.fails_reads_after_write.load(Ordering::SeqCst)
                    && self.writes.load(Ordering::SeqCst) > 0 =>
            {
                return Err(StoreError::new(Kind::TimedOut, "the read after the write fails"));
            }
            _ => {}
        }
        make(options).await
    }
}

/// Scripts by name; those in the background are counted and may never end.
#[derive(Default)]
struct FewScripts {
    store: Option<Arc<WatchedStore>>,
    after: AtomicUsize,
    /// Writes of objects that the store had when a script of a request was called.
    writes_before: AtomicUsize,
    blocks_after: AtomicBool,
}

#[async_trait]
impl Scripts for FewScripts {
    async fn call(&self, call: ScriptCall) -> std::result::Result<Value, ScriptError> {
        let ScriptFunction::Named(name) = &call.function else { panic!("a hook is named") };
        let writes = self.store.as_ref().unwrap().writes.load(Ordering::SeqCst);
        self.writes_before.fetch_max(writes, Ordering::SeqCst);
        match &**name {
            "refuse" => return Ok(json!({"fail": "no"})),
            "slow" => tokio::time::sleep(Duration::from_secs(2)).await,
            _ => tokio::task::yield_now().await,
        }
        let mut arguments: Vec<Value> = serde_json::from_slice(call.arguments.json()).unwrap();
        Ok(arguments.swap_remove(0))
    }

    async fn call_in_background(&self, _: ScriptCall) -> std::result::Result<Value, ScriptError> {
        if self.blocks_after.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let writes = self.store.as_ref().unwrap().writes.load(Ordering::SeqCst);
        assert!(writes > 0, "after the write");
        self.after.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Null)
    }

    fn reload(&self) -> std::result::Result<usize, String> {
        Ok(0)
    }

    fn has_function(&self, _: &str) -> Option<bool> {
        None
    }
}

/// A gateway with its store and its scripts.
struct HookedGateway {
    gateway: Arc<Gateway>,
    store: Arc<WatchedStore>,
    scripts: Arc<FewScripts>,
}

impl HookedGateway {
    async fn start() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::start());
        let store = Arc::new(WatchedStore {
            inner: MemoryStore::new(clock.clone()),
            writes: AtomicUsize::new(0),
            fails_reads_after_write: AtomicBool::new(false),
        });
        let scripts = Arc::new(FewScripts { store: Some(store.clone()), ..FewScripts::default() });
        let ports = ports_over(Arc::new(Hooked(store.clone())), clock);
        let ports = GatewayPorts { scripts: Some(scripts.clone()), ..ports };
        let gateway = Gateway::start(ports, Config { durable: false, ..Config::default() }).await.unwrap();
        Self { gateway, store, scripts }
    }

    async fn set(&self, address: &Address, props: Value) {
        self.gateway.types().set_bucket_props(&address.bucket, props.as_object().unwrap()).await.unwrap();
    }

    async fn has(&self, address: &Address) -> bool {
        let get = KvGet { address: address.clone(), quorums: Quorums::default(), bodies: true, timeout: None };
        self.gateway.kv.get(get).await.is_ok_and(|found| !found.versions.siblings.is_empty())
    }

    /// Waits until so many scripts ran in the background.
    async fn ran_after(&self, count: usize) {
        for _ in 0..1000 {
            if self.scripts.after.load(Ordering::SeqCst) == count {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{} postcommit hooks ran", self.scripts.after.load(Ordering::SeqCst));
    }
}

fn address(kind: &'static str, key: &'static str) -> Address {
    address_in(kind, "b", key)
}

fn address_in(kind: &'static str, bucket: &'static str, key: &'static str) -> Address {
    Address::new(BucketAddress::new(kind.into(), bucket.into()).unwrap(), key.into()).unwrap()
}

fn put_of(address: &Address, upload: PutBody) -> KvPut {
    KvPut {
        address: address.clone(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent::default(),
        upload,
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    }
}

fn delete_of(address: &Address) -> KvDelete {
    KvDelete {
        address: address.clone(),
        context: None,
        conditions: Conditions::default(),
        quorums: Quorums::default(),
        timeout: None,
    }
}

#[tokio::test(start_paused = true)]
async fn no_write_reaches_the_store_before_its_precommit_hooks_agreed() {
    let hooked = HookedGateway::start().await;
    let kv = &hooked.gateway.kv;
    let address = address("default", "k");
    hooked.set(&address, json!({"precommit": ["slow", "accept", "refuse"], "postcommit": ["after"]})).await;
    let refused = |result: Option<Error>| matches!(result, Some(Error::Precommit(PrecommitRefusal::Reason(text))) if text == "no");
    assert!(refused(kv.put(put_of(&address, PutBody::Bytes("v".into()))).await.err()));
    assert!(!hooked.has(&address).await);
    hooked.set(&address, json!({"precommit": ["slow", "accept"]})).await;
    kv.put(put_of(&address, PutBody::Bytes("v".into()))).await.unwrap();
    assert_eq!(hooked.scripts.writes_before.load(Ordering::SeqCst), 0, "the write came after each of its hooks");
    hooked.ran_after(1).await;
    let writes = hooked.store.writes.load(Ordering::SeqCst);
    hooked.set(&address, json!({"precommit": ["slow", "refuse"]})).await;
    assert!(refused(kv.delete(delete_of(&address)).await.err()));
    assert!(hooked.has(&address).await);
    assert_eq!(hooked.store.writes.load(Ordering::SeqCst), writes);
    hooked.ran_after(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_put_whose_read_back_failed_runs_its_postcommit_hooks() {
    for kind in ["default", "strong"] {
        let hooked = HookedGateway::start().await;
        if kind == "strong" {
            let name = Bytes::from(kind);
            hooked.gateway.types().create(&name, json!({"consistent": true}).as_object().unwrap()).await.unwrap();
            hooked.gateway.types().activate(&name).await.unwrap();
        }
        let address = address(kind, "k");
        hooked.set(&address, json!({"precommit": ["accept"], "postcommit": ["after"]})).await;
        hooked.store.fails_reads_after_write.store(true, Ordering::SeqCst);
        let put = KvPut { return_body: true, ..put_of(&address, PutBody::Bytes("v".into())) };
        let failed = hooked.gateway.kv.put(put).await;
        assert!(matches!(failed, Err(Error::TimedOut)), "{kind}: {:?}", failed.err());
        hooked.ran_after(1).await;
        hooked.store.fails_reads_after_write.store(false, Ordering::SeqCst);
        assert!(hooked.has(&address).await, "{kind}: written all the same");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clients_short_timeout_is_no_refusal_of_a_hook() {
    let hooked = HookedGateway::start().await;
    let address = address("default", "k");
    hooked.set(&address, json!({"allow_mult": true, "precommit": ["slow"], "postcommit": ["after"]})).await;
    // With siblings a put reads nothing first: only the deadline of its hooks holds it back.
    let put = KvPut { timeout: Some(Duration::from_millis(1)), ..put_of(&address, PutBody::Bytes("v".into())) };
    let failed = hooked.gateway.kv.put(put).await;
    assert!(matches!(failed, Err(Error::TimedOut)), "{:?}", failed.err());
    assert_eq!(hooked.store.writes.load(Ordering::SeqCst), 0);
    hooked.ran_after(0).await;
}

/// A body that takes longer than a request has.
struct SlowBody {
    left: u8,
}

#[async_trait]
impl ByteStream for SlowBody {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        self.left = self.left.checked_sub(1)?;
        tokio::time::sleep(Duration::from_secs(20)).await;
        Some(Ok("x".into()))
    }
}

/// A body of large pieces.
struct LargeBody {
    left: u8,
    piece: Bytes,
}

#[async_trait]
impl ByteStream for LargeBody {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        self.left = self.left.checked_sub(1)?;
        Some(Ok(self.piece.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_arrives_slower_than_the_timeout_is_hooked_and_written() {
    let hooked = HookedGateway::start().await;
    let address = address("default", "k");
    hooked.set(&address, json!({"precommit": ["slow"]})).await;
    let upload = PutBody::Stream { stream: Box::new(SlowBody { left: 5 }), length: Some(5) };
    hooked.gateway.kv.put(put_of(&address, upload)).await.unwrap();
    assert!(hooked.has(&address).await);
}

/// Bodies of unknown length that stall keep what arrived of them, and not the most that they may have.
#[tokio::test(start_paused = true)]
async fn no_put_waits_for_the_stalled_bodies_of_others() {
    let hooked = HookedGateway::start().await;
    let address = address("default", "k");
    hooked.set(&address, json!({"precommit": ["accept"]})).await;
    let stalled = (0..60).map(|_| {
        let (gateway, address) = (hooked.gateway.clone(), address.clone());
        let upload = PutBody::Stream { stream: Box::new(SlowBody { left: 100 }), length: None };
        tokio::spawn(async move { gateway.kv.put(put_of(&address, upload)).await.map(drop) })
    });
    let stalled: Vec<_> = stalled.collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = tokio::time::Instant::now();
    hooked.gateway.kv.put(put_of(&address, PutBody::Bytes("v".into()))).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    stalled.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_length_that_is_too_large_is_refused() {
    let hooked = HookedGateway::start().await;
    let address = address("default", "k");
    hooked.set(&address, json!({"precommit": ["accept"]})).await;
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    for (pieces, length) in [(9, None), (9, Some(9 << 20))] {
        let stream = Box::new(LargeBody { left: pieces, piece: piece.clone() });
        let refused = hooked.gateway.kv.put(put_of(&address, PutBody::Stream { stream, length })).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })), "{:?}", refused.err());
    }
    let stream = Box::new(LargeBody { left: 8, piece });
    hooked.gateway.kv.put(put_of(&address, PutBody::Stream { stream, length: None })).await.unwrap();
    assert!(hooked.has(&address).await);
}

#[tokio::test(start_paused = true)]
async fn no_put_waits_for_postcommit_hooks_of_others() {
    let hooked = HookedGateway::start().await;
    let address = address("default", "k");
    hooked.set(&address, json!({"precommit": ["accept"], "postcommit": ["after"]})).await;
    hooked.scripts.blocks_after.store(true, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    for _ in 0..80 {
        let body = Bytes::from(vec![b'x'; 1 << 20]);
        hooked.gateway.kv.put(put_of(&address, PutBody::Bytes(body))).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_postcommit_hooks_of_one_bucket_once_kept_those_of_all_others_from_running() {
    let hooked = HookedGateway::start().await;
    let (greedy, calm) = (address_in("default", "greedy", "k"), address_in("default", "calm", "k"));
    for address in [&greedy, &calm] {
        hooked.set(address, json!({"postcommit": ["after"]})).await;
    }
    hooked.scripts.blocks_after.store(true, Ordering::SeqCst);
    let put = |address| put_of(address, PutBody::Bytes("v".into()));
    for _ in 0..2000 {
        hooked.gateway.kv.put(put(&greedy)).await.unwrap();
    }
    // The time of the test goes on when every hook has begun.
    tokio::time::sleep(Duration::from_millis(1)).await;
    hooked.scripts.blocks_after.store(false, Ordering::SeqCst);
    hooked.gateway.kv.put(put(&calm)).await.unwrap();
    hooked.ran_after(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_a_legacy_counter_passes_no_hook_silently() {
    let hooked = HookedGateway::start().await;
    let address = address("default", "k");
    hooked.set(&address, json!({"allow_mult": true})).await;
    let change = DatatypeChange {
        address: address.clone(),
        update: DatatypeUpdate::Counter(5),
        context: None,
        request_id: None,
        quorums: Quorums::default(),
        timeout: None,
    };
    hooked.gateway.kv.update_datatype(change).await.unwrap();
    hooked.set(&address, json!({"precommit": ["refuse"]})).await;
    let refused = hooked.gateway.kv.delete(delete_of(&address)).await;
    assert!(matches!(refused, Err(Error::NotBuilt(Feature::DatatypeHooks))), "{:?}", refused.err());
    hooked.set(&address, json!({"precommit": []})).await;
    hooked.gateway.kv.delete(delete_of(&address)).await.unwrap();
}
