//! Breaks a store on purpose, the same way for the same seed: the simulation's view of a network and a machine.
//!
//! ```text
//! gateway 1 ── Faulty(seed 1) ──┐
//! gateway 2 ── Faulty(seed 2) ──┴── MemoryStore     one History beside it, for reads that lag
//!
//! frozen? -> pause -> cut? -> fail? -> the call -> frozen? -> pause -> cut or lost? -> answer
//! ```
//! A call refused with `Unavailable` was not made; one answered `TimedOut` may have been made, or be made later. Only reads at [`Level::One`] lag.
//! Pauses end at the deadline. A frozen store answers nothing at all until it is thawed, as a stopped process.
//! Time is tokio's, so that a paused runtime owns it.

mod blobs;
mod hand;
mod history;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::{
    Batch, Change, EngineLimits, Error, Head, Kind, Level, Micros, Options, Page, Partition, PartitionPage, ReadQuery,
    Result, Stamp, Store, Swap, Table,
};

use hand::{Hand, Terms};
pub use history::History;

/// How late a write arrives at most.
pub const LATE_MAX: Duration = Duration::from_secs(30);

/// How often things go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Longest pause before a call, and again after it, in milliseconds.
    pub pause_ms_max: u64,
    /// How many of a thousand pauses are made.
    pub pause_per_mille: u32,
    /// How many of a thousand calls fail and are not made.
    pub fail_per_mille: u32,
    /// How many of a thousand calls are made and answered `TimedOut`.
    pub lose_per_mille: u32,
    /// How many of a thousand batches are answered `TimedOut` and made later, up to half a minute. What was removed
    /// meanwhile stays so, as where tombstones are kept. Swaps never: who reads their head must know what became of them.
    pub late_per_mille: u32,
    /// How many of a thousand reads at [`Level::One`] see the past.
    pub stale_per_mille: u32,
}

/// One gateway's way to a store that others share.
pub struct Faulty<S: ?Sized> {
    hand: Arc<Hand>,
    history: Arc<History>,
    inner: Arc<S>,
}

impl Faults {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }
}

impl<S: ?Sized> Faulty<S> {
    /// A way to `inner` that is not faulty yet. Every way to one store shares its `history`.
    #[must_use]
    pub fn new(inner: Arc<S>, history: Arc<History>, seed: u64) -> Self {
        Self { hand: Arc::new(Hand::new(seed)), history, inner }
    }

    /// From the next call on, this often.
    pub fn set_faults(&self, faults: Faults) {
        self.hand.set_faults(faults);
    }

    /// How often now.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.hand.faults()
    }

    /// Cuts the way off or mends it: meanwhile calls fail `Unavailable`, and those under way `TimedOut`.
    pub fn cut(&self, cut: bool) {
        self.hand.cut(cut);
    }

    /// Stops every call where it is, beyond its deadline too.
    pub fn freeze(&self) {
        self.hand.freeze(true);
    }

    /// Lets stopped calls go on.
    pub fn thaw(&self) {
        self.hand.freeze(false);
    }

    async fn call<T>(&self, options: &Options, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let terms = Terms::of(options);
        let fate = self.hand.draw();
        self.hand.before(&fate, &terms).await?;
        let answer = call.await;
        self.hand.after(&fate, &terms).await?;
        answer
    }
}

impl<S: Store + ?Sized> Faulty<S> {
    /// A page of the past, where the history has one; otherwise of now.
    async fn read_behind(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        if options.level == Level::One
            && let Some(lag) = self.hand.lag(self.history.lag_max())
            && let Some(rows) = self.history.at(partition, lag)
        {
            // What was there then and has expired since is not returned either.
            let now = self.inner.now(options).await?;
            return Ok(crate::memory::page(&rows, query, now));
        }
        self.inner.read(partition, query, options).await
    }

    /// Makes a write when `time` has passed, whatever has become of who asked for it.
    fn write_after(&self, time: Duration, batch: Batch, options: Options)
    where
        S: 'static,
    {
        let (inner, history) = (self.inner.clone(), self.history.clone());
        tokio::spawn(async move {
            sleep(time).await;
            let options = Options { deadline: Instant::now() + LATE_MAX, ..options };
            // Nobody waits for the answer.
            let _ = write(&*inner, &history, history.outlived(batch), &options).await;
        });
    }
}

async fn write<S: Store + ?Sized>(inner: &S, history: &History, batch: Batch, options: &Options) -> Result<()> {
    history.note(&batch);
    for one in &batch.partitions {
        history.keep(inner, &one.partition, options).await;
    }
    inner.apply(batch, options).await
}

#[async_trait]
impl<S: Store + ?Sized + 'static> Store for Faulty<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        self.call(options, self.read_behind(partition, query, options)).await
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        let Some(late) = self.hand.late() else {
            return self.call(options, write(&*self.inner, &self.history, batch, options)).await;
        };
        let lost = async {
            self.write_after(late, batch, *options);
            Err(Error::new(Kind::TimedOut, "injected: it arrives later"))
        };
        self.call(options, lost).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        let swap = async {
            self.history.keep(&*self.inner, partition, options).await;
            if let Some(shadow) = &head.shadow {
                self.history.keep(&*self.inner, &shadow.partition, options).await;
            }
            self.inner.apply_if(partition, expected, head, changes, options).await
        };
        self.call(options, swap).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        self.call(options, self.inner.partitions(table, after, limit, options)).await
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        self.call(options, self.inner.now(options)).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

/// The answer of a level that nobody meets.
fn unavailable(level: Level) -> Kind {
    let required = match level {
        Level::Any | Level::One => 1,
        Level::Two | Level::Quorum => 2,
        Level::Three | Level::All => 3,
    };
    Kind::Unavailable { alive: 0, required }
}

#[cfg(test)]
mod tests;
