//! The order in which the committer writes requests. One more byte for a key of many siblings rewrites its whole entry, so a
//! few such writes would delay all others. They have a lane of their own: light requests go first, and after each light group
//! the committer writes one heavy group.
//!
//! ```text
//! queue ──> split ─┬─ light   all of them in this round
//!                  └─ heavy   one group per round
//! ```
//! Requests of one round are in flight together, so no client sees an order between them.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use bytes::Bytes;
use quick_cache::unsync::Cache;

use crate::entry;
use crate::queue::{CommitRequest, WriteCommand};

/// An entry of more bytes is heavy: some milliseconds of writing.
const HEAVY_BYTES: usize = 512 * 1024;
/// Most entries remembered as heavy.
const HEAVY_ENTRIES_MAX: usize = 4096;
/// Rounds in a row in which heavy requests give way for want of memtable room: about half a second.
const ROUNDS_SKIPPED_MAX: u32 = 250;

/// The keys of heavy entries, and the requests that wait in the heavy lane.
pub(crate) struct CommitLanes {
    heavy: Cache<u64, ()>,
    hasher: RandomState,
    waiting: VecDeque<CommitRequest>,
    rounds_skipped: u32,
}

impl CommitLanes {
    pub(crate) fn new() -> Self {
        Self {
            heavy: Cache::new(HEAVY_ENTRIES_MAX),
            hasher: RandomState::new(),
            waiting: VecDeque::new(),
            rounds_skipped: 0,
        }
    }

    /// Whether heavy requests wait.
    pub(crate) fn has_heavy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Moves heavy requests to the heavy lane and returns the light ones.
    pub(crate) fn split(&mut self, requests: Vec<CommitRequest>) -> VecDeque<CommitRequest> {
        if self.heavy.is_empty() {
            return requests.into();
        }
        // Race: one more sibling of a large entry rewrites all of it while every other writer waits [invariant 35].
        let (heavy, light) = requests.into_iter().partition::<VecDeque<_>, _>(|request| self.is_heavy(&request.work));
        self.waiting.extend(heavy);
        light
    }

    /// Whether the heavy lane gets this round: when there is memtable room, and after [`ROUNDS_SKIPPED_MAX`] rounds without it,
    /// because a lasting load of light requests may never leave any.
    pub(crate) fn is_heavy_due(&mut self, has_room: bool) -> bool {
        let due = has_room || self.rounds_skipped >= ROUNDS_SKIPPED_MAX;
        self.rounds_skipped = if due { 0 } else { self.rounds_skipped + 1 };
        due
    }

    /// The heavy requests that wait, the oldest first.
    pub(crate) fn take_heavy(&mut self) -> VecDeque<CommitRequest> {
        std::mem::take(&mut self.waiting)
    }

    /// Puts back the requests that were taken and not written.
    pub(crate) fn put_back(&mut self, requests: VecDeque<CommitRequest>) {
        self.waiting = requests;
        // Their callers gave up: waiting on, they would hold bytes of the queue.
        self.waiting.retain(|request| !request.caller.is_gone());
    }

    /// Notes the size that each entry of a batch has now, in bytes.
    pub(crate) fn note_sizes<'k>(&mut self, sizes: impl Iterator<Item = (&'k Bytes, usize)>) {
        for (key, bytes) in sizes {
            if bytes > HEAVY_BYTES {
                // Only the hash is kept: a collision puts a light key into the slower lane, which is harmless.
                self.heavy.insert(self.hasher.hash_one(key), ());
            } else if !self.heavy.is_empty() {
                self.heavy.remove(&self.hasher.hash_one(key));
            }
        }
    }

    fn is_heavy(&self, work: &WriteCommand) -> bool {
        let is_heavy = |key| self.heavy.peek(&self.hasher.hash_one(&key)).is_some();
        match work {
            WriteCommand::Apply(batch) => {
                // A batch is atomic: one heavy entry makes all of it heavy.
                batch.partitions.iter().any(|part| is_heavy(entry::partition_key(&part.partition)))
            }
            WriteCommand::CompareAndSet { partition, .. } => is_heavy(entry::partition_key(partition)),
            // A close is never heavy: the committer writes the heavy lane before it.
            WriteCommand::Bulk { .. } | WriteCommand::Purge(_) | WriteCommand::Close => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_store::{Batch, Partition, Table};
    use std::sync::Arc;

    use super::*;
    use crate::queue::{CommitQueue, CommitterHealth};

    fn partition(key: &'static str) -> Partition {
        Partition::new(Table::Objects, key)
    }

    fn note_size(lanes: &mut CommitLanes, key: &'static str, bytes: usize) {
        lanes.note_sizes([(&entry::partition_key(&partition(key)), bytes)].into_iter());
    }

    #[test]
    fn endless_light_writes_do_not_starve_heavy_ones() {
        let mut lanes = CommitLanes::new();
        let rounds = |lanes: &mut CommitLanes| (0..).find(|_| lanes.is_heavy_due(false));
        assert_eq!(rounds(&mut lanes), Some(ROUNDS_SKIPPED_MAX));
        assert_eq!(rounds(&mut lanes), Some(ROUNDS_SKIPPED_MAX), "after one heavy group the wait begins again");
        assert!(!lanes.is_heavy_due(false) && lanes.is_heavy_due(true), "room for them ends the wait");
    }

    #[tokio::test]
    async fn writes_to_heavy_entries_wait_for_light_ones() {
        let (queue, mut receiver) = CommitQueue::new(Arc::new(CommitterHealth::default()));
        let work = |key| WriteCommand::Apply(Batch::single(partition(key), Vec::new()));
        let mut lanes = CommitLanes::new();
        note_size(&mut lanes, "heavy", 2 * HEAVY_BYTES);
        note_size(&mut lanes, "light", 100);
        let ask = async {
            tokio::join!(queue.submit(work("heavy"), 1, false), queue.submit(work("light"), 1, false)).0.unwrap_err();
        };
        let look = async {
            let requests = receiver.receive_arrived();
            assert_eq!(requests.len(), 2);
            assert_eq!(lanes.split(requests).len(), 1);
            assert!(lanes.has_heavy());
            let taken = lanes.take_heavy();
            assert!(lanes.is_heavy(&taken[0].work));
            // The key lost its siblings, so its entry is light again.
            note_size(&mut lanes, "heavy", 100);
            assert!(!lanes.is_heavy(&taken[0].work));
            drop(taken);
        };
        tokio::join!(ask, look);
    }
}
