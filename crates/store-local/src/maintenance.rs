//! The maintenance threads: they flush sealed memtables to tables, compact tables and release journal files.
//!
//! ```text
//! committer    memtable full ──> sealed ─────────────┐                    writers wait while memtables hold too much
//! flusher      memtable rests ─> sealed ─────────────┤    and the store owes space ──> reclaimed: merged into the lowest level
//! flusher                                            └─> table, level 0 ──> journals released
//! compactors                                                                └─> merged into deeper levels
//! ```
//! No failure here stops the store. A failed flush leaves its writes in the memtable and in the journal: the flusher retries
//! it, and the store refuses writes only when the memtables are full. A compaction that meets a damaged block leaves its tables
//! as they are: that tree pauses compaction and collects tables in level 0.

mod compactor;
mod reclaim;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_store::{Clock, Error, Kind, Result};

use crate::disk_space::DiskSpace;
use crate::flush::{flush, restore_directory};
use crate::io_errors::is_full;
use crate::journal::JournalFiles;
use crate::manifest::ManifestError;
use crate::queue::{CommitterHealth, PanicGuard};
use crate::quiet::QuietMemtables;
use crate::sizes::EngineSizes;
use crate::space_debt::SettledDebts;
use crate::syncer::GuardedSyncs;
use crate::threads::{AtomicBool, Builder, Condvar, JoinHandle, Mutex, MutexGuard};
use crate::tree::{EngineTree, SealedMemtable};
use crate::tree_id::{PerTree, TreeId};
use crate::trees::{Trees, is_damage};

/// Runs in level 0 at which writers wait for compaction: each read searches every run.
const L0_RUNS_STALL: usize = 30;
/// Runs in level 0 that are compacted together.
const L0_RUNS_COMPACTED: u64 = 4;
/// Most runs in level 0: lsm-tree counts them in one byte.
const L0_RUNS_MAX: usize = 200;
/// Most tables whose bytes puts leave free for the merges of a short disk.
const MERGE_TABLES_KEPT: u64 = 16;
/// First and longest pause before a failed flush or compaction is retried.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// Longest pause before a failed flush is retried: writers are refused until one succeeds.
const FLUSH_RETRY_LAST: Duration = Duration::from_secs(2);
/// Longest sleep of a thread between two checks for work.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// How long heavy requests give way while the memtables are more than half full.
const HEAVY_POLL_EVERY: Duration = Duration::from_millis(2);
/// Longest wait of a writer between two checks for room.
const WRITER_POLL_EVERY: Duration = Duration::from_millis(10);

/// The state that the threads and the committer share.
pub(crate) struct Maintenance {
    trees: Trees,
    files: Arc<JournalFiles>,
    ports: MaintenancePorts,
    sizes: EngineSizes,
    state: Mutex<MaintenanceState>,
    /// Signalled when there may be work, and when work is done.
    changed: Condvar,
    /// Held from the number of a group to its publication.
    inserting: Mutex<()>,
    stopped: AtomicBool,
    #[cfg(test)]
    rotation_held: AtomicBool,
}

/// Parts of the store that the threads use.
pub(crate) struct MaintenancePorts {
    /// Poisoned by an error that may lose an answered write.
    pub(crate) health: Arc<CommitterHealth>,
    /// The monotonic clock of pauses.
    pub(crate) clock: Arc<dyn Clock>,
    /// Keeps free the disk space that flushes and compactions may need.
    pub(crate) space: Arc<DiskSpace>,
    /// Precede each flush.
    pub(crate) syncs: GuardedSyncs,
}

