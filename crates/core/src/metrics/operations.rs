//! S3 requests by operation. The S3 edge names the operations; each is shown from its first request on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::distribution::{SinceStart, TIME_US_BOUNDS};
use super::{Metrics, RequestOutcome, microseconds};

/// Counts of one operation, or of one thread's share of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OperationCounts {
    /// Requests begun and not ended; negative in a thread's share when they end on another thread.
    active: i64,
    outcomes: [u64; RequestOutcome::ALL.len()],
    /// Time until the answer began.
    pub(super) time: SinceStart,
    /// Bytes of bodies received.
    pub(super) received: u64,
    /// Bytes of bodies sent.
    pub(super) sent: u64,
}

/// All requested operations, by name.
pub(super) type Operations = BTreeMap<&'static str, OperationCounts>;

impl OperationCounts {
    /// Requests with this outcome.
    pub(super) fn answered(&self, outcome: RequestOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Requests in progress, until their answers are sent.
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
    /// Counts the begin of a request.
    pub fn count_s3_begun(&self, operation: &'static str) {
        self.count(operation, |counted| counted.active += 1);
    }

    /// Counts the begin of its answer after `took`. The time of a refusal is not kept.
    pub fn count_s3_answered(&self, operation: &'static str, took: Duration, outcome: RequestOutcome) {
        self.count(operation, |counted| {
            counted.outcomes[outcome as usize] += 1;
            if outcome != RequestOutcome::Refused {
                counted.time.record(TIME_US_BOUNDS, microseconds(took));
            }
        });
    }

    /// Counts its end, with the received and sent bytes of its bodies: the answer is sent, or never will be.
    pub fn count_s3_ended(&self, operation: &'static str, received: u64, sent: u64) {
        self.count(operation, |counted| {
            counted.active -= 1;
            counted.received += received;
            counted.sent += sent;
        });
    }

    /// All operations, summed over threads.
    pub(super) fn operations(&self) -> Operations {
        let mut all = Operations::default();
        for shard in &self.shards {
            shard.operations.lock().iter().for_each(|(name, counted)| counted.add(all.entry(name).or_default()));
        }
        all
    }

    fn count(&self, operation: &'static str, change: impl FnOnce(&mut OperationCounts)) {
        change(self.shard().operations.lock().entry(operation).or_default());
    }
}
