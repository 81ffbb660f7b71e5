//! Metrics for operators: counters and distributions, as Riak's `/stats` and as Prometheus text.
//!
//! ```text
//! record_request, record_read, record_written ─> shard of the thread ─┬─> stats()  Riak's names, the last minute
//! begin_request, begin_pb_connection,                                 └─> text()   Prometheus, since the start
//! count_event, count_s3_…
//! ```
//! - Every thread writes to a shard of its own, so recording waits for readers only; nothing is sampled or lost.
//! - Callers pass the time, so the simulation owns it. All must measure from the same moment.
//! - Refused requests are counted without their time: answers without work would make a node look fast.
//! - A new counter is a row of `names::Event`: both outputs follow. A new distribution is a variant of `distribution::Series`, a new
//!   stat of Riak a row of [`table`], a new family of Prometheus a row of [`names`] and a line of `text`. Engines and the server pass samples of their
//!   own through [`EngineStatus`](crate::EngineStatus).

mod distribution;
mod names;
mod node_info;
mod operations;
mod stats;
mod table;
mod text;

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};
use std::time::Duration;

use parking_lot::Mutex;

use distribution::{Distribution, LastMinute, Series, SinceStart};
use operations::Operations;

use crate::ports::EngineSample;

pub use names::{Event, KvOp, MetricFamily, MetricKind, MetricUnit, RequestOutcome, metric_families, sample_family};
pub use node_info::{HostStats, NodeInfo, ProcessStats};
pub use operations::{RequestTotals, TrafficSummary};
pub use table::{PROTOCOL_VERSION, RING_PARTITIONS, Stat, table};

/// Counters and distributions of one gateway.
#[derive(Debug)]
pub struct Metrics {
    shards: Box<[MetricsShard]>,
    events: [AtomicU64; Event::ALL.len()],
    pb_connections: AtomicI64,
    /// Of the move that this server carries out; none without one.
    move_samples: Mutex<Vec<EngineSample>>,
}

/// Metrics of one thread, or a few. Aligned, so that no two shards share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct MetricsShard {
    /// Under one lock: an operation records several at a time.
    distributions: Mutex<Box<[Distribution]>>,
    outcomes: [[AtomicU64; RequestOutcome::ALL.len()]; KvOp::ALL.len()],
    active: [AtomicI64; KvOp::ALL.len()],
    operations: Mutex<Operations>,
}

/// An active request or an open connection; it is counted until this is dropped, on any thread.
#[derive(Debug)]
#[must_use = "it is counted as long as this lives"]
pub struct InFlight<'a> {
    active: &'a AtomicI64,
}

const SHARDS_MAX: usize = 64;

impl Default for Metrics {
    /// Metrics without counts.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shards = (processors * 2).next_power_of_two().min(SHARDS_MAX);
        Self {
            shards: (0..shards).map(|_| MetricsShard::new()).collect(),
            events: Default::default(),
            pb_connections: AtomicI64::default(),
            move_samples: Mutex::default(),
        }
    }
}

impl Metrics {
    /// Records an operation that ended, and its duration.
    #[inline]
    pub fn record_request(&self, op: KvOp, took: Duration, outcome: RequestOutcome, now: Duration) {
        let shard = self.shard();
        shard.outcomes[op as usize][outcome as usize].fetch_add(1, Relaxed);
        if outcome != RequestOutcome::Refused {
            shard.record(&[(Series::Time(op), microseconds(took))], outcome == RequestOutcome::Failed, now);
        }
    }

    /// Records an object that was read: its size with all siblings, and their number.
    pub fn record_read(&self, bytes: u64, siblings: usize, now: Duration) {
        self.shard().record(&[(Series::ReadBytes, bytes), (Series::ReadSiblings, siblings as u64)], false, now);
    }

    /// Records a read that began at `begun` and ended now with an object of one value: as [`Self::record_request`] and
    /// [`Self::record_read`] together.
    #[inline]
    pub fn record_single_get(&self, begun: Duration, bytes: u64, now: Duration) {
        let shard = self.shard();
        shard.outcomes[KvOp::Get as usize][RequestOutcome::Ok as usize].fetch_add(1, Relaxed);
        let took = microseconds(now.saturating_sub(begun));
        let recorded = [(Series::Time(KvOp::Get), took), (Series::ReadBytes, bytes), (Series::ReadSiblings, 1)];
        shard.record(&recorded, false, now);
    }

