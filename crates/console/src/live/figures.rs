//! The figures that the overview shows, as text, from the samples.

use std::fmt::Write as _;
use std::sync::Arc;

use larder_core::StoredBytes;

use super::feed::{LiveSample, SAMPLES_KEPT};
use crate::units;

/// Samples over which rates are shown: a single second would make them jump.
const RATE_SAMPLES: usize = 5;
/// Samples of the last minute.
const MINUTE_SAMPLES: usize = 60;

/// The figures of one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LiveFigures {
    /// Key-value requests a second.
    pub(crate) kv_rate: String,
    /// S3 requests a second.
    pub(crate) s3_rate: String,
    /// Median time of key-value requests.
    pub(crate) median: String,
    /// The time of 99 % of them.
    pub(crate) p99: String,
    /// Requests that run.
    pub(crate) active: String,
    /// Requests of the last minute that failed.
    pub(crate) failed: String,
    /// The same as a number.
    pub(crate) failed_count: u64,
    /// Requests refused in the last minute.
    pub(crate) refused: String,
    /// Memory that clients hold, of its bound.
    pub(crate) memory: String,
    /// The same in percent.
    pub(crate) memory_percent: u64,
    /// Requests that waited in vain for memory in the last minute.
    pub(crate) memory_refused: u64,
    /// The disk in use.
    pub(crate) disk: String,
    /// Bytes of live and of dead rows.
    pub(crate) stored: String,
    /// The same in percent; `None`: the engine has no disk.
    pub(crate) disk_percent: Option<u8>,
    /// The line of requests a second, both sides together.
    pub(crate) rate_line: String,
    /// The line of the time of 99 %.
    pub(crate) p99_line: String,
    /// The greatest rate of the line.
    pub(crate) rate_peak: String,
    /// The longest time of the other line.
    pub(crate) p99_peak: String,
}

impl LiveFigures {
    /// The figures after these samples.
    pub(crate) fn from_history(history: &[Arc<LiveSample>]) -> Self {
        let Some(last) = history.last() else { return Self::default() };
        let back = |samples: usize| &history[history.len().saturating_sub(samples + 1)];
        let (recent, minute) = (back(RATE_SAMPLES), back(MINUTE_SAMPLES));
        let rates: Vec<f64> = history.windows(2).map(|two| both(&two[0], &two[1])).collect();
        #[expect(clippy::cast_precision_loss, reason = "a line has less than a thousand steps")]
        let times: Vec<f64> = history.iter().map(|sample| sample.traffic.p99_micros as f64).collect();
        let peak = rates.iter().copied().fold(0.0, f64::max);
        let p99_peak = history.iter().map(|sample| sample.traffic.p99_micros).max().unwrap_or_default();
        let failed_count = grown(minute, last, |of| of.traffic.kv.failed + of.traffic.s3.failed);
        let (held, bound) = (last.memory.small + last.memory.large, last.memory.small_max + last.memory.large_max);
        Self {
            kv_rate: shown_rate(rate(recent, last, |of| of.traffic.kv.ended)),
            s3_rate: shown_rate(rate(recent, last, |of| of.traffic.s3.ended)),
            median: units::micros(last.traffic.median_micros),
            p99: units::micros(last.traffic.p99_micros),
            active: units::count(last.traffic.active),
            failed: units::count(failed_count),
            failed_count,
            refused: units::count(grown(minute, last, |of| of.traffic.kv.refused + of.traffic.s3.refused)),
            memory: format!("{} of {}", units::bytes(held), units::bytes(bound)),
            memory_percent: held.saturating_mul(100) / bound.max(1),
            memory_refused: grown(minute, last, |of| of.memory.refused),
            disk: last.disk.as_ref().map_or_else(|| "none".to_owned(), shown_disk),
            stored: last.stored.map_or_else(|| "none".to_owned(), shown_stored),
            disk_percent: last.disk.as_ref().map(|(_, _, percent)| *percent),
            rate_line: points(&rates, SAMPLES_KEPT),
            p99_line: points(&times, SAMPLES_KEPT),
            rate_peak: shown_rate(peak),
            p99_peak: units::micros(p99_peak),
        }
    }

