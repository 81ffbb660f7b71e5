//! A bucket whose parts may be small, and gateways whose calls of the store can be stopped one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::objects::{Part, UploadId, UploadState};
use larder_store::memory::MemoryStore;
use larder_store::{
    Batch, Change, Clock, Durability, EngineLimits, Head, Level, Micros, Options, Page, Partition, PartitionPage,
    ReadQuery, Stamp, Store, Swap, Table,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::buckets::testing::{BEGIN, World, new_caller};
use super::super::commit::testing::{BUCKET, Desk, incoming};
use super::super::complete::{CompleteUpload, Completed, ListedPart};
use super::super::parts::{ListParts, PartAddress, PartsPage};
use super::super::put::{About, WriteConditions};
use super::super::upload_head::UploadHead;
use super::super::{Caller, Objects, ObjectsConfig, Result};
use super::CreateUpload;
use crate::objects::acl::AclChoice;
use crate::{Config, Gateway, Ports, Rules};

/// The key of most tests.
pub(in crate::objects) const KEY: &str = "key";
/// What is kept from small parts in tests.
pub(in crate::objects) const PART_MIN: u64 = 10;

pub(in crate::objects) fn settings() -> ObjectsConfig {
    ObjectsConfig { part_bytes_min: PART_MIN, object_bytes_max: 100_000_000, alone: false, ..ObjectsConfig::default() }
}

/// A bucket over a store in memory, and its gateway, whose calls can be stopped.
pub(in crate::objects) struct Bench {
    pub(in crate::objects) desk: Desk,
    /// A gateway of its own over the same store.
    pub(in crate::objects) slow: Arc<Objects>,
    /// Its way to the store.
    pub(in crate::objects) gate: Arc<Gate>,
}

impl Bench {
    pub(in crate::objects) async fn new() -> Self {
        Self::with(Rules::default()).await
    }

    pub(in crate::objects) async fn with(rules: Rules) -> Self {
        let (start, world) = (Instant::now(), World::new());
        let objects = world.gateway_of(rules, settings()).await;
        let owner = new_caller(&objects, "owner").await;
        objects.create_bucket(&owner, BUCKET, AclChoice::Private, None).await.unwrap();
        let gate = Arc::new(Gate::over(Arc::clone(&world.store)));
        let ports = Ports {
            store: Arc::clone(&gate) as _,
            blobs: Arc::clone(&world.store) as _,
            clock: Arc::new(TestClock(start)),
            actor: 1000,
            random: |bytes| bytes.fill(7),
            engine: Arc::new("memory"),
            rules,
        };
        let config = Config { node: "slow".into(), alone: false, ..Config::default() };
        let slow = Objects::new(Gateway::start(ports, config).await.unwrap(), settings());
        slow.bucket(BUCKET).await.unwrap();
        Self { desk: Desk { world, objects, owner }, slow, gate }
    }

    pub(in crate::objects) async fn begin(&self) -> String {
        self.begin_at(KEY).await.text()
    }

    pub(in crate::objects) async fn begin_at(&self, key: &str) -> UploadId {
        self.desk.objects.create_upload(&self.desk.owner, create_of(key)).await.unwrap().0
    }

    pub(in crate::objects) async fn part(&self, upload: &str, number: u16, body: &Bytes) -> Part {
        put_part(&self.desk.objects, &self.desk.owner, upload, number, body).await.unwrap()
    }

    pub(in crate::objects) async fn parts(&self, upload: &str, after: u32, max: usize) -> Result<PartsPage> {
        self.desk.objects.list_parts(&self.desk.owner, &parts_of(upload, after, max)).await
    }

    pub(in crate::objects) async fn complete(&self, upload: &str, parts: &[&Part]) -> Result<Completed> {
        self.desk.objects.complete(&self.desk.owner, complete_of(upload, parts)).await
    }

    pub(in crate::objects) async fn abort(&self, upload: &str) -> Result<()> {
        self.desk.objects.abort(&self.desk.owner, BUCKET, &Bytes::from_static(KEY.as_bytes()), upload, None).await
    }

    pub(in crate::objects) async fn upload(&self, upload: &str) -> Option<UploadHead> {
        self.desk.objects.read_upload(UploadId::from_text(upload).unwrap()).await.unwrap()
    }

    pub(in crate::objects) async fn state(&self, upload: &str) -> Option<UploadState> {
        self.upload(upload).await.map(|head| head.upload.state)
    }

    /// How many partitions of a table have rows.
    pub(in crate::objects) async fn partitions(&self, table: Table) -> usize {
        let options = self.desk.objects.gateway.own(Level::Quorum);
        let page = self.desk.world.store.partitions(table, None, 1000, &options).await.unwrap();
        let mut count = 0;
        for partition in page.partitions {
            let rows = self.desk.world.store.read(&partition, &ReadQuery::all(1), &options).await.unwrap();
            count += usize::from(!rows.rows.is_empty());
        }
        count
    }
}

pub(in crate::objects) fn create_of(key: &str) -> CreateUpload {
    let key = Bytes::copy_from_slice(key.as_bytes());
    CreateUpload { bucket: BUCKET.into(), key, about: About::default(), checksum: None }
}

pub(in crate::objects) fn address(upload: &str, number: u16) -> PartAddress {
    PartAddress { bucket: BUCKET.into(), key: Bytes::from_static(KEY.as_bytes()), upload: upload.into(), number }
}

pub(in crate::objects) async fn put_part(
    objects: &Objects,
    caller: &Caller,
    upload: &str,
    number: u16,
    body: &Bytes,
) -> Result<Part> {
    objects.put_part(caller, &address(upload, number), incoming(body)).await.map(|stored| stored.part)
}

pub(in crate::objects) fn parts_of(upload: &str, after: u32, max: usize) -> ListParts {
    ListParts { bucket: BUCKET.into(), key: Bytes::from_static(KEY.as_bytes()), upload: upload.into(), after, max }
}

pub(in crate::objects) fn complete_of(upload: &str, parts: &[&Part]) -> CompleteUpload {
    CompleteUpload {
        bucket: BUCKET.into(),
        key: Bytes::from_static(KEY.as_bytes()),
        upload: upload.into(),
        parts: parts.iter().map(|part| listed(part)).collect(),
        conditions: WriteConditions::default(),
        checksum: None,
        length: None,
    }
}

pub(in crate::objects) fn listed(part: &Part) -> ListedPart {
    let etag = larder_model::objects::Etag::of_md5(part.md5).to_string();
    ListedPart { number: part.number.into(), etag, checksum: None }
}

struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Micros {
        BEGIN + self.0.elapsed().as_micros() as u64
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed() + Duration::from_secs(1)
    }
}

