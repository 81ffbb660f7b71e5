//! The three trees, and their errors in the store's words.

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_store::{Error, Kind, Result, Row};
use lsm_tree::{AbstractTree, Cache, DescriptorTable, Guard as _, SequenceNumberCounter};

use crate::cache::EntryCache;
use crate::descriptors::TABLES_OPEN_MAX;
use crate::entry;
use crate::journal::Group;
use crate::snapshots::Snapshots;
use crate::tree::{SpaceTree, TreeOptions};

/// One of the three trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Space {
    /// A partition is one entry.
    Packed,
    /// A row is one entry.
    Wide,
    /// Bodies, kept apart from their keys.
    Bulk,
}

impl Space {
    /// Every tree.
    pub(crate) const ALL: [Self; 3] = [Self::Packed, Self::Wide, Self::Bulk];

    /// Its name, and that of its directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Wide => "wide",
            Self::Bulk => "bulk",
        }
    }
}

/// The trees, opened. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Spaces {
    trees: Arc<[SpaceTree; 3]>,
    /// Which sequence numbers readers may ask for.
    pub(crate) snapshots: Arc<Snapshots>,
    /// Hands out sequence numbers: to groups, and to the trees' own changes of version.
    seqnos: SequenceNumberCounter,
    /// Packed entries that are read often.
    pub(crate) cache: Arc<EntryCache>,
}

impl Spaces {
    /// Opens or makes the trees in `dir`. What is there must have been checked: a tree takes a directory without its
    /// version files for a new one, and removes files that its version does not name.
    ///
    /// # Errors
    /// What the engine below answers.
    pub(crate) fn open(dir: &Path, cache_bytes: u64, table_bytes: u64) -> lsm_tree::Result<Self> {
        let seqnos = SequenceNumberCounter::new(1);
        let options = TreeOptions {
            cache: Arc::new(Cache::with_capacity_bytes(cache_bytes - cache_bytes / 2)),
            descriptors: Arc::new(DescriptorTable::new(TABLES_OPEN_MAX)),
            seqnos: seqnos.clone(),
            table_bytes,
        };
        let tree = |space: Space| SpaceTree::open(space, &dir.join(space.name()), &options);
        let trees = [tree(Space::Packed)?, tree(Space::Wide)?, tree(Space::Bulk)?];
        let persisted = trees.iter().filter_map(SpaceTree::persisted).max();
        seqnos.fetch_max(persisted.map_or(1, |seqno| seqno + 1));
        let snapshots = Arc::new(Snapshots::new(seqnos.get()));
        let cache = Arc::new(EntryCache::new(cache_bytes / 2));
        Ok(Self { trees: Arc::new(trees), snapshots, seqnos, cache })
    }

    /// One of the trees.
    pub(crate) fn tree(&self, space: Space) -> &SpaceTree {
        &self.trees[space as usize]
    }

    /// All trees.
    pub(crate) fn trees(&self) -> &[SpaceTree; 3] {
        &self.trees
    }

    /// The version that each tree has on disk at least, as the manifest names them.
    pub(crate) fn versions(&self) -> [u64; 3] {
        Space::ALL.map(|space| self.tree(space).version())
    }

    /// The sequence number of the next group.
    pub(crate) fn next_seqno(&self) -> u64 {
        self.seqnos.next()
    }

    /// No later group gets a sequence number up to this one.
    pub(crate) fn pass_seqno(&self, seqno: u64) {
        self.seqnos.fetch_max(seqno + 1);
    }

    /// Puts a group into the memtables, where a new group is seen by nobody before it is whole.
    pub(crate) fn insert(&self, group: &Group) {
        for (space, key, value) in &group.writes {
            self.tree(*space).insert(key, value.as_ref(), group.seqno);
        }
        self.snapshots.publish(group.seqno);
    }

    /// Every write with a sequence number below this is in a table.
    pub(crate) fn flushed_below(&self) -> u64 {
        // The last whole group, read before the memtables: a group that has its number but is not in them yet counts as
        // unflushed, or its journal could be sealed and released before anything else holds it.
        let next = self.snapshots.visible();
        self.trees.iter().filter_map(SpaceTree::first_unflushed).fold(next, u64::min)
    }

    /// Bytes in all memtables.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.trees.iter().map(SpaceTree::unflushed_bytes).sum()
    }

    /// One entry as the committer sees it, sharing the engine's memory: no other thread writes.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.get_at(space, key, u64::MAX)
    }

    /// As [`Self::get`], of whole groups: a head is never seen before its shadow.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn settled(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let snapshot = self.snapshots.take();
        self.get_at(space, key, snapshot.seqno)
    }

    fn get_at(&self, space: Space, key: &[u8], seqno: u64) -> Result<Option<Bytes>> {
        let tree = self.tree(space);
        let entry = tree.below.get(key, seqno).map_err(|error| tree.read_failed(error))?;
        Ok(entry.map(Bytes::from))
    }

    /// Entries of whole groups, in both directions.
    pub(crate) fn range<R: RangeBounds<Bytes>>(
        &self,
        space: Space,
        range: R,
    ) -> impl DoubleEndedIterator<Item = Result<(Bytes, Bytes)>> + use<'_, R> {
        let snapshot = self.snapshots.take();
        let tree = self.tree(space);
        // The iterator holds tables and memtables of its own from here on: the epoch may go.
        let entries = tree.below.range(range, snapshot.seqno, None);
        entries.map(|entry| {
            let (key, value) = entry.into_inner().map_err(|error| tree.read_failed(error))?;
            Ok((key.into(), value.into()))
        })
    }

    /// As [`Self::packed_rows`], for readers: of whole groups, and what is read often is kept.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn cached_rows(&self, key: &Bytes) -> Result<Option<Vec<Row>>> {
        let entry = match self.cache.get(key) {
            Ok(entry) => Some(entry),
            Err(begun) => {
                let entry = self.settled(Space::Packed, key)?;
                if let Some(entry) = &entry {
                    self.cache.offer(key.clone(), entry, begun);
                }
                entry
            }
        };
        decode_rows(entry)
    }

    /// The rows of a packed partition, expired ones too; `None` when it has no entry.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn packed_rows(&self, key: &[u8]) -> Result<Option<Vec<Row>>> {
        decode_rows(self.get(Space::Packed, key)?)
    }
}

fn decode_rows(entry: Option<Bytes>) -> Result<Option<Vec<Row>>> {
    entry.map(|entry| entry::decode_packed(entry).map_err(|error| damaged(Space::Packed, error))).transpose()
}

/// The store's error for an entry that does not decode.
pub(crate) fn damaged(space: Space, error: larder_model::codec::DecodeError) -> Error {
    Error::caused(Kind::Damaged, format_args!("an entry of {} is damaged", space.name()), error)
}

/// The store's error for a read that the engine below refused.
pub(crate) fn read_failed(space: Space, error: lsm_tree::Error) -> Error {
    let rows = space.name();
    match is_damage(&error) {
        true => {
            Error::caused(Kind::Damaged, format_args!("a block in rows/{rows} is damaged, see `larder check`"), error)
        }
        false => Error::caused(Kind::Io, format_args!("reading rows/{rows} failed"), error),
    }
}

/// Whether the engine below found wrong bytes, rather than being refused by the machine.
pub(crate) fn is_damage(error: &lsm_tree::Error) -> bool {
    match error {
        lsm_tree::Error::Io(error) => matches!(
            error.kind(),
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData | std::io::ErrorKind::NotFound
        ),
        _ => true,
    }
}
