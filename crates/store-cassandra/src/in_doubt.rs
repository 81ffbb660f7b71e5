//! Partitions with a compare-and-set in doubt: sent, and its outcome unknown.
//!
//! ```text
//! a CAS is sent ── answered ─────────────────────────────────> settled
//!               └─ not answered, or dropped by its caller ───> in doubt ── read at SERIAL ──> settled
//! ```
//! A minority may have accepted such a write. A read at QUORUM can miss it, and a later coordinator can still finish
//! it. A read at SERIAL finishes the write or rules it out. So every read of a partition in doubt is at SERIAL, until
//! one such read succeeds.
//!
//! The guarantee covers this process, and the last partitions in doubt: a client that stays with its gateway never sees
//! such a write appear after a read that did not show it. After a restart, or with another gateway, it may.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;

use larder_store::Partition;

/// Most partitions in doubt. Above that the oldest goes: its caller has read the head by then, or has given up.
const PARTITIONS_MAX: usize = 1024;

/// The partitions in doubt.
#[derive(Default)]
pub(crate) struct InDoubt {
    state: Mutex<InDoubtPartitions>,
}

#[derive(Default)]
struct InDoubtPartitions {
    /// Writes in doubt so far, which numbers them.
    count: u64,
    /// Each partition with the number of its last write in doubt.
    partitions: HashMap<Partition, u64>,
}

/// A compare-and-set in flight: its partition is in doubt when it is dropped before it is settled.
pub(crate) struct CasInFlight<'a> {
    in_doubt: &'a InDoubt,
    partition: &'a Partition,
    settled: bool,
}

impl InDoubt {
    /// Starts a compare-and-set.
    pub(crate) fn begin<'a>(&'a self, partition: &'a Partition) -> CasInFlight<'a> {
        CasInFlight { in_doubt: self, partition, settled: false }
    }

    /// The number of the last write in doubt of a partition.
    pub(crate) fn last(&self, partition: &Partition) -> Option<u64> {
        self.state.lock().partitions.get(partition).copied()
    }

    /// Settles a partition: a read at SERIAL that began after write `number` has succeeded.
    pub(crate) fn settle(&self, partition: &Partition, number: u64) {
        let mut state = self.state.lock();
        // A write that became in doubt during the read stays in doubt [invariant 85].
        if state.partitions.get(partition) == Some(&number) {
            state.partitions.remove(partition);
        }
    }

    fn note(&self, partition: &Partition) {
        let mut state = self.state.lock();
        let InDoubtPartitions { count, partitions } = &mut *state;
        *count += 1;
        if partitions.len() >= PARTITIONS_MAX && !partitions.contains_key(partition) {
            let oldest = partitions.iter().min_by_key(|(_, number)| **number).map(|(oldest, _)| oldest.clone());
            oldest.map(|oldest| partitions.remove(&oldest));
        }
        // A copy, so that the entry does not keep the memory of a request alive.
        let partition = Partition { key: Bytes::copy_from_slice(&partition.key), ..*partition };
        partitions.insert(partition, *count);
    }
}

impl CasInFlight<'_> {
    /// Settles the write: its outcome is known.
    pub(crate) fn settled(mut self) {
        self.settled = true;
    }
}

impl Drop for CasInFlight<'_> {
    fn drop(&mut self) {
        // A dropped call counts as unanswered: its statement may still be applied [invariant 85].
        if !self.settled {
            self.in_doubt.note(self.partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::Table;

    fn at(key: usize) -> Partition {
        Partition::new(Table::Heads, key.to_string())
    }

    #[test]
    fn a_partition_is_in_doubt_until_a_serial_read() {
        let in_doubt = InDoubt::default();
        in_doubt.begin(&at(1)).settled();
        assert_eq!(in_doubt.last(&at(1)), None);
        drop(in_doubt.begin(&at(1)));
        let number = in_doubt.last(&at(1)).unwrap();
        assert_eq!(in_doubt.last(&at(2)), None);
        assert_eq!(in_doubt.last(&Partition { copies: 2, ..at(1) }), None);
        in_doubt.settle(&at(1), number);
        assert_eq!(in_doubt.last(&at(1)), None);
    }

    #[test]
    fn a_read_settles_no_write_that_came_after_it() {
        let in_doubt = InDoubt::default();
        drop(in_doubt.begin(&at(1)));
        let before = in_doubt.last(&at(1)).unwrap();
        drop(in_doubt.begin(&at(1)));
        in_doubt.settle(&at(1), before);
        let after = in_doubt.last(&at(1)).unwrap();
        assert_ne!(after, before);
        in_doubt.settle(&at(1), after);
        assert_eq!(in_doubt.last(&at(1)), None);
    }

    #[test]
    fn the_oldest_partition_goes_when_there_are_too_many() {
        let in_doubt = InDoubt::default();
        for key in 0..PARTITIONS_MAX {
            drop(in_doubt.begin(&at(key)));
        }
        drop(in_doubt.begin(&at(0)));
        assert_eq!(in_doubt.state.lock().partitions.len(), PARTITIONS_MAX);
        drop(in_doubt.begin(&at(PARTITIONS_MAX)));
        assert_eq!(in_doubt.state.lock().partitions.len(), PARTITIONS_MAX);
        assert!(in_doubt.last(&at(0)).is_some(), "its last write is recent");
        assert_eq!(in_doubt.last(&at(1)), None);
    }
}
