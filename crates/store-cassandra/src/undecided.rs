//! Partitions with a swap of which nobody knows what became of it.
//!
//! ```text
//! a swap is sent ── answered ──────────────────────────────────> nothing to note
//!                └─ not answered, or given up by who asked ────> noted ── read at SERIAL ──> struck out
//! ```
//! A majority that is read at QUORUM need not hold what a few nodes took of such a swap, and those few may bring it later. A
//! read at SERIAL finishes it or rules it out. So whoever reads a noted partition does so at SERIAL, until one such read has
//! succeeded.
//!
//! It promises that of this process alone, and for the last partitions that it noted: a client that stays with its gateway never
//! sees such a swap come after a read that did not show it. Behind another gateway, or after a restart, it may.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;

use larder_store::Partition;

/// Partitions noted at most: then the oldest goes, since who waited for it has looked at it or is gone.
const PARTITIONS_MAX: usize = 1024;

/// The partitions.
#[derive(Default)]
pub(crate) struct Undecided {
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Swaps noted so far.
    count: u64,
    /// Each with the number of its last one.
    partitions: HashMap<Partition, u64>,
}

/// A swap on its way: noted unless it ends.
pub(crate) struct UnderWay<'a> {
    undecided: &'a Undecided,
    partition: &'a Partition,
    ended: bool,
}

impl Undecided {
    /// A swap is being sent.
    pub(crate) fn begin<'a>(&'a self, partition: &'a Partition) -> UnderWay<'a> {
        UnderWay { undecided: self, partition, ended: false }
    }

    /// The number of the last undecided swap of a partition.
    pub(crate) fn last(&self, partition: &Partition) -> Option<u64> {
        self.noted.lock().partitions.get(partition).copied()
    }

    /// A read at SERIAL that began behind swap `number` of a partition has succeeded.
    pub(crate) fn decided(&self, partition: &Partition, number: u64) {
        let mut noted = self.noted.lock();
        // A swap that was noted during the read is as undecided as before.
        if noted.partitions.get(partition) == Some(&number) {
            noted.partitions.remove(partition);
        }
    }

    fn note(&self, partition: &Partition) {
        let mut noted = self.noted.lock();
        let Noted { count, partitions } = &mut *noted;
        *count += 1;
        if partitions.len() >= PARTITIONS_MAX && !partitions.contains_key(partition) {
            let oldest = partitions.iter().min_by_key(|(_, number)| **number).map(|(oldest, _)| oldest.clone());
            oldest.map(|oldest| partitions.remove(&oldest));
        }
        // A copy: what is noted must not keep a request alive.
        let partition = Partition { key: Bytes::copy_from_slice(&partition.key), ..*partition };
        partitions.insert(partition, *count);
    }
}

impl UnderWay<'_> {
    /// It is known what became of it.
    pub(crate) fn ended(mut self) {
        self.ended = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.undecided.note(self.partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::Table;

    fn at(key: usize) -> Partition {
        Partition::own(Table::Heads, key.to_string())
    }

    #[test]
    fn a_swap_is_undecided_until_a_read_decides_it() {
        let undecided = Undecided::default();
        undecided.begin(&at(1)).ended();
        assert_eq!(undecided.last(&at(1)), None);
        drop(undecided.begin(&at(1)));
        let number = undecided.last(&at(1)).unwrap();
        assert_eq!(undecided.last(&at(2)), None);
        assert_eq!(undecided.last(&Partition { n_val: 2, ..at(1) }), None);
        undecided.decided(&at(1), number);
        assert_eq!(undecided.last(&at(1)), None);
    }

    #[test]
    fn a_read_decides_no_swap_that_came_after_it() {
        let undecided = Undecided::default();
        drop(undecided.begin(&at(1)));
        let before = undecided.last(&at(1)).unwrap();
        drop(undecided.begin(&at(1)));
        undecided.decided(&at(1), before);
        let after = undecided.last(&at(1)).unwrap();
        assert_ne!(after, before);
        undecided.decided(&at(1), after);
        assert_eq!(undecided.last(&at(1)), None);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let undecided = Undecided::default();
        for key in 0..PARTITIONS_MAX {
            drop(undecided.begin(&at(key)));
        }
        drop(undecided.begin(&at(0)));
        assert_eq!(undecided.noted.lock().partitions.len(), PARTITIONS_MAX);
        drop(undecided.begin(&at(PARTITIONS_MAX)));
        assert_eq!(undecided.noted.lock().partitions.len(), PARTITIONS_MAX);
        assert!(undecided.last(&at(0)).is_some(), "it was noted again lately");
        assert_eq!(undecided.last(&at(1)), None);
    }
}
