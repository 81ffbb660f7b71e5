//! One LSM tree: its lsm-tree options, its memtables, and the bytes of them that are in no table yet.

use std::collections::VecDeque;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use larder_store::Error;
use lsm_tree::compaction::{CompactionStrategy, Leveled, MoveDown};
use lsm_tree::{
    AbstractTree, AnyTree, BlobFile, DescriptorTable, GlobalTableId, InternalValue, Memtable, Table, UserKey, UserValue,
};

use crate::inspect::tables;
use crate::io_errors::sync_dir;
use crate::large_values::{LargeValues, resolve};
use crate::memtable_scan::ActiveMemtable;
use crate::output_sync::{OutputBound, bytes_in, numbered};
use crate::range_scan::{RangeScan, ScanBounds, ScannedEntries};
use crate::snapshots::{ReadSnapshot, RetiredPart, RetiredParts};
use crate::space_debt::{TableCounts, TreeSpace};
use crate::threads::{Mutex, RwLock};
use crate::tree_id::TreeId;
use crate::tree_options::TreeOptions;
use crate::trees::{is_damage, read_error};
use crate::version_file::{self, VerifiedTables};

/// An open tree.
pub(crate) struct EngineTree {
    /// The tree of the store.
    pub(crate) id: TreeId,
    /// The tree in lsm-tree.
    pub(crate) lsm: AnyTree,
    /// The tree's directory.
    pub(crate) dir: PathBuf,
    /// The folder of its large values.
    values: PathBuf,
    /// Whether it keeps large values beside its tables.
    pub(crate) separates: bool,
    /// Merges level 0 once it has four runs, and a level that is too large into the next one.
    strategy: Arc<dyn CompactionStrategy + Send + Sync>,
    /// As `strategy`, but merges each run of level 0 at once.
    eager: Arc<dyn CompactionStrategy + Send + Sync>,
    /// As `strategy`, but lets no level above the lowest have a byte.
    pub(crate) sinking: Leveled,
    /// Size at which a compaction begins a new table.
    pub(crate) table_bytes: u64,
    /// The bound of the compaction that runs.
    pub(crate) bound: OutputBound,
    /// Held shared by a flush or compaction, and exclusively by the removal of a failed one's files.
    pub(crate) file_lock: RwLock<()>,
    /// The first files that a failed flush or compaction may have left.
    leftovers: Mutex<Option<FirstFiles>>,
    /// Whether a read or a compaction found wrong bytes since the start.
    damaged: AtomicBool,
    l0_runs: AtomicUsize,
    /// Bytes above the lowest level that a short disk would have merged.
    unsunk: AtomicU64,
    /// The tables whose lists of large values were read.
    pub(crate) verified: VerifiedTables,
    memtables: Mutex<Memtables>,
    /// The files that are open between reads, of all trees.
    descriptors: Arc<DescriptorTable>,
    /// Parts that readers of earlier versions may still use.
    pub(crate) retired: RetiredParts,
}

/// Numbers of files: those with lower ones are older.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstFiles {
    /// Of tables.
    pub(crate) tables: u64,
    /// Of files of large values.
    pub(crate) blobs: u64,
}

/// The memtables of a tree, each with its first sequence number.
struct Memtables {
    active: ActiveMemtable,
    sealed: VecDeque<SealedMemtable>,
}

/// A memtable that takes no more writes and is in no table yet.
#[derive(Clone)]
pub(crate) struct SealedMemtable {
    /// The entries.
    pub(crate) entries: Arc<Memtable>,
    first: u64,
    bytes: u64,
    /// Entries that are tombstones.
    pub(crate) removals: u64,
}

