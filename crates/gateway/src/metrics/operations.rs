//! What the S3 face does, by operation. Their names are the face's own: an operation is shown from its first request on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::names::TIME_US_BOUNDS;
use super::track::Total;
use super::{Metrics, Outcome, microseconds};

/// Counts of one operation, or of one thread's share of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    /// Requests begun and not ended; of one share less than 0 when they end on another thread.
    active: i64,
    outcomes: [u64; Outcome::ALL.len()],
    /// Time until the answer began.
    pub(super) time: Total,
    /// Bytes of bodies received.
    pub(super) received: u64,
    /// Bytes of bodies sent.
    pub(super) sent: u64,
}

/// All operations that were asked for, by name.
pub(super) type Operations = BTreeMap<&'static str, Counted>;

impl Counted {
    /// Requests that were answered so.
    pub(super) fn answered(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Requests that are being worked on or whose answers are being sent.
    pub(super) fn active(&self) -> u64 {
        u64::try_from(self.active).unwrap_or(0)
    }

    fn add(&self, to: &mut Self) {
        to.active += self.active;
        to.outcomes.iter_mut().zip(self.outcomes).for_each(|(to, from)| *to += from);
        self.time.add(&mut to.time);
        to.received += self.received;
        to.sent += self.sent;
    }
}

impl Metrics {
    /// A request of this operation of S3 begins.
    pub(crate) fn operation_begun(&self, operation: &'static str) {
        self.count(operation, |counted| counted.active += 1);
    }

    /// Its answer begins after this time. As everywhere, the time of a refusal is not kept.
    pub(crate) fn operation_answered(&self, operation: &'static str, took: Duration, outcome: Outcome) {
        self.count(operation, |counted| {
            counted.outcomes[outcome as usize] += 1;
            if outcome != Outcome::Refused {
                counted.time.record(TIME_US_BOUNDS, microseconds(took));
            }
        });
    }

    /// So many bytes of its bodies went in and out.
    pub(crate) fn operation_moved(&self, operation: &'static str, received: u64, sent: u64) {
        self.count(operation, |counted| {
            counted.received += received;
            counted.sent += sent;
        });
    }

    /// It ends: its answer is out, or will never be.
    pub(crate) fn operation_ended(&self, operation: &'static str) {
        self.count(operation, |counted| counted.active -= 1);
    }

    /// All of them, of all threads.
    pub(super) fn operations(&self) -> Operations {
        let mut all = Operations::default();
        for shard in &self.shards {
            shard.operations.lock().iter().for_each(|(name, counted)| counted.add(all.entry(name).or_default()));
        }
        all
    }

    fn count(&self, operation: &'static str, change: impl FnOnce(&mut Counted)) {
        change(self.shard().operations.lock().entry(operation).or_default());
    }
}
