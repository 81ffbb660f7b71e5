//! The performance targets, and their results.

/// The bound of a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TargetBound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// A target and its result.
#[derive(Debug, Clone)]
pub(crate) struct BenchTarget {
    /// The measured quantity.
    pub(crate) name: &'static str,
    /// The bound.
    pub(crate) wanted: TargetBound,
    /// The unit of both numbers; empty for a ratio.
    pub(crate) unit: &'static str,
    /// The figure, if it could be measured.
    pub(crate) measured: Option<f64>,
    /// The source of the figure.
    pub(crate) detail: String,
}

/// A target before it is measured: its name, its bound and its unit.
pub(crate) type TargetPromise = (&'static str, TargetBound, &'static str);

/// The bound of what a tenant feels of another.
const TENANT_BOUND: TargetBound = TargetBound::AtMost(5.0);

/// GET over protocol buffers against bare frames.
pub(crate) const PB_GET: TargetPromise =
    ("PB GET 1 KB, 64 connections, to bare frames, by rate", TargetBound::AtLeast(0.85), "");

/// The same by CPU time.
pub(crate) const PB_GET_CPU: TargetPromise =
    ("PB GET 1 KB, 64 connections, to bare frames, by server CPU", TargetBound::AtLeast(0.85), "");

/// GET over protocol buffers against Redis.
pub(crate) const PB_REDIS_GET: TargetPromise =
    ("PB GET 1 KB, 64 connections, to Redis GET", TargetBound::AtLeast(0.70), "");

/// Pipelined GETs over protocol buffers against Redis.
pub(crate) const PB_REDIS_PIPELINED: TargetPromise =
    ("PB GET 1 KB, 64 connections, pipelined ×16, to Redis GET", TargetBound::AtLeast(0.50), "");

/// Durable PUT over protocol buffers against Redis.
pub(crate) const PB_REDIS_PUT: TargetPromise =
    ("durable PB PUT 1 KB, 64 connections, to Redis SET with appendfsync always", TargetBound::AtLeast(1.0), "");

/// Durable PUT over protocol buffers against bare frames with a bare group commit.
pub(crate) const PB_PUT: TargetPromise = (
    "durable PB PUT 1 KB, 64 connections, to bare frames + group commit in one process",
    TargetBound::AtLeast(0.85),
    "",
);

/// GET against bare hyper.
pub(crate) const GET: TargetPromise =
    ("HTTP GET 1 KB, 64 connections, warm, to bare hyper", TargetBound::AtLeast(0.80), "");

/// Durable PUT against bare hyper with a bare group commit.
pub(crate) const PUT: TargetPromise = (
    "durable HTTP PUT 1 KB, 64 connections, to bare hyper + group commit in one process",
    TargetBound::AtLeast(0.85),
    "",
);

/// Durable puts of the gateway without a socket against a bare group commit.
pub(crate) const PROCESS_PUT: TargetPromise =
    ("gateway.put 1 KB durable in process, 64 tasks, to a bare group commit", TargetBound::AtLeast(0.85), "");

/// Latency of durable PUTs while tables are compacted.
pub(crate) const PUT_TAIL: TargetPromise =
    ("p99 to p50 of durable PB PUT, 64 connections, compaction under way", TargetBound::AtMost(10.0), "");

/// The longest answer in the same time.
pub(crate) const PUT_PAUSE: TargetPromise = ("longest answer in that time", TargetBound::AtMost(250.0), "ms");

/// Memory after a load.
pub(crate) const LOADED_MEMORY: TargetPromise =
    ("resident memory after the load and a pause, without the cache in use", TargetBound::AtMost(150.0), "MB");

/// Bytes on disk while a part of the keys is overwritten each second.
pub(crate) const CHURNED_DISK: TargetPromise =
    ("bytes on disk per live byte, 5 % of the keys overwritten a second, values of 4 KB", TargetBound::AtMost(1.5), "");

/// Bytes that reach the device for each byte of a value.
pub(crate) const WRITE_AMPLIFICATION: TargetPromise =
    ("bytes written per byte of values, random durable overwrites of 4 KB", TargetBound::AtMost(5.0), "");

/// The same for values that are stored beside the rows.
pub(crate) const LARGE_CHURNED_DISK: TargetPromise =
    ("the same bytes on disk, values of 100 KB", TargetBound::AtMost(1.5), "");

/// The same for values that are stored beside the rows.
pub(crate) const LARGE_WRITE_AMPLIFICATION: TargetPromise =
    ("the same bytes written, values of 100 KB", TargetBound::AtMost(5.0), "");

