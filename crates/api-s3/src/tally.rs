//! What a request cost, for the usage reports and the metrics: known when the last byte of its answer is out, or will never be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use larder_gateway::metrics::Outcome;
use larder_gateway::objects::usage::Counts;
use larder_gateway::objects::{Objects, Tracked};

/// Counts bytes of one answer; tells them when it goes.
pub(crate) struct Tally {
    /// Who counts.
    pub objects: Arc<Objects>,
    /// The request as the metrics see it.
    pub tracked: Tracked,
    /// Whose request it was, and what it counts as in the usage reports.
    pub user: Option<(String, &'static str)>,
    /// Bytes received, still growing while the body is read.
    pub received: Arc<AtomicU64>,
    /// What was answered.
    pub status: StatusCode,
    /// Bytes sent so far.
    pub sent: u64,
    /// Whether the last byte is out.
    pub whole: bool,
}

impl Tally {
    fn counts(&self) -> Counts {
        let mut counts = Counts { bytes_in: self.received.load(Ordering::Relaxed), ..Counts::default() };
        match outcome(self.status) {
            Outcome::Failed => counts.system_errors = 1,
            Outcome::Refused => counts.user_errors = 1,
            Outcome::Ok | Outcome::NotFound => counts.count = 1,
        }
        let sent = if self.whole { &mut counts.bytes_out } else { &mut counts.bytes_out_incomplete };
        *sent = self.sent;
        counts
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let counts = self.counts();
        self.tracked.moved(counts.bytes_in, self.sent);
        if let Some((key_id, usage)) = &self.user {
            self.objects.count_usage(key_id, usage, counts);
        }
    }
}

/// Whose fault an answer tells of.
pub(crate) fn outcome(status: StatusCode) -> Outcome {
    if status.is_server_error() {
        Outcome::Failed
    } else if status.is_client_error() {
        Outcome::Refused
    } else {
        Outcome::Ok
    }
}
