//! Counts of what costs more than the ordinary.

use std::sync::atomic::{AtomicU64, Ordering};

use scylla::observability::metrics::Metrics;

/// What happened since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Requests that were sent to nodes.
    pub requests: u64,
    /// Those of them that were sent because another node had not done the same.
    pub retries: u64,
    /// Swaps whose outcome a node did not tell, so that it was looked up in the head.
    pub swaps_unknown: u64,
    /// Those of them that had been applied.
    pub swaps_found_applied: u64,
    /// Swaps that were sent again after it turned out that they had not been applied.
    pub swaps_repeated: u64,
    /// Heads read before a swap because nothing was remembered of them.
    pub heads_looked_up: u64,
    /// Ranges that were halved because replicas gave their reads up.
    pub ranges_halved: u64,
    /// Batches that were split because a logged one must be small.
    pub batches_split: u64,
}

/// The counters behind [`Figures`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) swaps_unknown: AtomicU64,
    pub(crate) swaps_found_applied: AtomicU64,
    pub(crate) swaps_repeated: AtomicU64,
    pub(crate) heads_looked_up: AtomicU64,
    pub(crate) ranges_halved: AtomicU64,
    pub(crate) batches_split: AtomicU64,
}

impl Counters {
    /// With what the driver counts itself.
    pub(crate) fn read(&self, driver: &Metrics) -> Figures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            requests: driver.get_requests_unpaged_num(),
            retries: driver.get_retries_num(),
            swaps_unknown: of(&self.swaps_unknown),
            swaps_found_applied: of(&self.swaps_found_applied),
            swaps_repeated: of(&self.swaps_repeated),
            heads_looked_up: of(&self.heads_looked_up),
            ranges_halved: of(&self.ranges_halved),
            batches_split: of(&self.batches_split),
        }
    }
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
