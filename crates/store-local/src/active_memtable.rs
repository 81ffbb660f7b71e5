//! The memtable of a tree that takes writes. It notices rows that are written again and again.

use std::sync::Arc;

use bytes::Bytes;
use lsm_tree::{InternalValue, Memtable, ValueType};

/// Bytes that an entry costs beside its key and value, as the memtable counts them.
const ENTRY_OVERHEAD_BYTES: u64 = size_of::<InternalValue>() as u64;

/// A row with more older versions in the memtable than this is written often.
const OLDER_VERSIONS_MAX: usize = 8;

/// Most writes of such rows that a memtable takes. A range read passes over each version of a row, so more would make its
/// readers slow; fewer would make many small tables.
const REPEATED_WRITES_MAX: u64 = 8192;

/// A memtable with its first sequence number.
pub(crate) struct ActiveMemtable {
    /// The entries, as lsm-tree shows them to readers.
    pub(crate) entries: Arc<Memtable>,
    /// The first sequence number; `None` while it is empty.
    pub(crate) first: Option<u64>,
    /// Bytes of the entries.
    pub(crate) bytes: u64,
    /// Writes of rows that are written often.
    repeated: u64,
}

impl ActiveMemtable {
    /// An empty one.
    pub(crate) fn new(entries: Arc<Memtable>) -> Self {
        Self { entries, first: None, bytes: 0, repeated: 0 }
    }

    /// Inserts an entry, which shares the bytes. `is_ranged` says that rows of this tree are read as ranges.
    pub(crate) fn insert(&mut self, key: &Bytes, value: Option<&Bytes>, seqno: u64, is_ranged: bool) {
        // The number is noted before the insert: a release of journals must not see entries without a first number.
        self.first.get_or_insert(seqno);
        self.bytes += (key.len() + value.map_or(0, Bytes::len)) as u64 + ENTRY_OVERHEAD_BYTES;
        let (value, kind) = match value {
            Some(value) => (value.clone(), ValueType::Value),
            None => (Bytes::new(), ValueType::Tombstone),
        };
        let InternalValue { key: name, value } = InternalValue::from_components(key.clone(), value, seqno, kind);
        let inserted = self.entries.items.insert(name, value);
        if !is_ranged {
            return;
        }
        // Older versions are counted and stay. To remove one that a range read has passed would lose its memory for good: the
        // skip list's ranges keep a count of each entry that they leave.
        let mut older = inserted.next();
        for _ in 0..OLDER_VERSIONS_MAX {
            match older.filter(|older| &*older.key().user_key == key.as_ref()) {
                Some(version) => older = version.next(),
                None => return,
            }
        }
        self.repeated += 1;
    }

    /// Whether it is to become a table: it has so many bytes, or too many versions of the same rows.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        self.bytes >= bytes || self.repeated >= REPEATED_WRITES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(memtable: &mut ActiveMemtable, key: &'static str, seqno: u64) {
        memtable.insert(&Bytes::from_static(key.as_bytes()), Some(&Bytes::from_static(b"value")), seqno, true);
    }

    #[test]
    fn a_row_that_is_written_again_and_again_fills_the_memtable() {
        let mut memtable = ActiveMemtable::new(Arc::new(Memtable::new(0)));
        let writes = REPEATED_WRITES_MAX + OLDER_VERSIONS_MAX as u64;
        for seqno in 1..writes {
            put(&mut memtable, "hot", seqno);
        }
        assert!(!memtable.is_full(u64::MAX));
        put(&mut memtable, "hot", writes);
        assert!(memtable.is_full(u64::MAX));
        assert_eq!(
            (memtable.first, memtable.entries.len() as u64),
            (Some(1), writes),
            "each version stays for its readers"
        );
    }

    #[test]
    fn rows_that_are_written_a_few_times_fill_it_by_their_bytes_alone() {
        let mut memtable = ActiveMemtable::new(Arc::new(Memtable::new(0)));
        let names: [&str; 4] = ["hot", "hotter", "hottest", "ho"];
        for seqno in 0..OLDER_VERSIONS_MAX as u64 {
            names.iter().for_each(|name| put(&mut memtable, name, seqno));
        }
        assert_eq!(memtable.repeated, 0);
        assert!(memtable.is_full(memtable.bytes) && !memtable.is_full(memtable.bytes + 1));
    }
}
