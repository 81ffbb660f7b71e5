//! The threads behind the committer: they write sealed memtables to tables, compact tables and release journals.
//!
//! ```text
//! committer    memtable full ──> sealed ─────────────┐                    writers wait while memtables hold too much
//! flusher                                            └─> table, level 0 ──> journals released
//! compactors                                                                └─> merged into deeper levels
//! ```
//! Nothing here ends the store. A flush that fails leaves its writes in the memtable and in the journal: it is tried again, and
//! writes are refused only when the memtables are full. A compaction that meets a damaged block leaves its tables as they
//! are: that tree is not compacted for a while, and goes on with more tables in level 0.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use larder_store::{Clock, Error, Kind, Result};
use parking_lot::{Condvar, Mutex};

use crate::disk::{is_full, is_transient};
use crate::disk_space::DiskSpace;
use crate::flush::{flush, take_back};
use crate::journal::JournalFiles;
use crate::queue::{Health, PanicGuard};
use crate::sizes::EngineSizes;
use crate::spaces::{Spaces, is_damage};
use crate::tree::SpaceTree;

/// Runs in level 0 at which writers wait for compaction: each read looks into every run.
const L0_RUNS_STALL: usize = 30;
/// Runs in level 0 that are compacted together.
const L0_RUNS_COMPACTED: u64 = 4;
/// Runs in level 0 at most: the engine below counts them in one byte.
const L0_RUNS_MAX: usize = 200;
/// How long a failed flush or compaction waits before it is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// How long a tree with a damaged block is not compacted.
const RETRY_DAMAGED: Duration = Duration::from_secs(600);
/// How long a thread sleeps at most before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long heavy writes leave the turn to others while half of the room is taken.
const HEAVY_LOOKS_EVERY: Duration = Duration::from_millis(2);
/// How long a writer waits before it looks again.
const WRITER_LOOKS_EVERY: Duration = Duration::from_millis(10);

/// What the threads work on.
pub(crate) struct Maintenance {
    spaces: Spaces,
    files: Arc<JournalFiles>,
    ports: MaintenancePorts,
    sizes: EngineSizes,
    state: Mutex<MaintenanceState>,
    /// Signalled when there may be something to do, or something was done.
    changed: Condvar,
    stopped: AtomicBool,
    #[cfg(test)]
    holds: AtomicBool,
}

/// What the threads share with the rest of the store.
pub(crate) struct MaintenancePorts {
    /// Ended by a cause that may have lost an answered write.
    pub(crate) health: Arc<Health>,
    /// Time that passes.
    pub(crate) clock: Arc<dyn Clock>,
    /// What the threads may need of the disk is kept free there.
    pub(crate) space: Arc<DiskSpace>,
}

#[derive(Default)]
struct MaintenanceState {
    /// Why the last flush failed; writers are told once the memtables are full.
    flush_failed: Option<(Kind, String)>,
    /// Per tree: when it is compacted again, and how long the last wait was.
    compaction_rests: [Rest; 3],
    /// Trees whose directory must be put in order before anything is written there.
    needs_order: [bool; 3],
    /// Set by a flush: a compactor looks at this tree.
    to_compact: [bool; 3],
}

/// A pause after a failure.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    until: Duration,
    last: Duration,
}

/// The threads, running.
pub(crate) struct MaintenanceThreads {
    shared: Arc<Maintenance>,
    threads: Vec<JoinHandle<()>>,
}

impl Maintenance {
    /// Nothing runs yet.
    pub(crate) fn new(spaces: Spaces, files: Arc<JournalFiles>, ports: MaintenancePorts, sizes: EngineSizes) -> Self {
        let state = MaintenanceState { to_compact: [true; 3], ..MaintenanceState::default() };
        Self {
            spaces,
            files,
            ports,
            sizes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            #[cfg(test)]
            holds: AtomicBool::new(false),
        }
    }

    /// Starts one thread that flushes and `compactors` that compact. `kept` is held until the last of them ends.
    ///
    /// # Errors
    /// What the machine answers.
    pub(crate) fn start(self, compactors: usize, kept: &Arc<std::fs::File>) -> io::Result<MaintenanceThreads> {
        let shared = Arc::new(self);
        let mut running = MaintenanceThreads { shared: shared.clone(), threads: Vec::new() };
        let spawn = |name: &str, run: fn(&Maintenance)| {
            let (shared, kept) = (shared.clone(), kept.clone());
            std::thread::Builder::new().name(name.into()).spawn(move || {
                let _guard = PanicGuard::new(shared.ports.health.clone(), "a maintenance thread panicked");
                run(&shared);
                drop(kept);
            })
        };
        running.threads.push(spawn("larder-flusher", Self::run_flusher)?);
        for _ in 0..compactors {
            running.threads.push(spawn("larder-compactor", Self::run_compactor)?);
        }
        Ok(running)
    }

