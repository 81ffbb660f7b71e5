//! Merges the tables of a tree, its part of the mirror and of the journal: yields the newest readable version of each key.
//!
//! Tables that do not overlap are read one after the other. So as many files are open as tables overlap, and one block of each
//! is in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::BlobOwner;
use lsm_tree::{InternalValue, ValueType};

use super::Damage;
use super::address::{KeyAddress, LostKeys, VersionOrigin};
use super::journals::JournalEntries;
use super::survey::{SourceTable, SourceTree};
use super::tables::{TablePart, TableReader};
use crate::blobs::row_owner;
use crate::large_values::ValueHandle;
use crate::mirror;
use crate::tree_id::TreeId;

/// A version of a key.
pub(super) struct FoundEntry {
    pub(super) key: Bytes,
    pub(super) seqno: u64,
    pub(super) value: FoundValue,
    pub(super) origin: VersionOrigin,
}

/// The value of a version.
pub(super) enum FoundValue {
    /// The key is removed.
    Removed,
    /// The value itself.
    Inline(Bytes),
    /// The encoded handle of a large value, see `large_values`.
    Separated(Bytes),
}

type EntrySource<'a> = Box<dyn Iterator<Item = io::Result<FoundEntry>> + 'a>;

/// The newest version of each key, sorted by key, removals included.
pub(super) struct NewestEntries<'a> {
    /// The next entry of each source.
    heads: BTreeMap<MergeKey, FoundEntry>,
    sources: Vec<EntrySource<'a>>,
    failed: Option<io::Error>,
    last: Option<Bytes>,
}

/// Orders by key, then the newest version first. Of two finds of one version the certain one comes first, then one that has its value
/// with it: the mirror has that of a row whose file of values is damaged. The last part is the number of the source.
type MergeKey = (Bytes, Reverse<u64>, Reverse<bool>, bool, usize);

impl<'a> NewestEntries<'a> {
    /// The entries of `tree`, and those of its tables that the mirror has.
    pub(super) fn new(tree: &'a SourceTree, mirror: Option<&'a SourceTree>, journal: &'a JournalEntries) -> Self {
        let mut sources = tree_entries(tree, journal).collect::<Vec<_>>();
        sources.extend(mirror.into_iter().flat_map(|mirror| tree_entries(mirror, journal)).map(|entries| {
            let is_of_tree = |entry: &io::Result<FoundEntry>| {
                entry.as_ref().map_or(true, |entry| mirror::mirrored_tree(&entry.key) == Some(tree.id))
            };
            Box::new(entries.filter(is_of_tree)) as EntrySource<'a>
        }));
        let count = sources.len();
        let mut merged = Self { heads: BTreeMap::new(), sources, failed: None, last: None };
        (0..count).for_each(|source| merged.pull(source));
        merged
    }

    fn pull(&mut self, source: usize) {
        match self.sources[source].next() {
            Some(Ok(entry)) => {
                let is_certain = matches!(entry.origin, VersionOrigin::Journal { is_last: true });
                let is_separated = matches!(entry.value, FoundValue::Separated(_));
                let key = (entry.key.clone(), Reverse(entry.seqno), Reverse(is_certain), is_separated, source);
                self.heads.insert(key, entry);
            }
            Some(Err(error)) => self.failed = Some(error),
            None => {}
        }
    }
}

impl Iterator for NewestEntries<'_> {
    type Item = io::Result<FoundEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.failed.take() {
                self.heads.clear();
                return Some(Err(error));
            }
            let ((.., source), entry) = self.heads.pop_first()?;
            self.pull(source);
            // The newest version of a key comes first: every later find of the key is older.
            if self.last.as_ref() != Some(&entry.key) {
                self.last = Some(entry.key.clone());
                return Some(Ok(entry));
            }
        }
    }
}

