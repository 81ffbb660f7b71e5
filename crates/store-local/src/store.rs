//! `LocalStore`, the handle that callers hold. Reads run on the caller's thread, writes go to the committer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::limits::BATCH_BYTES_MAX;
use larder_store::{
    Batch, CallOptions, CasResult, Change, Clock, Durability, EngineLimits, Error, HeadWrite, Kind, Layout, Partition,
    PartitionPage, Purpose, ReadQuery, Result, Row, RowPage, Store, Table, Timestamp, contract,
};
use tokio::time::Instant;

use crate::bulk_store::BulkRows;
use crate::committer::Committer;
use crate::disk_space::DiskSpace;
use crate::io_errors::OpenError;
use crate::journal::{Journal, JournalFile, JournalFiles};
use crate::lanes::CommitLanes;
use crate::maintenance::{Maintenance, MaintenancePorts, MaintenanceThreads};
use crate::open::{OpenOptions, OpenedDirectory, open};
use crate::queue::{CommitQueue, CommitReply, CommitterHealth, WriteCommand};
use crate::sweep::SweepCursor;
use crate::syncer::{GroupSyncer, GuardedSyncs};
use crate::threads::{JoinHandle, Mutex, spawn_blocking};
use crate::tree::EngineTree;
use crate::trees::Trees;
use crate::{entry, read};

/// Largest body kept inside its row.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Longest time that a close spends on flushing memtables.
const DRAIN_WITHIN: Duration = Duration::from_secs(20);
/// Longest wait of a write for space that merges give back, or of a body for memory that flushes do.
const ROOM_WITHIN: Duration = Duration::from_secs(5);
/// The time between two looks at the space.
const ROOM_POLL_EVERY: Duration = Duration::from_millis(50);
/// The time between two looks at the memtables of bulk rows: a flush of one takes longer.
const BULK_POLL_EVERY: Duration = Duration::from_millis(5);
/// How long a write may take whose caller has no deadline.
pub(crate) const UNTIMED_WITHIN: Duration = Duration::from_secs(30);

/// The embedded engine. Cheap to clone; the data directory is closed with the last clone.
///
/// Reads run on the calling thread: a cached row takes microseconds, any other a disk read. Writes are queued for the
/// committer, which replies when readers see them or when they are on disk; the call's deadline bounds the wait.
#[derive(Clone)]
pub struct LocalStore {
    inner: Arc<LocalStoreInner>,
}

struct LocalStoreInner {
    // The order of drops: the queue, which ends the committer; its thread; the maintenance threads; the trees; the lock. A lock
    // released earlier would let a second server open files that are still written.
    queue: Option<CommitQueue>,
    committer: Mutex<Option<JoinHandle<()>>>,
    maintenance: MaintenanceThreads,
    trees: Trees,
    files: Arc<JournalFiles>,
    health: Arc<CommitterHealth>,
    clock: Arc<dyn Clock>,
    durable: bool,
    replayed: u64,
    sweep: Mutex<SweepCursor>,
    space: Arc<DiskSpace>,
    _lock: Arc<std::fs::File>,
}

/// Counters of the committer since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitterStats {
    /// Groups committed.
    pub groups: u64,
    /// Requests written in these groups.
    pub batches: u64,
    /// Syncs.
    pub syncs: u64,
    /// Requests in the queue now.
    pub queued: usize,
    /// Writes that the start replayed, because they were in no table.
    pub replayed: u64,
}

/// Memory of the engine now, in bytes. Each part has a bound of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineMemory {
    /// Rows that are in no table yet.
    pub memtables: u64,
    /// Rows that are in a table, but that a reader may still take from memory.
    pub retired: u64,
    /// Indexes and filters of tables that stay in memory.
    pub table_indexes: u64,
    /// Entries that are read often.
    pub entry_cache: u64,
    /// Blocks of tables.
    pub block_cache: u64,
}