    /// After a group: seals memtables that are full, and the oldest one when the journal is long.
    pub(crate) fn after_group(&self) {
        #[cfg(test)]
        if self.holds.load(Ordering::Relaxed) {
            return;
        }
        self.note_need();
        // Short of disk space, what deletes removed is wanted back: small tables are compacted soon.
        let full = if self.ports.space.is_short() { self.sizes.memtable / 8 } else { self.sizes.memtable };
        let mut sealed = false;
        for tree in self.spaces.trees() {
            if tree.active_bytes() >= full {
                tree.rotate();
                sealed = true;
            }
        }
        if self.files.bytes() > self.sizes.journals_max {
            let oldest = self.spaces.trees().iter().filter(|tree| tree.first_unflushed().is_some());
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

    /// Keeps free what a flush of all memtables and a compaction of a full level 0 may write.
    fn note_need(&self) {
        self.ports.space.set_engine_need(self.spaces.unflushed_bytes() + L0_RUNS_COMPACTED * self.sizes.table);
    }

    /// Seals no memtable from now on.
    #[cfg(test)]
    pub(crate) fn hold_memtables(&self) {
        self.holds.store(true, Ordering::Relaxed);
    }

    /// Waits until the memtables have room for a group. The committer asks before each one.
    ///
    /// # Errors
    /// `Full` or `Io` when they are full and the last flush failed; nothing was written.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        loop {
            let over = self.spaces.unflushed_bytes() > self.sizes.memtables_max;
            let mut state = self.state.lock();
            match &state.flush_failed {
                Some((kind, why)) if over => return Err(Error::new(*kind, why.clone())),
                _ if over || self.is_stalled(&state) => {}
                _ => return Ok(()),
            }
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.changed.notify_all();
            self.changed.wait_for(&mut state, WRITER_LOOKS_EVERY);
        }
    }

    /// Whether half of the memtables' room is free, or no flush would make more: what can wait may go on then. Else it answers
    /// no after a moment, in which a flush may end.
    pub(crate) fn wait_for_half(&self) -> bool {
        if self.spaces.unflushed_bytes() <= self.sizes.memtables_max / 2 {
            return true;
        }
        let mut state = self.state.lock();
        if state.flush_failed.is_none() && !self.stopped.load(Ordering::Relaxed) {
            self.changed.notify_all();
            self.changed.wait_for(&mut state, HEAVY_LOOKS_EVERY);
            return false;
        }
        true
    }

    /// Whether level 0 of a tree is so high that writers wait; not where the last compaction failed, which could be for ever.
    fn is_stalled(&self, state: &MaintenanceState) -> bool {
        let works = |tree: &SpaceTree| state.compaction_rests[tree.space as usize].last.is_zero();
        self.spaces.trees().iter().any(|tree| tree.l0_runs() >= L0_RUNS_STALL && works(tree))
    }

    fn run_flusher(&self) {
        let mut rest = Duration::ZERO;
        while !self.stopped.load(Ordering::Acquire) {
            rest = match self.flush_all() {
                Ok(()) => Duration::ZERO,
                Err(()) => (rest * 2).clamp(RETRY_FIRST, RETRY_LAST),
            };
            let mut state = self.state.lock();
            let has_work = rest.is_zero() && self.spaces.trees().iter().any(|tree| tree.next_sealed().is_some());
            if !has_work && !self.stopped.load(Ordering::Acquire) {
                self.changed.wait_for(&mut state, rest.max(LOOK_EVERY));
            }
        }
    }

    /// Writes out every sealed memtable, oldest first.
    fn flush_all(&self) -> std::result::Result<(), ()> {
        for tree in self.spaces.trees() {
            while let Some(sealed) = tree.next_sealed() {
                if tree.l0_runs() >= L0_RUNS_MAX {
                    let dir = tree.dir.display();
                    let why = format!("{dir} is full of tables that a damaged one keeps from being compacted");
                    self.flush_fails(Kind::Io, format!("{why}; see `larder check` and `larder repair`"));
                    return Err(());
                }
                self.put_in_order(tree)?;
                let flushed = {
                    let _at_work = tree.at_work.read();
                    flush(tree, &sealed, self.spaces.snapshots.watermark())
                };
                if let Err(error) = flushed {
                    self.flush_failed(tree, &error);
                    return Err(());
                }
                tree.flushed();
                self.flushed(tree);
            }
        }
        Ok(())
    }

    fn flushed(&self, tree: &SpaceTree) {
        tree.look_at_l0();
        self.note_need();
        let mut state = self.state.lock();
        if state.flush_failed.take().is_some() {
            tracing::info!("memtables are written to tables again");
        }
        state.to_compact[tree.space as usize] = true;
        drop(state);
        self.changed.notify_all();
        if let Err(error) = self.files.release(self.spaces.flushed_below(), self.spaces.versions()) {
            match is_transient(&error) {
                true => tracing::warn!(%error, "journals that are not needed any more were not removed: later"),
                false => self.ports.health.poison(&format!("the manifest could not be written: {error}")),
            }
        }
    }

