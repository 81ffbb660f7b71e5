//! A cache of heads, and the ids of compare-and-sets.
//!
//! ```text
//! column w      id u64 · id u64 · …      of the last 32 writers of the head, the newest first
//! ```
//! A writer puts its id before the history of the head it replaces, see [`larder_store::cas_history`]. The cache saves
//! reading that history before each write.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quick_cache::sync::Cache;

use larder_store::cas_history::CasHistory;
use larder_store::{Partition, Timestamp};

/// Heads in the cache, about 400 bytes each.
const HEADS_MAX: usize = 20_000;

/// The parts of a head that a compare-and-set needs to replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownHead {
    pub(crate) stamp: Timestamp,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) history: CasHistory,
}

/// Heads as they were last read or written. A stale entry is harmless: the guard of the write fails, or the history
/// misses an id.
pub(crate) struct HeadCache {
    cache: Cache<(Partition, Bytes), KnownHead>,
}

impl Default for HeadCache {
    fn default() -> Self {
        Self { cache: Cache::new(HEADS_MAX) }
    }
}

impl HeadCache {
    pub(crate) fn get(&self, partition: &Partition, name: &Bytes) -> Option<KnownHead> {
        self.cache.get(&(partition.clone(), name.clone()))
    }

    pub(crate) fn put(&self, partition: &Partition, name: &Bytes, known: KnownHead) {
        // Copies, so that an entry does not keep the answer of a read alive.
        let partition = Partition { key: Bytes::copy_from_slice(&partition.key), ..*partition };
        self.cache.insert((partition, Bytes::copy_from_slice(name)), known);
    }
}

/// Ids of compare-and-sets, unique over all processes.
pub(crate) struct CasIds {
    next: AtomicU64,
}

impl Default for CasIds {
    fn default() -> Self {
        // A random start: ids of two processes, or of one process before and after a restart, do not overlap in
        // practice.
        Self { next: AtomicU64::new(RandomState::new().hash_one("swaps")) }
    }
}

impl CasIds {
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_head_belongs_to_one_partition() {
        let (heads, known) =
            (HeadCache::default(), KnownHead { stamp: Timestamp(5), expires: None, history: CasHistory::default() });
        let at = |copies| Partition { table: larder_store::Table::Heads, copies, key: "p".into() };
        heads.put(&at(3), &"".into(), known);
        assert_eq!(heads.get(&at(3), &"".into()), Some(known));
        assert_eq!(heads.get(&at(2), &"".into()), None);
        assert_eq!(heads.get(&at(3), &"h".into()), None);
    }
}