    /// The texts by their names in the page.
    pub(crate) fn texts(&self) -> [(&'static str, &str); 12] {
        [
            ("kv-rate", &self.kv_rate),
            ("s3-rate", &self.s3_rate),
            ("median", &self.median),
            ("p99", &self.p99),
            ("active", &self.active),
            ("failed", &self.failed),
            ("refused", &self.refused),
            ("memory", &self.memory),
            ("disk", &self.disk),
            ("stored", &self.stored),
            ("rate-peak", &self.rate_peak),
            ("p99-peak", &self.p99_peak),
        ]
    }
}

fn shown_disk((mount, kib, percent): &(String, u64, u8)) -> String {
    format!("{percent} % of {} at {mount}", units::bytes(kib.saturating_mul(1024)))
}

fn shown_stored(StoredBytes { live, dead }: StoredBytes) -> String {
    format!("{} live, {} dead", units::bytes(live), units::bytes(dead))
}

fn grown(from: &LiveSample, to: &LiveSample, count: impl Fn(&LiveSample) -> u64) -> u64 {
    count(to).saturating_sub(count(from))
}

#[expect(clippy::cast_precision_loss, reason = "a rate is rounded")]
fn rate(from: &LiveSample, to: &LiveSample, count: impl Fn(&LiveSample) -> u64) -> f64 {
    let seconds = to.at.saturating_sub(from.at).as_secs_f64();
    if seconds > 0.0 { grown(from, to, count) as f64 / seconds } else { 0.0 }
}

fn both(from: &LiveSample, to: &LiveSample) -> f64 {
    rate(from, to, |of| of.traffic.kv.ended + of.traffic.s3.ended)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is a small number above 0")]
fn shown_rate(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}") } else { units::count(rate.round() as u64) }
}

/// Width of the picture, in its own units.
pub(crate) const LINE_WIDTH: u32 = 600;
/// Height of the picture, in its own units.
pub(crate) const LINE_HEIGHT: u32 = 80;
/// Room above and below the line.
const MARGIN: f64 = 4.0;

/// The points of at most `places` values. The greatest value is at the top; a line of zeros lies at the bottom.
pub(super) fn points(values: &[f64], places: usize) -> String {
    let greatest = values.iter().copied().fold(0.0, f64::max);
    let step = f64::from(LINE_WIDTH) / places.saturating_sub(1).max(1) as f64;
    let first = places.saturating_sub(values.len());
    let height = f64::from(LINE_HEIGHT) - 2.0 * MARGIN;
    let mut out = String::with_capacity(values.len() * 12);
    for (at, value) in values.iter().enumerate() {
        let x = (first + at) as f64 * step;
        let share = if greatest > 0.0 { value / greatest } else { 0.0 };
        let y = MARGIN + height * (1.0 - share);
        let space = if at == 0 { "" } else { " " };
        let _ = write!(out, "{space}{x:.1},{y:.1}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use larder_admission::MemoryBudget;
    use larder_core::metrics::{RequestTotals, TrafficSummary};

    use super::*;

    fn sample(second: u64, ended: u64, failed: u64) -> Arc<LiveSample> {
        let kv = RequestTotals { ended, failed, refused: 0 };
        let traffic = TrafficSummary { kv, p99_micros: 1_500, ..TrafficSummary::default() };
        let memory = MemoryBudget::new(1 << 30, 0).usage();
        let stored = Some(StoredBytes { live: 3 << 30, dead: 1 << 20 });
        let (at, disk) = (Duration::from_secs(second), Some(("/".into(), 1 << 20, 91)));
        Arc::new(LiveSample { at, traffic, memory, disk, stored })
    }

    #[test]
    fn rates_are_those_of_the_last_seconds_and_failures_those_of_the_minute() {
        let history: Vec<_> = (0..100).map(|second| sample(second, second * 50, second)).collect();
        let figures = LiveFigures::from_history(&history);
        assert_eq!((&*figures.kv_rate, &*figures.s3_rate, &*figures.rate_peak), ("50", "0", "50"));
        assert_eq!((figures.failed_count, &*figures.p99), (60, "1.5 ms"));
        assert_eq!((&*figures.disk, figures.disk_percent), ("91 % of 1.0 GiB at /", Some(91)));
        assert_eq!(figures.stored, "3.0 GiB live, 1.0 MiB dead");
        assert_eq!(figures.rate_line.split(' ').count(), 99);
    }

    #[test]
    fn there_are_figures_from_the_first_sample_on() {
        assert_eq!(LiveFigures::from_history(&[]), LiveFigures::default());
        let figures = LiveFigures::from_history(&[sample(7, 3, 1)]);
        assert_eq!((&*figures.kv_rate, figures.failed_count, &*figures.rate_line), ("0", 0, ""));
        assert_eq!(shown_rate(0.24), "0.2");
    }
}

#[cfg(test)]
mod sparkline_tests {
    use super::*;

    #[test]
    fn the_newest_value_is_at_the_right_edge() {
        assert_eq!(points(&[], 5), "");
        assert_eq!(points(&[0.0, 0.0], 5), "450.0,76.0 600.0,76.0");
        assert_eq!(points(&[5.0, 10.0, 0.0], 3), "0.0,40.0 300.0,4.0 600.0,76.0");
    }
}
