//! Test support for uploads: a bucket with small parts, and a gateway whose store calls a trap can pause or break.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_core::node_context::internal_options;
use larder_core::{Config, Core, GatewayPorts};
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, ConsistencyLevel, Durability, ReadQuery, Store, Table};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::buckets::testing::{S3TestStore, new_caller, ports_over};
use super::super::commit::testing::{BUCKET, BucketFixture, upload_body};
use super::super::complete::{CompleteUpload, CompletedUpload, ListedPart};
use super::super::encryption::EncryptionChoice;
use super::super::parts::{ListParts, ListedParts, PartAddress};
use super::super::put::{ObjectMetadata, WriteConditions};
use super::super::uploads::UploadHead;
use super::super::{Caller, Objects, ObjectsConfig, Result};
use super::CreateUpload;
use crate::acl_choice::AclChoice;
use crate::rules::{Part, UploadId, UploadState};

/// The key of most tests.
pub(crate) const KEY: &str = "key";
/// The minimum part size in tests.
pub(crate) const PART_MIN: u64 = 10;

pub(crate) fn settings() -> ObjectsConfig {
    ObjectsConfig {
        part_bytes_min: PART_MIN,
        object_bytes_max: 100_000_000,
        single_process: false,
        ..ObjectsConfig::default()
    }
}

/// A bucket, and a second gateway with traps over the same store.
pub(crate) struct UploadSetup {
    pub(crate) fixture: BucketFixture,
    /// The gateway with traps.
    pub(crate) slow: Arc<Objects>,
    /// The store of that gateway.
    pub(crate) gate: Arc<TrapStore>,
}

impl UploadSetup {
    pub(crate) async fn new() -> Self {
        let (start, stores) = (Instant::now(), S3TestStore::new());
        let objects = stores.gateway_with(settings()).await;
        let owner = new_caller(&objects, "owner").await;
        objects.buckets.create(&owner, BUCKET, AclChoice::Private, None).await.unwrap();
        let gate = Arc::new(TrapStore::over(Arc::clone(&stores.store)));
        let (store, clock) = (Arc::new(Hooked(Arc::clone(&gate))), Arc::new(VirtualClock(start)));
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            ..ports_over(store, Arc::clone(&stores.store) as _, clock, 1000)
        };
        let config = Config { node: "slow".into(), single_process: false, ..Config::default() };
        let slow = Objects::new(Core::start(ports, config).await.unwrap(), Vec::new(), settings());
        slow.buckets.find(BUCKET).await.unwrap();
        Self { fixture: BucketFixture { stores, objects, owner }, slow, gate }
    }

    pub(crate) async fn begin(&self) -> String {
        self.begin_at(KEY).await.text()
    }

    pub(crate) async fn begin_at(&self, key: &str) -> UploadId {
        self.fixture.objects.uploads.create(&self.fixture.owner, create_request(key)).await.unwrap().id
    }

    pub(crate) async fn part(&self, upload: &str, number: u16, body: &Bytes) -> Part {
        put_part(&self.fixture.objects, &self.fixture.owner, upload, number, body).await.unwrap()
    }

    pub(crate) async fn parts(&self, upload: &str, after: u32, max: usize) -> Result<ListedParts> {
        self.fixture.objects.uploads.list_parts(&self.fixture.owner, &parts_request(upload, after, max)).await
    }

    pub(crate) async fn complete(&self, upload: &str, parts: &[&Part]) -> Result<CompletedUpload> {
        self.fixture.objects.uploads.complete(&self.fixture.owner, complete_request(upload, parts)).await
    }

    pub(crate) async fn abort(&self, upload: &str) -> Result<()> {
        self.fixture
            .objects
            .uploads
            .abort(&self.fixture.owner, BUCKET, &Bytes::from_static(KEY.as_bytes()), upload, None)
            .await
    }

    pub(crate) async fn upload(&self, upload: &str) -> Option<UploadHead> {
        self.fixture.objects.heads.read_upload(UploadId::from_text(upload).unwrap()).await.unwrap()
    }

    pub(crate) async fn state(&self, upload: &str) -> Option<UploadState> {
        self.upload(upload).await.map(|head| head.upload.state)
    }

    /// Number of partitions of a table with rows.
    pub(crate) async fn partitions(&self, table: Table) -> usize {
        let options = internal_options(ConsistencyLevel::Quorum);
        let page = self.fixture.stores.store.partitions(table, None, 1000, &options).await.unwrap();
        let mut count = 0;
        for partition in page.partitions {
            let rows = self.fixture.stores.store.read(&partition, &ReadQuery::all(1), &options).await.unwrap();
            count += usize::from(!rows.rows.is_empty());
        }
        count
    }
}

pub(crate) fn create_request(key: &str) -> CreateUpload {
    let key = Bytes::copy_from_slice(key.as_bytes());
    let (metadata, conditions) = (ObjectMetadata::default(), WriteConditions::default());
    CreateUpload { bucket: BUCKET.into(), key, metadata, checksum: None, conditions }
}

