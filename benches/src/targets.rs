//! What was promised, and whether it was kept.

/// A promise about one number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wanted {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// One promise and what was measured.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// What is promised.
    pub(crate) name: &'static str,
    /// The bound.
    pub(crate) wanted: Wanted,
    /// The unit of both numbers; empty for a ratio.
    pub(crate) unit: &'static str,
    /// The number, where it could be measured.
    pub(crate) measured: Option<f64>,
    /// Where the number comes from.
    pub(crate) detail: String,
}

/// GET against bare hyper.
pub(crate) const GET: (&str, Wanted, &str) =
    ("GET 1 KB, 64 connections, warm, to bare hyper", Wanted::AtLeast(0.70), "");

/// Durable PUT against bare fjall.
pub(crate) const PUT: (&str, Wanted, &str) =
    ("durable PUT 1 KB, 64 connections, to a bare fjall group committer", Wanted::AtLeast(0.80), "");

/// Memory of a server that has nothing to do.
pub(crate) const IDLE: (&str, Wanted, &str) = ("idle memory", Wanted::AtMost(60.0), "MB");

/// Start on a million keys.
pub(crate) const RESTART: (&str, Wanted, &str) =
    ("restart with the loaded keys, start to first answer", Wanted::AtMost(1.0), "s");

/// A worn key against a fresh one. "As fast" allows for what two equal keys differ by in one run.
pub(crate) const OVERWRITTEN: (&str, Wanted, &str) =
    ("GET of an overwritten key to GET of a fresh one", Wanted::AtLeast(0.95), "");

/// GET through a gateway against a bare driver.
pub(crate) const CLUSTER_GET: (&str, Wanted, &str) =
    ("GET 1 KB over Cassandra, 64 connections, to a bare driver", Wanted::AtLeast(0.80), "");

/// PUT through a gateway against a bare driver.
pub(crate) const CLUSTER_PUT: (&str, Wanted, &str) =
    ("PUT 1 KB over Cassandra, 64 connections, to a bare driver", Wanted::AtLeast(0.80), "");

/// Read-modify-write through a gateway against a bare driver.
pub(crate) const CLUSTER_UPDATE: (&str, Wanted, &str) =
    ("read-modify-write 1 KB over Cassandra, 64 connections, to a bare driver", Wanted::AtLeast(0.80), "");

/// A key overwritten through two gateways in turn against a fresh one. "As fast" allows for what two equal keys differ by.
pub(crate) const CLUSTER_WORN: (&str, Wanted, &str) =
    ("read of a key overwritten through two gateways to that of a fresh one", Wanted::AtMost(1.25), "");

/// A large GET over S3 against bare hyper with a file.
pub(crate) const S3_GET: (&str, Wanted, &str) =
    ("GET 64 MiB, 4 connections, warm, to bare hyper streaming a file", Wanted::AtLeast(0.80), "");

/// List Parts of the upload with most parts against the one with fewest.
pub(crate) const S3_PARTS: (&str, Wanted, &str) =
    ("List Parts, page of 10, largest upload to smallest", Wanted::AtMost(1.5), "");

/// A bucket listed whole.
pub(crate) const S3_LIST: (&str, Wanted, &str) = ("all loaded keys listed", Wanted::AtMost(10.0), "s");

/// Memory while large bodies arrive.
pub(crate) const S3_MEMORY: (&str, Wanted, &str) = ("memory during large uploads at once", Wanted::AtMost(400.0), "MB");

impl Target {
    /// A promise with what was measured.
    pub(crate) fn new(
        (name, wanted, unit): (&'static str, Wanted, &'static str),
        measured: Option<f64>,
        detail: impl Into<String>,
    ) -> Self {
        Self { name, wanted, unit, measured, detail: detail.into() }
    }

    /// Whether it was kept; `None` when it was not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.wanted {
            Wanted::AtLeast(bound) => measured >= bound,
            Wanted::AtMost(bound) => measured <= bound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_kept_up_to_itself() {
        let met = |promise, measured| Target::new(promise, measured, "").met();
        assert_eq!(met(GET, Some(0.70)), Some(true));
        assert_eq!(met(GET, Some(0.69)), Some(false));
        assert_eq!(met(IDLE, Some(60.0)), Some(true));
        assert_eq!(met(IDLE, Some(60.1)), Some(false));
        assert_eq!(met(PUT, None), None);
    }
}
