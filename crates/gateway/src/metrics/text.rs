//! Prometheus text, format 0.0.4.
//!
//! Counters and histograms cover all time since the start; Prometheus takes differences. Only `larder_request_recent_seconds`
//! covers the last minute, for operators without a query language.

use std::fmt::Write as _;
use std::time::Duration;

use super::distribution::{Series, SinceStart, Statistic, TIME_US_BOUNDS};
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
            page.one(event.name(), event.help(), self.event_count(*event) as f64);
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
        self.head("larder_info", "Who this is: always 1.", "gauge");
        let labels = [("node", info.node), ("version", info.version), ("engine", info.engine)];
        self.line("larder_info", &labels, 1.0);
        self.one("larder_ready", "Whether requests are served.", f64::from(u8::from(info.ready)));
        self.one("larder_members", "Members that live, this one included.", info.ring_members().len() as f64);
        self.one("larder_catalogue_version", "Version of the catalogue in use.", info.catalogue as f64);
        let waiting = info.webhooks_waiting as f64;
        self.one("larder_webhooks_waiting", "Webhook notices of this gateway that are not delivered yet.", waiting);
    }

    fn requests(&mut self, metrics: &Metrics) {
        self.head("larder_requests_total", "Requests that ended, by operation and outcome.", "counter");
        for (op, outcome) in
            KvOp::ALL.iter().flat_map(|op| RequestOutcome::ALL.iter().map(move |outcome| (*op, *outcome)))
        {
            let labels = [("op", op.name()), ("outcome", outcome.name())];
            self.line("larder_requests_total", &labels, metrics.request_count(op, outcome) as f64);
        }
        self.head("larder_requests_active", "Requests being worked on.", "gauge");
        for op in KvOp::ALL {
            self.line("larder_requests_active", &[("op", op.name())], metrics.active_count(*op) as f64);
        }
        self.head("larder_request_seconds", "Time of requests that were not refused.", "histogram");
        for op in KvOp::ALL {
            self.histogram("larder_request_seconds", ("op", op.name()), metrics, Series::Time(*op));
        }
    }

    fn recent(&mut self, metrics: &Metrics, now: Duration) {
        let name = "larder_request_recent_seconds";
        self.head(name, "Percentiles of the time of requests over the last minute.", "gauge");
        for op in KvOp::ALL {
            let recent = metrics.last_minute(&[Series::Time(*op)], now);
            for (percentile, point) in
                [("50", Statistic::Median), ("95", Statistic::P95), ("99", Statistic::P99), ("100", Statistic::Max)]
            {
                let labels = [("op", op.name()), ("percentile", percentile)];
                self.line(name, &labels, recent.statistic(point) as f64 / MICROS_PER_SECOND);
            }
        }
    }

    fn objects(&mut self, metrics: &Metrics) {
        self.head(
            "larder_object_bytes",
            "Sizes of objects read, with all siblings, and of bodies written.",
            "histogram",
        );
        self.histogram("larder_object_bytes", ("way", "read"), metrics, Series::ReadBytes);
        self.histogram("larder_object_bytes", ("way", "write"), metrics, Series::WriteBytes);
        self.head(
            "larder_object_siblings",
            "Siblings of objects read, and versions that a write replaced.",
            "histogram",
        );
        self.histogram("larder_object_siblings", ("way", "read"), metrics, Series::ReadSiblings);
        self.histogram("larder_object_siblings", ("way", "write"), metrics, Series::ReplacedVersions);
    }

    fn operations(&mut self, metrics: &Metrics) {
        let all = metrics.operations();
        self.head("larder_s3_requests_total", "S3 requests that were answered, by operation and outcome.", "counter");
        for (name, counted) in &all {
            for outcome in [RequestOutcome::Ok, RequestOutcome::Refused, RequestOutcome::Failed] {
                let labels = [("op", *name), ("outcome", outcome.name())];
                self.line("larder_s3_requests_total", &labels, counted.answered(outcome) as f64);
            }
        }
        self.head("larder_s3_requests_active", "S3 requests under way, sending of answers included.", "gauge");
        for (name, counted) in &all {
            self.line("larder_s3_requests_active", &[("op", name)], counted.active() as f64);
        }
        let seconds = "larder_s3_request_seconds";
        self.head(seconds, "Time until the answer began, of S3 requests not refused.", "histogram");
        for (name, counted) in &all {
            self.buckets(seconds, ("op", name), &counted.time, (TIME_US_BOUNDS, MICROS_PER_SECOND));
        }
        self.head("larder_s3_received_bytes_total", "Bytes of bodies of S3 requests.", "counter");
        for (name, counted) in &all {
            self.line("larder_s3_received_bytes_total", &[("op", name)], counted.received as f64);
        }
        self.head("larder_s3_sent_bytes_total", "Bytes of bodies of answers to S3 requests.", "counter");
        for (name, counted) in &all {
            self.line("larder_s3_sent_bytes_total", &[("op", name)], counted.sent as f64);
        }
    }

    fn process(&mut self, info: &NodeInfo<'_>) {
        let process = &info.process;
        self.one("larder_process_resident_memory_bytes", "Resident memory.", process.rss_bytes as f64);
        self.one("larder_process_cpu_seconds_total", "Processor time used.", process.cpu_seconds);
        self.one("larder_process_uptime_seconds", "Time since the start.", process.uptime_seconds);
        self.one("larder_process_threads", "Threads.", process.threads as f64);
        self.one("larder_process_open_fds", "Open file descriptors.", process.open_fds as f64);
        self.one("larder_process_max_fds", "Most file descriptors allowed.", process.open_fds_max as f64);
    }

    fn engine_samples(&mut self, info: &NodeInfo<'_>) {
        let mut before = String::new();
        for (name, value, help) in info.engine_samples {
            let name = if name.starts_with("larder_") { (*name).to_owned() } else { format!("larder_{name}") };
            let family = name.split('{').next().unwrap_or_default();
            if family != before {
                self.head(family, help, kind(family));
                family.clone_into(&mut before);
            }
            self.line(&name, &[], *value);
        }
    }

    /// A family of one sample.
    fn one(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, kind(name));
        self.line(name, &[], value);
    }

    fn histogram(&mut self, name: &str, label: (&str, &str), metrics: &Metrics, series: Series) {
        let unit = if matches!(series, Series::Time(_)) { MICROS_PER_SECOND } else { 1.0 };
        self.buckets(name, label, &metrics.since_start(series), (series.bounds(), unit));
    }

    /// Samples of a distribution; `unit` is the number of its own units in a shown one.
    fn buckets(&mut self, name: &str, label: (&str, &str), total: &SinceStart, (bounds, unit): (&[u64], f64)) {
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

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
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

/// The type of a family, from its name.
fn kind(name: &str) -> &'static str {
    if name.ends_with("_total") { "counter" } else { "gauge" }
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