impl EngineTree {
    /// Opens or creates a tree.
    ///
    /// # Errors
    /// Any error of lsm-tree.
    pub(crate) fn open(tree_id: TreeId, dir: &Path, options: &TreeOptions) -> lsm_tree::Result<Self> {
        let bound = OutputBound::default();
        // A tree stays what it was when it was made: packed ones of older directories have every value in a table.
        let separates = version_file::read(dir).map_or(tree_id.separates(), |files| files.separates);
        let large_bytes = separates.then(|| bytes_in(&dir.join("blobs")));
        let lsm = options.config(tree_id, dir, large_bytes, bound.clone()).open()?;
        let leveled = Leveled::default().with_table_target_size(options.table_bytes);
        let eager = leveled.clone().with_l0_threshold(1);
        let sinking = leveled.clone().with_l0_threshold(0);
        let active = ActiveMemtable::new(lsm.active_memtable());
        let tree = Self {
            id: tree_id,
            lsm,
            dir: dir.to_owned(),
            values: dir.join("blobs"),
            separates,
            strategy: Arc::new(leveled),
            eager: Arc::new(eager),
            sinking,
            table_bytes: options.table_bytes,
            bound,
            file_lock: RwLock::new(()),
            leftovers: Mutex::default(),
            damaged: AtomicBool::new(false),
            l0_runs: AtomicUsize::default(),
            unsunk: AtomicU64::default(),
            verified: VerifiedTables::default(),
            descriptors: options.descriptors.clone(),
            memtables: Mutex::new(Memtables { active, sealed: VecDeque::new() }),
            retired: RetiredParts::default(),
        };
        tree.count_levels();
        Ok(tree)
    }

    /// Runs in level 0, as counted by the last [`Self::count_levels`].
    pub(crate) fn l0_runs(&self) -> usize {
        self.l0_runs.load(Ordering::Relaxed)
    }

    /// Bytes above the lowest level, as counted by the last [`Self::count_levels`], if a short disk would have them merged into
    /// it, else 0.
    pub(crate) fn unsunk_bytes(&self) -> u64 {
        self.unsunk.load(Ordering::Relaxed)
    }

    /// Counts what its levels hold; whoever changed them calls it.
    pub(crate) fn count_levels(&self) {
        self.l0_runs.store(self.lsm.l0_run_count(), Ordering::Relaxed);
        let space = self.space();
        let unsunk = if space.dead >= space.kept_when_short() { self.upper_bytes() } else { 0 };
        self.unsunk.store(unsunk, Ordering::Relaxed);
    }

    /// Bytes of the tables above the lowest level.
    fn upper_bytes(&self) -> u64 {
        let version = self.lsm.current_version();
        let upper = version.iter_levels().take(version.level_count() - 1);
        upper.flat_map(|level| level.iter()).flat_map(|run| run.iter()).map(|table| table.metadata.file_size).sum()
    }

    /// Inserts an entry into the active memtable, which shares its bytes. Only the committer's thread writes.
    pub(crate) fn insert(&self, key: &Bytes, value: Option<&Bytes>, seqno: u64) {
        // Not through lsm-tree, whose insert waits for its lock of the versions: a compaction holds that while it ends.
        self.memtables.lock().active.insert(key, value, seqno);
    }

    /// The value of a key as of a sequence number.
    ///
    /// # Errors
    /// Any error of lsm-tree, or of the file of a large value.
    pub(crate) fn get(&self, key: &[u8], seqno: u64) -> lsm_tree::Result<Option<UserValue>> {
        if self.id == TreeId::Bulk || !self.separates {
            return self.lsm.get(key, seqno);
        }
        let mut missing = None;
        loop {
            let Some(entry) = self.lsm.get_internal_entry(key, seqno)? else { return Ok(None) };
            match resolve(&self.values, &entry) {
                // Race: a merge moved the value before its file was opened. The same place a second time is damage.
                Err(error) if error.kind() == io::ErrorKind::NotFound && missing.as_ref() != Some(&entry.value) => {
                    missing = Some(entry.value);
                }
                read => return Ok(Some(read?)),
            }
        }
    }

    /// Entries within the bounds, in a snapshot that `acquire` takes; the scan has its parts when this returns.
    pub(crate) fn scan(&self, bounds: ScanBounds, acquire: impl Fn() -> ReadSnapshot) -> ScannedEntries {
        loop {
            // Race: before the snapshot. Flushes and compactions drop a version that a newer one hides, and that one was published
            // before they began: a number that is taken now sees it.
            let version = self.lsm.current_version();
            let seqno = acquire().seqno;
            let memtables = self.memtables();
            // Race: entries that were flushed since would be neither in the memtables nor in this version [invariant 130].
            if self.version() == version.id() {
                let keys =
                    (Bound::Included(&bounds.from), bounds.to.as_ref().map_or(Bound::Unbounded, Bound::Excluded));
                let runs = version.iter_levels().flat_map(|level| level.iter()).filter_map(|run| {
                    let (first, last) = run.range_overlap_indexes::<UserKey, _>(&keys)?;
                    run.get(first..=last).map(<[Table]>::to_vec)
                });
                let runs = runs.collect();
                let large = LargeValues { folder: self.values.clone(), _version: Box::new(version) };
                return match RangeScan::new(memtables, runs, &bounds, seqno, large) {
                    Ok(scan) => Box::new(scan),
                    Err(error) => Box::new(std::iter::once(Err(error))),
                };
            }
        }
    }

