//! Metrics of one S3 request.

use std::sync::Arc;
use std::time::Duration;

use larder_core::Core;
use larder_core::metrics::RequestOutcome;

use super::Objects;

/// A request in the metrics: in flight until dropped, on any thread.
#[must_use = "the request is counted as long as this lives"]
pub struct TrackedRequest {
    gateway: Arc<Core>,
    operation: &'static str,
    begun: Duration,
    /// Body bytes received and sent.
    transferred: (u64, u64),
}

impl std::fmt::Debug for TrackedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrackedRequest({})", self.operation)
    }
}

impl Objects {
    /// Counts a request of this operation as begun.
    pub fn track(&self, operation: &'static str) -> TrackedRequest {
        let gateway = Arc::clone(&self.gateway);
        gateway.core.metrics.count_s3_begun(operation);
        TrackedRequest { operation, begun: gateway.core.monotonic(), transferred: (0, 0), gateway }
    }
}

impl TrackedRequest {
    /// Records the outcome and the latency when the answer begins. Call it once.
    pub fn record_answer(&self, outcome: RequestOutcome) {
        let took = self.gateway.core.monotonic().saturating_sub(self.begun);
        self.gateway.core.metrics.count_s3_answered(self.operation, took, outcome);
    }

    /// Adds body bytes received and sent, which count at the end.
    pub fn add_transferred_bytes(&mut self, received: u64, sent: u64) {
        self.transferred.0 += received;
        self.transferred.1 += sent;
    }
}

impl Drop for TrackedRequest {
    fn drop(&mut self) {
        let (received, sent) = self.transferred;
        self.gateway.core.metrics.count_s3_ended(self.operation, received, sent);
    }
}