impl LocalStore {
    /// Opens a data directory, or creates one.
    ///
    /// Blocks: it reads and replays the journal.
    ///
    /// # Errors
    /// `InUse`, `Foreign`, `UnknownFormat`, `DamagedJournal`, `Damaged`, `Io`.
    pub fn open(options: OpenOptions) -> std::result::Result<Self, OpenError> {
        Self::open_with(options, |journal| Box::new(journal))
    }

    /// Opens a data directory with a wrapper around its journal.
    pub(crate) fn open_with(
        options: OpenOptions,
        wrap: impl FnOnce(JournalFile) -> Box<dyn Journal>,
    ) -> std::result::Result<Self, OpenError> {
        let space = DiskSpace::new(&options.dir, options.clock.clone());
        Self::open_in(options, space, wrap)
    }

    /// Opens a data directory whose writes `space` admits.
    pub(crate) fn open_in(
        options: OpenOptions,
        space: Arc<DiskSpace>,
        wrap: impl FnOnce(JournalFile) -> Box<dyn Journal>,
    ) -> std::result::Result<Self, OpenError> {
        let OpenedDirectory { trees, files, journal, sizes, last, replayed, lock } = open(&options)?;
        let OpenOptions { dir, cache_bytes, durable, clock, .. } = options;
        let failed = |error| OpenError::io(&dir, "starting a thread", &error);
        let health = Arc::new(CommitterHealth::default());
        let (queue, receiver) = CommitQueue::new(health.clone());
        let journal = wrap(journal);
        let syncs = GuardedSyncs::new(journal.syncs(), health.clone());
        let ports = MaintenancePorts {
            health: health.clone(),
            clock: clock.clone(),
            space: space.clone(),
            syncs: syncs.clone(),
        };
        let maintenance = Maintenance::new(trees.clone(), files.clone(), ports, sizes);
        // The flusher runs before the committer, which may wait for memtable room at its first group.
        let maintenance = maintenance.start(compactors(), &lock).map_err(failed)?;
        let syncer = GroupSyncer::start(syncs).map_err(failed)?;
        let committer = Committer {
            journal,
            syncer,
            trees: trees.clone(),
            clock: clock.clone(),
            health: health.clone(),
            queue: receiver,
            lanes: CommitLanes::new(),
            maintenance: maintenance.shared().clone(),
            last_group: last,
            cache_bytes,
        };
        let thread = committer.start().map_err(failed)?;
        let committer = Mutex::new(Some(thread));
        let sweep = Mutex::new(SweepCursor::default());
        let inner = LocalStoreInner {
            queue: Some(queue),
            committer,
            maintenance,
            trees,
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

    /// The bulk rows in the same directory, written through the same journal.
    #[must_use]
    pub fn bulk_rows(&self) -> Arc<dyn BulkRows> {
        Arc::new(self.clone())
    }

    /// The admission of writes to the disk; other writers to the data directory must use it, too.
    #[must_use]
    pub fn disk_space(&self) -> Arc<DiskSpace> {
        self.inner.space.clone()
    }

    /// Bytes of tables and journals on disk; blob files come on top.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.inner.trees.all().iter().map(EngineTree::disk_bytes).sum::<u64>() + self.inner.files.bytes()
    }

    /// Bytes of tables and of large values beside them that may belong to removed or replaced entries: at most so many come back
    /// when the store rests.
    #[must_use]
    pub fn dead_bytes(&self) -> u64 {
        self.inner.trees.all().iter().map(|tree| tree.space().dead).sum()
    }

    /// A failure that ends or holds up writes, or damage that was found since the start; the gravest.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let damaged = || self.trees().all().iter().find(|tree| tree.is_damaged());
        let damage =
            || damaged().map(|tree| format!("a block in {} is damaged, see `larder check`", tree.dir.display()));
        self.inner.health.fault().or_else(|| self.inner.maintenance.shared().fault()).or_else(damage)
    }

    /// Memory in use.
    #[must_use]
    pub fn memory(&self) -> EngineMemory {
        let trees = self.trees();
        EngineMemory {
            memtables: trees.unflushed_bytes(),
            retired: trees.all().iter().map(EngineTree::retired_bytes).sum(),
            table_indexes: trees.all().iter().map(EngineTree::index_bytes).sum(),
            entry_cache: trees.cache.bytes(),
            block_cache: trees.block_cache_bytes(),
        }
    }