#[derive(Default)]
struct MaintenanceState {
    /// The error of the last flush; writers get it once the memtables are full.
    flush_error: Option<(Kind, String)>,
    /// Per tree: the pause before the next compaction.
    compaction_pauses: PerTree<RetryPause>,
    /// Trees whose directory must be restored before anything is written there.
    needs_cleanup: PerTree<bool>,
    /// Trees that a compactor must check; set by a flush.
    compaction_due: PerTree<bool>,
    /// Trees whose dead bytes a compactor must give back.
    reclaim_due: PerTree<bool>,
    /// Trees whose dead bytes a compactor gives back now.
    reclaims: PerTree<bool>,
    /// The debts that this could not pay.
    settled: SettledDebts,
}

/// A pause after a failure.
#[derive(Debug, Clone, Copy, Default)]
struct RetryPause {
    until: Duration,
    last: Duration,
}

/// The threads, running.
pub(crate) struct MaintenanceThreads {
    shared: Arc<Maintenance>,
    threads: Vec<JoinHandle<()>>,
}

impl Maintenance {
    /// The shared state, without threads.
    pub(crate) fn new(trees: Trees, files: Arc<JournalFiles>, ports: MaintenancePorts, sizes: EngineSizes) -> Self {
        let state = MaintenanceState { compaction_due: TreeId::ALL.map(|_| true), ..MaintenanceState::default() };
        Self {
            trees,
            files,
            ports,
            sizes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            inserting: Mutex::new(()),
            stopped: AtomicBool::new(false),
            #[cfg(test)]
            rotation_held: AtomicBool::new(false),
        }
    }