    /// The entries of all memtables.
    fn memtables(&self) -> Vec<Arc<Memtable>> {
        let memtables = self.memtables.lock();
        let sealed = memtables.sealed.iter().map(|sealed| &sealed.entries);
        sealed.chain([&memtables.active.entries]).cloned().collect()
    }

    /// Bytes of the tables and of the files of large values.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.lsm.disk_space()
    }

    /// Its bytes on disk, and those of them that may be dead.
    pub(crate) fn space(&self) -> TreeSpace {
        let version = self.lsm.current_version();
        let unnamed = version.gc_stats().stale_bytes();
        let mut counts = TableCounts { bytes: version.blob_files.on_disk_size(), unnamed, ..TableCounts::default() };
        let lowest = version.level_count() - 1;
        for (number, level) in version.iter_levels().enumerate() {
            for table in level.iter().flat_map(|run| run.iter()) {
                let (entries, tombstones) = (table.metadata.item_count, table.tombstone_count());
                counts.bytes += table.metadata.file_size;
                counts.entries += entries;
                counts.removals += tombstones;
                if number == lowest {
                    counts.lowest += entries.saturating_sub(tombstones);
                }
            }
        }
        counts.tombstones = counts.removals;
        let memtables = self.memtables.lock();
        let sealed = memtables.sealed.iter().map(|sealed| (&sealed.entries, sealed.removals));
        for (entries, removals) in sealed.chain([(&memtables.active.entries, memtables.active.removals)]) {
            counts.unflushed += entries.items.len() as u64;
            counts.tombstones += removals;
        }
        drop(memtables);
        counts.space()
    }

    /// Bytes of the active memtable.
    pub(crate) fn active_bytes(&self) -> u64 {
        self.memtables.lock().active.bytes
    }

    /// Bytes of all memtables.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let memtables = self.memtables.lock();
        memtables.active.bytes + memtables.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>()
    }

    /// The sequence number of the oldest write that is in no table; `None` when there is none.
    pub(crate) fn first_unflushed(&self) -> Option<u64> {
        let memtables = self.memtables.lock();
        memtables.sealed.front().map(|sealed| sealed.first).or(memtables.active.first)
    }

    /// Seals the active memtable. Callers do so between two groups, so that a table ends with a whole group.
    pub(crate) fn rotate(&self) {
        // Race: a release of journals must find these entries active or sealed, so both change under the lock.
        let mut memtables = self.memtables.lock();
        // An empty memtable stays active: it would become an empty table.
        let Some(entries) = self.lsm.rotate_memtable() else { return };
        let next = ActiveMemtable::new(self.lsm.active_memtable());
        let ActiveMemtable { first, bytes, removals, .. } = std::mem::replace(&mut memtables.active, next);
        let first = first.unwrap_or(0);
        memtables.sealed.push_back(SealedMemtable { entries, first, bytes, removals });
    }

    /// Sealed memtables.
    pub(crate) fn sealed_count(&self) -> usize {
        self.memtables.lock().sealed.len()
    }

    /// The oldest sealed memtable.
    pub(crate) fn next_sealed(&self) -> Option<SealedMemtable> {
        self.memtables.lock().sealed.front().cloned()
    }

    /// Drops the oldest sealed memtable, which is in a table now.
    pub(crate) fn drop_flushed(&self) {
        // The flusher alone takes memtables, so the front is the one that was flushed.
        let flushed = self.memtables.lock().sealed.pop_front();
        if let Some(SealedMemtable { entries, bytes, .. }) = flushed {
            self.retired.hold(RetiredPart::Memtable(entries, bytes));
        }
    }

    /// The greatest sequence number in its tables; every write up to it is in them.
    pub(crate) fn persisted(&self) -> Option<u64> {
        self.lsm.get_highest_persisted_seqno()
    }

    /// Does one compaction, if one is due; it writes at most `room` bytes of rows.
    ///
    /// # Errors
    /// Any error of lsm-tree; `Io` of kind `InvalidData` names a damaged table of large values;
    /// [`is_over_bound`](crate::output_sync::is_over_bound) for a compaction that would have written more.
    pub(crate) fn compact(&self, room: u64, watermark: u64) -> lsm_tree::Result<()> {
        self.merge_tables(room, || {
            // lsm-tree asserts that a level is not empty into which it merges one between the first and the lowest.
            match self.above_empty() {
                Some(above) => self.lsm.compact(Arc::new(MoveDown(above, above + 1)), watermark),
                // A merge of places is little work, and it alone finds the values that were replaced.
                None if self.has_places() => self.lsm.compact(self.eager.clone(), watermark),
                None => self.lsm.compact(self.strategy.clone(), watermark),
            }
        })
    }

    /// A level with tables, above an empty one: it goes down as it is.
    pub(crate) fn above_empty(&self) -> Option<u8> {
        let version = self.lsm.current_version();
        let is_empty = |level: u8| version.level(level.into()).is_none_or(|level| level.is_empty());
        (1..version.level_count() as u8 - 1).rev().find(|level| !is_empty(*level) && is_empty(level + 1))
    }

    /// Writes entries, in order, to new tables and files of large values, which no version names yet.
    ///
    /// # Errors
    /// Any error of lsm-tree, or of the entries.
    pub(crate) fn write_tables(
        &self,
        // One type for all callers: the writers of lsm-tree are large, and would be there for each.
        entries: &mut dyn Iterator<Item = lsm_tree::Result<InternalValue>>,
    ) -> lsm_tree::Result<(Vec<Table>, Vec<BlobFile>)> {
        let (tables, files) = self.lsm.flush_to_tables(entries)?.unwrap_or_default();
        Ok((tables, files.unwrap_or_default()))
    }

    /// Runs a compaction that may write so many bytes of rows; the places of large values are few.
    pub(crate) fn merge_tables(
        &self,
        room: u64,
        compact: impl FnOnce() -> lsm_tree::Result<()>,
    ) -> lsm_tree::Result<()> {
        self.write_files(|| {
            if self.separates {
                // Before the compaction: a wrong list of linked files makes lsm-tree panic under its lock or drop a file in use.
                self.verified.verify_new(&self.lsm)?;
            }
            let before = self.lsm.current_version();
            // Of large values only the places count, and those of the bulk tree are all that it has.
            let bound = if self.id == TreeId::Bulk { u64::MAX } else { room };
            let compacted = self.bound.within(bound, compact);
            if self.version() == before.id() {
                return compacted;
            }
            // Crash: the new version names files of values; a power cut must not take those names when the old files are gone.
            if self.separates
                && let Err(error) = sync_dir(&self.values)
            {
                // Its files stay until the end of the process.
                std::mem::forget(before);
                return Err(error.into());
            }
            self.retired.hold(RetiredPart::Version { _version: Box::new(before) });
            compacted
        })
    }

    /// Runs a flush or compaction, and notes which files it may have left, if it fails.
    pub(crate) fn write_files<T>(&self, write: impl FnOnce() -> lsm_tree::Result<T>) -> lsm_tree::Result<T> {
        // Flushes and compactions share the directory; only the removal of leftovers needs it alone.
        let _at_work = self.file_lock.read();
        self.note_leftovers(write)
    }

    /// As [`Self::write_files`], for a caller that holds the directory.
    pub(crate) fn note_leftovers<T>(&self, write: impl FnOnce() -> lsm_tree::Result<T>) -> lsm_tree::Result<T> {
        let first = self.first_files()?;
        write().inspect_err(|_| {
            let mut leftovers = self.leftovers.lock();
            // Another one may have failed before, whose files are still there.
            let FirstFiles { tables, blobs } = leftovers.unwrap_or(first);
            *leftovers = Some(FirstFiles { tables: tables.min(first.tables), blobs: blobs.min(first.blobs) });
        })
    }

    /// The numbers of the next files.
    fn first_files(&self) -> io::Result<FirstFiles> {
        let blobs = match self.separates {
            true => numbered(&self.values)?.last().map_or(0, |last| last + 1),
            false => 0,
        };
        Ok(FirstFiles { tables: self.lsm.get_next_table_id(), blobs })
    }

    /// Closes files that were removed, whose blocks an open descriptor would keep.
    pub(crate) fn close_removed(&self, tables: &[u64], blobs: &[u64]) {
        let id = |number: &u64| GlobalTableId::from((self.lsm.id(), *number));
        tables.iter().for_each(|number| self.descriptors.remove_for_table(&id(number)));
        blobs.iter().for_each(|number| self.descriptors.remove_for_blob_file(&id(number)));
    }

    /// The first files that failed flushes and compactions may have left.
    pub(crate) fn leftovers(&self) -> Option<FirstFiles> {
        *self.leftovers.lock()
    }

    /// Notes that no such file is left. The caller holds `file_lock` alone.
    pub(crate) fn forget_leftovers(&self) {
        *self.leftovers.lock() = None;
    }

    /// Memory of flushed memtables that readers of earlier versions may still use.
    pub(crate) fn retired_bytes(&self) -> u64 {
        self.retired.memory()
    }

    /// Memory of the indexes and filters of tables, which no cache holds.
    pub(crate) fn index_bytes(&self) -> u64 {
        (self.lsm.pinned_block_index_size() + self.lsm.pinned_filter_size()) as u64
    }

    /// Whether parts are kept for readers of earlier versions.
    pub(crate) fn has_retired(&self) -> bool {
        self.lsm.version_free_list_len() > 0 || !self.retired.is_empty()
    }

    /// Drops the memtables and tables that only readers below `watermark` could ask for.
    ///
    /// # Errors
    /// Any error of lsm-tree: a version file that could not be removed. The next call tries again.
    pub(crate) fn release_retired(&self, watermark: u64) -> lsm_tree::Result<()> {
        // Taken before the versions go: a part that is retired later may be in one that stays.
        let parts = self.retired.take();
        // A flush or compaction that fails restores the directory by its version files.
        let _at_work = self.file_lock.read();
        let mut versions = self.lsm.get_version_history_lock();
        let released = versions.maintenance(&self.dir, watermark);
        let is_last = versions.free_list_len() == 0;
        drop(versions);
        if !is_last {
            self.retired.put_back_used(parts);
        }
        released
    }

    /// The tree's version; every flush and every effective compaction changes it.
    pub(crate) fn version(&self) -> u64 {
        self.lsm.current_version().id()
    }

    /// The first key after the next damaged block, searching `entries` entries of each table from `from` on; `None` when there
    /// is none. A merged iterator ends at a damaged block, a table's own continues after it.
    pub(crate) fn key_after_damage(&self, from: &[u8], entries: usize) -> Option<UserKey> {
        let version = self.lsm.current_version();
        let behind = version.iter_tables().filter_map(|table| {
            let mut entries = table.range(UserKey::from(from)..).take(entries);
            let _ = entries.find(std::result::Result::is_err)?;
            first_readable_key(entries)
        });
        behind.min()
    }

    /// Whether damage was found since the start.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Notes damage; returns whether it is the first since the start.
    pub(crate) fn note_damage(&self) -> bool {
        !self.damaged.swap(true, Ordering::Relaxed)
    }

    /// The store's error for a failed read of the keys from `from` to `to`; the log names the first damage.
    pub(crate) fn map_read_error(&self, error: lsm_tree::Error, from: &[u8], to: Option<&[u8]>) -> Error {
        if is_damage(&error) && self.note_damage() {
            let dir = self.dir.display();
            tracing::error!(%error, "read of {dir} failed: a block is damaged; its keys answer 500, `larder check` lists them");
            tables::name_in_background(self.id, self.dir.clone(), from, to);
        }
        read_error(self.id, error)
    }
}

/// The first key that can be read.
fn first_readable_key(entries: impl Iterator<Item = lsm_tree::Result<InternalValue>>) -> Option<UserKey> {
    entries.flatten().map(|entry| entry.key.user_key).next()
}
