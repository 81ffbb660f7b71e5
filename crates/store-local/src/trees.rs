//! The LSM trees, and the mapping of their errors to store errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use larder_store::{Error, Kind, ReadOrder, Result, Row};
use lsm_tree::{Cache, DescriptorTable, SequenceNumberCounter};

use crate::cache::EntryCache;
use crate::descriptors::TABLES_OPEN_MAX;
use crate::journal::WriteGroup;
use crate::range_scan::ScanBounds;
use crate::snapshots::Snapshots;
use crate::tree::EngineTree;
use crate::tree_id::{PerTree, TreeId};
use crate::tree_options::TreeOptions;
use crate::{entry, mirror};

/// Parts of the memory of a cached block that are its content: a block of little more than 4 KiB takes 5 KiB of the allocator.
/// lsm-tree counts the content alone.
const BLOCK_PARTS: (u64, u64) = (4, 5);

/// The trees, opened. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Trees {
    trees: Arc<PerTree<EngineTree>>,
    /// The sequence numbers that readers may use.
    pub(crate) snapshots: Arc<Snapshots>,
    /// Issues sequence numbers: to groups, and to lsm-tree's own changes of version.
    seqnos: SequenceNumberCounter,
    /// The cache of packed entries.
    pub(crate) cache: Arc<EntryCache>,
    /// The cache of blocks of tables.
    blocks: Arc<Cache>,
}

impl Trees {
    /// Opens or creates the trees in `dir`, which must have passed `precheck`: lsm-tree takes a directory without version files
    /// for a new one, and removes files that its version does not name.
    ///
    /// # Errors
    /// Any error of lsm-tree, with the folder of the tree.
    pub(crate) fn open(
        dir: &Path,
        cache_bytes: u64,
        table_bytes: u64,
    ) -> std::result::Result<Self, (PathBuf, lsm_tree::Error)> {
        let seqnos = SequenceNumberCounter::new(1);
        let blocks = Arc::new(Cache::with_capacity_bytes(content_bytes(cache_bytes - cache_bytes / 2)));
        let options = TreeOptions {
            cache: blocks.clone(),
            descriptors: Arc::new(DescriptorTable::new(TABLES_OPEN_MAX)),
            seqnos: seqnos.clone(),
            table_bytes,
        };
        let tree = |tree_id: TreeId| {
            let dir = dir.join(tree_id.name());
            EngineTree::open(tree_id, &dir, &options).map_err(|error| (dir, error))
        };
        let trees = [tree(TreeId::Packed)?, tree(TreeId::Wide)?, tree(TreeId::Bulk)?, tree(TreeId::Mirror)?];
        // The counter starts above every stored row: a group with an older number would be hidden by it.
        seqnos.fetch_max(number_after(&trees));
        // Tables end with whole groups, so everything in them counts as published.
        let snapshots = Arc::new(Snapshots::new(seqnos.get()));
        let cache = Arc::new(EntryCache::new(cache_bytes / 2));
        Ok(Self { trees: Arc::new(trees), snapshots, seqnos, cache, blocks })
    }

    /// Publishes everything in tables that were not written as memtables.
    pub(crate) fn publish_tables(&self) {
        self.seqnos.fetch_max(number_after(&self.trees));
        self.publish_versions();
    }

    /// One of the trees.
    pub(crate) fn tree(&self, tree_id: TreeId) -> &EngineTree {
        &self.trees[tree_id as usize]
    }

    /// All trees.
    pub(crate) fn all(&self) -> &PerTree<EngineTree> {
        &self.trees
    }

    /// The current version of each tree; the manifest records them as the least versions.
    pub(crate) fn versions(&self) -> PerTree<u64> {
        TreeId::ALL.map(|tree_id| self.tree(tree_id).version())
    }

    /// The sequence number of the next group.
    pub(crate) fn next_seqno(&self) -> u64 {
        self.seqnos.next()
    }

    /// Makes later groups get sequence numbers above this one.
    pub(crate) fn advance_seqno_past(&self, seqno: u64) {
        self.seqnos.fetch_max(seqno + 1);
    }

    /// Inserts a group into the memtables, then publishes it: no reader sees half of it.
    pub(crate) fn insert(&self, group: &WriteGroup) {
        for (tree_id, key, value) in &group.writes {
            self.tree(*tree_id).insert(key, value.as_ref(), group.seqno);
        }
        self.snapshots.publish(group.seqno);
    }

    /// As [`Self::insert`]; cached entries follow.
    pub(crate) fn insert_cached(&self, group: &WriteGroup) {
        let packed = || group.writes.iter().filter(|(tree_id, ..)| *tree_id == TreeId::Packed);
        // The cached entries go before publication: a reader that saw the group must not find an older entry in the cache.
        let cached: Vec<bool> = packed().map(|(_, key, _)| self.cache.begin_write(key)).collect();
        self.insert(group);
        for ((_, key, entry), cached) in packed().zip(cached) {
            self.cache.end_write(key, cached.then_some(entry.as_ref()));
        }
    }

    /// Publishes every number that was given out, also those of versions of the trees: readers then use the newest versions.
    /// No group may be between its number and its publication.
    pub(crate) fn publish_versions(&self) {
        self.snapshots.publish(self.seqnos.get().saturating_sub(1));
    }

    /// Every write with a sequence number below this is in a table.
    pub(crate) fn flushed_below(&self) -> u64 {
        // The published number is read before the memtables. A group that is in the journal but not in the memtables yet then
        // counts as unflushed; otherwise its journal file could be sealed and released while it is the only copy.
        let next = self.snapshots.visible();
        self.trees.iter().filter_map(EngineTree::first_unflushed).fold(next, u64::min)
    }