    /// Starts one flusher and `compactors` compactors. They hold `kept`, the directory's lock, until the last of them ends.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn start(self, compactors: usize, kept: &Arc<std::fs::File>) -> io::Result<MaintenanceThreads> {
        self.update_merge_need();
        let shared = Arc::new(self);
        let mut running = MaintenanceThreads { shared: shared.clone(), threads: Vec::new() };
        let spawn = |name: &str, run: fn(&Maintenance)| {
            let (shared, kept) = (shared.clone(), kept.clone());
            Builder::new().name(name.into()).spawn(move || {
                let _guard = PanicGuard::new(shared.ports.health.clone(), "a maintenance thread panicked");
                run(&shared);
                // The lock outlives the last write of the thread: no second server opens the directory before it.
                drop(kept);
            })
        };
        running.threads.push(spawn("larder-flusher", Self::run_flusher)?);
        for _ in 0..compactors {
            running.threads.push(spawn("larder-compactor", Self::run_compactor)?);
        }
        Ok(running)
    }

    /// Seals full memtables, and the oldest one when the journal is long. The committer calls this after each group.
    pub(crate) fn rotate_full_memtables(&self) {
        #[cfg(test)]
        if self.rotation_held.load(Ordering::Relaxed) {
            return;
        }
        self.update_disk_need();
        // On a short disk deletes must free space soon: small memtables make tables that are compacted early.
        let parts = if self.ports.space.is_short() { 8 } else { 1 };
        let mut sealed = false;
        for tree in self.trees.all() {
            if tree.active_bytes() >= self.sizes.memtable_for(tree.id) / parts {
                tree.rotate();
                sealed = true;
            }
        }
        // A slow tree keeps old journal files alive: without this flush a start would replay all of them.
        if self.files.bytes() > self.sizes.journals_max {
            let oldest = self.trees.all().iter().filter(|tree| tree.first_unflushed().is_some());
            // A memtable of that tree is on its way to a table already: one more rotation would only make small tables.
            if let Some(tree) =
                oldest.min_by_key(|tree| tree.first_unflushed()).filter(|tree| tree.next_sealed().is_none())
            {
                tree.rotate();
                sealed = true;
            }
        }
        if sealed {
            self.changed.notify_all();
        }
    }

    /// The committer holds this from the number of a group to its publication: no other thread seals a memtable in the middle of
    /// the group, or publishes a later number.
    pub(crate) fn begin_inserting(&self) -> MutexGuard<'_, ()> {
        self.inserting.lock()
    }

    /// Lets go of the memtables and tables that a flush or compaction replaced. lsm-tree alone does so at the next version of
    /// the tree, which never comes when writers rest.
    fn release_retired(&self) {
        if !self.trees.all().iter().any(EngineTree::has_retired) {
            return;
        }
        self.publish_versions();
        let watermark = self.trees.snapshots.watermark();
        for tree in self.trees.all().iter().filter(|tree| tree.has_retired()) {
            if let Err(error) = tree.release_retired(watermark) {
                let dir = tree.dir.display();
                tracing::warn!("removal of an old version file of {dir} failed: {error}; it is retried");
            }
        }
    }

    /// Lets readers use the newest version of each tree.
    pub(crate) fn publish_versions(&self) {
        // Race: a group that has its number, but is not whole in the memtables, would be shown in part [invariant 122].
        let _no_group = self.inserting.lock();
        self.trees.publish_versions();
    }

    /// Keeps free the disk space that a flush of all memtables and a compaction of a full level 0 may need.
    fn update_disk_need(&self) {
        self.ports.space.set_engine_need(self.trees.unflushed_bytes() + L0_RUNS_COMPACTED * self.sizes.table);
    }

    /// Notes what a flush or merge left in the levels of a tree. As long as much of it is above the lowest level, puts leave the
    /// merges their room.
    fn note_levels(&self, tree: &EngineTree) {
        // Race: of two threads that note, the later one must leave its numbers.
        let state = self.state.lock();
        tree.count_levels();
        self.set_merge_need(&state);
    }

    /// The same after a merge that failed, or whose pause is over.
    fn update_merge_need(&self) {
        self.set_merge_need(&self.state.lock());
    }

    /// Keeps free the disk space that the merges of a short disk may need, which write what the upper levels and the tables
    /// below them hold before files go.
    fn set_merge_need(&self, state: &MaintenanceState) {
        // A tree whose merges fail, or have no room, gives nothing back: puts would wait for it in vain.
        let can_sink = |tree: &&EngineTree| state.compaction_pauses[tree.id as usize].last.is_zero();
        let unsunk = self.trees.all().iter().filter(can_sink).map(EngineTree::unsunk_bytes).sum::<u64>();
        self.ports.space.set_merge_need((2 * unsunk).min(MERGE_TABLES_KEPT * self.sizes.table));
    }

    /// Whether memtables are sealed no more.
    #[cfg(test)]
    pub(crate) fn hold_memtables(&self, held: bool) {
        self.rotation_held.store(held, Ordering::Relaxed);
    }

    /// Waits until the memtables have room for a group. The committer calls this before each group.
    ///
    /// # Errors
    /// `Full` or `Io` when the memtables are full and the last flush failed; nothing was written.
    pub(crate) fn wait_for_memtable_room(&self) -> Result<()> {
        loop {
            let over = self.trees.unflushed_bytes() > self.sizes.memtables_max;
            let mut state = self.state.lock();
            match &state.flush_error {
                Some((kind, why)) if over => return Err(Error::new(*kind, why.clone())),
                _ if over || self.is_stalled(&state) => {}
                _ => return Ok(()),
            }
            // Stopped threads flush no more: the group goes into memtables above the limit, and is safe in the journal.
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.changed.notify_all();
            // Race: a flush may end between the reading of the bytes and the lock; the poll bounds the missed wake-up.
            self.changed.wait_for(&mut state, WRITER_POLL_EVERY);
        }
    }

    /// Whether the memtables of bulk rows have room, or no flush would make any.
    pub(crate) fn has_bulk_room(&self) -> bool {
        self.trees.tree(TreeId::Bulk).unflushed_bytes() <= self.sizes.bulk_memtables_max() || self.fault().is_some()
    }

    /// Whether half of the memtables' room is free, or no flush would free more. Otherwise returns `false` after a moment, in
    /// which a flush may end.
    pub(crate) fn wait_for_headroom(&self) -> bool {
        if self.trees.unflushed_bytes() <= self.sizes.memtables_max / 2 {
            return true;
        }
        let mut state = self.state.lock();
        if state.flush_error.is_none() && !self.stopped.load(Ordering::Relaxed) {
            self.changed.notify_all();
            self.changed.wait_for(&mut state, HEAVY_POLL_EVERY);
            return false;
        }
        true
    }

    /// Whether level 0 of a tree has so many runs that writers wait. A tree whose last compaction failed does not count: its
    /// writers could wait for ever.
    fn is_stalled(&self, state: &MaintenanceState) -> bool {
        let works = |tree: &EngineTree| state.compaction_pauses[tree.id as usize].last.is_zero();
        self.trees.all().iter().any(|tree| tree.l0_runs() >= L0_RUNS_STALL && works(tree))
    }

    fn run_flusher(&self) {
        let mut pause = Duration::ZERO;
        let mut quiet = QuietMemtables::default();
        while !self.stopped.load(Ordering::Acquire) {
            let owing = self.seal_quiet_memtables(&mut quiet);
            self.release_retired();
            pause = match self.flush_round() {
                Ok(()) => {
                    self.begin_reclaiming(owing);
                    Duration::ZERO
                }
                Err(()) => (pause * 2).clamp(RETRY_FIRST, FLUSH_RETRY_LAST),
            };
            let mut state = self.state.lock();
            let has_work = pause.is_zero() && self.trees.all().iter().any(|tree| tree.next_sealed().is_some());
            if !has_work && !self.stopped.load(Ordering::Acquire) {
                self.changed.wait_for(&mut state, pause.max(POLL_EVERY));
            }
        }
    }

    /// Flushes the memtables that are sealed now, oldest first, and frees each one after its flush.
    fn flush_round(&self) -> std::result::Result<(), ()> {
        for tree in self.trees.all() {
            // Bound: writers without a pause seal more in this time. One tree's would keep the others' memtables, and with them
            // every journal file.
            for _ in 0..tree.sealed_count() {
                let Some(sealed) = tree.next_sealed() else { break };
                self.flush_sealed(tree, &sealed)?;
                // The table has its version by now, so a reader finds the rows there before the memtable goes.
                tree.drop_flushed();
                drop(sealed);
                self.finish_flush(tree);
                self.release_retired();
            }
        }
        Ok(())
    }

    /// Writes a sealed memtable to a table.
    fn flush_sealed(&self, tree: &EngineTree, sealed: &SealedMemtable) -> std::result::Result<(), ()> {
        // More runs could overflow lsm-tree's count in the version file, and the next start would not open.
        if tree.l0_runs() >= L0_RUNS_MAX {
            let dir = tree.dir.display();
            let why = format!("{dir} has too many tables in level 0, because a damaged one stops its compaction");
            self.record_flush_error(Kind::Io, format!("{why}; see `larder check` and `larder repair`"));
            return Err(());
        }
        // Crash: the table keeps its part of a group; a power cut must not take the rest from the journal [invariant 148].
        self.ports.syncs.sync().map_err(drop)?;
        // A failed flush may have left files: the next one must not write beside them.
        self.clean_up(tree)?;
        // On a short disk what it removes is given back in small steps.
        let slices = if self.ports.space.is_short() { tree.slices() } else { 1 };
        flush(tree, sealed, slices, self.trees.snapshots.watermark()).map_err(|error| {
            self.handle_flush_error(tree, &error);
        })
    }

    fn finish_flush(&self, tree: &EngineTree) {
        self.note_levels(tree);
        self.update_disk_need();
        let mut state = self.state.lock();
        if state.flush_error.take().is_some() {
            tracing::info!(tree = tree.id.name(), "flush of a memtable succeeded after failures; writes go on");
        }
        state.compaction_due[tree.id as usize] = true;
        drop(state);
        self.changed.notify_all();
        self.release_journals();
    }

    /// Removes the journal files whose rows are all in tables.
    fn release_journals(&self) {
        // The rows are in synced tables: only now may their journal files go.
        if let Err(error) = self.files.release(self.trees.flushed_below(), self.trees.versions()) {
            match error {
                ManifestError::Kept(error) => {
                    tracing::error!(%error, "removal of flushed journal files failed; they stay until the next flush or start");
                }
                // The manifest on disk may be the old or the new one, so the journal must not grow any more.
                ManifestError::InDoubt(error) => {
                    self.ports.health.poison(&format!("replacing the manifest failed: {error}"));
                }
            }
        }
    }

    fn handle_flush_error(&self, tree: &EngineTree, error: &lsm_tree::Error) {
        // Before the cleanup: if that fails, nothing is written to the directory until it succeeds.
        self.state.lock().needs_cleanup[tree.id as usize] = true;
        let kind = match error {
            lsm_tree::Error::Io(error) if is_full(error) => Kind::Full,
            _ => Kind::Io,
        };
        let why = format!("writing a memtable of {} to a table failed: {error}", tree.id.name());
        self.record_flush_error(kind, why);
        // Clean up now, not at the retry: on a full disk the unfinished table takes space that others need.
        let _ = self.clean_up(tree);
    }

    /// Why memtables are not flushed; `None`: nothing has failed since the last flush.
    pub(crate) fn fault(&self) -> Option<String> {
        self.state.lock().flush_error.as_ref().map(|(_, why)| why.clone())
    }

    /// Notes the error of a flush for writers, and logs it once until a flush succeeds.
    fn record_flush_error(&self, kind: Kind, why: String) {
        let mut state = self.state.lock();
        if state.flush_error.as_ref().is_none_or(|(_, logged)| *logged != why) {
            tracing::error!("{why}; the flush is retried, and the store refuses writes once the memtables are full");
        }
        state.flush_error = Some((kind, why));
    }

    /// Restores a tree's directory after a failure. Until that succeeds nothing is written there.
    fn clean_up(&self, tree: &EngineTree) -> std::result::Result<(), ()> {
        if !self.state.lock().needs_cleanup[tree.id as usize] {
            return Ok(());
        }
        match restore_directory(tree) {
            Ok(()) => {
                self.state.lock().needs_cleanup[tree.id as usize] = false;
                Ok(())
            }
            Err(error) => {
                self.record_flush_error(Kind::Io, format!("cleaning {} up failed: {error}", tree.dir.display()));
                Err(())
            }
        }
    }
}