/// Memory of an idle server.
pub(crate) const IDLE: TargetPromise = ("idle memory", TargetBound::AtMost(60.0), "MB");

/// Start on a million keys.
pub(crate) const RESTART: TargetPromise =
    ("restart with the loaded keys, start to first answer", TargetBound::AtMost(1.0), "s");

/// An overwritten key against a fresh one. The bound allows for the difference of two equal keys in one run.
pub(crate) const OVERWRITTEN: TargetPromise =
    ("GET of an overwritten key to GET of a fresh one", TargetBound::AtLeast(0.95), "");

/// GET through a gateway against a bare driver.
pub(crate) const CLUSTER_GET: TargetPromise =
    ("GET 1 KB over Cassandra, 64 connections, to a bare driver", TargetBound::AtLeast(0.80), "");

/// PUT through a gateway against a bare driver.
pub(crate) const CLUSTER_PUT: TargetPromise =
    ("PUT 1 KB over Cassandra, 64 connections, to a bare driver", TargetBound::AtLeast(0.80), "");

/// Read-modify-write through a gateway against a bare driver.
pub(crate) const CLUSTER_UPDATE: TargetPromise =
    ("read-modify-write 1 KB over Cassandra, 64 connections, to a bare driver", TargetBound::AtLeast(0.80), "");

/// A key overwritten through two gateways in turn against a fresh one. The bound allows for the difference of equal keys.
pub(crate) const CLUSTER_OVERWRITTEN: TargetPromise =
    ("read of a key overwritten through two gateways to that of a fresh one", TargetBound::AtMost(1.25), "");

/// A large GET over S3 against `sendfile`.
pub(crate) const S3_GET: TargetPromise =
    ("S3 GET 64 MiB, 4 connections, warm, to sendfile by a bare server", TargetBound::AtLeast(0.85), "");

/// The same by CPU time.
pub(crate) const S3_GET_CPU: TargetPromise =
    ("S3 GET 64 MiB, 4 connections, warm, to sendfile by a bare server, by server CPU", TargetBound::AtLeast(0.85), "");

/// A small GET over S3 against one over Riak's HTTP.
pub(crate) const S3_SMALL_GET: TargetPromise =
    ("S3 GET 4 KiB, 64 connections, to KV HTTP GET 4 KiB", TargetBound::AtLeast(0.75), "");

/// The latency of a tenant beside dead webhooks of another.
pub(crate) const TENANT_WEBHOOKS: TargetPromise =
    ("p99 of a put with a webhook beside dead webhooks of another bucket, to calm", TENANT_BOUND, "");

/// The latency of a tenant beside jobs of another that never end.
pub(crate) const TENANT_JOBS: TargetPromise =
    ("p99 of a put with a JavaScript hook beside endless jobs, to calm", TENANT_BOUND, "");

/// The latency of a tenant beside hooks of another that never end.
pub(crate) const TENANT_HOOKS: TargetPromise =
    ("p99 of a put with a JavaScript hook beside endless hooks of another bucket, to calm", TENANT_BOUND, "");

/// The latency of a tenant beside the policy of another.
pub(crate) const TENANT_POLICIES: TargetPromise =
    ("p99 of an S3 GET beside deletes under a costly policy of another bucket, to calm", TENANT_BOUND, "");

/// The latency of a tenant beside guesses of the password of another.
pub(crate) const TENANT_LOG_INS: TargetPromise =
    ("p99 of a first log-in beside guesses of another user's password, to calm", TENANT_BOUND, "");

/// The latency of a tenant beside backups.
pub(crate) const TENANT_BACKUPS: TargetPromise =
    ("p99 of a put beside whole backups to another disk, to calm", TENANT_BOUND, "");

impl BenchTarget {
    /// A target with its result.
    pub(crate) fn new((name, wanted, unit): TargetPromise, measured: Option<f64>, detail: impl Into<String>) -> Self {
        Self { name, wanted, unit, measured, detail: detail.into() }
    }

    /// Whether the target is met; `None` when it was not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.wanted {
            TargetBound::AtLeast(bound) => measured >= bound,
            TargetBound::AtMost(bound) => measured <= bound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_equal_to_its_bound_meets_the_target() {
        let met = |promise, measured| BenchTarget::new(promise, measured, "").met();
        assert_eq!(met(GET, Some(0.80)), Some(true));
        assert_eq!(met(GET, Some(0.79)), Some(false));
        assert_eq!(met(IDLE, Some(60.0)), Some(true));
        assert_eq!(met(IDLE, Some(60.1)), Some(false));
        assert_eq!(met(PUT, None), None);
    }
}
