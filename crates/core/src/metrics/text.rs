//! Prometheus text, format 0.0.4.
//!
//! Counters and histograms cover all time since the start; Prometheus takes differences. Only `larder_request_recent_seconds`
//! covers the last minute, for operators without a query language.

use std::fmt::Write as _;
use std::time::Duration;

use super::distribution::{Series, SinceStart, Statistic, TIME_US_BOUNDS};
use super::names::{self, MetricFamily};
use super::{Event, KvOp, Metrics, NodeInfo, RequestOutcome};

const MICROS_PER_SECOND: f64 = 1e6;

impl Metrics {
    /// All metrics as Prometheus text, format 0.0.4 (`text/plain; version=0.0.4`).
    #[must_use]
    pub fn text(&self, info: &NodeInfo<'_>, now: Duration) -> String {
        let mut page = ExpositionText::default();
        page.about(info);
        page.requests(self);
        page.recent(self, now);
        page.objects(self);
        page.operations(self);
        for event in Event::ALL {
            page.one(&names::event_family(*event), self.event_count(*event) as f64);
        }
        page.process(info);
        page.engine_samples(info);
        page.0
    }
}

#[derive(Default)]
struct ExpositionText(String);

impl ExpositionText {
    fn about(&mut self, info: &NodeInfo<'_>) {
        self.head(&names::INFO);
        let labels = [("node", info.node), ("version", info.version), ("engine", info.engine)];
        self.line(names::INFO.name, &labels, 1.0);
        self.one(&names::READY, f64::from(u8::from(info.ready)));
        self.one(&names::MEMBERS, info.ring_members().len() as f64);
        self.one(&names::CATALOGUE_VERSION, info.catalogue as f64);
        self.one(&names::WEBHOOKS_WAITING, info.webhooks_waiting as f64);
        self.one(&names::WEBHOOKS_WAITING_MOST, info.webhooks_waiting_most as f64);
    }

    fn requests(&mut self, metrics: &Metrics) {
        self.head(&names::REQUESTS);
        for (op, outcome) in
            KvOp::ALL.iter().flat_map(|op| RequestOutcome::ALL.iter().map(move |outcome| (*op, *outcome)))
        {
            let labels = [("op", op.name()), ("outcome", outcome.name())];
            self.line(names::REQUESTS.name, &labels, metrics.request_count(op, outcome) as f64);
        }
        self.head(&names::REQUESTS_ACTIVE);
        for op in KvOp::ALL {
            self.line(names::REQUESTS_ACTIVE.name, &[("op", op.name())], metrics.active_count(*op) as f64);
        }
        self.head(&names::REQUEST_SECONDS);
        for op in KvOp::ALL {
            self.histogram(&names::REQUEST_SECONDS, "op", op.name(), metrics, Series::Time(*op));
        }
    }

    fn recent(&mut self, metrics: &Metrics, now: Duration) {
        let family = &names::REQUEST_RECENT_SECONDS;
        self.head(family);
        for op in KvOp::ALL {
            let recent = metrics.last_minute(&[Series::Time(*op)], now);
            for (percentile, point) in
                [("50", Statistic::Median), ("95", Statistic::P95), ("99", Statistic::P99), ("100", Statistic::Max)]
            {
                let labels = [("op", op.name()), ("percentile", percentile)];
                self.line(family.name, &labels, recent.statistic(point) as f64 / MICROS_PER_SECOND);
            }
        }
    }

    fn objects(&mut self, metrics: &Metrics) {
        self.head(&names::OBJECT_BYTES);
        self.histogram(&names::OBJECT_BYTES, "way", "read", metrics, Series::ReadBytes);
        self.histogram(&names::OBJECT_BYTES, "way", "write", metrics, Series::WriteBytes);
        self.head(&names::OBJECT_SIBLINGS);
        self.histogram(&names::OBJECT_SIBLINGS, "way", "read", metrics, Series::ReadSiblings);
        self.histogram(&names::OBJECT_SIBLINGS, "way", "write", metrics, Series::ReplacedVersions);
    }

