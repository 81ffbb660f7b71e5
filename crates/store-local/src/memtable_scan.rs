//! The keys of a range in a memtable, each with its newest visible version.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use larder_store::ReadOrder;
use lsm_tree::{InternalValue, Memtable, UserKey, ValueType};

use crate::range_scan::ScanBounds;

/// Versions of a key that a scan passes over before it seeks: a step costs about a tenth of a seek.
const STEPS_MAX: usize = 8;

/// Keys that a scan takes the first time: backwards each costs two seeks, and readers want the last one.
const FIRST_KEYS: (usize, usize) = (8, 2);

/// Most keys that a scan takes at a time.
const KEYS_MAX: usize = 512;

/// Numbers before the newest and behind the oldest version of a key.
const NEWEST: u64 = u64::MAX;
const OLDEST: u64 = 0;

/// A range of a memtable that is read. It takes keys ahead, since an entry of the list cannot be kept beside the list.
pub(crate) struct MemtableScan {
    entries: Arc<Memtable>,
    /// The rest of the range.
    bounds: ScanBounds,
    /// Entries below this number are visible.
    seqno: u64,
    ready: VecDeque<InternalValue>,
    keys_at_once: usize,
    ended: bool,
}

impl MemtableScan {
    /// A scan within the bounds of the entries below `seqno`.
    pub(crate) fn new(entries: Arc<Memtable>, bounds: ScanBounds, seqno: u64) -> Self {
        let keys_at_once = match bounds.order {
            ReadOrder::Forward => FIRST_KEYS.0,
            ReadOrder::Reverse => FIRST_KEYS.1,
        };
        Self { entries, bounds, seqno, ready: VecDeque::new(), keys_at_once, ended: false }
    }

    /// Takes keys from the begin of what is left, and returns how many versions it passed over. From more than a few of one key it
    /// seeks the next.
    fn take_first_keys(&mut self) -> usize {
        let ScanBounds { from, to, .. } = &self.bounds;
        let (items, seqno) = (&self.entries.items, self.seqno);
        let end = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(version(to, NEWEST).key));
        let mut range = items.range((Bound::Included(version(from, NEWEST).key), end.clone()));
        let (mut steps, mut passed) = (0, 0);
        while let Some(entry) = range.next() {
            let key = entry.key();
            let is_taken = self.ready.back().is_some_and(|taken| taken.key.user_key == key.user_key);
            if !is_taken && key.seqno < seqno {
                if self.ready.len() == self.keys_at_once {
                    self.bounds.from = key.user_key.clone();
                    return passed;
                }
                self.ready.push_back(InternalValue::new(key.clone(), entry.value().clone()));
                steps = 0;
                continue;
            }
            (steps, passed) = (steps + 1, passed + 1);
            if steps > STEPS_MAX {
                // To its newest visible version, or behind all of its versions.
                let next = version(&key.user_key, if is_taken { OLDEST } else { seqno.saturating_sub(1) });
                range = items.range((Bound::Included(next.key), end.clone()));
                steps = 0;
            }
        }
        self.ended = true;
        passed
    }

    /// Takes keys from the end of what is left.
    fn take_last_keys(&mut self) {
        while self.ready.len() < self.keys_at_once {
            let ScanBounds { from, to, .. } = &self.bounds;
            let end = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(version(to, NEWEST).key));
            let Some(last) = self.entries.items.range((Bound::Included(version(from, NEWEST).key), end)).next_back()
            else {
                self.ended = true;
                return;
            };
            let key = last.key().user_key.clone();
            // The last is the oldest version of its key.
            self.ready.extend(self.entries.get(&key, self.seqno));
            self.bounds.to = Some(key);
        }
    }
}

impl Iterator for MemtableScan {
    type Item = InternalValue;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.ended {
            match self.bounds.order {
                ReadOrder::Forward => drop(self.take_first_keys()),
                ReadOrder::Reverse => self.take_last_keys(),
            }
            self.keys_at_once = (self.keys_at_once * 2).min(KEYS_MAX);
        }
        self.ready.pop_front()
    }
}

/// The place of a version in the order of a memtable: by key, the newest first.
fn version(key: &UserKey, seqno: u64) -> InternalValue {
    InternalValue::from_components(key.clone(), Bytes::new(), seqno, ValueType::Value)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A memtable of keys, each with the versions from 1 on.
    fn memtable(keys: &[(&'static str, u64)]) -> Arc<Memtable> {
        let memtable = Memtable::new(0);
        for (key, versions) in keys {
            for seqno in 1..=*versions {
                let entry = InternalValue::from_components(*key, seqno.to_string(), seqno, ValueType::Value);
                memtable.items.insert(entry.key, entry.value);
            }
        }
        Arc::new(memtable)
    }

    fn scanned(memtable: &Arc<Memtable>, seqno: u64, order: ReadOrder, from: &str, to: Option<&str>) -> Vec<String> {
        let bounds = ScanBounds { from: from.into(), to: to.map(Into::into), order };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let scan = MemtableScan::new(memtable.clone(), bounds, seqno);
        scan.map(|entry| text(&entry.key.user_key) + &text(&entry.value)).collect()
    }

    #[test]
    fn a_scan_takes_the_newest_visible_version_of_each_key() {
        let keys: Vec<(&str, u64)> = ["a", "b", "c", "ca", "d", "e", "f", "g", "h", "i", "j", "k"]
            .iter()
            .zip([1, 40, 3, 9, 10, 1, 500, 1, 20, 2, 8, 30])
            .map(|(key, versions)| (*key, versions))
            .collect();
        let memtable = memtable(&keys);
        for seqno in [0_u64, 1, 2, 3, 9, 10, 11, 12, 20, 31, 400, 1000] {
            for (from, to) in
                [("A", None), ("b", Some("k")), ("ca", Some("cb")), ("bb", Some("f")), ("f", Some("g")), ("x", None)]
            {
                let keys = keys.iter().filter(|(key, _)| *key >= from && to.is_none_or(|to| *key < to));
                let newest = |versions: u64| versions.min(seqno.saturating_sub(1));
                let seen = keys.filter(|(_, versions)| newest(*versions) > 0);
                let mut seen: Vec<String> = seen.map(|(key, versions)| format!("{key}{}", newest(*versions))).collect();
                assert_eq!(scanned(&memtable, seqno, ReadOrder::Forward, from, to), seen, "{seqno} {from} {to:?}");
                seen.reverse();
                assert_eq!(scanned(&memtable, seqno, ReadOrder::Reverse, from, to), seen, "{seqno} {from} {to:?}");
            }
        }
    }

    #[test]
    fn a_row_that_was_written_again_and_again_made_its_readers_pass_over_each_version() {
        let memtable = memtable(&[("a", 1), ("hot", 10_000), ("z", 1)]);
        for seqno in [u64::MAX, 5000] {
            let bounds = ScanBounds { from: "A".into(), to: None, order: ReadOrder::Forward };
            let mut scan = MemtableScan::new(memtable.clone(), bounds, seqno);
            let passed = scan.take_first_keys();
            assert_eq!(scan.ready.len(), 3);
            assert!(passed <= 2 * (STEPS_MAX + 1), "{passed} versions");
        }
    }
}