/// What happens to the call that a gate was set for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::objects) enum Trap {
    /// It waits until the gate is opened, and then is carried out, however late.
    Stop,
    /// It is carried out, but the answer is lost.
    LoseAnswer,
}

/// A way to a store on which one call meets a trap.
pub(in crate::objects) struct Gate {
    inner: Arc<MemoryStore>,
    trap: parking_lot::Mutex<Trap>,
    /// Calls until the trap; below zero there is none.
    left: AtomicI64,
    reached: Notify,
    opened: Notify,
    reads: AtomicUsize,
    disk: parking_lot::Mutex<Disk>,
}

/// How the disk behind a gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    Well,
    /// The next head is seen by readers, and nothing gets to disk from then on.
    Stopping,
    Still,
}

impl Gate {
    fn over(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            trap: parking_lot::Mutex::new(Trap::Stop),
            left: AtomicI64::new(-1),
            reached: Notify::new(),
            opened: Notify::new(),
            reads: AtomicUsize::new(0),
            disk: parking_lot::Mutex::new(Disk::Well),
        }
    }

    /// Lets the disk stand still from the next swap on: readers see it, its writer does not hear of it.
    pub(in crate::objects) fn stop_disk(&self) {
        *self.disk.lock() = Disk::Stopping;
    }

    /// Whether a write waits for the disk in vain.
    fn stands_still(&self, options: &Options) -> bool {
        options.durability > Durability::Buffered && *self.disk.lock() == Disk::Still
    }

    /// The call after so many others meets the trap.
    pub(in crate::objects) fn set(&self, trap: Trap, after: usize) {
        *self.trap.lock() = trap;
        self.left.store(after as i64, Ordering::SeqCst);
    }

    /// Takes the trap away; whether nothing had met it.
    pub(in crate::objects) fn clear(&self) -> bool {
        self.left.swap(-1, Ordering::SeqCst) >= 0
    }

    /// Waits until a call has met the trap.
    pub(in crate::objects) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets the call that waits go on.
    pub(in crate::objects) fn open(&self) {
        self.opened.notify_one();
    }

    /// Reads until now.
    pub(in crate::objects) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// The options of a call that may have waited, and whether its answer is to be lost.
    async fn pass(&self, options: &Options) -> (Options, bool) {
        let deadline = || Instant::now() + Duration::from_secs(5);
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return (*options, false);
        }
        let lose = *self.trap.lock() == Trap::LoseAnswer;
        self.reached.notify_one();
        if !lose {
            self.opened.notified().await;
        }
        (Options { deadline: deadline(), ..*options }, lose)
    }
}

fn answered<T>(lost: bool, answer: larder_store::Result<T>) -> larder_store::Result<T> {
    let late = || larder_store::Error::new(larder_store::Kind::TimedOut, "the answer is lost");
    if lost { Err(late()) } else { answer }
}

#[async_trait]
impl Store for Gate {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> larder_store::Result<Page> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let (options, lost) = self.pass(options).await;
        answered(lost, self.inner.read(partition, query, &options).await)
    }

    async fn apply(&self, batch: Batch, options: &Options) -> larder_store::Result<()> {
        let (options, lost) = self.pass(options).await;
        if self.stands_still(&options) {
            return answered(true, Ok(()));
        }
        answered(lost, self.inner.apply(batch, &options).await)
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> larder_store::Result<Swap> {
        let (options, mut lost) = self.pass(options).await;
        if self.stands_still(&options) {
            return answered(true, Ok(Swap::Applied));
        }
        if *self.disk.lock() == Disk::Stopping {
            *self.disk.lock() = Disk::Still;
            lost = true;
        }
        answered(lost, self.inner.apply_if(partition, expected, head, changes, &options).await)
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> larder_store::Result<PartitionPage> {
        self.inner.partitions(table, after, limit, options).await
    }

    async fn now(&self, options: &Options) -> larder_store::Result<Micros> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        true
    }
}
