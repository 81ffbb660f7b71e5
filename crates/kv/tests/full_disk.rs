//! A store that refuses writes like a full disk: first puts, then also deletes. Nothing of a refused write stays.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream, PutBody};
use larder_core::{Config, Error, GatewayPorts};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvDelete, KvGet, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_s3::acl::AclChoice;
use larder_s3::get::VersionSpec;
use larder_s3::object_lock::GovernanceBypass;
use larder_s3::parts::PartAddress;
use larder_s3::put::{ChecksumWanted, ObjectMetadata, UploadBody, WriteConditions};
use larder_s3::uploads::CreateUpload;
use larder_s3::{Caller, Objects, ObjectsConfig, put as s3};
use larder_s3_rules::S3Action;
use larder_store::memory::MemoryStore;
use larder_store::{Blobs, CallOptions, Clock, Error as StoreError, Kind, Purpose, Result, Store};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};

use crate::ports::ports_over;

/// Accepts all writes.
const ROOM: u8 = 0;
/// Accepts deletes and the gateway's own writes.
const SHORT: u8 = 1;
/// Accepts no writes.
const FULL: u8 = 2;

/// A store in memory with a settable disk state.
struct FullStore {
    inner: MemoryStore,
    state: AtomicU8,
    refused: AtomicU64,
}

impl FullStore {
    fn check(&self, options: &CallOptions) -> Result<()> {
        let full = match self.state.load(Ordering::SeqCst) {
            ROOM => false,
            SHORT => options.purpose == Purpose::Data,
            _ => true,
        };
        self.refused.fetch_add(u64::from(full), Ordering::SeqCst);
        if full { Err(StoreError::new(Kind::Full, "the disk is full")) } else { Ok(()) }
    }
}

impl StoreHook for FullStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let is_barrier = matches!(call, StoreCall::Apply(batch) if batch.bytes() == 0);
        if call.is_write() && !is_barrier {
            self.check(&options)?;
        }
        make(options).await
    }
}

struct FullDiskWorld {
    store: Arc<FullStore>,
    blobs: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
}

impl FullDiskWorld {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::start());
        let inner = MemoryStore::with_inline_max(clock.clone(), 100);
        let store = Arc::new(FullStore { inner, state: AtomicU8::new(ROOM), refused: AtomicU64::new(0) });
        Self { store, blobs: Arc::new(MemoryStore::new(clock.clone())), clock }
    }

    async fn gateway(&self) -> Arc<Gateway> {
        let ports = ports_over(Arc::new(Hooked(self.store.clone())), self.clock.clone());
        let ports = GatewayPorts { blobs: self.blobs.clone(), ..ports };
        let config = Config { node: "alone".into(), single_process: true, ..Config::default() };
        Gateway::start(ports, config).await.expect("a gateway starts even on a full disk")
    }

    fn set(&self, state: u8) {
        self.store.state.store(state, Ordering::SeqCst);
    }

    async fn blobs(&self) -> usize {
        self.blobs.list(None, 1000).await.unwrap().len()
    }
}

fn address(bucket_type: &'static str, key: &'static str) -> Address {
    let bucket = BucketAddress::new(bucket_type.into(), "bucket".into()).unwrap();
    Address::new(bucket, key.into()).unwrap()
}

async fn put(gateway: &Gateway, address: Address, length: usize) -> std::result::Result<(), Error> {
    let request = KvPut {
        address,
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent::default(),
        upload: PutBody::Bytes(vec![1; length].into()),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    };
    gateway.kv.put(request).await.map(drop)
}

async fn lives(gateway: &Gateway, address: Address) -> bool {
    let request = KvGet { address, quorums: Quorums::default(), bodies: false, timeout: None };
    !gateway.kv.get(request).await.unwrap().versions.siblings.is_empty()
}

async fn delete(gateway: &Gateway, address: Address) -> std::result::Result<(), Error> {
    let (conditions, quorums) = (Conditions::default(), Quorums::default());
    gateway.kv.delete(KvDelete { address, context: None, conditions, quorums, timeout: None }).await.map(drop)
}

