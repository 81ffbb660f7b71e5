//! What partitions looked like a moment ago, so that a read can lag.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::memory::Rows;
use crate::{Batch, Change, Level, Options, Partition, ReadQuery, Stamp, Store};

/// Most moments kept, over all partitions. Dropping one makes a read lag less than it might.
const MOMENTS_MAX: usize = 4096;

/// The recent past of a store. Sees the writes made through the [`super::Faulty`]s that share it, and no others.
pub struct History {
    lag_max: Duration,
    moments: Mutex<VecDeque<Moment>>,
    removed: Mutex<BTreeMap<Partition, Removed>>,
}

/// The newest removals of a partition, which a late write does not undo on an engine that keeps them.
#[derive(Default)]
struct Removed {
    rows: BTreeMap<Bytes, Stamp>,
    all: Stamp,
}

/// A partition as it was until it changed.
struct Moment {
    until: Instant,
    partition: Partition,
    rows: Arc<Rows>,
}

impl History {
    /// Remembers `lag_max`: no read lags further.
    #[must_use]
    pub fn new(lag_max: Duration) -> Arc<Self> {
        Arc::new(Self { lag_max, moments: Mutex::default(), removed: Mutex::default() })
    }

    /// Remembers nothing: no read lags.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Self::new(Duration::ZERO)
    }

    /// Remembers what a batch removes; call before it is made.
    pub(super) fn note(&self, batch: &Batch) {
        let mut removed = self.removed.lock();
        for one in &batch.partitions {
            for change in &one.changes {
                let newest = |stamp: &mut Stamp, other: Stamp| *stamp = other.max(*stamp);
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

    /// A late batch without the rows that were removed before it came.
    pub(super) fn outlived(&self, mut batch: Batch) -> Batch {
        let removed = self.removed.lock();
        for one in &mut batch.partitions {
            let Some(removed) = removed.get(&one.partition) else { continue };
            let horizon = |name: &Bytes| removed.rows.get(name).copied().unwrap_or(0).max(removed.all);
            one.changes.retain(|change| !matches!(change, Change::Put(row) if row.stamp <= horizon(&row.name)));
        }
        batch
    }

    pub(super) fn lag_max(&self) -> Duration {
        self.lag_max
    }

    /// Remembers `partition` as it is; call before it changes. Without an answer from `store` there is nothing to remember.
    pub(super) async fn keep<S: Store + ?Sized>(&self, store: &S, partition: &Partition, options: &Options) {
        if self.lag_max.is_zero() {
            return;
        }
        let options = Options { level: Level::All, ..*options };
        let Ok(page) = store.read(partition, &ReadQuery::all(usize::MAX), &options).await else { return };
        let rows = page.rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        let moment = Moment { until: Instant::now(), partition: partition.clone(), rows: Arc::new(rows) };
        let mut moments = self.moments.lock();
        moments.push_back(moment);
        let oldest = Instant::now().checked_sub(self.lag_max);
        while moments.len() > MOMENTS_MAX || moments.front().is_some_and(|moment| Some(moment.until) < oldest) {
            moments.pop_front();
        }
    }

    /// The rows of `partition` as they were `lag` ago; `None` if they are the same still.
    pub(super) fn at(&self, partition: &Partition, lag: Duration) -> Option<Arc<Rows>> {
        let then = Instant::now().checked_sub(lag)?;
        let moments = self.moments.lock();
        let moment = moments.iter().find(|moment| moment.partition == *partition && moment.until > then)?;
        Some(moment.rows.clone())
    }
}
