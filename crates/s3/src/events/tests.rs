use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use larder_core::rules::event_target::EventTarget;
use larder_core::rules::props::WebhookUrl;
use larder_core::{Config, Core, GatewayPorts, WebhookRequest, Webhooks};
use larder_store::derived_rows::DerivedRowStore;
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Clock, Error as StoreError, Kind, Store};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::acl_choice::AclChoice;
use crate::buckets::testing::{new_caller, ports_over};
use crate::commit::testing::{BUCKET, bytes, put_request, run};
use crate::get::VersionSpec;
use crate::object_lock::GovernanceBypass;
use crate::rules::notification::{EventPattern, NotificationConfig};
use crate::rules::{S3Action, Tag, Versioning};
use crate::{Error, Objects, ObjectsConfig};

const ARN: &str = "arn:minio:sqs::T:webhook";

/// A receiver that takes what it is sent, or refuses it.
#[derive(Default)]
struct EventReceiver {
    records: Mutex<Vec<Value>>,
    refuses: AtomicBool,
}

#[async_trait]
impl Webhooks for EventReceiver {
    async fn post(&self, request: WebhookRequest<'_>) -> std::result::Result<(), String> {
        assert_eq!((request.url.as_str(), request.authorization), ("https://h/events", Some("Bearer token")));
        if self.refuses.load(Ordering::SeqCst) {
            return Err("no".into());
        }
        self.records.lock().push(serde_json::from_slice(&request.body).unwrap());
        Ok(())
    }
}

/// A store, and gateways over it with one target of events.
struct EventWorld {
    store: Arc<MemoryStore>,
    clock: Arc<VirtualClock>,
    receiver: Arc<EventReceiver>,
}

impl EventWorld {
    fn new() -> Self {
        let clock = Arc::new(VirtualClock::start());
        Self { store: Arc::new(MemoryStore::new(clock.clone())), clock, receiver: Arc::default() }
    }

    async fn start(&self, actor: u64, single_process: bool) -> Arc<Objects> {
        self.start_over(Arc::clone(&self.store) as Arc<dyn Store>, actor, single_process).await
    }

    async fn start_over(&self, store: Arc<dyn Store>, actor: u64, single_process: bool) -> Arc<Objects> {
        let (blobs, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let webhooks: Option<Arc<dyn Webhooks>> = Some(self.receiver.clone());
        let ports = GatewayPorts { webhooks, ..ports_over(store, blobs, clock, actor) };
        let url = WebhookUrl::parse("https://h/events").unwrap();
        let target = EventTarget { id: "T".into(), url, authorization: Some("Bearer token".into()) };
        let config =
            Config { node: format!("g{actor}"), single_process, event_targets: vec![target], ..Config::default() };
        let settings = ObjectsConfig { single_process, ..ObjectsConfig::default() };
        Objects::new(Core::start(ports, config).await.unwrap(), Vec::new(), settings)
    }

    /// A gateway with a bucket whose events of these names go to the target.
    async fn start_told(&self, events: &[&str]) -> (Arc<Objects>, Caller) {
        let objects = self.start(1, true).await;
        let owner = create_told(&objects, events).await;
        (objects, owner)
    }

    /// The names, keys and versions of what was received, once there are so many.
    async fn heard(&self, count: usize) -> Vec<String> {
        for _ in 0..1000 {
            if self.receiver.records.lock().len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // More than expected would come now.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let shown = |event: &Value| {
            let object = &event["Records"][0]["s3"]["object"];
            let name = event["EventName"].as_str().unwrap().trim_start_matches("s3:").to_owned();
            format!("{name} {}{}", object["key"], if object["versionId"].is_string() { " v" } else { "" })
                .replace('"', "")
        };
        self.receiver.records.lock().drain(..).map(|event| shown(&event)).collect()
    }
}

/// The owner of a new bucket with these rules.
async fn create_told(objects: &Objects, events: &[&str]) -> Caller {
    let owner = Caller { request_id: "request".into(), ..new_caller(objects, "owner").await };
    objects.buckets.create(&owner, BUCKET, AclChoice::Private, None).await.unwrap();
    set_rules(objects, &owner, events).await;
    owner
}

/// A store behind a connection that dies after so many writes.
struct DyingEventStore {
    inner: Arc<MemoryStore>,
    writes_left: AtomicUsize,
}

impl StoreHook for DyingEventStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> larder_store::Result<T> {
        if call.is_write() {
            let left = self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            left.map_err(|_| StoreError::new(Kind::Io, "the connection is dead"))?;
        }
        make(options).await
    }
}