    /// Counters for metrics.
    #[must_use]
    pub fn stats(&self) -> CommitterStats {
        let CommitterHealth { groups, batches, syncs, .. } = &*self.inner.health;
        CommitterStats {
            groups: groups.load(Ordering::Relaxed),
            batches: batches.load(Ordering::Relaxed),
            syncs: syncs.load(Ordering::Relaxed),
            queued: self.queue().depth(),
            replayed: self.inner.replayed,
        }
    }

    /// Writes the queued requests, syncs and ends writing: later writes get `Poisoned`, reads go on. The directory can be
    /// opened again when the last clone is dropped.
    ///
    /// # Errors
    /// `Poisoned` when writing had ended before, or when the last sync failed.
    pub async fn close(&self) -> Result<()> {
        self.queue().submit(WriteCommand::Close, 0, true).await?;
        let committer = self.inner.committer.lock().take();
        // The committer has replied and ends; a panic of it is in `health`.
        let _ = committer.map(JoinHandle::join);
        if self.inner.health.is_closed() {
            self.drain_memtables().await;
        }
        // The maintenance threads stop last: the drain needs the flusher.
        self.inner.maintenance.stop();
        Ok(())
    }

    /// Flushes all memtables, so that the next open replays nothing. A failure or timeout loses nothing.
    async fn drain_memtables(&self) {
        let inner = self.inner.clone();
        let drained = spawn_blocking(move || inner.maintenance.drain(DRAIN_WITHIN));
        if !matches!(drained.await, Ok(true)) {
            tracing::warn!("flush of the memtables at close did not finish; the next start replays the journal");
        }
    }

    /// Whether every write stays in its memtable, so that tests get long journals.
    #[cfg(test)]
    pub(crate) fn hold_memtables(&self, held: bool) {
        self.inner.maintenance.shared().hold_memtables(held);
    }

    /// Lets a compaction of a tree fail over damage.
    #[cfg(test)]
    pub(crate) fn fail_compaction(&self, tree_id: crate::tree_id::TreeId) {
        let error = lsm_tree::Error::Io(std::io::ErrorKind::InvalidData.into());
        self.inner.maintenance.shared().handle_compaction_error(self.trees().tree(tree_id), &error);
    }

    /// Publishes the numbers of versions, as the flusher does while the store rests.
    #[cfg(test)]
    pub(crate) fn publish_versions(&self) {
        self.inner.maintenance.shared().publish_versions();
    }

    pub(crate) fn trees(&self) -> &Trees {
        &self.inner.trees
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    pub(crate) fn cursor(&self) -> &Mutex<SweepCursor> {
        &self.inner.sweep
    }

    #[expect(clippy::expect_used, reason = "it is taken by drop alone")]
    pub(crate) fn queue(&self) -> &CommitQueue {
        self.inner.queue.as_ref().expect("the queue is there until the store is dropped")
    }

    /// Reads an entry that is likely not in memory, so that the committer does not wait for the disk while all writers wait for
    /// it.
    fn prefetch(&self, partition: &Partition) {
        if partition.table.layout() == Layout::Packed && self.inner.health.is_cold.load(Ordering::Relaxed) {
            // The result is dropped: the committer finds the entry, or its absence, in the cache.
            let _ = self.trees().cached_entry(&entry::partition_key(partition));
        }
    }

    async fn write(&self, work: WriteCommand, bytes: usize, options: &CallOptions) -> Result<CommitReply> {
        let durable = match options.durability {
            Durability::Buffered => false,
            Durability::Disk => self.inner.durable,
            Durability::Forced => true,
        };
        let done = self.queue().submit_until(options.deadline, work, bytes, durable);
        self.run_admitted(options.purpose, bytes, options.deadline, done).await
    }

    /// Runs a write if the disk has space for it, and holds the space until the reply.
    ///
    /// # Errors
    /// `Full`: nothing was queued; and the errors of the write.
    pub(crate) async fn run_admitted(
        &self,
        purpose: Purpose,
        bytes: usize,
        deadline: Instant,
        work: impl Future<Output = Result<CommitReply>>,
    ) -> Result<CommitReply> {
        // Before the queue: a disk that fills up at the append would refuse the whole group, deletes included.
        self.wait_for_room(purpose, bytes, deadline).await;
        let reservation = self.inner.space.admit_rows(purpose, bytes)?;
        let done = work.await;
        // A full journal wrote nothing; after any other reply the bytes may be on disk.
        if !matches!(&done, Err(error) if error.kind == Kind::Full) {
            reservation.spend_all();
        }
        done
    }
}

impl LocalStore {
    /// Waits while merges give space back that a write needs: a disk that is full of removed values must take removals, and puts
    /// must leave the merges their room. It waits no longer than such a merge may take, and leaves the write half of its time.
    async fn wait_for_room(&self, purpose: Purpose, bytes: usize, deadline: Instant) {
        if !self.inner.space.must_wait(purpose, bytes) {
            return;
        }
        let now = Instant::now();
        let until = now + ROOM_WITHIN.min(deadline.saturating_duration_since(now) / 2);
        wait_while(until, ROOM_POLL_EVERY, || self.inner.space.must_wait(purpose, bytes)).await;
    }