    fn flush_failed(&self, tree: &SpaceTree, error: &lsm_tree::Error) {
        self.state.lock().needs_order[tree.space as usize] = true;
        let kind = match error {
            lsm_tree::Error::Io(error) if is_full(error) => Kind::Full,
            _ => Kind::Io,
        };
        let why = format!("writing a memtable of {} to a table failed: {error}", tree.space.name());
        self.flush_fails(kind, why);
        // At once: on a full disk what was written of the table is room that others need.
        let _ = self.put_in_order(tree);
    }

    /// Notes and logs why nothing is flushed: once, until a flush works again.
    fn flush_fails(&self, kind: Kind, why: String) {
        let mut state = self.state.lock();
        if state.flush_failed.as_ref().is_none_or(|(_, said)| *said != why) {
            tracing::error!("{why}; it is tried again, and writes are refused once memory is full");
        }
        state.flush_failed = Some((kind, why));
    }

    /// Puts a tree's directory in order after a failure. Until that works nothing is written there.
    fn put_in_order(&self, tree: &SpaceTree) -> std::result::Result<(), ()> {
        if !self.state.lock().needs_order[tree.space as usize] {
            return Ok(());
        }
        match take_back(tree) {
            Ok(()) => {
                self.state.lock().needs_order[tree.space as usize] = false;
                Ok(())
            }
            Err(error) => {
                self.flush_fails(Kind::Io, format!("{} was not put in order: {error}", tree.dir.display()));
                Err(())
            }
        }
    }

    fn run_compactor(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            let due = self.next_to_compact();
            let Some(tree) = due else {
                let mut state = self.state.lock();
                if !self.stopped.load(Ordering::Acquire) {
                    self.changed.wait_for(&mut state, LOOK_EVERY);
                }
                continue;
            };
            self.compact(tree);
            self.changed.notify_all();
        }
    }

    /// A tree that a flush changed, or whose rest is over.
    fn next_to_compact(&self) -> Option<&SpaceTree> {
        let mut state = self.state.lock();
        let now = self.ports.clock.monotonic();
        let tree = self.spaces.trees().iter().find(|tree| {
            let at = tree.space as usize;
            state.to_compact[at] && state.compaction_rests[at].until <= now && !state.needs_order[at]
        })?;
        state.to_compact[tree.space as usize] = false;
        Some(tree)
    }

    /// Compacts until there is nothing to do.
    fn compact(&self, tree: &SpaceTree) {
        loop {
            let before = tree.version();
            let done = tree.compact(self.spaces.snapshots.watermark());
            tree.look_at_l0();
            match done {
                Ok(()) if tree.version() == before || self.stopped.load(Ordering::Acquire) => break,
                Ok(()) => {}
                Err(error) => return self.compaction_failed(tree, &error),
            }
        }
        self.state.lock().compaction_rests[tree.space as usize] = Rest::default();
    }

    fn compaction_failed(&self, tree: &SpaceTree, error: &lsm_tree::Error) {
        let at = tree.space as usize;
        let damaged = is_damage(error);
        let mut state = self.state.lock();
        let last = state.compaction_rests[at].last;
        let rest = if damaged { RETRY_DAMAGED } else { (last * 2).clamp(RETRY_FIRST, RETRY_LAST) };
        state.compaction_rests[at] = Rest { until: self.ports.clock.monotonic() + rest, last: rest };
        state.needs_order[at] = true;
        state.to_compact[at] = true;
        drop(state);
        let dir = tree.dir.display();
        if damaged {
            tree.note_damage();
            tracing::error!(
                "compacting {dir} failed: a table in it is damaged ({error}); reads and writes go on, `larder check` names it"
            );
        } else if last.is_zero() {
            tracing::warn!("compacting {dir} failed: {error}; it is tried again");
        }
        let _ = self.put_in_order(tree);
    }
}

impl MaintenanceThreads {
    /// What the committer asks and tells.
    pub(crate) fn shared(&self) -> &Arc<Maintenance> {
        &self.shared
    }

    /// Writes all memtables to tables; answers whether it did within the time. No group may arrive meanwhile.
    pub(crate) fn settle(&self, within: Duration) -> bool {
        let Maintenance { spaces, ports: MaintenancePorts { clock, .. }, changed, state, .. } = &*self.shared;
        spaces.trees().iter().for_each(SpaceTree::rotate);
        let deadline = clock.monotonic() + within;
        let mut looks = within.as_millis() / WRITER_LOOKS_EVERY.as_millis();
        loop {
            if spaces.unflushed_bytes() == 0 {
                return true;
            }
            let mut state = state.lock();
            if state.flush_failed.is_some() || looks == 0 || clock.monotonic() > deadline {
                return false;
            }
            looks -= 1;
            changed.notify_all();
            changed.wait_for(&mut state, WRITER_LOOKS_EVERY);
        }
    }

    /// Tells the threads to end. A compaction under way is finished first.
    pub(crate) fn stop(&self) {
        // Under the lock: no thread is between its look at the flag and its sleep.
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