    /// Records an object that was written: the size of the new body, and the number of versions that it replaced.
    #[inline]
    pub fn record_written(&self, bytes: u64, replaced: usize, now: Duration) {
        self.shard().record(&[(Series::WriteBytes, bytes), (Series::ReplacedVersions, replaced as u64)], false, now);
    }

    /// Counts an event.
    #[inline]
    pub fn count_event(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Relaxed);
    }

    /// Counts a request as active until the guard is dropped.
    #[inline]
    pub fn begin_request(&self, op: KvOp) -> InFlight<'_> {
        let active = &self.shard().active[op as usize];
        active.fetch_add(1, Relaxed);
        InFlight { active }
    }

    /// Counts a connection of protocol buffers as open until the guard is dropped.
    pub fn begin_pb_connection(&self, now: Duration) -> InFlight<'_> {
        self.pb_connections.fetch_add(1, Relaxed);
        self.shard().record(&[(Series::PbConnections, self.open_pb_connections())], false, now);
        InFlight { active: &self.pb_connections }
    }

    /// Shows these metrics of a move from now on. Names alike but for labels are neighbours, as of an engine.
    pub fn show_move(&self, samples: Vec<EngineSample>) {
        *self.move_samples.lock() = samples;
    }

    /// The metrics of the move that this server carries out.
    pub(crate) fn move_samples(&self) -> Vec<EngineSample> {
        self.move_samples.lock().clone()
    }

    /// Number of open connections of protocol buffers.
    fn open_pb_connections(&self) -> u64 {
        u64::try_from(self.pb_connections.load(Relaxed)).unwrap_or(0)
    }

    fn shard(&self) -> &MetricsShard {
        &self.shards[WORKER.with(|worker| *worker) % self.shards.len()]
    }

    /// Number of occurrences of an event.
    fn event_count(&self, event: Event) -> u64 {
        self.events[event as usize].load(Relaxed)
    }

    /// Number of operations with this outcome.
    fn request_count(&self, op: KvOp, outcome: RequestOutcome) -> u64 {
        self.shards.iter().map(|shard| shard.outcomes[op as usize][outcome as usize].load(Relaxed)).sum()
    }

    /// Number of active operations.
    fn active_count(&self, op: KvOp) -> u64 {
        let active: i64 = self.shards.iter().map(|shard| shard.active[op as usize].load(Relaxed)).sum();
        // Race: shards are read one by one, so an end may be counted here without its begin.
        u64::try_from(active).unwrap_or(0)
    }

    /// A distribution since the start.
    fn since_start(&self, series: Series) -> SinceStart {
        let mut total = SinceStart::default();
        self.shards.iter().for_each(|shard| shard.distributions.lock()[series.index()].add_total(&mut total));
        total
    }

    /// The last minute of several series together.
    fn last_minute(&self, series: &[Series], now: Duration) -> LastMinute {
        let mut recent = LastMinute::default();
        for shard in &self.shards {
            let distributions = shard.distributions.lock();
            series.iter().for_each(|series| distributions[series.index()].add_recent(&mut recent, now));
        }
        recent
    }
}

impl MetricsShard {
    fn new() -> Self {
        Self {
            distributions: Mutex::new(Series::all().map(|series| Distribution::new(series.bounds())).collect()),
            outcomes: Default::default(),
            active: Default::default(),
            operations: Mutex::default(),
        }
    }

    /// Records a value of each of these series.
    fn record(&self, values: &[(Series, u64)], failed: bool, now: Duration) {
        let mut distributions = self.distributions.lock();
        for (series, value) in values {
            distributions[series.index()].record(*value, failed, now);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Relaxed);
    }
}

/// Number of the next thread: threads are numbered at their first record, so each worker of a runtime gets its own shard.
static WORKERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static WORKER: usize = WORKERS.fetch_add(1, Relaxed);
}

/// Whole microseconds, rounded.
fn microseconds(took: Duration) -> u64 {
    took.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(took.subsec_nanos() + 500) / 1000)
}