#[test]
fn no_changed_key_lacks_its_event_wherever_its_gateway_died() {
    run(async {
        for has_protocol in [false, true] {
            let mut written = 0;
            for writes in 0..6 {
                let world = EventWorld::new();
                let dying =
                    Arc::new(DyingEventStore { inner: world.store.clone(), writes_left: AtomicUsize::new(usize::MAX) });
                let engine = |store: Arc<dyn Store>| match has_protocol {
                    // As over Cassandra: a head and its derived row are two writes.
                    true => Arc::new(DerivedRowStore::new(store)) as Arc<dyn Store>,
                    false => store,
                };
                let objects = world.start_over(engine(Arc::new(Hooked(dying.clone()))), 1, true).await;
                let owner = create_told(&objects, &["s3:ObjectCreated:Put"]).await;
                world.receiver.refuses.store(true, Ordering::SeqCst);
                dying.writes_left.store(writes, Ordering::SeqCst);
                let acknowledged = put(&objects, &owner, "k").await.is_ok();
                objects.gateway.abandon();
                world.receiver.refuses.store(false, Ordering::SeqCst);
                let objects = world.start_over(engine(world.store.clone()), 2, true).await;
                let is_there = objects.head(&owner, &crate::commit::testing::get_request("k")).await.is_ok();
                assert!(is_there || !acknowledged);
                if is_there {
                    assert_eq!(world.heard(1).await, ["ObjectCreated:Put k"], "{has_protocol} after {writes} writes");
                    written += 1;
                }
            }
            assert!(written > 0, "{has_protocol}");
        }
    });
}

async fn set_rules(objects: &Objects, owner: &Caller, events: &[&str]) {
    let rule = NotificationRule {
        id: "rule".into(),
        target: ARN.into(),
        events: events.iter().map(|name| EventPattern::named(name).unwrap()).collect(),
        prefix: None,
        suffix: None,
    };
    let change = |bucket: &mut crate::rules::Bucket| {
        bucket.notification = (!events.is_empty()).then(|| NotificationConfig { rules: vec![rule.clone()] }.into());
        Ok(())
    };
    objects.buckets.configure(owner, BUCKET, change).await.unwrap();
}

async fn put(objects: &Objects, owner: &Caller, key: &str) -> Result<()> {
    objects.put(owner, put_request(key, &bytes(1, 3))).await.map(drop)
}

async fn delete(objects: &Objects, owner: &Caller, key: &str, version: &VersionSpec) {
    let key = Bytes::copy_from_slice(key.as_bytes());
    objects.delete(owner, BUCKET, &key, version, None, GovernanceBypass::Absent).await.unwrap();
}

#[test]
fn each_change_of_a_key_is_told_by_its_name() {
    run(async {
        let world = EventWorld::new();
        let every = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:*", "s3:ObjectAcl:Put"];
        let (objects, owner) = world.start_told(&every).await;
        put(&objects, &owner, "a").await.unwrap();
        objects.post(&owner, put_request("a", &bytes(2, 5))).await.unwrap();
        let (key, tags) = (Bytes::from_static(b"a"), vec![Tag { key: "k".into(), value: "v".into() }]);
        objects.put_object_tags(&owner, BUCKET, &key, &VersionSpec::Current, tags).await.unwrap();
        let untagger = owner.with_action(S3Action::DeleteObjectTagging);
        objects.put_object_tags(&untagger, BUCKET, &key, &VersionSpec::Current, Vec::new()).await.unwrap();
        for _ in 0..2 {
            let acl = AclChoice::Canned("public-read".into());
            objects.put_object_acl(&owner, BUCKET, &key, &VersionSpec::Current, None, acl).await.unwrap();
        }
        delete(&objects, &owner, "a", &VersionSpec::Current).await;
        delete(&objects, &owner, "absent", &VersionSpec::Current).await;
        let heard = world.heard(7).await;
        let (mut of_a, of_absent): (Vec<_>, Vec<_>) = heard.into_iter().partition(|one| !one.ends_with("absent"));
        assert_eq!(of_absent, ["ObjectRemoved:Delete absent"]);
        let last = of_a.pop();
        assert_eq!(last.as_deref(), Some("ObjectRemoved:Delete a"));
        let changes = [
            "ObjectCreated:Put a",
            "ObjectCreated:Post a",
            "ObjectTagging:Put a",
            "ObjectTagging:Delete a",
            "ObjectAcl:Put a",
        ];
        assert_eq!(of_a, changes, "an ACL that is put again is no change");
    });
}

