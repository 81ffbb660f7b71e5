//! The measured series, and the distribution of each: since the start in fixed buckets, and the last minute in detail.
//!
//! ```text
//! total     count, sum, buckets                           never expires: Prometheus takes its own differences
//! seconds   64 rings of (count, failed)                   the last 60 seconds, to the second
//! windows   7 rings of (histogram, sum, max) of 10 s      at least the last 60 seconds, at most 70
//! ```
//! Callers pass the time, which may be slightly out of order between threads: a late value counts in the newer window, so none
//! is lost.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::KvOp;

/// Length of the last minute in seconds.
pub(super) const LAST_MINUTE_SECONDS: u64 = 60;
const SECONDS: usize = 64;
const WINDOW_SECONDS: u64 = 10;
const WINDOWS: usize = (LAST_MINUTE_SECONDS / WINDOW_SECONDS) as usize + 1;
/// Larger values count as this one, which bounds the size of a histogram.
const VALUE_MAX: u64 = 1 << 42;
/// Two digits: percentiles are within 1 %.
const DIGITS: u8 = 2;

const _: () = assert!(SECONDS as u64 > LAST_MINUTE_SECONDS, "a second must be read before its index is reused");

/// A measured quantity with a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Series {
    /// Microseconds an operation took.
    Time(KvOp),
    /// Bytes of an object read.
    ReadBytes,
    /// Siblings of an object read.
    ReadSiblings,
    /// Bytes of an object written.
    WriteBytes,
    /// Versions that a write replaced.
    ReplacedVersions,
    /// Open connections of protocol buffers, counted as each one opens.
    PbConnections,
}

impl Series {
    /// Its index among all.
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Time(op) => op as usize,
            Self::ReadBytes => KvOp::ALL.len(),
            Self::ReadSiblings => KvOp::ALL.len() + 1,
            Self::WriteBytes => KvOp::ALL.len() + 2,
            Self::ReplacedVersions => KvOp::ALL.len() + 3,
            Self::PbConnections => KvOp::ALL.len() + 4,
        }
    }

    /// All series, each at its index.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let others =
            [Self::ReadBytes, Self::ReadSiblings, Self::WriteBytes, Self::ReplacedVersions, Self::PbConnections];
        KvOp::ALL.iter().map(|op| Self::Time(*op)).chain(others)
    }

    /// Upper bounds of its buckets, in its own unit; one more bucket is above the last.
    pub(super) const fn bounds(self) -> &'static [u64] {
        match self {
            Self::Time(_) => TIME_US_BOUNDS,
            Self::ReadBytes | Self::WriteBytes => BYTES_BOUNDS,
            Self::ReadSiblings | Self::ReplacedVersions | Self::PbConnections => COUNT_BOUNDS,
        }
    }
}

/// Upper bounds of times in microseconds.
pub(super) const TIME_US_BOUNDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
const BYTES_BOUNDS: &[u64] =
    &[64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];
const COUNT_BOUNDS: &[u64] = &[1, 2, 3, 5, 10, 25, 50, 100];

/// Most buckets of a series, the open one included.
pub(super) const BUCKETS_MAX: usize = 19;
const _: () = assert!(TIME_US_BOUNDS.len() < BUCKETS_MAX, "one more bucket for values above the last bound");
const _: () = assert!(BYTES_BOUNDS.len() < BUCKETS_MAX, "one more bucket for values above the last bound");

/// One distribution of one shard.
#[derive(Debug)]
pub(super) struct Distribution {
    bounds: &'static [u64],
    total: SinceStart,
    seconds: [SecondCounts; SECONDS],
    windows: [HistogramWindow; WINDOWS],
}

/// All values since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SinceStart {
    /// Number of values.
    pub(super) count: u64,
    /// Sum of values.
    pub(super) sum: u64,
    /// Values per bucket: not cumulated.
    pub(super) buckets: [u64; BUCKETS_MAX],
}

#[derive(Debug, Clone, Copy, Default)]
struct SecondCounts {
    at: u64,
    count: u32,
    failed: u32,
}

#[derive(Debug, Default)]
struct HistogramWindow {
    at: u64,
    sum: u64,
    max: u64,
    values: Option<Histogram<u32>>,
}

