//! Which sequence numbers readers may still ask for.
//!
//! A reader takes the sequence number of the last whole group and then the tables and memtables of that moment. In between,
//! the maintenance threads must not drop what that number needs. A reader holds its *epoch* for that long:
//!
//! ```text
//! reader       epoch E1 (floor 40) ──> visible 47 ──> tables as of 47 ──> E1 let go
//! maintenance            E2 (floor 45) replaces E1: E1 is still held, so the watermark is 40, not 45
//! ```
//! The reader loads the epoch first and the visible number second, so the number is never below the epoch's floor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

/// Readers that began at or behind one sequence number.
#[derive(Debug)]
pub(crate) struct Epoch {
    floor: u64,
}

/// A sequence number to read at, and the epoch that keeps it readable.
pub(crate) struct ReadSnapshot {
    /// Entries below this number are seen.
    pub(crate) seqno: u64,
    _epoch: Guard<Arc<Epoch>>,
}

/// All readers' sequence numbers.
pub(crate) struct Snapshots {
    visible: AtomicU64,
    current: ArcSwap<Epoch>,
    older: Mutex<VecDeque<Arc<Epoch>>>,
}

impl Snapshots {
    /// Everything below `visible` is whole.
    pub(crate) fn new(visible: u64) -> Self {
        let current = ArcSwap::from_pointee(Epoch { floor: visible });
        Self { visible: AtomicU64::new(visible), current, older: Mutex::default() }
    }

    /// The state after the last whole group.
    pub(crate) fn take(&self) -> ReadSnapshot {
        let epoch = self.current.load();
        ReadSnapshot { seqno: self.visible(), _epoch: epoch }
    }

    /// Entries below this number are seen.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Lets readers see every entry up to `seqno`: its group is whole now.
    pub(crate) fn publish(&self, seqno: u64) {
        self.visible.store(seqno + 1, Ordering::Release);
    }

    /// No reader asks below this number any more: what only such readers would see may be dropped.
    pub(crate) fn watermark(&self) -> u64 {
        let mut older = self.older.lock();
        let next = Arc::new(Epoch { floor: self.visible() });
        let floor = next.floor;
        older.push_back(self.current.swap(next));
        // After the swap no reader can take an epoch of the queue: one that is held here only is done with.
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
    fn a_reader_holds_the_watermark_back_until_it_is_done() {
        let snapshots = Snapshots::new(1);
        snapshots.publish(39);
        assert_eq!(snapshots.watermark(), 40);
        let early = snapshots.take();
        snapshots.publish(44);
        assert_eq!((snapshots.watermark(), early.seqno), (40, 40));
        let late = snapshots.take();
        snapshots.publish(50);
        assert_eq!((snapshots.watermark(), late.seqno), (40, 45));
        drop(early);
        assert_eq!(snapshots.watermark(), 45);
        drop(late);
        assert_eq!(snapshots.watermark(), 51);
    }

    #[test]
    fn no_reader_falls_below_the_watermark() {
        let snapshots = Arc::new(Snapshots::new(1));
        let reader = {
            let snapshots = snapshots.clone();
            std::thread::spawn(move || {
                for _ in 0..20_000 {
                    let taken = snapshots.take();
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
