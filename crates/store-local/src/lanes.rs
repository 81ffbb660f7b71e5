//! The order in which the committer writes what waits. One byte more for a key of many siblings rewrites all of its entry, so
//! a few such writes would keep all others waiting. They have a lane of their own: what rewrites little goes first, and behind
//! each of its groups goes one group of what rewrites much.
//!
//! ```text
//! queue → sort ─┬─ light   all of them in this turn
//!               └─ heavy   one group a turn
//! ```
//! Requests of one turn are under way together, so no client sees an order between them.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use quick_cache::unsync::Cache;

use crate::keys;
use crate::overlay::Overlay;
use crate::queue::{Request, Work};

/// An entry of more bytes is heavy: some milliseconds of writing.
const HEAVY_BYTES: usize = 512 * 1024;
/// Entries that are remembered as heavy.
const HEAVY_KEPT: usize = 4096;
/// Turns in a row that heavy requests leave to light ones for want of room: about half a second.
const TURNS_LEFT_MAX: u32 = 250;

/// Which entries are heavy, and the requests that change them.
pub(crate) struct Lanes {
    heavy: Cache<u64, ()>,
    hasher: RandomState,
    waiting: VecDeque<Request>,
    turns_left: u32,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self { heavy: Cache::new(HEAVY_KEPT), hasher: RandomState::new(), waiting: VecDeque::new(), turns_left: 0 }
    }

    /// Whether heavy requests wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The light ones of these requests; the others wait.
    pub(crate) fn sort(&mut self, requests: Vec<Request>) -> VecDeque<Request> {
        if self.heavy.is_empty() {
            return requests.into();
        }
        let (heavy, light) = requests.into_iter().partition::<VecDeque<_>, _>(|request| self.is_heavy(&request.work));
        self.waiting.extend(heavy);
        light
    }

    /// Whether the heavy requests that wait get this turn: where there is room for them, and at last without it, since under a
    /// lasting load of light ones there may never be.
    pub(crate) fn are_due(&mut self, has_room: bool) -> bool {
        let due = has_room || self.turns_left >= TURNS_LEFT_MAX;
        self.turns_left = if due { 0 } else { self.turns_left + 1 };
        due
    }

    /// The heavy requests that wait, the oldest first.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Request> {
        std::mem::take(&mut self.waiting)
    }

    /// Gives back those that were taken and not written.
    pub(crate) fn give_back(&mut self, rest: VecDeque<Request>) {
        self.waiting = rest;
    }

    /// Learns from a batch how much each of its entries weighs now.
    pub(crate) fn learn(&mut self, batch: &Overlay) {
        for (key, bytes) in batch.packed_sizes() {
            if bytes > HEAVY_BYTES {
                self.heavy.insert(self.hasher.hash_one(key), ());
            } else if !self.heavy.is_empty() {
                self.heavy.remove(&self.hasher.hash_one(key));
            }
        }
    }

    fn is_heavy(&self, work: &Work) -> bool {
        let is_heavy = |key| self.heavy.peek(&self.hasher.hash_one(&key)).is_some();
        match work {
            Work::Apply(batch) => batch.partitions.iter().any(|part| is_heavy(keys::partition_key(&part.partition))),
            Work::Swap { partition, .. } => is_heavy(keys::partition_key(partition)),
            Work::Bulk { .. } | Work::Purge(_) | Work::Close => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_store::{Batch, Partition, Row, Table};

    use super::*;
    use crate::queue::{Health, Queue};

    fn partition(key: &'static str) -> Partition {
        Partition::own(Table::Objects, key)
    }

    /// A batch that leaves an entry of so many bytes.
    fn batch(key: &'static str, bytes: usize) -> Overlay {
        let row = Row { name: "row".into(), value: vec![0; bytes].into(), stamp: 1, expires: None };
        Overlay::of_packed(keys::partition_key(&partition(key)), vec![row])
    }

    #[test]
    fn light_writes_without_end_once_kept_heavy_ones_waiting_for_ever() {
        let mut lanes = Lanes::new();
        let turns = |lanes: &mut Lanes| (0..).find(|_| lanes.are_due(false));
        assert_eq!(turns(&mut lanes), Some(TURNS_LEFT_MAX));
        assert_eq!(turns(&mut lanes), Some(TURNS_LEFT_MAX), "one group, and then they wait again");
        assert!(!lanes.are_due(false) && lanes.are_due(true), "room for them ends the wait");
    }

    #[tokio::test]
    async fn writes_to_heavy_entries_wait_for_those_that_rewrite_little() {
        let (queue, mut receiver) = Queue::new(Arc::new(Health::default()));
        let work = |key| Work::Apply(Batch::of(partition(key), Vec::new()));
        let mut lanes = Lanes::new();
        lanes.learn(&batch("heavy", 2 * HEAVY_BYTES));
        lanes.learn(&batch("light", 100));
        let ask = async {
            tokio::join!(queue.run(work("heavy"), 1, false), queue.run(work("light"), 1, false)).0.unwrap_err();
        };
        let look = async {
            let requests = vec![receiver.recv().await.unwrap(), receiver.recv().await.unwrap()];
            assert_eq!(lanes.sort(requests).len(), 1);
            assert!(lanes.has_waiting());
            let taken = lanes.take_waiting();
            assert!(lanes.is_heavy(&taken[0].work));
            // It lost its siblings: it is as light as any.
            lanes.learn(&batch("heavy", 100));
            assert!(!lanes.is_heavy(&taken[0].work));
            drop(taken);
        };
        tokio::join!(ask, look);
    }
}
