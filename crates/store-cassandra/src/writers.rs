//! Who wrote a head: how a swap whose answer was lost finds out what became of it.
//!
//! ```text
//! column w      id u64 · id u64 · …      of the last eight swaps that wrote the head, the newest first
//! ```
//! Every swap has an id of its own. After a timeout its head is read at SERIAL, which decides what was under way: if the id is
//! among the writers the swap was applied, though others may have followed; if the head is still the expected one it was not, and
//! may be sent again. To write the list a swap must know the one it replaces; what is remembered here saves reading it.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, Bytes};
use quick_cache::sync::Cache;

use larder_store::{Micros, Partition, Stamp};

/// Writers that a head names.
const WRITERS_MAX: usize = 8;

/// Heads remembered: some 200 bytes each.
const HEADS_MAX: usize = 20_000;

/// The last writers of a head, the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Writers {
    ids: [u64; WRITERS_MAX],
    count: usize,
}

impl Writers {
    /// Those of a column; what is not understood is left out, which costs certainty and no data.
    pub(crate) fn decode(mut column: Bytes) -> Self {
        let mut writers = Self::default();
        while writers.count < WRITERS_MAX && column.len() >= 8 {
            writers.ids[writers.count] = column.get_u64();
            writers.count += 1;
        }
        writers
    }

    /// The column of a head that `id` writes over the one with these.
    pub(crate) fn followed_by(&self, id: u64) -> Self {
        let mut writers = Self { count: (self.count + 1).min(WRITERS_MAX), ..Self::default() };
        writers.ids[0] = id;
        writers.ids[1..writers.count].copy_from_slice(&self.ids[..writers.count - 1]);
        writers
    }

    /// Whether `id` is among them.
    pub(crate) fn names(&self, id: u64) -> bool {
        self.ids[..self.count].contains(&id)
    }

    /// The column.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.ids[..self.count].iter().flat_map(|id| id.to_be_bytes()).collect()
    }
}

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
    fn a_head_names_its_last_eight_writers() {
        let mut writers = Writers::default();
        assert!(!writers.names(0), "an empty list names nobody");
        for id in 1..=20 {
            writers = writers.followed_by(id);
            assert!(writers.names(id));
            assert_eq!(Writers::decode(writers.encode().into()), writers);
        }
        for id in 1..=20 {
            assert_eq!(writers.names(id), id > 12, "{id}");
        }
        assert_eq!(writers.encode().len(), 64);
        assert_eq!(writers.encode()[..8], 20_u64.to_be_bytes(), "the newest first");
    }

    #[test]
    fn any_column_is_read() {
        for length in [0, 1, 7, 8, 9, 64, 65, 200] {
            assert_eq!(Writers::decode(vec![7; length].into()).count, (length / 8).min(8), "{length}");
        }
    }

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
