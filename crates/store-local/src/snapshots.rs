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

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::{ArcSwap, Guard};

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
