//! The store: what callers hold. Reads run here, writes go to the committer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::limits::BATCH_BYTES_MAX;
use larder_model::rows::changes_bytes;
use larder_store::{
    Batch, Change, Clock, Durability, EngineLimits, Error, Head, Kind, Layout, Micros, Options, Page, Partition,
    PartitionPage, Purpose, ReadQuery, Result, Row, Stamp, Store, Swap, Table,
};
use parking_lot::Mutex;

use crate::bulk::BulkRows;
use crate::committer::Committer;
use crate::disk_space::DiskSpace;
use crate::journal::{Journal, JournalFile, JournalFiles};
use crate::lanes::Lanes;
use crate::maintenance::{Maintenance, MaintenancePorts, MaintenanceThreads};
use crate::open::{OpenError, OpenOptions, Opened, open};
use crate::queue::{Done, Health, Queue, Work};
use crate::spaces::{Space, Spaces};
use crate::sweep::Cursor;
use crate::tree::SpaceTree;
use crate::{keys, read};

/// Largest body kept inside its row.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// How long a close may write tables out.
const SETTLE_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

/// The embedded engine. Cheap to clone; the data directory is closed with the last clone.
///
/// Reads run on the calling thread: what is cached takes microseconds, what is not a read of the disk. Writes are queued for
/// one thread and answered when readers see them or when they are on disk; waiting is bounded by the call's deadline.
#[derive(Clone)]
pub struct LocalStore {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped in this order: the queue ends the committer, which is waited for, then the threads behind it, then the engine,
    // then the lock.
    queue: Option<Queue>,
    committer: Mutex<Option<JoinHandle<()>>>,
    maintenance: MaintenanceThreads,
    spaces: Spaces,
    files: Arc<JournalFiles>,
    health: Arc<Health>,
    clock: Arc<dyn Clock>,
    durable: bool,
    replayed: u64,
    sweep: Mutex<Cursor>,
    space: Arc<DiskSpace>,
    _lock: Arc<std::fs::File>,
}

/// What the committer did since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Groups committed.
    pub groups: u64,
    /// Requests written in them.
    pub batches: u64,
    /// Syncs.
    pub syncs: u64,
    /// Requests waiting now.
    pub queued: usize,
    /// Writes that the start found in the journal alone.
    pub replayed: u64,
}

impl LocalStore {
    /// Opens a data directory, or makes one.
    ///
    /// Blocks: it reads and replays the journal.
    ///
    /// # Errors
    /// `InUse`, `Foreign`, `UnknownFormat`, `DamagedJournal`, `Damaged`, `Io`.
    pub fn open(options: OpenOptions) -> std::result::Result<Self, OpenError> {
        Self::open_with(options, |journal| Box::new(journal))
    }

    /// Opens a data directory with something between the committer and its journal.
    pub(crate) fn open_with(
        options: OpenOptions,
        wrap: impl FnOnce(JournalFile) -> Box<dyn Journal>,
    ) -> std::result::Result<Self, OpenError> {
        let space = DiskSpace::new(&options.dir, options.clock.clone());
        Self::open_in(options, space, wrap)
    }