    fn operations(&mut self, metrics: &Metrics) {
        let all = metrics.operations();
        self.head(&names::S3_REQUESTS);
        for (name, counted) in &all {
            for outcome in [RequestOutcome::Ok, RequestOutcome::Refused, RequestOutcome::Failed] {
                let labels = [("op", *name), ("outcome", outcome.name())];
                self.line(names::S3_REQUESTS.name, &labels, counted.answered(outcome) as f64);
            }
        }
        self.head(&names::S3_REQUESTS_ACTIVE);
        for (name, counted) in &all {
            self.line(names::S3_REQUESTS_ACTIVE.name, &[("op", name)], counted.active() as f64);
        }
        self.head(&names::S3_REQUEST_SECONDS);
        for (name, counted) in &all {
            let family = names::S3_REQUEST_SECONDS.name;
            let scale = BucketScale { bounds: TIME_US_BOUNDS, unit: MICROS_PER_SECOND };
            self.buckets(family, "op", name, &counted.time, &scale);
        }
        self.head(&names::S3_RECEIVED_BYTES);
        for (name, counted) in &all {
            self.line(names::S3_RECEIVED_BYTES.name, &[("op", name)], counted.received as f64);
        }
        self.head(&names::S3_SENT_BYTES);
        for (name, counted) in &all {
            self.line(names::S3_SENT_BYTES.name, &[("op", name)], counted.sent as f64);
        }
    }

    fn process(&mut self, info: &NodeInfo<'_>) {
        let process = &info.process;
        self.one(&names::PROCESS_MEMORY, process.rss_bytes as f64);
        self.one(&names::PROCESS_CPU, process.cpu_seconds);
        self.one(&names::PROCESS_UPTIME, process.uptime_seconds);
        self.one(&names::PROCESS_THREADS, process.threads as f64);
        self.one(&names::PROCESS_OPEN_FDS, process.open_fds as f64);
        self.one(&names::PROCESS_MAX_FDS, process.open_fds_max as f64);
    }

    fn engine_samples(&mut self, info: &NodeInfo<'_>) {
        let mut before = "";
        for (name, value) in info.engine_samples {
            let family = names::sample_family(name);
            debug_assert!(family.is_some(), "{name} has no row in the table of metrics");
            if let Some(family) = family.filter(|family| family.name != before) {
                self.head(&family);
                before = family.name;
            }
            self.line(name, &[], *value);
        }
    }

    /// A family of one sample.
    fn one(&mut self, family: &MetricFamily, value: f64) {
        self.head(family);
        self.line(family.name, &[], value);
    }

    /// Samples of a series, with a label.
    fn histogram(&mut self, family: &MetricFamily, label: &str, label_value: &str, metrics: &Metrics, series: Series) {
        let unit = if matches!(series, Series::Time(_)) { MICROS_PER_SECOND } else { 1.0 };
        let scale = BucketScale { bounds: series.bounds(), unit };
        self.buckets(family.name, label, label_value, &metrics.since_start(series), &scale);
    }

    /// Samples of a distribution, with a label.
    fn buckets(&mut self, name: &str, label: &str, label_value: &str, total: &SinceStart, scale: &BucketScale) {
        let BucketScale { bounds, unit } = *scale;
        let label = (label, label_value);
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, count) in bounds.iter().zip(total.buckets) {
            below += count;
            self.line(&bucket, &[label, ("le", &number(*bound as f64 / unit))], below as f64);
        }
        self.line(&bucket, &[label, ("le", "+Inf")], total.count as f64);
        self.line(&format!("{name}_sum"), &[label], total.sum as f64 / unit);
        self.line(&format!("{name}_count"), &[label], total.count as f64);
    }

    fn head(&mut self, family: &MetricFamily) {
        let (name, help, kind) = (family.name, family.help, family.kind.word());
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{before}{label}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {}", number(value));
    }
}

/// The buckets of a distribution, and the unit in which their bounds are shown.
struct BucketScale {
    /// The upper bounds, in the units of the distribution.
    bounds: &'static [u64],
    /// The number of these units in a shown one.
    unit: f64,
}

/// A number as Prometheus writes it.
fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".into()
    } else if value == f64::NEG_INFINITY {
        "-Inf".into()
    } else {
        value.to_string()
    }
}