/// The entries of a tree's tables and of its part of the journal, each source sorted by key.
fn tree_entries<'a>(tree: &'a SourceTree, journal: &'a JournalEntries) -> impl Iterator<Item = EntrySource<'a>> {
    let tables = chains(&tree.tables).into_iter().map(|tables| Box::new(TableChain::new(tables)) as EntrySource<'a>);
    let journal = journal.in_tree(tree.id).map(|(key, entry, origin)| {
        let value = entry.value.clone().map_or(FoundValue::Removed, FoundValue::Inline);
        Ok(FoundEntry { key: key.clone(), seqno: entry.seqno, value, origin })
    });
    tables.chain(std::iter::once(Box::new(journal) as EntrySource<'a>))
}

/// Splits the tables into the least number of chains without overlaps.
fn chains(tables: &[SourceTable]) -> Vec<VecDeque<&SourceTable>> {
    let mut sorted = tables.iter().collect::<Vec<_>>();
    sorted.sort_by(|a, b| a.first.cmp(&b.first));
    let mut chains: Vec<VecDeque<&SourceTable>> = Vec::new();
    for table in sorted {
        match chains.iter_mut().find(|chain| chain.back().is_some_and(|last| last.last < table.first)) {
            Some(chain) => chain.push_back(table),
            None => chains.push(VecDeque::from([table])),
        }
    }
    chains
}

/// The entries of a chain of tables.
struct TableChain<'a> {
    ahead: VecDeque<&'a SourceTable>,
    here: Option<(TableReader, VersionOrigin)>,
    entries: VecDeque<InternalValue>,
}

impl<'a> TableChain<'a> {
    fn new(ahead: VecDeque<&'a SourceTable>) -> Self {
        Self { ahead, here: None, entries: VecDeque::new() }
    }
}

impl Iterator for TableChain<'_> {
    type Item = io::Result<FoundEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let (Some(entry), Some((_, origin))) = (self.entries.pop_front(), &self.here) {
                return Some(Ok(found(entry, *origin)));
            }
            match self.here.as_mut().and_then(|(reader, _)| reader.next()) {
                Some(TablePart::Entries(entries)) => self.entries = entries,
                // The survey has reported this damage.
                Some(TablePart::Damaged { .. }) => {}
                None => {
                    let table = self.ahead.pop_front()?;
                    match TableReader::open(&table.file) {
                        Ok((reader, _)) => self.here = Some((reader, VersionOrigin::Table(table.file.place))),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }
}

fn found(entry: InternalValue, origin: VersionOrigin) -> FoundEntry {
    let value = match entry.key.value_type {
        ValueType::Value => FoundValue::Inline(Bytes::from(entry.value)),
        ValueType::Indirection => FoundValue::Separated(Bytes::from(entry.value)),
        ValueType::Tombstone | ValueType::WeakTombstone => FoundValue::Removed,
    };
    FoundEntry { key: Bytes::from(entry.key.user_key), seqno: entry.key.seqno, value, origin }
}

/// The value of an entry; `None` for a removed one.
///
/// # Errors
/// The damage of a value that cannot be read.
pub(super) fn read_value(dir: &Path, tree_id: TreeId, entry: &FoundEntry) -> Result<Option<Bytes>, Damage> {
    let place = match &entry.value {
        FoundValue::Removed => return Ok(None),
        FoundValue::Inline(value) => return Ok(Some(value.clone())),
        FoundValue::Separated(place) => place,
    };
    let folder = dir.join("rows").join(tree_id.name()).join("blobs");
    let damage = |file: PathBuf, what: String, owner: Option<BlobOwner>| {
        let key = KeyAddress::new(tree_id, &entry.key).owned_by(owner);
        Damage { file, what, lost: vec![LostKeys::Key(key)] }
    };
    let Some(handle) = ValueHandle::decode(place.clone()) else {
        return Err(damage(folder, "the place of a value is damaged".to_owned(), None));
    };
    handle.read(&folder, &entry.key, entry.seqno).map(Some).map_err(|unreadable| {
        let what = match unreadable.error.kind() {
            io::ErrorKind::NotFound => "a value was in it".to_owned(),
            _ => unreadable.error.to_string(),
        };
        let owner = (tree_id == TreeId::Bulk).then(|| owner(&entry.key, unreadable.rest)).flatten();
        damage(folder.join(handle.file.to_string()), what, owner)
    })
}

/// The row that owns the body in a bulk row: its name is at the front, under a check of its own.
fn owner(key: &[u8], value: Bytes) -> Option<BlobOwner> {
    let id = BlobId(key.get(1..)?.try_into().ok()?);
    row_owner(id, value)
}
