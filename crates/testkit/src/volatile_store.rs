//! A store in memory that tracks unsynced changes, and counts bytes removed before the sync of their replacement.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::memory::MemoryStore;
use larder_store::{
    Batch, BlobOwner, BlobReader, BlobWriter, Blobs, CallOptions, CasResult, Change, Durability, EngineLimits, Error,
    HeadWrite, Kind, ListedBlob, Partition, PartitionPage, ReadQuery, Result, RowPage, Store, Table, Timestamp,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::VirtualClock;

/// The tables whose rows name blobs.
const NAMING: [Table; 6] =
    [Table::Objects, Table::Consistent, Table::Heads, Table::Uploads, Table::Parts, Table::Manifests];

/// Rows and blobs of one machine that may lose its power.
pub struct VolatileStore {
    inner: Arc<MemoryStore>,
    clock: Arc<VirtualClock>,
    /// Whether the engine syncs for [`Durability::Disk`].
    durable: bool,
    state: Arc<Mutex<VolatileState>>,
    /// Signalled when the next batch to the objects' table arrives; that batch is held.
    hold: Mutex<Option<oneshot::Sender<()>>>,
    /// Lets the held batch continue.
    resume: Arc<Notify>,
}

/// Syncs, removals and the failures to inject.
#[derive(Debug, Clone, Copy, Default)]
pub struct VolatileState {
    /// Whether rows that name blobs changed since the last sync.
    rows_pending: bool,
    /// Whether syncs fail.
    sync_fails: bool,
    /// Whether the next swap is seen by readers and answered `TimedOut`, before it is on disk.
    swap_stalls: bool,
    /// Sync barriers asked for.
    pub barriers: usize,
    /// Blobs removed.
    pub removed: usize,
    /// Blobs removed while a row or a body that replaced them was not on disk.
    pub removed_too_early: usize,
}

impl VolatileState {
    fn note_removal(&mut self) {
        self.removed += 1;
        self.removed_too_early += usize::from(self.rows_pending);
    }
}

impl VolatileStore {
    /// An empty store, whose engine syncs or not.
    #[must_use]
    pub fn new(durable: bool) -> Arc<Self> {
        let clock = Arc::new(VirtualClock::start());
        let inner = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
        Arc::new(Self { inner, clock, durable, state: Arc::default(), hold: Mutex::default(), resume: Arc::default() })
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> Arc<VirtualClock> {
        Arc::clone(&self.clock)
    }

    /// Whether it syncs for [`Durability::Disk`].
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// Its counters now.
    #[must_use]
    pub fn state(&self) -> VolatileState {
        *self.state.lock()
    }

    /// Lets every sync fail from now on.
    pub fn fail_syncs(&self) {
        self.state.lock().sync_fails = true;
    }

    /// Makes the next swap visible to readers while its caller times out waiting for the disk.
    pub fn stall_next_swap(&self) {
        self.state.lock().swap_stalls = true;
    }

    /// Holds the next batch to the objects' table, like a committer with a long queue; its caller may leave.
    #[must_use]
    pub fn hold(&self) -> oneshot::Receiver<()> {
        let (arrived, is_there) = oneshot::channel();
        *self.hold.lock() = Some(arrived);
        is_there
    }

    /// Lets the held batch be carried out.
    pub fn resume(&self) {
        self.resume.notify_one();
    }

    /// The number of its blobs.
    ///
    /// # Errors
    /// Those of the listing.
    pub async fn blobs(&self) -> Result<usize> {
        Ok(self.inner.list(None, 1000).await?.len())
    }

    fn syncs(&self, durability: Durability) -> bool {
        durability == Durability::Forced || self.durable && durability == Durability::Disk
    }

    /// Records a write to these tables, and its sync.
    fn note(&self, mut tables: impl Iterator<Item = Table>, options: &CallOptions) -> Result<()> {
        let mut state = self.state.lock();
        state.rows_pending |= tables.any(|table| NAMING.contains(&table));
        if !self.syncs(options.durability) {
            return Ok(());
        }
        if state.sync_fails {
            return Err(Error::new(Kind::Poisoned, "syncs fail"));
        }
        state.rows_pending = false;
        Ok(())
    }
}

#[async_trait]
impl Store for VolatileStore {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        self.inner.read(partition, query, options).await
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        if batch.partitions.is_empty() {
            self.state.lock().barriers += 1;
        }
        let tables: Vec<_> = batch.partitions.iter().map(|one| one.partition.table).collect();
        let held = tables.contains(&Table::Objects).then(|| self.hold.lock().take()).flatten();
        if let Some(arrived) = held {
            let (inner, resume) = (Arc::clone(&self.inner), Arc::clone(&self.resume));
            let options = CallOptions { deadline: options.deadline + Duration::from_secs(3600), ..*options };
            let carried_out = tokio::spawn(async move {
                let _ = arrived.send(());
                resume.notified().await;
                inner.apply(batch, &options).await
            });
            carried_out.await.map_err(|error| Error::caused(Kind::Io, "the task of a batch ended", error))??;
        } else {
            self.inner.apply(batch, options).await?;
        }
        self.note(tables.into_iter(), options)
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        let swap = self.inner.apply_if(partition, expected, head, changes, options).await?;
        let stalls = std::mem::take(&mut self.state.lock().swap_stalls);
        let durability = if stalls { Durability::Buffered } else { options.durability };
        self.note(std::iter::once(partition.table), &CallOptions { durability, ..*options })?;
        if stalls { Err(Error::new(Kind::TimedOut, "the disk is slow")) } else { Ok(swap) }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        self.inner.partitions(table, after, limit, options).await
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

#[async_trait]
impl Blobs for VolatileStore {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        self.inner.create(id, owner).await
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        self.inner.open(id).await
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.state.lock().note_removal();
        self.inner.remove(id).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        self.inner.list(after, limit).await
    }

    fn is_ready(&self) -> bool {
        true
    }
}