    /// Opens a data directory on a disk with this space.
    pub(crate) fn open_in(
        options: OpenOptions,
        space: Arc<DiskSpace>,
        wrap: impl FnOnce(JournalFile) -> Box<dyn Journal>,
    ) -> std::result::Result<Self, OpenError> {
        let Opened { spaces, files, journal, sizes, last, replayed, lock } = open(&options)?;
        let OpenOptions { dir, cache_bytes, durable, clock, .. } = options;
        let failed = |error| OpenError::io(&dir, "starting a thread", &error);
        let health = Arc::new(Health::default());
        let (queue, receiver) = Queue::new(health.clone());
        let ports = MaintenancePorts { health: health.clone(), clock: clock.clone(), space: space.clone() };
        let maintenance = Maintenance::new(spaces.clone(), files.clone(), ports, sizes);
        let maintenance = maintenance.start(compactors(), &lock).map_err(failed)?;
        let committer = Committer {
            journal: wrap(journal),
            spaces: spaces.clone(),
            clock: clock.clone(),
            health: health.clone(),
            queue: receiver,
            lanes: Lanes::new(),
            maintenance: maintenance.shared().clone(),
            last,
            // What a killed process wrote may not be on disk yet: the first sync covers it.
            synced: 0,
            cache_bytes,
        };
        let thread = committer.start().map_err(failed)?;
        let committer = Mutex::new(Some(thread));
        let sweep = Mutex::new(Cursor::default());
        let inner = Inner {
            queue: Some(queue),
            committer,
            maintenance,
            spaces,
            files,
            health,
            clock,
            durable,
            replayed,
            sweep,
            space,
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Bulk rows in the same directory, written through the same journal.
    #[must_use]
    pub fn bulk_rows(&self) -> Arc<dyn BulkRows> {
        Arc::new(self.clone())
    }

    /// The space of the disk: whatever else writes to the data directory has itself admitted there.
    #[must_use]
    pub fn disk_space(&self) -> Arc<DiskSpace> {
        self.inner.space.clone()
    }

    /// Bytes of tables and journals on disk; blob files come on top.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.inner.spaces.trees().iter().map(SpaceTree::disk_bytes).sum::<u64>() + self.inner.files.bytes()
    }

    /// Counters for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Health { groups, batches, syncs, .. } = &*self.inner.health;
        Stats {
            groups: groups.load(Ordering::Relaxed),
            batches: batches.load(Ordering::Relaxed),
            syncs: syncs.load(Ordering::Relaxed),
            queued: self.queue().length(),
            replayed: self.inner.replayed,
        }
    }

    /// Writes what is queued, syncs it and ends writing: later writes are answered `Poisoned`, reads go on. The directory can
    /// be opened again when the last clone is dropped.
    ///
    /// # Errors
    /// `Poisoned` when writing had ended before, or when the last sync failed.
    pub async fn close(&self) -> Result<()> {
        self.queue().run(Work::Close, 0, true).await?;
        let committer = self.inner.committer.lock().take();
        // It has answered and has nothing left to do; a panic is in its health.
        let _ = committer.map(JoinHandle::join);
        if self.inner.health.is_closed() {
            self.settle().await;
        }
        self.inner.maintenance.stop();
        Ok(())
    }

    /// Leaves nothing to replay for the next open. Nothing is lost if this fails or takes too long.
    async fn settle(&self) {
        let inner = self.inner.clone();
        let settled = tokio::task::spawn_blocking(move || inner.maintenance.settle(SETTLE_WITHIN));
        if !matches!(settled.await, Ok(true)) {
            tracing::warn!("the memtables were not all written to tables: the next start replays the journal");
        }
    }

    /// Keeps every write in its memtable, so that tests meet journals that are long.
    #[cfg(test)]
    pub(crate) fn hold_memtables(&self) {
        self.inner.maintenance.shared().hold_memtables();
    }