    /// Memory of the cache of blocks, in bytes.
    pub(crate) fn block_cache_bytes(&self) -> u64 {
        self.blocks.size() / BLOCK_PARTS.0 * BLOCK_PARTS.1
    }

    /// Bytes in all memtables.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.trees.iter().map(EngineTree::unflushed_bytes).sum()
    }

    /// The newest version of an entry, published or not. For the committer: no other thread writes.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn get(&self, tree_id: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
        self.get_at(tree_id, key, u64::MAX)
    }

    /// As [`Self::get`], from published groups: a reader never sees a head without its derived row.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn get_committed(&self, tree_id: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
        // Race: without a snapshot a reader could see a head before its derived row [invariant 89].
        let snapshot = self.snapshots.acquire();
        self.get_at(tree_id, key, snapshot.seqno)
    }

    fn get_at(&self, tree_id: TreeId, key: &[u8], seqno: u64) -> Result<Option<Bytes>> {
        let tree = self.tree(tree_id);
        // No entry has a longer key, and lsm-tree takes none: a client may ask for any.
        if key.len() > entry::KEY_BYTES_MAX {
            return Ok(None);
        }
        let get = |tree: &EngineTree| tree.get(key, seqno).map_err(|error| tree.map_read_error(error, key, Some(key)));
        let entry = match get(tree) {
            Err(error) if error.kind == Kind::Damaged && mirror::holds_key(key) => {
                get(self.tree(TreeId::Mirror)).map_err(|_| error)
            }
            got => got,
        };
        Ok(entry?.map(Bytes::from))
    }

    /// Entries of published groups from a key on, which is not empty, before `to`.
    pub(crate) fn range(
        &self,
        tree_id: TreeId,
        from: Bytes,
        to: Option<Bytes>,
        order: ReadOrder,
    ) -> impl Iterator<Item = Result<(Bytes, Bytes)>> + Send + use<'_> {
        let tree = self.tree(tree_id);
        // No entry has a longer key, and lsm-tree takes none.
        let within = |key: Bytes| key.slice(..key.len().min(entry::KEY_BYTES_MAX)).into();
        let bounds = ScanBounds { from: within(from), to: to.map(within), order };
        // The iterator holds its tables and memtables from here on, so the epoch may be dropped.
        let entries = tree.scan(bounds.clone(), || self.snapshots.acquire());
        entries.map(move |entry| {
            let (key, value) = entry.map_err(|error| tree.map_read_error(error, &bounds.from, bounds.to.as_deref()))?;
            Ok((key.into(), value.into()))
        })
    }

    /// The rows of a packed partition, expired ones too, from published groups; `None` when it has no entry.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn cached_rows(&self, key: &[u8]) -> Result<Option<Vec<Row>>> {
        decode_rows(self.cached_entry(key)?)
    }

    /// The row of a packed partition that has one row, expired or not, as [`Self::cached_rows`] reads it; `None` for a
    /// partition with another number of rows.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn cached_single_row(&self, key: &[u8]) -> Result<Option<Row>> {
        let Some(entry) = self.cached_entry(key)? else { return Ok(None) };
        entry::decode_single(entry).map_err(|error| damaged(TreeId::Packed, error))
    }

    /// The entry of a packed partition, from published groups, through the entry cache.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn cached_entry(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.cache.get(key) {
            Ok(entry) => Ok(entry),
            Err(token) => {
                // The token is older than this read: a write in between voids the fill [invariant 88].
                let entry = self.get_committed(TreeId::Packed, key)?;
                self.cache.fill(key, entry.as_ref(), token);
                Ok(entry)
            }
        }
    }

    /// As [`Self::cached_rows`], published or not. For the committer: no other thread writes.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn newest_rows(&self, key: &[u8]) -> Result<Option<Vec<Row>>> {
        // Every group before is in the trees, and a cached entry is the last one written there.
        decode_rows(self.cache.peek(key).map_or_else(|| self.get(TreeId::Packed, key), Ok)?)
    }
}

/// The first sequence number after those in tables.
fn number_after(trees: &PerTree<EngineTree>) -> u64 {
    trees.iter().filter_map(EngineTree::persisted).max().map_or(1, |seqno| seqno + 1)
}

/// Bytes of blocks that so much memory holds.
fn content_bytes(memory: u64) -> u64 {
    memory / BLOCK_PARTS.1 * BLOCK_PARTS.0
}

fn decode_rows(entry: Option<Bytes>) -> Result<Option<Vec<Row>>> {
    entry.map(|entry| entry::decode_packed(entry).map_err(|error| damaged(TreeId::Packed, error))).transpose()
}

/// The store's error for an entry that does not decode.
pub(crate) fn damaged(tree_id: TreeId, error: larder_rows::codec::DecodeError) -> Error {
    Error::caused(Kind::Damaged, format_args!("an entry of {} is damaged", tree_id.name()), error)
}

/// The store's error for a failed read of lsm-tree.
pub(crate) fn read_error(tree_id: TreeId, error: lsm_tree::Error) -> Error {
    let rows = tree_id.name();
    match is_damage(&error) {
        true => {
            Error::caused(Kind::Damaged, format_args!("a block in rows/{rows} is damaged, see `larder check`"), error)
        }
        false => Error::caused(Kind::Io, format_args!("reading rows/{rows} failed"), error),
    }
}

/// Whether lsm-tree found wrong bytes; other errors come from the operating system.
pub(crate) fn is_damage(error: &lsm_tree::Error) -> bool {
    match error {
        // A missing or short file is damage: it must exist, whole, while a version names it.
        lsm_tree::Error::Io(error) => matches!(
            error.kind(),
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData | std::io::ErrorKind::NotFound
        ),
        _ => true,
    }
}