    /// Waits while the flusher is behind with bodies. They are larger than a disk may be fast, and in the queue they would fill the
    /// memtables, for which every writer waits.
    pub(crate) async fn wait_for_bulk_room(&self, deadline: Instant) {
        let until = deadline.min(Instant::now() + ROOM_WITHIN);
        wait_while(until, BULK_POLL_EVERY, || !self.inner.maintenance.shared().has_bulk_room()).await;
    }
}

/// Waits as long as this holds, until a time at the latest, and looks so often.
async fn wait_while(until: Instant, every: Duration, holds: impl Fn() -> bool) {
    while holds() && Instant::now() < until {
        tokio::time::sleep(every).await;
    }
}

impl Drop for LocalStoreInner {
    fn drop(&mut self) {
        // The committer ends when its queue is dropped; the join keeps the lock until its last sync is done.
        self.queue = None;
        let _ = self.committer.lock().take().map(JoinHandle::join);
    }
}

#[async_trait]
impl Store for LocalStore {
    async fn read(&self, partition: &Partition, query: &ReadQuery, _options: &CallOptions) -> Result<RowPage> {
        contract::check_limit(query.limit)?;
        read::read_page(self.trees(), partition, query, self.clock().now())
    }

    fn try_read_single_row(&self, partition: &Partition) -> Option<Row> {
        read::single_row(self.trees(), partition, self.clock())
    }

    fn try_read_row(&self, partition: &Partition, name: &Bytes) -> Option<Row> {
        read::row_of_name(self.trees(), partition, name, self.clock())
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        let bytes = contract::check_batch(&batch, BATCH_BYTES_MAX)?;
        batch.partitions.iter().for_each(|part| self.prefetch(&part.partition));
        self.write(WriteCommand::Apply(batch), bytes, options).await.map(drop)
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        let bytes = contract::check_compare_and_set(partition, expected, &head, &changes, BATCH_BYTES_MAX)?;
        self.prefetch(partition);
        let work =
            WriteCommand::CompareAndSet { partition: partition.clone(), expected, head: Box::new(head), changes };
        match self.write(work, bytes, options).await? {
            CommitReply::CompareAndSet(swap) => Ok(swap),
            done => Err(Error::new(Kind::Io, format!("the committer answered {done:?} to a swap"))),
        }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        _options: &CallOptions,
    ) -> Result<PartitionPage> {
        contract::check_limit(limit)?;
        read::read_partitions(self.trees(), table, after, limit, self.clock().now())
    }

    async fn now(&self, _options: &CallOptions) -> Result<Timestamp> {
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
            tombstones_slow_reads: false,
            large_partitions_burden: false,
        }
    }

    fn is_ready(&self) -> bool {
        !self.inner.health.is_poisoned()
    }
}

/// Number of compactors: all cores but one, which is left to requests; four at most.
fn compactors() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).clamp(1, 4))
}
