//! Notices for webhooks, over a store that dies and receivers that fail.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::outbox::{WebhookBacklog, WebhookChoice};
use larder_core::rules::props::WebhookHost;
use larder_core::{Config, Error, GatewayPorts, WebhookRequest, Webhooks};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvDelete, KvGet, KvPut, Quorums};
use larder_rows::ActorId;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Change, Clock, Error as StoreError, Kind, Result, Store, Table, Timestamp};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use larder_testkit::replicas::{ClusterSetup, Replicas};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::ports::ports_over;

const URL: &str = "http://h/hook";

/// A store in memory behind a connection that dies, or that loses the removals of notices.
struct DyingStore {
    inner: Arc<dyn Store>,
    /// Writes until the connection is dead.
    writes_left: AtomicUsize,
    keeps_notices: AtomicBool,
    /// The failure that the next writes report although they are carried out.
    reports: Mutex<Option<Kind>>,
}

impl StoreHook for DyingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let dead = || StoreError::new(Kind::Io, "the connection is dead");
        if let StoreCall::Apply(batch) = call {
            let removes = |change: &Change| matches!(change, Change::Remove { .. });
            let is_removal = |one: &larder_store::PartitionChanges| {
                one.partition.table == Table::Outbox && one.changes.iter().all(removes)
            };
            if self.keeps_notices.load(Ordering::SeqCst) && batch.partitions.iter().all(is_removal) {
                return Err(dead());
            }
        }
        if call.is_write() {
            let left = self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            left.map_err(|_| dead())?;
        }
        let made = make(options).await;
        let reported = self.reports.lock().filter(|_| call.is_write());
        match (made, reported) {
            (Ok(_), Some(kind)) => Err(StoreError::new(kind, "reported although it is done")),
            (made, _) => made,
        }
    }
}

/// A receiver: it takes what it is sent, refuses it, or does not answer.
#[derive(Default)]
struct Receiver {
    received: Mutex<Vec<Value>>,
    refuses: AtomicBool,
    hangs: AtomicBool,
    calls: AtomicUsize,
}

#[async_trait]
impl Webhooks for Receiver {
    async fn post(&self, request: WebhookRequest<'_>) -> std::result::Result<(), String> {
        let WebhookRequest { url, id, authorization: None, body } = request else { panic!("{request:?}") };
        assert_eq!(url.as_str().split('?').next(), Some(URL));
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            return Err("no".into());
        }
        let notice: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(notice["id"], id);
        self.received.lock().push(notice);
        Ok(())
    }
}

impl Receiver {
    fn ids(&self) -> BTreeSet<String> {
        self.received.lock().iter().map(|notice| notice["id"].as_str().unwrap().to_owned()).collect()
    }

    fn events(&self) -> Vec<String> {
        let event = |notice: &Value| format!("{} {}", notice["event"], notice["key"]).replace('"', "");
        self.received.lock().iter().map(event).collect()
    }

    /// Waits until it has so many notices.
    async fn has(&self, count: usize) {
        for _ in 0..20_000 {
            if self.received.lock().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} of {count} notices", self.received.lock().len());
    }
}

/// The world outside of the gateways.
struct HookWorld {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    receiver: Arc<Receiver>,
}

impl HookWorld {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::start());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        Self { store, clock, receiver: Arc::default() }
    }

    async fn start(&self, actor: u64) -> (Arc<Gateway>, Arc<DyingStore>) {
        self.start_with(actor, Config { durable: false, webhook_hosts: hosts(), ..Config::default() }).await
    }

    async fn start_with(&self, actor: u64, config: Config) -> (Arc<Gateway>, Arc<DyingStore>) {
        let store = Arc::new(DyingStore {
            inner: self.store.clone(),
            writes_left: AtomicUsize::new(usize::MAX),
            keeps_notices: AtomicBool::new(false),
            reports: Mutex::new(None),
        });
        let ports = ports_over(Arc::new(Hooked(store.clone())), self.clock.clone());
        let ports = GatewayPorts { actor: ActorId(actor), webhooks: Some(self.receiver.clone()), ..ports };
        (Gateway::start(ports, config).await.unwrap(), store)
    }

    /// A gateway with a bucket of this type that has a webhook.
    async fn start_hooked(&self, actor: u64, kind: &'static str) -> (Arc<Gateway>, Arc<DyingStore>) {
        let (gateway, store) = self.start(actor).await;
        if kind != "default" {
            let name = Bytes::from(kind);
            gateway.types().create(&name, json!({"consistent": true}).as_object().unwrap()).await.unwrap();
            gateway.types().activate(&name).await.unwrap();
        }
        set_webhooks(&gateway, kind, 1).await;
        (gateway, store)
    }
}

