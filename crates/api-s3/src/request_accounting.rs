//! Accounting of a request for usage reports and metrics. The numbers are final when the response has been sent or its
//! connection is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use larder_gateway::metrics::RequestOutcome;
use larder_gateway::objects::usage::UsageCounts;
use larder_gateway::objects::{Objects, TrackedRequest};

/// Counts the bytes of one response and reports them when dropped.
pub(crate) struct RequestAccounting {
    /// The gateway's objects, which collect usage.
    pub objects: Arc<Objects>,
    /// The request's entry in the metrics.
    pub tracked: TrackedRequest,
    /// The caller's access key id and the usage name of the operation; `None` if anonymous.
    pub user: Option<(String, &'static str)>,
    /// Body bytes received; grows while the body is read.
    pub received: Arc<AtomicU64>,
    /// Status of the response.
    pub status: StatusCode,
    /// Body bytes sent so far.
    pub sent: u64,
    /// Whether the last byte was sent.
    pub is_complete: bool,
}

impl RequestAccounting {
    fn counts(&self) -> UsageCounts {
        let mut counts = UsageCounts { bytes_in: self.received.load(Ordering::Relaxed), ..UsageCounts::default() };
        match outcome_of(self.status) {
            RequestOutcome::Failed => counts.system_errors = 1,
            RequestOutcome::Refused => counts.user_errors = 1,
            RequestOutcome::Ok | RequestOutcome::NotFound => counts.count = 1,
        }
        let sent = if self.is_complete { &mut counts.bytes_out } else { &mut counts.bytes_out_incomplete };
        *sent = self.sent;
        counts
    }
}

// A dropped connection drops the body, so incomplete responses are counted too.
impl Drop for RequestAccounting {
    fn drop(&mut self) {
        let counts = self.counts();
        self.tracked.add_transferred_bytes(counts.bytes_in, self.sent);
        if let Some((key_id, usage)) = &self.user {
            self.objects.usage.count(key_id, usage, counts);
        }
    }
}

/// The outcome class of a status: success, client error or server error.
pub(crate) fn outcome_of(status: StatusCode) -> RequestOutcome {
    if status.is_server_error() {
        RequestOutcome::Failed
    } else if status.is_client_error() {
        RequestOutcome::Refused
    } else {
        RequestOutcome::Ok
    }
}