pub(crate) fn address(upload: &str, number: u16) -> PartAddress {
    PartAddress {
        bucket: BUCKET.into(),
        key: Bytes::from_static(KEY.as_bytes()),
        upload: upload.into(),
        number,
        encryption: crate::encryption::EncryptionChoice::default(),
    }
}

pub(crate) async fn put_part(
    objects: &Objects,
    caller: &Caller,
    upload: &str,
    number: u16,
    body: &Bytes,
) -> Result<Part> {
    objects.uploads.put_part(caller, &address(upload, number), upload_body(body)).await.map(|stored| stored.part)
}

pub(crate) fn parts_request(upload: &str, after: u32, max: usize) -> ListParts {
    ListParts {
        bucket: BUCKET.into(),
        key: Bytes::from_static(KEY.as_bytes()),
        upload: upload.into(),
        after,
        max,
        encryption: EncryptionChoice::default(),
    }
}

pub(crate) fn complete_request(upload: &str, parts: &[&Part]) -> CompleteUpload {
    CompleteUpload {
        bucket: BUCKET.into(),
        key: Bytes::from_static(KEY.as_bytes()),
        upload: upload.into(),
        parts: parts.iter().map(|part| listed(part)).collect(),
        conditions: WriteConditions::default(),
        checksum: None,
        checksum_kind: None,
        length: None,
        encryption: crate::encryption::EncryptionChoice::default(),
    }
}

pub(crate) fn listed(part: &Part) -> ListedPart {
    let etag = crate::rules::Etag::from_md5(part.md5).to_string();
    ListedPart { number: part.number.into(), etag, checksum: None }
}

/// The effect of a trap on its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trap {
    /// The call waits until the trap opens, and is then carried out, however late.
    Stop,
    /// The call is carried out, and its answer is lost.
    LoseAnswer,
}

/// A store in which one call meets a trap.
pub(crate) struct TrapStore {
    inner: Arc<MemoryStore>,
    trap: parking_lot::Mutex<Trap>,
    /// Calls until the trap; none below zero.
    left: AtomicI64,
    reached: Notify,
    opened: Notify,
    reads: AtomicUsize,
    disk: parking_lot::Mutex<TrapDisk>,
}

/// The state of the simulated disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrapDisk {
    Well,
    /// Readers see the next head, and no write reaches the disk from then on.
    Stopping,
    Still,
}

impl TrapStore {
    fn over(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            trap: parking_lot::Mutex::new(Trap::Stop),
            left: AtomicI64::new(-1),
            reached: Notify::new(),
            opened: Notify::new(),
            reads: AtomicUsize::new(0),
            disk: parking_lot::Mutex::new(TrapDisk::Well),
        }
    }

    /// Stops the disk at the next compare-and-set: readers see it, its writer gets no answer.
    pub(crate) fn stop_disk(&self) {
        *self.disk.lock() = TrapDisk::Stopping;
    }

    /// Stops a stopping disk; answers whether it did.
    fn stop_now(&self) -> bool {
        let mut disk = self.disk.lock();
        let stops = *disk == TrapDisk::Stopping;
        if stops {
            *disk = TrapDisk::Still;
        }
        stops
    }

    /// Whether a write waits for a stopped disk.
    fn stands_still(&self, options: &CallOptions) -> bool {
        options.durability > Durability::Buffered && *self.disk.lock() == TrapDisk::Still
    }

    /// Sets a trap for the call after this many others.
    pub(crate) fn set(&self, trap: Trap, after: usize) {
        *self.trap.lock() = trap;
        self.left.store(after as i64, Ordering::SeqCst);
    }

    /// Removes the trap; returns whether no call had met it.
    pub(crate) fn clear(&self) -> bool {
        self.left.swap(-1, Ordering::SeqCst) >= 0
    }

    /// Waits until a call has met the trap.
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Resumes the waiting call.
    pub(crate) fn open(&self) {
        self.opened.notify_one();
    }

    /// Number of reads so far.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Waits at the trap; returns the call's options, and whether to lose its answer.
    async fn pass(&self, options: &CallOptions) -> (CallOptions, bool) {
        let deadline = || Instant::now() + Duration::from_secs(5);
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return (*options, false);
        }
        let lose = *self.trap.lock() == Trap::LoseAnswer;
        self.reached.notify_one();
        if !lose {
            self.opened.notified().await;
        }
        (CallOptions { deadline: deadline(), ..*options }, lose)
    }
}

impl StoreHook for TrapStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> larder_store::Result<T> {
        if matches!(call, StoreCall::Partitions | StoreCall::Now) {
            return make(options).await;
        }
        self.reads.fetch_add(usize::from(matches!(call, StoreCall::Read(_))), Ordering::SeqCst);
        let (options, lost) = self.pass(&options).await;
        let late = || larder_store::Error::new(larder_store::Kind::TimedOut, "the answer is lost");
        if call.is_write() && self.stands_still(&options) {
            return Err(late());
        }
        let stops = matches!(call, StoreCall::ApplyIf(..)) && self.stop_now();
        let answer = make(options).await;
        if lost || stops { Err(late()) } else { answer }
    }
}