impl Distribution {
    /// An empty distribution with these upper bounds of buckets.
    pub(super) fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.len() < BUCKETS_MAX);
        Self {
            bounds,
            total: SinceStart::default(),
            seconds: [SecondCounts::default(); SECONDS],
            windows: Default::default(),
        }
    }

    /// Records a value at time `now`.
    pub(super) fn record(&mut self, value: u64, failed: bool, now: Duration) {
        let value = value.min(VALUE_MAX);
        self.total.record(self.bounds, value);
        let second = now.as_secs();
        self.seconds[second as usize % SECONDS].record(second, failed);
        let window = second / WINDOW_SECONDS;
        self.windows[window as usize % WINDOWS].record(window, value);
    }

    /// Adds all values since the start to `to`.
    pub(super) fn add_total(&self, to: &mut SinceStart) {
        self.total.add(to);
    }

    /// Adds the last minute to `to`.
    pub(super) fn add_recent(&self, to: &mut LastMinute, now: Duration) {
        let second = now.as_secs();
        for at in self.seconds.iter().filter(|at| at.at + LAST_MINUTE_SECONDS > second) {
            to.count += u64::from(at.count);
            to.failed += u64::from(at.failed);
        }
        for window in self.windows.iter().filter(|window| window.at + WINDOWS as u64 > second / WINDOW_SECONDS) {
            to.sum = to.sum.saturating_add(window.sum);
            to.max = to.max.max(window.max);
            to.add_values(window.values.as_ref());
        }
    }
}

impl SinceStart {
    /// Records a value. `bounds` are the same on every call.
    pub(super) fn record(&mut self, bounds: &[u64], value: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.buckets[bounds.partition_point(|bound| *bound < value)] += 1;
    }

    /// Adds this to `to`.
    pub(super) fn add(&self, to: &mut Self) {
        to.count += self.count;
        to.sum = to.sum.saturating_add(self.sum);
        to.buckets.iter_mut().zip(self.buckets).for_each(|(to, from)| *to += from);
    }
}

impl SecondCounts {
    fn record(&mut self, at: u64, failed: bool) {
        if at > self.at {
            *self = Self { at, count: 0, failed: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.failed = self.failed.saturating_add(u32::from(failed));
    }
}

impl HistogramWindow {
    fn record(&mut self, at: u64, value: u64) {
        if at > self.at {
            self.clear(at);
        }
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
        if self.values.is_none() {
            self.values = Histogram::new(DIGITS).ok();
        }
        if let Some(values) = &mut self.values {
            // The histogram resizes, so recording cannot fail.
            values.record(value).unwrap_or_default();
        }
    }

    /// Clears it for a new window; keeps the memory of its histogram.
    fn clear(&mut self, at: u64) {
        (self.at, self.sum, self.max) = (at, 0, 0);
        if let Some(values) = &mut self.values {
            values.reset();
        }
    }
}

/// A shown statistic of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Half are at most this.
    Median,
    /// 95 % are at most this.
    P95,
    /// 99 % are at most this.
    P99,
    /// The largest.
    Max,
}

/// The last minute, of all shards.
#[derive(Debug, Clone, Default)]
pub(super) struct LastMinute {
    /// Values of the last 60 seconds.
    pub(super) count: u64,
    /// Values that are times of failures.
    pub(super) failed: u64,
    sum: u64,
    max: u64,
    values: Option<Histogram<u32>>,
}

impl LastMinute {
    /// A statistic; 0 without values.
    pub(super) fn statistic(&self, point: Statistic) -> u64 {
        let at = |quantile| self.values.as_ref().map_or(0, |values| values.value_at_quantile(quantile)).min(self.max);
        match point {
            Statistic::Mean => self.sum / self.values.as_ref().map_or(1, Histogram::len).max(1),
            Statistic::Median => at(0.5),
            Statistic::P95 => at(0.95),
            Statistic::P99 => at(0.99),
            Statistic::Max => self.max,
        }
    }

    fn add_values(&mut self, from: Option<&Histogram<u32>>) {
        let Some(from) = from.filter(|from| !from.is_empty()) else { return };
        match &mut self.values {
            // Both resize, so adding cannot fail.
            Some(values) => values.add(from).unwrap_or_default(),
            None => self.values = Some(from.clone()),
        }
    }
}
