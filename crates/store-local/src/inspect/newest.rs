//! Merges the tables of a tree and its part of the journal: the newest version of each key that can be read.
//!
//! Tables that have no keys in common are read one behind the other, so as many files are open as tables overlap, and a block
//! of each is in memory.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::io;

use bytes::Bytes;
use lsm_tree::{InternalValue, ValueType};

use super::doubt::Origin;
use super::journals::JournalEntries;
use super::survey::{SourceTable, SourceTree};
use super::tables::{TablePart, TableReader};

/// A version of a key.
pub(super) struct FoundEntry {
    pub(super) key: Bytes,
    pub(super) seqno: u64,
    pub(super) value: FoundValue,
    pub(super) origin: Origin,
}

/// What stands behind a key.
pub(super) enum FoundValue {
    /// Nothing any more.
    Removed,
    /// This.
    Here(Bytes),
    /// A large value elsewhere, see `values`.
    Elsewhere(Bytes),
}

type EntrySource<'a> = Box<dyn Iterator<Item = io::Result<FoundEntry>> + 'a>;

/// The newest version of each key, by key, removed ones too.
pub(super) struct NewestEntries<'a> {
    heads: BinaryHeap<Head>,
    sources: Vec<EntrySource<'a>>,
    failed: Option<io::Error>,
    last: Option<Bytes>,
}

/// The next entry of a source.
struct Head {
    entry: FoundEntry,
    source: usize,
}

impl<'a> NewestEntries<'a> {
    pub(super) fn new(tree: &'a SourceTree, journal: &'a JournalEntries) -> Self {
        let mut sources =
            chains(&tree.tables).into_iter().map(|tables| Box::new(TableChain::new(tables)) as EntrySource<'a>);
        let mut all = sources.by_ref().collect::<Vec<_>>();
        all.push(Box::new(journal.of(tree.space).map(|(key, entry, origin)| {
            let value = entry.value.clone().map_or(FoundValue::Removed, FoundValue::Here);
            Ok(FoundEntry { key: key.clone(), seqno: entry.seqno, value, origin })
        })));
        let count = all.len();
        let mut merged = Self { heads: BinaryHeap::new(), sources: all, failed: None, last: None };
        (0..count).for_each(|source| merged.pull(source));
        merged
    }

    fn pull(&mut self, source: usize) {
        match self.sources[source].next() {
            Some(Ok(entry)) => self.heads.push(Head { entry, source }),
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
            let Head { entry, source } = self.heads.pop()?;
            self.pull(source);
            if self.last.as_ref() != Some(&entry.key) {
                self.last = Some(entry.key.clone());
                return Some(Ok(entry));
            }
        }
    }
}

/// The first key comes first, the newest version of it before the others. Of two finds of one version the certain one is first.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |head: &Self| (head.entry.seqno, matches!(head.entry.origin, Origin::Journal { is_last: true }));
        other.entry.key.cmp(&self.entry.key).then_with(|| order(self).cmp(&order(other)))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// Tables put into as few rows as can be, in each of which no two overlap.
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

/// Tables one behind the other.
struct TableChain<'a> {
    ahead: VecDeque<&'a SourceTable>,
    here: Option<(TableReader, Origin)>,
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
                // The survey has reported it.
                Some(TablePart::Damaged(_)) => {}
                None => {
                    let table = self.ahead.pop_front()?;
                    match TableReader::open(&table.file) {
                        Ok((reader, _)) => self.here = Some((reader, Origin::Table(table.file.place))),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }
}

fn found(entry: InternalValue, origin: Origin) -> FoundEntry {
    let value = match entry.key.value_type {
        ValueType::Value => FoundValue::Here(Bytes::from(entry.value)),
        ValueType::Indirection => FoundValue::Elsewhere(Bytes::from(entry.value)),
        ValueType::Tombstone | ValueType::WeakTombstone => FoundValue::Removed,
    };
    FoundEntry { key: Bytes::from(entry.key.user_key), seqno: entry.key.seqno, value, origin }
}