#[test]
fn versions_and_markers_have_events_of_their_own() {
    run(async {
        let world = EventWorld::new();
        let (objects, owner) = world.start_told(&["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]).await;
        let enable = |bucket: &mut crate::rules::Bucket| {
            bucket.versioning = Versioning::Enabled;
            Ok(())
        };
        objects.buckets.configure(&owner, BUCKET, enable).await.unwrap();
        let stored = objects.put(&owner, put_request("k", &bytes(1, 3))).await.unwrap();
        delete(&objects, &owner, "k", &VersionSpec::Current).await;
        delete(&objects, &owner, "k", &VersionSpec::Id(stored.version_id.unwrap())).await;
        let expected = ["ObjectCreated:Put k v", "ObjectRemoved:DeleteMarkerCreated k v", "ObjectRemoved:Delete k v"];
        assert_eq!(world.heard(3).await, expected);
    });
}

#[test]
fn a_record_names_the_caller_and_the_object() {
    run(async {
        let world = EventWorld::new();
        let (objects, owner) = world.start_told(&["s3:ObjectCreated:Put"]).await;
        put(&objects, &owner, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let event = world.receiver.records.lock().pop().unwrap();
        let record = &event["Records"][0];
        assert_eq!(record["userIdentity"]["principalId"], json!(owner.user.as_ref().unwrap().key_id));
        assert_eq!(record["responseElements"]["x-amz-request-id"], "request");
        assert_eq!((&record["awsRegion"], &record["s3"]["configurationId"]), (&json!("us-east-1"), &json!("rule")));
        assert_eq!(record["s3"]["object"]["size"], 3);
        assert_eq!(record["s3"]["object"]["eTag"].as_str().map(str::len), Some(32));
    });
}

#[test]
fn a_bucket_without_rules_writes_no_notice_and_one_that_lost_them_drops_its_notices() {
    run(async {
        let world = EventWorld::new();
        let (objects, owner) = world.start_told(&[]).await;
        put(&objects, &owner, "k").await.unwrap();
        assert_eq!(objects.gateway.outbox().waiting(), 0);
        world.receiver.refuses.store(true, Ordering::SeqCst);
        set_rules(&objects, &owner, &["s3:ObjectCreated:Put"]).await;
        put(&objects, &owner, "k").await.unwrap();
        assert_eq!(objects.gateway.outbox().waiting(), 1);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let failure = objects.gateway.outbox().last_failure(ARN).unwrap();
        assert_eq!((failure.reason.as_str(), failure.at < world.clock.now()), ("no", true));
        set_rules(&objects, &owner, &[]).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(objects.gateway.outbox().waiting(), 0);
    });
}

#[test]
fn a_receiver_that_is_down_is_told_later_and_in_order_across_a_restart() {
    run(async {
        let world = EventWorld::new();
        let (objects, owner) = world.start_told(&["s3:ObjectCreated:Put", "s3:ObjectRemoved:*"]).await;
        world.receiver.refuses.store(true, Ordering::SeqCst);
        for round in 0..70 {
            put(&objects, &owner, "k").await.unwrap();
            if round % 2 == 0 {
                put(&objects, &owner, "other").await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        delete(&objects, &owner, "k", &VersionSpec::Current).await;
        objects.gateway.abandon();
        let objects = world.start(2, true).await;
        world.receiver.refuses.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let records = std::mem::take(&mut *world.receiver.records.lock());
        let of_k =
            records.iter().filter(|event| event["Key"] == "bucket/k").map(|event| &event["Records"][0]["s3"]["object"]);
        let sequencers: Vec<&str> = of_k.map(|object| object["sequencer"].as_str().unwrap()).collect();
        assert!(sequencers.is_sorted(), "{sequencers:?}");
        assert_eq!((sequencers.len(), records.len()), (71, 106));
        assert_eq!(objects.gateway.outbox().waiting(), 0);
    });
}

#[test]
fn a_full_outbox_refuses_writes_of_the_bucket_alone() {
    run(async {
        let world = EventWorld::new();
        let (objects, owner) = world.start_told(&["s3:ObjectCreated:Put"]).await;
        world.receiver.refuses.store(true, Ordering::SeqCst);
        let mut refused = None;
        for number in 0..10_000 {
            if let Err(error) = put(&objects, &owner, &number.to_string()).await {
                refused = Some((number, error));
                break;
            }
        }
        let Some((count, Error::Gateway(larder_core::Error::Overloaded { .. }))) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(count, 5000, "half of the places");
        let missing = objects.head(&owner, &crate::commit::testing::get_request("5000")).await;
        assert!(matches!(missing, Err(Error::NoSuchKey)), "{missing:?}");
        objects.buckets.create(&owner, "quiet", AclChoice::Private, None).await.unwrap();
        let other = crate::put::PutObject { bucket: "quiet".into(), ..put_request("k", &bytes(1, 3)) };
        objects.put(&owner, other).await.unwrap();
    });
}