impl MaintenanceThreads {
    /// The state that the committer shares with the threads.
    pub(crate) fn shared(&self) -> &Arc<Maintenance> {
        &self.shared
    }

    /// Flushes all memtables; returns whether it did within the time. The committer must have ended.
    pub(crate) fn drain(&self, within: Duration) -> bool {
        let Maintenance { trees, ports: MaintenancePorts { clock, .. }, changed, state, .. } = &*self.shared;
        // The committer has ended: no rotation cuts a group in two.
        trees.all().iter().for_each(EngineTree::rotate);
        let deadline = clock.monotonic() + within;
        // A test's clock may stand still, so the polls are counted as well.
        let mut polls = within.as_millis() / WRITER_POLL_EVERY.as_millis();
        loop {
            if trees.unflushed_bytes() == 0 {
                return true;
            }
            let mut state = state.lock();
            if state.flush_error.is_some() || polls == 0 || clock.monotonic() > deadline {
                return false;
            }
            polls -= 1;
            changed.notify_all();
            changed.wait_for(&mut state, WRITER_POLL_EVERY);
        }
    }

    /// Asks the threads to end. A running compaction is finished first.
    pub(crate) fn stop(&self) {
        // Under the lock: a thread between its check of the flag and its sleep would miss the wake-up.
        let _state = self.shared.state.lock();
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.changed.notify_all();
    }

    /// Waits until all have ended.
    pub(crate) fn join(&mut self) {
        self.stop();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Drop for MaintenanceThreads {
    fn drop(&mut self) {
        self.join();
    }
}
