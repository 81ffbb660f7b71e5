//! One tree of the engine below: its options, its memtables, and what of them is in no table yet.

use std::collections::VecDeque;
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use larder_store::Error;
use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use lsm_tree::compaction::{CompactionStrategy, Leveled};
use lsm_tree::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, RestartIntervalPolicy,
};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, InternalValue, KvSeparationOptions,
    Memtable, SequenceNumberCounter, UserKey,
};
use parking_lot::{Mutex, RwLock};

use crate::proof::ProvenTables;
use crate::spaces::{Space, is_damage, read_failed};

/// Bytes that an entry costs beside its key and value: what the memtable itself counts.
const ENTRY_OVERHEAD_BYTES: u64 = size_of::<InternalValue>() as u64;

/// What the trees share.
pub(crate) struct TreeOptions {
    pub(crate) cache: Arc<Cache>,
    pub(crate) descriptors: Arc<DescriptorTable>,
    pub(crate) seqnos: SequenceNumberCounter,
    pub(crate) table_bytes: u64,
}

/// A tree, open.
pub(crate) struct SpaceTree {
    /// Which one.
    pub(crate) space: Space,
    /// The tree of the engine below.
    pub(crate) below: AnyTree,
    /// Its directory.
    pub(crate) dir: PathBuf,
    strategy: Arc<dyn CompactionStrategy + Send + Sync>,
    /// Held shared by a flush and by a compaction, and alone by who removes what a failed one left.
    pub(crate) at_work: RwLock<()>,
    /// Whether a read or a compaction met wrong bytes since the start.
    damaged: AtomicBool,
    l0_runs: AtomicUsize,
    proven: ProvenTables,
    memtables: Mutex<Memtables>,
}

/// The memtables of a tree, by the first sequence number in each.
#[derive(Default)]
struct Memtables {
    active: Option<u64>,
    active_bytes: u64,
    sealed: VecDeque<SealedMemtable>,
}

/// A memtable that takes no writes any more and is in no table yet.
#[derive(Clone)]
pub(crate) struct SealedMemtable {
    /// Its entries.
    pub(crate) entries: Arc<Memtable>,
    first: u64,
    bytes: u64,
}

impl SpaceTree {
    /// Opens or makes it.
    ///
    /// # Errors
    /// What the engine below answers.
    pub(crate) fn open(space: Space, dir: &Path, options: &TreeOptions) -> lsm_tree::Result<Self> {
        let below = config(space, dir, options).open()?;
        let l0_runs = below.l0_run_count();
        let strategy = Arc::new(Leveled::default().with_table_target_size(options.table_bytes));
        Ok(Self {
            space,
            below,
            dir: dir.to_owned(),
            strategy,
            at_work: RwLock::new(()),
            damaged: AtomicBool::new(false),
            l0_runs: AtomicUsize::new(l0_runs),
            proven: ProvenTables::default(),
            memtables: Mutex::default(),
        })
    }

    /// Runs in level 0 when it was looked at last.
    pub(crate) fn l0_runs(&self) -> usize {
        self.l0_runs.load(Ordering::Relaxed)
    }

    /// Counts the runs in level 0.
    pub(crate) fn look_at_l0(&self) {
        self.l0_runs.store(self.below.l0_run_count(), Ordering::Relaxed);
    }

    /// Puts an entry into the active memtable, which shares its bytes. One thread writes.
    pub(crate) fn insert(&self, key: &Bytes, value: Option<&Bytes>, seqno: u64) {
        let mut memtables = self.memtables.lock();
        memtables.active.get_or_insert(seqno);
        memtables.active_bytes += (key.len() + value.map_or(0, Bytes::len)) as u64 + ENTRY_OVERHEAD_BYTES;
        drop(memtables);
        match value {
            Some(value) => self.below.insert(key.clone(), value.clone(), seqno),
            None => self.below.remove(key.clone(), seqno),
        };
    }