async fn add_type(gateway: &Gateway, name: &'static str, props: &serde_json::Value) {
    let name = Bytes::from_static(name.as_bytes());
    gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
    while gateway.types().activate(&name).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_put_leaves_no_body_and_a_delete_succeeds() {
    let world = FullDiskWorld::new();
    let gateway = world.gateway().await;
    add_type(&gateway, "siblings", &serde_json::json!({"allow_mult": true})).await;
    add_type(&gateway, "newest", &serde_json::json!({"allow_mult": false})).await;
    add_type(
        &gateway,
        "last",
        &serde_json::json!({"allow_mult": false, "dvv_enabled": false, "last_write_wins": true}),
    )
    .await;
    add_type(&gateway, "consistent", &serde_json::json!({"consistent": true})).await;
    for kind in ["siblings", "newest", "last", "consistent"] {
        world.set(ROOM);
        put(&gateway, address(kind, "there"), 1000).await.unwrap();
        let before = world.blobs().await;
        world.set(SHORT);
        let refused = put(&gateway, address(kind, "new"), 1000).await.unwrap_err();
        assert!(matches!(refused, Error::DiskFull), "{kind}: {refused}");
        assert_eq!(world.blobs().await, before, "{kind}: the body of a refused put stays");
        assert!(!lives(&gateway, address(kind, "new")).await, "{kind}");
        let refused = world.store.refused.load(Ordering::SeqCst);
        delete(&gateway, address(kind, "there")).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(world.store.refused.load(Ordering::SeqCst), refused, "{kind}: a part of the delete was refused");
        assert!(!lives(&gateway, address(kind, "there")).await, "{kind}");
        world.set(ROOM);
        put(&gateway, address(kind, "new"), 1000).await.unwrap();
        assert!(lives(&gateway, address(kind, "new")).await, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_starts_on_a_full_disk_serves_reads_and_writes_once_there_is_space() {
    let world = FullDiskWorld::new();
    let first = world.gateway().await;
    put(&first, address("default", "there"), 10).await.unwrap();
    first.abandon();
    world.set(FULL);
    let gateway = world.gateway().await;
    assert!(lives(&gateway, address("default", "there")).await);
    assert!(gateway.is_ready());
    assert!(matches!(put(&gateway, address("default", "new"), 10).await, Err(Error::DiskFull)));
    // Longer than a catalogue is served without a check, while all heartbeats fail.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(lives(&gateway, address("default", "there")).await, "failing heartbeats stop reads");
    world.set(ROOM);
    put(&gateway, address("default", "new"), 10).await.unwrap();
    assert!(lives(&gateway, address("default", "new")).await);
}

struct OneChunkBody(Option<Bytes>);

#[async_trait]
impl ByteStream for OneChunkBody {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        self.0.take().map(Ok)
    }
}

fn incoming(length: usize) -> UploadBody {
    let body = Bytes::from(vec![1; length]);
    let stream = Box::new(OneChunkBody(Some(body)));
    UploadBody { stream, length: Some(length as u64), md5: None, checksum: ChecksumWanted::Default }
}

async fn put_object(objects: &Objects, caller: &Caller, key: &'static str) -> larder_s3::Result<()> {
    let request = s3::PutObject {
        bucket: "bucket".into(),
        key: key.into(),
        metadata: ObjectMetadata::default(),
        upload_body: incoming(100_000),
        conditions: s3::WriteConditions::default(),
    };
    objects.put(caller, request).await.map(drop)
}

fn is_full<T>(answer: larder_s3::Result<T>) -> bool {
    matches!(answer, Err(larder_s3::Error::Gateway(Error::DiskFull)))
}

#[tokio::test(start_paused = true)]
async fn s3_deletes_and_aborts_succeed_and_refused_objects_and_parts_leave_no_body() {
    let world = FullDiskWorld::new();
    let objects = {
        let gateway = world.gateway().await;
        Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], ObjectsConfig::default())
    };
    let user = objects.users.create("a@example.com", "a", false, None).await.unwrap();
    // Any action: an owner may do everything.
    let caller = Caller { user: Some(user), ..Caller::default() }.with_action(S3Action::PutObject);
    objects.buckets.create(&caller, "bucket", AclChoice::default(), None).await.unwrap();
    put_object(&objects, &caller, "there").await.unwrap();
    let create = CreateUpload {
        bucket: "bucket".into(),
        key: "parts".into(),
        metadata: ObjectMetadata::default(),
        checksum: None,
        conditions: WriteConditions::default(),
    };
    let upload = objects.uploads.create(&caller, create.clone()).await.unwrap().id;
    let part = PartAddress {
        bucket: "bucket".into(),
        key: "parts".into(),
        upload: upload.text(),
        number: 1,
        encryption: larder_s3::encryption::EncryptionChoice::default(),
    };
    objects.uploads.put_part(&caller, &part, incoming(100_000)).await.unwrap();
    let before = world.blobs().await;

    world.set(SHORT);
    assert!(is_full(put_object(&objects, &caller, "new").await));
    assert!(is_full(objects.uploads.put_part(&caller, &part, incoming(100_000)).await));
    assert!(is_full(objects.uploads.create(&caller, create).await));
    assert_eq!(world.blobs().await, before, "a refused body stays");
    let refused = world.store.refused.load(Ordering::SeqCst);
    objects
        .delete(&caller, "bucket", &"there".into(), &VersionSpec::Current, None, GovernanceBypass::Absent)
        .await
        .unwrap();
    objects.uploads.abort(&caller, "bucket", &"parts".into(), &upload.text(), None).await.unwrap();
    objects.sweeper.sweep().await.unwrap();
    assert_eq!(world.store.refused.load(Ordering::SeqCst), refused, "a part of a removal was refused");
    assert_eq!(world.blobs().await, 0);

    world.set(ROOM);
    put_object(&objects, &caller, "new").await.unwrap();
}
