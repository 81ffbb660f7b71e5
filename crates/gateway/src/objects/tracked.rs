//! Requests of the S3 face as the metrics see them.

use std::sync::Arc;
use std::time::Duration;

use super::Objects;
use crate::Gateway;
use crate::metrics::Outcome;

/// A request: it counts as under way until this is dropped, on whatever thread.
#[must_use = "the request is counted as long as this lives"]
pub struct Tracked {
    gateway: Arc<Gateway>,
    operation: &'static str,
    begun: Duration,
}

impl std::fmt::Debug for Tracked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tracked({})", self.operation)
    }
}

impl Objects {
    /// Counts a request of this operation in the metrics.
    pub fn track(&self, operation: &'static str) -> Tracked {
        let gateway = Arc::clone(&self.gateway);
        gateway.metrics.operation_begun(operation);
        Tracked { operation, begun: gateway.monotonic(), gateway }
    }
}

impl Tracked {
    /// Its answer begins: how it ends is known, and how long it took. To be told once.
    pub fn answered(&self, outcome: Outcome) {
        let took = self.gateway.monotonic().saturating_sub(self.begun);
        self.gateway.metrics.operation_answered(self.operation, took, outcome);
    }

    /// So many bytes of its bodies went in and out.
    pub fn moved(&self, received: u64, sent: u64) {
        self.gateway.metrics.operation_moved(self.operation, received, sent);
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.gateway.metrics.operation_ended(self.operation);
    }
}
