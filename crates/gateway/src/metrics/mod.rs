//! What operators see: counters and distributions, as `/stats` of Riak and as Prometheus text.
//!
//! ```text
//! finished, object_read, object_written ─> shard of the thread ─┬─> stats()  Riak's names, the last minute
//! in_flight, event, operation_…                                 └─> text()   Prometheus, since the start
//! ```
//! - Every thread writes to a shard of its own, so recording waits for nobody but a reader; nothing is sampled or lost.
//! - Time is handed in, so the simulation owns it. All callers must hand in times since the same moment.
//! - What is refused is counted, but its time is not kept: answers that do no work would make a node look fast.
//! - Every name is in one table: operations and events in `names`, stats in [`table`].

mod about;
mod names;
mod operations;
mod stats;
mod table;
mod text;
mod track;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

pub use about::{About, Disk, Engine, Host, Process};
pub use names::{Event, Op, Outcome};
pub use table::{PROTOCOL_VERSION, RING_PARTITIONS, Stat, table};

use names::Series;
use operations::Operations;
use track::{Recent, Total, Track};

/// Counters and distributions of one gateway.
#[derive(Debug)]
pub struct Metrics {
    shards: Box<[Shard]>,
    events: [AtomicU64; Event::ALL.len()],
}

/// What one thread, or few, write to. Aligned, so that no two share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    tracks: Box<[Mutex<Track>]>,
    outcomes: [[AtomicU64; Outcome::ALL.len()]; Op::ALL.len()],
    active: [AtomicI64; Op::ALL.len()],
    operations: Mutex<Operations>,
}

/// A request that is being worked on; it is counted until this is dropped, on whatever thread.
#[derive(Debug)]
#[must_use = "the request is counted as long as this lives"]
pub struct InFlight<'a> {
    active: &'a AtomicI64,
}

const SHARDS_MAX: usize = 64;

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shards = (processors * 2).next_power_of_two().min(SHARDS_MAX);
        Self { shards: (0..shards).map(|_| Shard::new()).collect(), events: Default::default() }
    }

    /// Counts an operation that ended, and how long it took.
    pub fn finished(&self, op: Op, took: Duration, outcome: Outcome, now: Duration) {
        let shard = self.shard();
        shard.outcomes[op as usize][outcome as usize].fetch_add(1, Relaxed);
        if outcome != Outcome::Refused {
            shard.record(Series::Time(op), microseconds(took), outcome == Outcome::Failed, now);
        }
    }

    /// Counts an object that was found: its size with all siblings, and their number.
    pub fn object_read(&self, bytes: u64, siblings: usize, now: Duration) {
        let shard = self.shard();
        shard.record(Series::ReadBytes, bytes, false, now);
        shard.record(Series::ReadSiblings, siblings as u64, false, now);
    }

    /// Counts an object that was written: its size with all siblings, and their number afterwards.
    pub fn object_written(&self, bytes: u64, siblings: usize, now: Duration) {
        let shard = self.shard();
        shard.record(Series::WriteBytes, bytes, false, now);
        shard.record(Series::WriteSiblings, siblings as u64, false, now);
    }

    /// Counts an event.
    pub fn event(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Relaxed);
    }

    /// Counts a request as being worked on, until the guard is dropped.
    pub fn in_flight(&self, op: Op) -> InFlight<'_> {
        let active = &self.shard().active[op as usize];
        active.fetch_add(1, Relaxed);
        InFlight { active }
    }

    /// All of `/stats`, sorted by name: see [`table`]. It copies distributions, some 100 µs: not for every request.
    #[must_use]
    pub fn stats(&self, about: &About<'_>, now: Duration) -> Vec<(&'static str, serde_json::Value)> {
        stats::stats(self, about, now)
    }

    /// All as Prometheus text, format 0.0.4 (`text/plain; version=0.0.4`).
    #[must_use]
    pub fn text(&self, about: &About<'_>, now: Duration) -> String {
        text::text(self, about, now)
    }

    fn shard(&self) -> &Shard {
        &self.shards[WORKER.with(|worker| *worker) % self.shards.len()]
    }

    /// How often an event happened.
    fn happened(&self, event: Event) -> u64 {
        self.events[event as usize].load(Relaxed)
    }

    /// How many operations ended so.
    fn ended(&self, op: Op, outcome: Outcome) -> u64 {
        self.shards.iter().map(|shard| shard.outcomes[op as usize][outcome as usize].load(Relaxed)).sum()
    }

    /// How many operations are being worked on.
    fn active(&self, op: Op) -> u64 {
        let active: i64 = self.shards.iter().map(|shard| shard.active[op as usize].load(Relaxed)).sum();
        u64::try_from(active).unwrap_or(0)
    }

    /// Everything since the start.
    fn total(&self, series: Series) -> Total {
        let mut total = Total::default();
        self.shards.iter().for_each(|shard| shard.tracks[series.index()].lock().add_total(&mut total));
        total
    }

    /// The last minute of these together.
    fn recent(&self, series: &[Series], now: Duration) -> Recent {
        let mut recent = Recent::default();
        for shard in &self.shards {
            series.iter().for_each(|series| shard.tracks[series.index()].lock().add_recent(&mut recent, now));
        }
        recent
    }
}

impl Shard {
    fn new() -> Self {
        Self {
            tracks: Series::all().map(|series| Mutex::new(Track::new(series.bounds()))).collect(),
            outcomes: Default::default(),
            active: Default::default(),
            operations: Mutex::default(),
        }
    }

    fn record(&self, series: Series, value: u64, failed: bool, now: Duration) {
        self.tracks[series.index()].lock().record(value, failed, now);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Relaxed);
    }
}

/// Threads are numbered as they first record, so that the workers of a runtime get shards of their own.
static WORKERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static WORKER: usize = WORKERS.fetch_add(1, Relaxed);
}

/// Whole microseconds, rounded.
fn microseconds(took: Duration) -> u64 {
    u64::try_from((took.as_nanos() + 500) / 1000).unwrap_or(u64::MAX)
}