    pub(crate) fn spaces(&self) -> &Spaces {
        &self.inner.spaces
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    pub(crate) fn cursor(&self) -> &Mutex<Cursor> {
        &self.inner.sweep
    }

    #[expect(clippy::expect_used, reason = "it is taken by drop alone")]
    pub(crate) fn queue(&self) -> &Queue {
        self.inner.queue.as_ref().expect("the queue is there until the store is dropped")
    }

    /// Reads entries that are likely not in memory, so that the committer, who serves everybody, does not wait for the disk.
    fn prefetch(&self, partition: &Partition) {
        if partition.table.layout() == Layout::Packed && self.inner.health.cold.load(Ordering::Relaxed) {
            let _ = self.spaces().get(Space::Packed, &keys::partition_key(partition));
        }
    }

    async fn write(&self, work: Work, bytes: usize, options: &Options) -> Result<Done> {
        let durable = match options.durability {
            Durability::Buffered => false,
            Durability::Disk => self.inner.durable,
            Durability::Forced => true,
        };
        let done = self.queue().run_until(options.deadline, work, bytes, durable);
        self.admitted(options.purpose, bytes, done).await
    }

    /// Has work done if there is space for what it writes, and holds the space until it is answered.
    ///
    /// # Errors
    /// `Full`: nothing was queued; and what the work answers.
    pub(crate) async fn admitted(
        &self,
        purpose: Purpose,
        bytes: usize,
        work: impl Future<Output = Result<Done>>,
    ) -> Result<Done> {
        let room = self.inner.space.admit_rows(purpose, bytes)?;
        let done = work.await;
        if !matches!(&done, Err(error) if error.kind == Kind::Full) {
            room.spend_all();
        }
        done
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue = None;
        let _ = self.committer.lock().take().map(JoinHandle::join);
    }
}

#[async_trait]
impl Store for LocalStore {
    async fn read(&self, partition: &Partition, query: &ReadQuery, _options: &Options) -> Result<Page> {
        read::page(self.spaces(), partition, query, self.clock().now())
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        for part in &batch.partitions {
            check_table(part.partition.table, false)?;
            check_keys(&part.partition, &part.changes)?;
        }
        let bytes = check_bytes(batch.bytes())?;
        batch.partitions.iter().for_each(|part| self.prefetch(&part.partition));
        self.write(Work::Apply(batch), bytes, options).await.map(drop)
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        check_table(partition.table, true)?;
        head.check(expected)?;
        check_keys(partition, &changes)?;
        check_key(partition, &head.row.name)?;
        let mut bytes = partition.key.len() + head.row.name.len() + head.row.value.len() + changes_bytes(&changes);
        if let Some(shadow) = &head.shadow {
            check_key(&shadow.partition, &shadow.name)?;
            bytes += shadow.bytes();
        }
        let bytes = check_bytes(bytes)?;
        self.prefetch(partition);
        let work = Work::Swap { partition: partition.clone(), expected, head: Box::new(head), changes };
        match self.write(work, bytes, options).await? {
            Done::Swapped(swap) => Ok(swap),
            done => Err(Error::new(Kind::Io, format!("the committer answered {done:?} to a swap"))),
        }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        _options: &Options,
    ) -> Result<PartitionPage> {
        read::partitions(self.spaces(), table, after, limit, self.clock().now())
    }

    async fn now(&self, _options: &Options) -> Result<Micros> {
        Ok(self.clock().now())
    }

    fn limits(&self) -> EngineLimits {
        let syncs = self.inner.durable;
        EngineLimits {
            inline_max: INLINE_BYTES_MAX,
            batch_max: BATCH_BYTES_MAX,
            nodes: 1,
            replicated: false,
            syncs,
            keeps_tombstones: false,
        }
    }

    fn is_ready(&self) -> bool {
        !self.inner.health.is_poisoned()
    }
}

/// Threads that compact: as many as leave a core to requests, four at most.
fn compactors() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).clamp(1, 4))
}

fn check_table(table: Table, guarded: bool) -> Result<()> {
    if table.is_guarded() == guarded {
        return Ok(());
    }
    let verb = if guarded { "apply_if on a plain table" } else { "apply on a guarded table" };
    Err(Error::new(Kind::Misuse, format!("{verb}: {}", table.name())))
}

fn check_bytes(bytes: usize) -> Result<usize> {
    if bytes > BATCH_BYTES_MAX {
        return Err(Error::new(Kind::TooLarge, format!("a batch of {bytes} bytes, {BATCH_BYTES_MAX} are taken")));
    }
    Ok(bytes)
}

fn check_keys(partition: &Partition, changes: &[Change]) -> Result<()> {
    check_key(partition, &[])?;
    changes.iter().try_for_each(|change| match change {
        Change::Put(Row { name, .. }) | Change::Remove { name, .. } => check_key(partition, name),
        Change::Clear { .. } => Ok(()),
    })
}

fn check_key(partition: &Partition, name: &[u8]) -> Result<()> {
    let name = if partition.table.layout() == Layout::Wide { name.len() } else { 0 };
    if partition.key.len() + name + 4 > keys::KEY_BYTES_MAX {
        return Err(Error::new(Kind::TooLarge, format!("a key of {} bytes", partition.key.len() + name)));
    }
    Ok(())
}
