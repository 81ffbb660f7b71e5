//! The memtable of a tree that takes writes.

use std::sync::Arc;

use bytes::Bytes;
use lsm_tree::{InternalValue, Memtable, ValueType};

/// Bytes that an entry costs beside its key and value, as the memtable counts them.
const ENTRY_OVERHEAD_BYTES: u64 = size_of::<InternalValue>() as u64;

/// A memtable with its first sequence number.
pub(crate) struct ActiveMemtable {
    /// The entries, as lsm-tree shows them to readers.
    pub(crate) entries: Arc<Memtable>,
    /// The first sequence number; `None` while it is empty.
    pub(crate) first: Option<u64>,
    /// Bytes of the entries.
    pub(crate) bytes: u64,
    /// Entries that are tombstones.
    pub(crate) removals: u64,
}

impl ActiveMemtable {
    /// An empty one.
    pub(crate) fn new(entries: Arc<Memtable>) -> Self {
        Self { entries, first: None, bytes: 0, removals: 0 }
    }

    /// Inserts an entry, which shares the bytes.
    pub(crate) fn insert(&mut self, key: &Bytes, value: Option<&Bytes>, seqno: u64) {
        // The number is noted before the insert: a release of journals must not see entries without a first number.
        self.first.get_or_insert(seqno);
        self.bytes += (key.len() + value.map_or(0, Bytes::len)) as u64 + ENTRY_OVERHEAD_BYTES;
        self.removals += u64::from(value.is_none());
        let (value, kind) = match value {
            Some(value) => (value.clone(), ValueType::Value),
            None => (Bytes::new(), ValueType::Tombstone),
        };
        let InternalValue { key: name, value } = InternalValue::from_components(key.clone(), value, seqno, kind);
        // Older versions stay. To remove one that a reader has passed would lose its memory for good: the skip list's ranges keep a
        // count of each entry that they leave.
        self.entries.items.insert(name, value);
    }
}
