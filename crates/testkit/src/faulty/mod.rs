//! Injects faults into a store, the same faults for the same seed: a network and a process as the simulation sees them.
//!
//! ```text
//! gateway 1 ── Faulty(seed 1) ──┐
//! gateway 2 ── Faulty(seed 2) ──┴── MemoryStore     one StoreHistory beside it, for stale reads
//!
//! frozen? -> pause -> cut? -> fail? -> the call -> frozen? -> pause -> cut or lost? -> answer
//! ```
//! A call that fails with `Unavailable` was not made. A call that fails with `TimedOut` may have been made, or may be
//! made later. Only reads at [`ConsistencyLevel::One`] are stale. A pause ends at the deadline. A frozen store answers
//! nothing until it is thawed, like a stopped process. Time is tokio's, so that a paused runtime controls it.

mod blobs;
mod history;
mod injector;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use larder_store::{
    Batch, CallOptions, CasResult, Change, ConsistencyLevel, EngineLimits, Error, HeadWrite, Kind, Partition,
    PartitionPage, ReadQuery, Result, RowPage, Store, Table, Timestamp,
};

pub use history::StoreHistory;
use injector::{FaultTerms, StoreFaultInjector};

/// Longest delay of a late write.
pub const LATE_MAX: Duration = Duration::from_secs(30);

/// Probabilities of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreFaults {
    /// Longest pause before a call, and again after it, in milliseconds.
    pub pause_ms_max: u64,
    /// Pauses that are made, per mille.
    pub pause_per_mille: u32,
    /// Calls that fail and are not made, per mille.
    pub fail_per_mille: u32,
    /// Calls that are made and answered `TimedOut`, per mille.
    pub lose_per_mille: u32,
    /// Batches that are answered `TimedOut` and made up to half a minute later, per mille. A row that is removed before
    /// the late batch arrives stays removed, as on engines with tombstones. A compare-and-set is never late: a read of
    /// the head must show its outcome.
    pub late_per_mille: u32,
    /// Reads at [`ConsistencyLevel::One`] that are stale, per mille.
    pub stale_per_mille: u32,
}

/// One gateway's connection to a shared store.
pub struct Faulty<S: ?Sized> {
    injector: Arc<StoreFaultInjector>,
    history: Arc<StoreHistory>,
    inner: Arc<S>,
}

impl StoreFaults {
    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }
}

impl<S: ?Sized> Faulty<S> {
    /// A connection to `inner` without faults yet. All connections to one store share its `history`.
    #[must_use]
    pub fn new(inner: Arc<S>, history: Arc<StoreHistory>, seed: u64) -> Self {
        Self { injector: Arc::new(StoreFaultInjector::new(seed)), history, inner }
    }

    /// Sets the probabilities of faults, from the next call on.
    pub fn set_faults(&self, faults: StoreFaults) {
        self.injector.set_faults(faults);
    }

    /// The current probabilities of faults.
    #[must_use]
    pub fn faults(&self) -> StoreFaults {
        self.injector.faults()
    }

    /// Cuts the connection or restores it. While it is cut, new calls fail with `Unavailable`, and running ones with
    /// `TimedOut`.
    pub fn cut(&self, cut: bool) {
        self.injector.cut(cut);
    }

    /// Stops every call where it is, even past its deadline.
    pub fn freeze(&self) {
        self.injector.freeze(true);
    }

    /// Lets stopped calls continue.
    pub fn thaw(&self) {
        self.injector.freeze(false);
    }

    async fn call<T>(&self, options: &CallOptions, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let terms = FaultTerms::from_options(options);
        // Drawn before the call waits, so that the order of draws is the order of calls.
        let fate = self.injector.draw_call();
        self.injector.inject_before(&fate, &terms).await?;
        let answer = call.await;
        self.injector.inject_after(&fate, &terms).await?;
        answer
    }
}

impl<S: Store + ?Sized> Faulty<S> {
    /// A stale page if the history has one, otherwise the current page.
    async fn read_maybe_stale(
        &self,
        partition: &Partition,
        query: &ReadQuery,
        options: &CallOptions,
    ) -> Result<RowPage> {
        if options.level == ConsistencyLevel::One
            && let Some(lag) = self.injector.draw_lag(self.history.lag_max())
            && let Some(rows) = self.history.rows_at(partition, lag)
        {
            // A stale read still hides rows that have expired by now.
            let now = self.inner.now(options).await?;
            return Ok(larder_store::memory::page(&rows, query, now));
        }
        self.inner.read(partition, query, options).await
    }

    /// Makes a write after `time`, whatever its caller does.
    fn write_later(&self, time: Duration, batch: Batch, options: CallOptions)
    where
        S: 'static,
    {
        let (inner, history) = (self.inner.clone(), self.history.clone());
        tokio::spawn(async move {
            sleep(time).await;
            let options = CallOptions { deadline: Instant::now() + LATE_MAX, ..options };
            // The caller got its answer long ago.
            let _ = write(&*inner, &history, history.without_removed_rows(batch), &options).await;
        });
    }
}

async fn write<S: Store + ?Sized>(
    inner: &S,
    history: &StoreHistory,
    batch: Batch,
    options: &CallOptions,
) -> Result<()> {
    // Recorded before the write: a late batch that arrives in between must find the removal.
    history.record_removals(&batch);
    for one in &batch.partitions {
        history.record_snapshot(inner, &one.partition, options).await;
    }
    inner.apply(batch, options).await
}

#[async_trait]
impl<S: Store + ?Sized + 'static> Store for Faulty<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        self.call(options, self.read_maybe_stale(partition, query, options)).await
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        let Some(late) = self.injector.draw_delay() else {
            return self.call(options, write(&*self.inner, &self.history, batch, options)).await;
        };
        let lost = async {
            self.write_later(late, batch, *options);
            Err(Error::new(Kind::TimedOut, "injected: it arrives later"))
        };
        self.call(options, lost).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        let cas = async {
            self.history.record_snapshot(&*self.inner, partition, options).await;
            if let Some(derived) = &head.derived {
                self.history.record_snapshot(&*self.inner, &derived.partition, options).await;
            }
            self.inner.apply_if(partition, expected, head, changes, options).await
        };
        self.call(options, cas).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        self.call(options, self.inner.partitions(table, after, limit, options)).await
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        self.call(options, self.inner.now(options)).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

/// The error of a level while no replica is up.
fn unavailable(level: ConsistencyLevel) -> Kind {
    let required = match level {
        ConsistencyLevel::Any | ConsistencyLevel::One => 1,
        ConsistencyLevel::Two | ConsistencyLevel::Quorum => 2,
        ConsistencyLevel::Three | ConsistencyLevel::All => 3,
    };
    Kind::Unavailable { alive: 0, required }
}

#[cfg(test)]
mod tests;
