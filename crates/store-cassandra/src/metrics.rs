//! Counters of calls that cost more than usual.

use std::sync::atomic::{AtomicU64, Ordering};

use scylla::observability::metrics::Metrics;

/// Counts since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CassandraMetrics {
    /// Requests sent to nodes, without probes of the nodes.
    pub requests: u64,
    /// Requests sent to another node after the first one had failed.
    pub retries: u64,
    /// Compare-and-sets in doubt: their outcome was read from the head.
    pub cas_in_doubt: u64,
    /// Compare-and-sets in doubt that had been applied.
    pub cas_found_applied: u64,
    /// Compare-and-sets sent again because they had not been applied.
    pub cas_repeated: u64,
    /// Heads read before a compare-and-set because the cache did not have them.
    pub heads_looked_up: u64,
    /// Ranges bisected because replicas gave up their reads.
    pub ranges_bisected: u64,
    /// Batches split because a logged batch must be small.
    pub batches_split: u64,
}

/// The counters of [`CassandraMetrics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cas_in_doubt: AtomicU64,
    pub(crate) cas_found_applied: AtomicU64,
    pub(crate) cas_repeated: AtomicU64,
    pub(crate) heads_looked_up: AtomicU64,
    pub(crate) ranges_bisected: AtomicU64,
    pub(crate) batches_split: AtomicU64,
}

impl Counters {
    /// Reads the counters, with the requests sent and the counters of the driver.
    pub(crate) fn read(&self, requests: u64, driver: &Metrics) -> CassandraMetrics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CassandraMetrics {
            requests,
            retries: driver.get_retries_num(),
            cas_in_doubt: of(&self.cas_in_doubt),
            cas_found_applied: of(&self.cas_found_applied),
            cas_repeated: of(&self.cas_repeated),
            heads_looked_up: of(&self.heads_looked_up),
            ranges_bisected: of(&self.ranges_bisected),
            batches_split: of(&self.batches_split),
        }
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