fn hosts() -> Vec<WebhookHost> {
    vec![WebhookHost::parse("h").unwrap()]
}

async fn set_webhooks(gateway: &Gateway, kind: &'static str, count: usize) {
    let hook = json!({"mod": "larder", "fun": "webhook", "arg": URL});
    let props = json!({ "postcommit": vec![hook; count] });
    gateway.types().set_bucket_props(&address(kind, "k").bucket, props.as_object().unwrap()).await.unwrap();
}

fn address(kind: &'static str, key: &str) -> Address {
    let bucket = BucketAddress::new(kind.into(), "b".into()).unwrap();
    Address::new(bucket, Bytes::copy_from_slice(key.as_bytes())).unwrap()
}

fn put_of(address: &Address) -> KvPut {
    KvPut {
        address: address.clone(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent { content_type: Some("text/plain".into()), ..KvContent::default() },
        upload: PutBody::Bytes("value".into()),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    }
}

async fn put(gateway: &Gateway, kind: &'static str, key: &str) -> std::result::Result<(), Error> {
    gateway.kv.put(put_of(&address(kind, key))).await.map(drop)
}

async fn delete(gateway: &Gateway, kind: &'static str, key: &str) -> std::result::Result<(), Error> {
    let (address, quorums) = (address(kind, key), Quorums::default());
    let delete = KvDelete { address, context: None, conditions: Conditions::default(), quorums, timeout: None };
    gateway.kv.delete(delete).await.map(drop)
}

async fn has(gateway: &Gateway, kind: &'static str, key: &str) -> bool {
    let get = KvGet { address: address(kind, key), quorums: Quorums::default(), bodies: true, timeout: None };
    gateway.kv.get(get).await.is_ok_and(|found| !found.versions.siblings.is_empty())
}

fn waiting(gateway: &Gateway) -> usize {
    metric(gateway, "larder_webhooks_waiting")
}

fn metric(gateway: &Gateway, name: &str) -> usize {
    let text = gateway.metrics_text();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_written_object_lacks_its_notice_wherever_its_gateway_died() {
    for kind in ["default", "strong"] {
        let mut was_written = false;
        for writes in 0..5 {
            let world = HookWorld::new();
            let (gateway, store) = world.start_hooked(1, kind).await;
            world.receiver.hangs.store(true, Ordering::SeqCst);
            store.writes_left.store(writes, Ordering::SeqCst);
            let acknowledged = put(&gateway, kind, "k").await.is_ok();
            gateway.abandon();
            world.receiver.hangs.store(false, Ordering::SeqCst);
            let (gateway, _) = world.start(2).await;
            let is_written = has(&gateway, kind, "k").await;
            assert!(is_written || !acknowledged);
            if is_written {
                world.receiver.has(1).await;
                assert_eq!(world.receiver.events(), ["put k"], "{kind} after {writes} writes");
                was_written = true;
            }
        }
        assert!(was_written, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_notified_and_a_delete_of_nothing_is_not() {
    for kind in ["default", "strong"] {
        let world = HookWorld::new();
        let (gateway, _) = world.start_hooked(1, kind).await;
        delete(&gateway, kind, "absent").await.unwrap();
        put(&gateway, kind, "k").await.unwrap();
        world.receiver.has(1).await;
        delete(&gateway, kind, "k").await.unwrap();
        world.receiver.has(2).await;
        assert_eq!(world.receiver.events(), ["put k", "delete k"], "{kind}");
        let notices = std::mem::take(&mut *world.receiver.received.lock());
        assert_eq!((&notices[0]["content_type"], &notices[0]["bytes"]), (&json!("text/plain"), &json!(5)));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(waiting(&gateway), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_answer_and_the_removal_delivers_twice_and_none_delivers_never() {
    let world = HookWorld::new();
    let (gateway, store) = world.start_hooked(1, "default").await;
    world.receiver.hangs.store(true, Ordering::SeqCst);
    put(&gateway, "default", "k").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.receiver.calls.load(Ordering::SeqCst), 1);
    gateway.abandon();
    drop((gateway, store));
    // The first one died while it sent, the second one dies after the answer.
    world.receiver.hangs.store(false, Ordering::SeqCst);
    let (gateway, store) = world.start(2).await;
    store.keeps_notices.store(true, Ordering::SeqCst);
    world.receiver.has(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.receiver.received.lock().len(), 1, "only the removal is tried again");
    gateway.abandon();
    let (gateway, _) = world.start(3).await;
    world.receiver.has(2).await;
    assert_eq!(world.receiver.ids().len(), 1, "under the same id");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(waiting(&gateway), 0);
    gateway.abandon();
    let _last = world.start(4).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.receiver.received.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_is_tried_again_after_pauses_that_grow() {
    let world = HookWorld::new();
    let (gateway, _) = world.start_hooked(1, "default").await;
    world.receiver.refuses.store(true, Ordering::SeqCst);
    put(&gateway, "default", "k").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = world.receiver.calls.load(Ordering::SeqCst);
    assert!((5..=8).contains(&calls), "pauses grow: {calls} calls in a minute");
    assert_eq!((metric(&gateway, "larder_webhooks_retried_total"), waiting(&gateway)), (calls, 1));
    world.receiver.refuses.store(false, Ordering::SeqCst);
    world.receiver.has(1).await;
    assert_eq!(metric(&gateway, "larder_webhooks_delivered_total"), 1);
}

impl HookWorld {
    /// A world over three replicas, on which a removal stays as a tombstone.
    fn over_replicas() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::start());
        let store = Arc::new(Replicas::new(clock.clone(), ClusterSetup::default(), 1));
        Self { store, clock, receiver: Arc::default() }
    }
}

/// The settings of one of several gateways.
fn one_of_several(node: &str) -> Config {
    let config = Config { node: node.into(), durable: false, single_process: false, ..Config::default() };
    Config { webhook_hosts: hosts(), ..config }
}

#[tokio::test(start_paused = true)]
async fn notices_of_a_dead_gateway_are_taken_over_into_places_that_were_used() {
    let world = HookWorld::over_replicas();
    let (dead, _) = world.start_with(1, one_of_several("larder@a")).await;
    let (living, _) = world.start_with(2, one_of_several("larder@b")).await;
    set_webhooks(&dead, "default", 1).await;
    world.receiver.hangs.store(true, Ordering::SeqCst);
    for key in 0..4 {
        put(&dead, "default", &format!("of the dead {key}")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.receiver.hangs.store(false, Ordering::SeqCst);
    // Later, in a place of the gateway that takes over.
    put(&living, "default", "of the living").await.unwrap();
    world.receiver.has(1).await;
    world.receiver.refuses.store(true, Ordering::SeqCst);
    dead.abandon();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(waiting(&living), 4);
    // Their new owner dies, too: its place must show the notice, and not the removal of the one before it.
    living.abandon();
    let (last, _) = world.start_with(3, one_of_several("larder@c")).await;
    world.receiver.refuses.store(false, Ordering::SeqCst);
    world.receiver.has(5).await;
    assert_eq!(world.receiver.ids().len(), 5);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(waiting(&last), 0);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_started_again_told_of_later_writes_first() {
    let world = HookWorld::over_replicas();
    let (_other, _) = world.start_with(1, one_of_several("larder@a")).await;
    let (killed, _) = world.start_with(2, one_of_several("larder@b")).await;
    set_webhooks(&killed, "default", 1).await;
    world.receiver.refuses.store(true, Ordering::SeqCst);
    put(&killed, "default", "k").await.unwrap();
    killed.abandon();
    drop(killed);
    // Its heartbeat outlives it: no other gateway looks after its notices yet.
    let (again, _) = world.start_with(3, one_of_several("larder@b")).await;
    world.receiver.refuses.store(false, Ordering::SeqCst);
    delete(&again, "default", "k").await.unwrap();
    world.receiver.has(2).await;
    assert_eq!(world.receiver.events(), ["put k", "delete k"]);
}

#[tokio::test(start_paused = true)]
async fn notices_whose_move_failed_and_was_carried_out_all_the_same_are_sent() {
    let world = HookWorld::new();
    let (first, _) = world.start_hooked(1, "default").await;
    world.receiver.refuses.store(true, Ordering::SeqCst);
    put(&first, "default", "k").await.unwrap();
    first.abandon();
    let (second, store) = world.start(2).await;
    // The batch log carries out what a replica refused: the old rows are gone, the copies stand.
    *store.reports.lock() = Some(Kind::Unavailable { alive: 1, required: 2 });
    tokio::time::sleep(Duration::from_secs(120)).await;
    *store.reports.lock() = None;
    world.receiver.refuses.store(false, Ordering::SeqCst);
    world.receiver.has(1).await;
    assert_eq!(world.receiver.events(), ["put k"]);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn the_notice_of_a_write_that_may_still_come_waits_for_it() {
    let world = HookWorld::new();
    let (gateway, store) = world.start_hooked(1, "default").await;
    *store.reports.lock() = Some(Kind::TimedOut);
    let late = put(&gateway, "default", "k").await;
    *store.reports.lock() = None;
    assert!(matches!(late, Err(Error::TimedOut)), "{late:?}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.receiver.events(), Vec::<String>::new(), "its receiver could read the value before it");
    world.receiver.has(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_outbox_refuses_writes_also_after_a_restart_and_drops_nothing() {
    let world = HookWorld::new();
    let (gateway, _) = world.start_hooked(1, "default").await;
    set_webhooks(&gateway, "default", 8).await;
    world.receiver.hangs.store(true, Ordering::SeqCst);
    // Half of the places: a host and a bucket have no more than are free.
    for key in 0..625 {
        put(&gateway, "default", &format!("k{key}")).await.unwrap();
    }
    assert!(matches!(put(&gateway, "default", "more").await, Err(Error::Overloaded { .. })));
    assert!(!has(&gateway, "default", "more").await);
    gateway.abandon();
    let (gateway, _) = world.start(2).await;
    assert!(matches!(put(&gateway, "default", "more").await, Err(Error::Overloaded { .. })));
    let other = put_of(&Address::new(BucketAddress::new("default".into(), "c".into()).unwrap(), "k".into()).unwrap());
    gateway.kv.put(other).await.unwrap();
    world.receiver.hangs.store(false, Ordering::SeqCst);
    world.receiver.has(5_000).await;
    assert_eq!(world.receiver.ids().len(), 5_000);
    put(&gateway, "default", "more").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_two_racing_writes_to_a_consistent_key_only_the_winner_is_notified() {
    let world = HookWorld::new();
    let (gateway, _) = world.start_hooked(1, "strong").await;
    let (one, other) = tokio::join!(put(&gateway, "strong", "k"), put(&gateway, "strong", "k"));
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((world.receiver.received.lock().len(), waiting(&gateway)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_a_later_start_does_not_allow_gets_nothing_until_one_does() {
    let world = HookWorld::new();
    let (gateway, _) = world.start_hooked(1, "default").await;
    let hook = json!({"postcommit": [{"mod": "larder", "fun": "webhook", "arg": "http://other/"}]});
    let refused = gateway.types().set_bucket_props(&address("default", "k").bucket, hook.as_object().unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("--webhook-hosts"));
    gateway.abandon();
    let (gateway, _) = world.start_with(2, Config { durable: false, ..Config::default() }).await;
    put(&gateway, "default", "k").await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((world.receiver.calls.load(Ordering::SeqCst), waiting(&gateway)), (0, 1));
    gateway.abandon();
    let _allowed = world.start(3).await;
    world.receiver.has(1).await;
}

/// A clock that is two days ahead.
struct LateClock(Arc<dyn Clock>);

impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        self.0.now() + 2 * 24 * 3600 * 1_000_000
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_nothing_took_for_a_day_is_given_up_after_a_last_try() {
    let mut world = HookWorld::new();
    let (gateway, _) = world.start_hooked(1, "default").await;
    world.receiver.refuses.store(true, Ordering::SeqCst);
    put(&gateway, "default", "k").await.unwrap();
    gateway.abandon();
    world.clock = Arc::new(LateClock(world.clock.clone()));
    let (gateway, _) = world.start(2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((metric(&gateway, "larder_webhooks_given_up_total"), waiting(&gateway)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn notices_of_a_webhook_that_was_removed_once_kept_their_places_for_a_day() {
    let world = HookWorld::new();
    let (gateway, _) = world.start_hooked(1, "default").await;
    world.receiver.refuses.store(true, Ordering::SeqCst);
    for key in 0..20 {
        put(&gateway, "default", &key.to_string()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(waiting(&gateway), 20);
    set_webhooks(&gateway, "default", 0).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((waiting(&gateway), metric(&gateway, "larder_webhooks_given_up_total")), (0, 20));
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_and_drops_what_waits() {
    let world = HookWorld::new();
    let (gateway, _) = world.start_hooked(1, "default").await;
    world.receiver.refuses.store(true, Ordering::SeqCst);
    for key in 0..20 {
        put(&gateway, "default", &key.to_string()).await.unwrap();
    }
    let bucket = address("default", "k").bucket;
    let backlogs = gateway.outbox().backlogs();
    let [WebhookBacklog { waiting: 20, receiver: url, .. }] = &backlogs[..] else { panic!("{backlogs:?}") };
    assert_eq!((url.as_str(), &backlogs[0].bucket), (URL, &bucket));
    let other = WebhookChoice { receiver: Some("http://h/other".into()), ..WebhookChoice::default() };
    assert_eq!(gateway.outbox().drop_notices(&other), 0);
    let choice = WebhookChoice { bucket: Some(bucket), receiver: Some(URL.into()), ..WebhookChoice::default() };
    assert_eq!(gateway.outbox().drop_notices(&choice), 20);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((waiting(&gateway), gateway.outbox().backlogs()), (0, vec![]));
    world.receiver.refuses.store(false, Ordering::SeqCst);
    put(&gateway, "default", "next").await.unwrap();
    world.receiver.has(1).await;
    assert_eq!(world.receiver.events(), ["put next"]);
}
