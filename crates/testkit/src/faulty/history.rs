//! Recent snapshots of partitions, for stale reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use larder_store::memory::RowMap;
use larder_store::{Batch, CallOptions, Change, ConsistencyLevel, Partition, ReadQuery, Store, Timestamp};

/// Most snapshots over all partitions. Dropping one makes a stale read less stale.
const SNAPSHOTS_MAX: usize = 4096;

/// Recent snapshots of a store. The history sees only writes through the [`super::Faulty`] stores that share it.
pub struct StoreHistory {
    lag_max: Duration,
    snapshots: Mutex<VecDeque<PartitionSnapshot>>,
    removed: Mutex<BTreeMap<Partition, PartitionRemovals>>,
}

/// The newest removals of a partition, which a late write does not undo on an engine with tombstones.
#[derive(Default)]
struct PartitionRemovals {
    rows: BTreeMap<Bytes, Timestamp>,
    all: Timestamp,
}

/// The rows of a partition before a change.
struct PartitionSnapshot {
    until: Instant,
    partition: Partition,
    rows: Arc<RowMap>,
}

impl StoreHistory {
    /// Keeps snapshots for `lag_max`, the longest lag of a read.
    #[must_use]
    pub fn new(lag_max: Duration) -> Arc<Self> {
        Arc::new(Self { lag_max, snapshots: Mutex::default(), removed: Mutex::default() })
    }

    /// Keeps no snapshots: no read is stale.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Self::new(Duration::ZERO)
    }

    /// Records the removals of a batch; call this before the batch is made.
    pub(super) fn record_removals(&self, batch: &Batch) {
        let mut removed = self.removed.lock();
        for one in &batch.partitions {
            for change in &one.changes {
                let newest = |stamp: &mut Timestamp, other: Timestamp| *stamp = other.max(*stamp);
                match change {
                    Change::Put(_) => {}
                    Change::Remove { name, stamp } => {
                        let removed = removed.entry(one.partition.clone()).or_default();
                        newest(removed.rows.entry(name.clone()).or_default(), *stamp);
                    }
                    Change::Clear { stamp } => {
                        newest(&mut removed.entry(one.partition.clone()).or_default().all, *stamp);
                    }
                }
            }
        }
    }

    /// A late batch without the rows that were removed before it arrived.
    pub(super) fn without_removed_rows(&self, mut batch: Batch) -> Batch {
        let removed = self.removed.lock();
        for one in &mut batch.partitions {
            let Some(removed) = removed.get(&one.partition) else { continue };
            let horizon = |name: &Bytes| removed.rows.get(name).copied().unwrap_or_default().max(removed.all);
            one.changes.retain(|change| !matches!(change, Change::Put(row) if row.stamp <= horizon(&row.name)));
        }
        batch
    }

    pub(super) fn lag_max(&self) -> Duration {
        self.lag_max
    }

    /// Records a snapshot of `partition`; call this before it changes. Records nothing if `store` does not answer.
    pub(super) async fn record_snapshot<S: Store + ?Sized>(
        &self,
        store: &S,
        partition: &Partition,
        options: &CallOptions,
    ) {
        if self.lag_max.is_zero() {
            return;
        }
        let options = CallOptions { level: ConsistencyLevel::All, ..*options };
        // Read without the lock: a read of the store waits.
        let Ok(page) = store.read(partition, &ReadQuery::all(usize::MAX), &options).await else { return };
        let rows = page.rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        let snapshot = PartitionSnapshot { until: Instant::now(), partition: partition.clone(), rows: Arc::new(rows) };
        let mut snapshots = self.snapshots.lock();
        snapshots.push_back(snapshot);
        let oldest = Instant::now().checked_sub(self.lag_max);
        while snapshots.len() > SNAPSHOTS_MAX || snapshots.front().is_some_and(|snapshot| Some(snapshot.until) < oldest)
        {
            snapshots.pop_front();
        }
    }

    /// The rows of `partition` as they were `lag` ago; `None` if they have not changed since.
    pub(super) fn rows_at(&self, partition: &Partition, lag: Duration) -> Option<Arc<RowMap>> {
        let then = Instant::now().checked_sub(lag)?;
        let snapshots = self.snapshots.lock();
        let snapshot = snapshots.iter().find(|snapshot| snapshot.partition == *partition && snapshot.until > then)?;
        Some(snapshot.rows.clone())
    }
}