    /// Bytes of its tables and of its large values.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.below.disk_space()
    }

    /// Bytes of the active memtable.
    pub(crate) fn active_bytes(&self) -> u64 {
        self.memtables.lock().active_bytes
    }

    /// Bytes of all memtables.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let memtables = self.memtables.lock();
        memtables.active_bytes + memtables.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>()
    }

    /// The sequence number of the oldest write that is in no table; `None` when there is none.
    pub(crate) fn first_unflushed(&self) -> Option<u64> {
        let memtables = self.memtables.lock();
        memtables.sealed.front().map(|sealed| sealed.first).or(memtables.active)
    }

    /// Seals the active memtable, between two groups: a table then ends with a whole group.
    pub(crate) fn rotate(&self) {
        let mut memtables = self.memtables.lock();
        let Some(entries) = self.below.rotate_memtable() else { return };
        let first = memtables.active.take().unwrap_or(0);
        let bytes = std::mem::take(&mut memtables.active_bytes);
        memtables.sealed.push_back(SealedMemtable { entries, first, bytes });
    }

    /// The oldest sealed memtable.
    pub(crate) fn next_sealed(&self) -> Option<SealedMemtable> {
        self.memtables.lock().sealed.front().cloned()
    }

    /// Forgets the oldest sealed memtable: it is in a table.
    pub(crate) fn flushed(&self) {
        self.memtables.lock().sealed.pop_front();
    }

    /// The greatest sequence number in its tables; every write up to it is in them.
    pub(crate) fn persisted(&self) -> Option<u64> {
        self.below.get_highest_persisted_seqno()
    }

    /// Does one compaction, if one is due.
    ///
    /// # Errors
    /// What the engine below answers; `Io` of kind `InvalidData` names a damaged table of large values.
    pub(crate) fn compact(&self, watermark: u64) -> lsm_tree::Result<()> {
        let _at_work = self.at_work.read();
        if self.space == Space::Bulk {
            self.proven.prove(&self.below)?;
        }
        self.below.compact(self.strategy.clone(), watermark)
    }

    /// Its version: it changes with every flush and every compaction that did something.
    pub(crate) fn version(&self) -> u64 {
        self.below.current_version().id()
    }

    /// The first key behind the next damaged block, looking at `entries` entries of each table from `from` on; `None` when there
    /// is none behind it. A merged iterator ends at a damaged block, a table's own goes on behind it.
    pub(crate) fn behind_damage(&self, from: &[u8], entries: usize) -> Option<UserKey> {
        let version = self.below.current_version();
        let behind = version.iter_tables().filter_map(|table| {
            let mut entries = table.range(UserKey::from(from)..).take(entries);
            let _ = entries.find(std::result::Result::is_err)?;
            table_key_behind(entries)
        });
        behind.min()
    }

    /// Notes wrong bytes; answers whether they are the first.
    pub(crate) fn note_damage(&self) -> bool {
        !self.damaged.swap(true, Ordering::Relaxed)
    }

    /// The store's error for a refused read.
    pub(crate) fn read_failed(&self, error: lsm_tree::Error) -> Error {
        if is_damage(&error) && self.note_damage() {
            let dir = self.dir.display();
            tracing::error!(%error, "a block in {dir} is damaged: its keys answer 500; `larder check` lists them");
        }
        read_failed(self.space, error)
    }
}

/// The first key that can be read.
fn table_key_behind(entries: impl Iterator<Item = lsm_tree::Result<InternalValue>>) -> Option<UserKey> {
    entries.flatten().map(|entry| entry.key.user_key).next()
}

/// Missing gets matter in packed and wide: their last level keeps its filters. Whoever asks for a bulk row has its name.
fn config(space: Space, dir: &Path, options: &TreeOptions) -> Config {
    let bloom = |policy| FilterPolicyEntry::Bloom(policy);
    // The engine below raises its own visible number at each change of version, which would show half a group: readers
    // take theirs from `Snapshots`, and this counter is read by nobody.
    let config = Config::new(dir, options.seqnos.clone(), SequenceNumberCounter::default())
        .use_cache(options.cache.clone())
        .use_descriptor_table(Some(options.descriptors.clone()))
        .data_block_restart_interval_policy(RestartIntervalPolicy::new([10, 16]))
        .filter_policy(FilterPolicy::new([
            bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]))
        .data_block_compression_policy(CompressionPolicy::new([
            CompressionType::None,
            CompressionType::None,
            CompressionType::Lz4,
        ]))
        .expect_point_read_hits(space == Space::Bulk);
    match space {
        Space::Packed | Space::Wide => config,
        Space::Bulk => config
            .with_kv_separation(Some(KvSeparationOptions::default().file_target_size(options.table_bytes)))
            .with_compaction_filter_factory(Some(Arc::new(SyncedBlobs(dir.join("blobs"))))),
    }
}

/// Syncs the folder of large values at the end of a compaction, before its result is named: the engine below syncs the files
/// that it makes there, not their names.
struct SyncedBlobs(PathBuf);

impl RefUnwindSafe for SyncedBlobs {}

impl Factory for SyncedBlobs {
    fn name(&self) -> &str {
        "synced blobs"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Self(self.0.clone()))
    }
}

impl CompactionFilter for SyncedBlobs {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        Ok(Verdict::Keep)
    }

    fn finish(self: Box<Self>) {
        if let Err(error) = sync_dir(&self.0) {
            tracing::error!(%error, path = %self.0.display(), "a folder of large values was not synced");
        }
    }
}

/// Waits until the names in a directory are on disk.
///
/// # Errors
/// What the machine answers.
pub(crate) fn sync_dir(path: &Path) -> std::io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}
