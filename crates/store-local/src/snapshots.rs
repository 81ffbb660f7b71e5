//! Read snapshots: the sequence numbers that readers may still use (epoch-based reclamation).
//!
//! A point read takes the sequence number of the last published group, and then the tables and memtables that lsm-tree keeps for
//! it; a scan takes the tables first, so that its number sees all that flushes had published before. Until a reader has its parts,
//! the maintenance threads must not drop those that its number needs. It holds its *epoch* for that long:
//!
//! ```text
//! reader       epoch E1 (floor 40) ──> visible 47 ──> tables as of 47 ──> E1 dropped
//! maintenance            E2 (floor 45) replaces E1: E1 is still held, so the watermark is 40, not 45
//! ```
//! The reader loads the epoch first and the visible number second, so the number is never below the epoch's floor.
//!
//! Parts that a tree no longer needs: memtables that were flushed, and versions with the tables that a compaction replaced.
//!
//! lsm-tree keeps them in the tree's earlier versions, and drops those under the lock that every read of the tree takes. To free
//! the rows of a memtable, or to remove tables of 64 MiB, takes tens of milliseconds. So the tree holds the parts, too, and
//! drops them without a lock once no version has them.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::{ArcSwap, Guard};
use lsm_tree::Memtable;

use crate::threads::{AtomicU64, Mutex};

/// The readers that began at or after one sequence number.
#[derive(Debug)]
pub(crate) struct Epoch {
    floor: u64,
}

/// A sequence number to read at, and the epoch that keeps it readable.
pub(crate) struct ReadSnapshot {
    /// The reader sees entries below this number.
    pub(crate) seqno: u64,
    _epoch: Guard<Arc<Epoch>>,
}

/// The published sequence number, and the epochs of all readers.
pub(crate) struct Snapshots {
    visible: AtomicU64,
    current: ArcSwap<Epoch>,
    older: Mutex<VecDeque<Arc<Epoch>>>,
}

impl Snapshots {
    /// Publishes every entry below `visible`.
    pub(crate) fn new(visible: u64) -> Self {
        let current = ArcSwap::from_pointee(Epoch { floor: visible });
        Self { visible: AtomicU64::new(visible), current, older: Mutex::default() }
    }

    /// A snapshot of the last published group.
    pub(crate) fn acquire(&self) -> ReadSnapshot {
        // The epoch first: a number taken before it could fall below a watermark that a thread computes in between.
        let epoch = self.current.load();
        ReadSnapshot { seqno: self.visible(), _epoch: epoch }
    }

    /// New readers see entries below this number.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Publishes the group of `seqno`: readers see every entry up to it. The number never falls: a replay publishes groups that
    /// are older than the tables.
    pub(crate) fn publish(&self, seqno: u64) {
        // Release: a reader that loads this number sees the inserts before it.
        self.visible.fetch_max(seqno + 1, Ordering::Release);
    }

    /// The lowest number that a reader may use; versions that only lower numbers see may be dropped.
    pub(crate) fn watermark(&self) -> u64 {
        // Race: epochs must queue in the order of their floors, so the swap happens under the lock.
        let mut older = self.older.lock();
        let next = Arc::new(Epoch { floor: self.visible() });
        let floor = next.floor;
        older.push_back(self.current.swap(next));
        // After the swap no reader can take an epoch of the queue: one with a single reference has no readers.
        while older.front().is_some_and(|epoch| Arc::strong_count(epoch) == 1) {
            older.pop_front();
        }
        older.front().map_or(floor, |epoch| epoch.floor)
    }
}

/// Most parts that are held. A further one lets go of the oldest, which lsm-tree then drops at its own time.
const PARTS_MAX: usize = 64;

/// A part that a tree needs no longer.
pub(crate) enum RetiredPart {
    /// A memtable, and its memory in bytes.
    Memtable(Arc<Memtable>, u64),
    /// A version. Its tables have their memory in the caches.
    Version {
        /// Held, not read: lsm-tree does not export its type.
        _version: Box<dyn Any + Send>,
    },
}

/// The parts of a tree, oldest first.
#[derive(Default)]
pub(crate) struct RetiredParts(Mutex<Vec<RetiredPart>>);

impl RetiredPart {
    fn memory(&self) -> u64 {
        match self {
            Self::Memtable(_, bytes) => *bytes,
            Self::Version { .. } => 0,
        }
    }

    /// Whether a version or a reader may have it still.
    fn is_used(&self) -> bool {
        match self {
            Self::Memtable(entries, _) => Arc::strong_count(entries) > 1,
            Self::Version { .. } => true,
        }
    }
}

impl RetiredParts {
    /// Holds a part.
    pub(crate) fn hold(&self, part: RetiredPart) {
        self.put_back(vec![part]);
    }

    /// The memory of all parts, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.0.lock().iter().map(RetiredPart::memory).sum()
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// All parts.
    pub(crate) fn take(&self) -> Vec<RetiredPart> {
        std::mem::take(&mut self.0.lock())
    }

    /// Holds parts that were taken and that are still used, longer; drops the others.
    pub(crate) fn put_back_used(&self, mut parts: Vec<RetiredPart>) {
        // Under readers without a pause some version always stays: the memory of the others must not wait for it.
        let unused: Vec<_> = parts.extract_if(.., |part| !part.is_used()).collect();
        self.put_back(parts);
        drop(unused);
    }

    /// Holds parts that were taken, longer.
    fn put_back(&self, parts: Vec<RetiredPart>) {
        let mut held = self.0.lock();
        held.extend(parts);
        let over = held.len().saturating_sub(PARTS_MAX);
        let oldest: Vec<_> = held.drain(..over).collect();
        // They are dropped without the lock.
        drop(held);
        drop(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_holds_the_watermark_back_until_it_is_dropped() {
        let snapshots = Snapshots::new(1);
        snapshots.publish(39);
        assert_eq!(snapshots.watermark(), 40);
        let early = snapshots.acquire();
        snapshots.publish(44);
        assert_eq!((snapshots.watermark(), early.seqno), (40, 40));
        let late = snapshots.acquire();
        snapshots.publish(50);
        assert_eq!((snapshots.watermark(), late.seqno), (40, 45));
        drop(early);
        assert_eq!(snapshots.watermark(), 45);
        drop(late);
        assert_eq!(snapshots.watermark(), 51);
    }

    #[test]
    fn a_replay_of_an_old_journal_once_hid_rows_of_newer_tables() {
        let snapshots = Snapshots::new(100);
        snapshots.publish(40);
        assert_eq!(snapshots.acquire().seqno, 100);
    }

    #[test]
    fn no_reader_falls_below_the_watermark() {
        let snapshots = Arc::new(Snapshots::new(1));
        let reader = {
            let snapshots = snapshots.clone();
            std::thread::spawn(move || {
                for _ in 0..20_000 {
                    let taken = snapshots.acquire();
                    std::hint::spin_loop();
                    // The watermark of a moment while it is held.
                    assert!(snapshots.watermark() <= taken.seqno);
                }
            })
        };
        for seqno in 1..20_000 {
            snapshots.publish(seqno);
            snapshots.watermark();
        }
        reader.join().unwrap();
    }
}
