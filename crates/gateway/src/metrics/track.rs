//! One distribution: everything since the start in fixed buckets, and the last minute in detail.
//!
//! ```text
//! total     count, sum, buckets                           never expires: Prometheus takes its own differences
//! seconds   64 rings of (count, failed)                   the last 60 seconds, to the second
//! slots     7 rings of (histogram, sum, max) of 10 s      at least the last 60 seconds, at most 70
//! ```
//! Time is handed in and may be a little out of order between threads: what comes late is counted in the newer place,
//! so nothing is lost.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::names::BUCKETS_MAX;

/// Length of the window.
pub(super) const WINDOW_SECONDS: u64 = 60;
const SECONDS: usize = 64;
const SLOT_SECONDS: u64 = 10;
const SLOTS: usize = (WINDOW_SECONDS / SLOT_SECONDS) as usize + 1;
/// Larger values are kept as this one: it bounds the size of a histogram.
const VALUE_MAX: u64 = 1 << 42;
/// Two digits: percentiles are within 1 %.
const DIGITS: u8 = 2;

const _: () = assert!(SECONDS as u64 > WINDOW_SECONDS, "a second must be read before its place is used again");

/// One distribution of one shard.
#[derive(Debug)]
pub(super) struct Track {
    bounds: &'static [u64],
    total: Total,
    seconds: [Second; SECONDS],
    slots: [Slot; SLOTS],
}

/// Everything since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Total {
    /// Number of values.
    pub(super) count: u64,
    /// Sum of values.
    pub(super) sum: u64,
    /// Values per bucket: not cumulated.
    pub(super) buckets: [u64; BUCKETS_MAX],
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    at: u64,
    count: u32,
    failed: u32,
}

#[derive(Debug, Default)]
struct Slot {
    at: u64,
    sum: u64,
    max: u64,
    values: Option<Histogram<u32>>,
}

impl Track {
    /// An empty one with these upper bounds of buckets.
    pub(super) fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.len() < BUCKETS_MAX);
        Self { bounds, total: Total::default(), seconds: [Second::default(); SECONDS], slots: Default::default() }
    }

    /// Takes a value of this moment.
    pub(super) fn record(&mut self, value: u64, failed: bool, now: Duration) {
        let value = value.min(VALUE_MAX);
        self.total.record(self.bounds, value);
        let second = now.as_secs();
        self.seconds[second as usize % SECONDS].record(second, failed);
        let slot = second / SLOT_SECONDS;
        self.slots[slot as usize % SLOTS].record(slot, value);
    }

    /// Adds everything since the start to this.
    pub(super) fn add_total(&self, to: &mut Total) {
        self.total.add(to);
    }

    /// Adds the last minute to this.
    pub(super) fn add_recent(&self, to: &mut Recent, now: Duration) {
        let second = now.as_secs();
        for at in self.seconds.iter().filter(|at| at.at + WINDOW_SECONDS > second) {
            to.count += u64::from(at.count);
            to.failed += u64::from(at.failed);
        }
        for slot in self.slots.iter().filter(|slot| slot.at + SLOTS as u64 > second / SLOT_SECONDS) {
            to.sum = to.sum.saturating_add(slot.sum);
            to.max = to.max.max(slot.max);
            to.add_values(slot.values.as_ref());
        }
    }
}

impl Total {
    /// Takes a value. `bounds` are always the same.
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

impl Second {
    fn record(&mut self, at: u64, failed: bool) {
        if at > self.at {
            *self = Self { at, count: 0, failed: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.failed = self.failed.saturating_add(u32::from(failed));
    }
}

impl Slot {
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
            // It resizes by itself, so recording cannot fail.
            values.record(value).unwrap_or_default();
        }
    }

    /// Starts anew; the memory of its histogram is kept.
    fn clear(&mut self, at: u64) {
        (self.at, self.sum, self.max) = (at, 0, 0);
        if let Some(values) = &mut self.values {
            values.reset();
        }
    }
}

/// A point of a distribution that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
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
pub(super) struct Recent {
    /// Values of the last 60 seconds.
    pub(super) count: u64,
    /// Those that are times of failures.
    pub(super) failed: u64,
    sum: u64,
    max: u64,
    values: Option<Histogram<u32>>,
}

impl Recent {
    /// A point of the distribution; 0 where there are no values.
    pub(super) fn point(&self, point: Point) -> u64 {
        let at = |quantile| self.values.as_ref().map_or(0, |values| values.value_at_quantile(quantile)).min(self.max);
        match point {
            Point::Mean => self.sum / self.values.as_ref().map_or(1, Histogram::len).max(1),
            Point::Median => at(0.5),
            Point::P95 => at(0.95),
            Point::P99 => at(0.99),
            Point::Max => self.max,
        }
    }

    fn add_values(&mut self, from: Option<&Histogram<u32>>) {
        let Some(from) = from.filter(|from| !from.is_empty()) else { return };
        match &mut self.values {
            // Both resize by themselves, so adding cannot fail.
            Some(values) => values.add(from).unwrap_or_default(),
            None => self.values = Some(from.clone()),
        }
    }
}
