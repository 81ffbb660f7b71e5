//! Who wrote a head: how a swap whose answer was lost finds out what became of it.
//!
//! ```text
//! column w      id u64 · id u64 · …      of the last 32 swaps that wrote the head, the newest first
//! ```
//! Every swap has an id of its own; what the list says of one is the business of [`larder_store::writers`]. To write the list a
//! swap must know the one it replaces; what is remembered here saves reading it.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quick_cache::sync::Cache;

use larder_store::writers::Writers;
use larder_store::{Micros, Partition, Stamp};

/// Heads remembered: some 400 bytes each.
const HEADS_MAX: usize = 20_000;

/// What a swap has to know of the head it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) stamp: Stamp,
    pub(crate) expires: Option<Micros>,
    pub(crate) writers: Writers,
}

/// Heads as they were last seen. What is wrong here is found out by the guard of the swap, or costs a name in a list.
pub(crate) struct Heads {
    seen: Cache<(Partition, Bytes), Known>,
}

impl Default for Heads {
    fn default() -> Self {
        Self { seen: Cache::new(HEADS_MAX) }
    }
}

impl Heads {
    pub(crate) fn get(&self, partition: &Partition, name: &Bytes) -> Option<Known> {
        self.seen.get(&(partition.clone(), name.clone()))
    }

    pub(crate) fn put(&self, partition: &Partition, name: &Bytes, known: Known) {
        // Copies: what is remembered must not keep the answer of a read alive.
        let partition = Partition { key: Bytes::copy_from_slice(&partition.key), ..*partition };
        self.seen.insert((partition, Bytes::copy_from_slice(name)), known);
    }
}

/// Ids of swaps: none is given twice, in no process.
pub(crate) struct Ids {
    next: AtomicU64,
}

impl Default for Ids {
    fn default() -> Self {
        Self { next: AtomicU64::new(RandomState::new().hash_one("swaps")) }
    }
}

impl Ids {
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_head_is_that_of_its_partition() {
        let (heads, known) = (Heads::default(), Known { stamp: 5, expires: None, writers: Writers::default() });
        let at = |n_val| Partition { table: larder_store::Table::Heads, n_val, key: "p".into() };
        heads.put(&at(3), &"".into(), known);
        assert_eq!(heads.get(&at(3), &"".into()), Some(known));
        assert_eq!(heads.get(&at(2), &"".into()), None);
        assert_eq!(heads.get(&at(3), &"h".into()), None);
    }
}
