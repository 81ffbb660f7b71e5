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

/// GET against bare hyper.
pub(crate) const GET: (&str, TargetBound, &str) =
    ("GET 1 KB, 64 connections, warm, to bare hyper", TargetBound::AtLeast(0.70), "");

/// Durable PUT against bare fjall.
pub(crate) const PUT: (&str, TargetBound, &str) =
    ("durable PUT 1 KB, 64 connections, to a bare fjall group committer", TargetBound::AtLeast(0.80), "");

/// Memory of an idle server.
pub(crate) const IDLE: (&str, TargetBound, &str) = ("idle memory", TargetBound::AtMost(60.0), "MB");

/// Start on a million keys.
pub(crate) const RESTART: (&str, TargetBound, &str) =
    ("restart with the loaded keys, start to first answer", TargetBound::AtMost(1.0), "s");

/// An overwritten key against a fresh one. The bound allows for the difference of two equal keys in one run.
pub(crate) const OVERWRITTEN: (&str, TargetBound, &str) =
    ("GET of an overwritten key to GET of a fresh one", TargetBound::AtLeast(0.95), "");

/// GET through a gateway against a bare driver.
pub(crate) const CLUSTER_GET: (&str, TargetBound, &str) =
    ("GET 1 KB over Cassandra, 64 connections, to a bare driver", TargetBound::AtLeast(0.80), "");

/// PUT through a gateway against a bare driver.
pub(crate) const CLUSTER_PUT: (&str, TargetBound, &str) =
    ("PUT 1 KB over Cassandra, 64 connections, to a bare driver", TargetBound::AtLeast(0.80), "");

/// Read-modify-write through a gateway against a bare driver.
pub(crate) const CLUSTER_UPDATE: (&str, TargetBound, &str) =
    ("read-modify-write 1 KB over Cassandra, 64 connections, to a bare driver", TargetBound::AtLeast(0.80), "");

/// A key overwritten through two gateways in turn against a fresh one. The bound allows for the difference of equal keys.
pub(crate) const CLUSTER_OVERWRITTEN: (&str, TargetBound, &str) =
    ("read of a key overwritten through two gateways to that of a fresh one", TargetBound::AtMost(1.25), "");

/// A large GET over S3 against bare hyper with a file.
pub(crate) const S3_GET: (&str, TargetBound, &str) =
    ("GET 64 MiB, 4 connections, warm, to bare hyper streaming a file", TargetBound::AtLeast(0.80), "");

/// List Parts of the largest upload against the smallest.
pub(crate) const S3_PARTS: (&str, TargetBound, &str) =
    ("List Parts, page of 10, largest upload to smallest", TargetBound::AtMost(1.5), "");

/// The listing of all keys of a bucket.
pub(crate) const S3_LIST: (&str, TargetBound, &str) = ("all loaded keys listed", TargetBound::AtMost(10.0), "s");

/// Memory while large bodies arrive.
pub(crate) const S3_MEMORY: (&str, TargetBound, &str) =
    ("memory during large uploads at once", TargetBound::AtMost(400.0), "MB");

impl BenchTarget {
    /// A target with its result.
    pub(crate) fn new(
        (name, wanted, unit): (&'static str, TargetBound, &'static str),
        measured: Option<f64>,
        detail: impl Into<String>,
    ) -> Self {
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
        assert_eq!(met(GET, Some(0.70)), Some(true));
        assert_eq!(met(GET, Some(0.69)), Some(false));
        assert_eq!(met(IDLE, Some(60.0)), Some(true));
        assert_eq!(met(IDLE, Some(60.1)), Some(false));
        assert_eq!(met(PUT, None), None);
    }
}
