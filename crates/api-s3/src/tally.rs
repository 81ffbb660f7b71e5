//! What a request cost, for the usage reports: known when the last byte of its answer is out, or will never be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use larder_gateway::objects::Objects;
use larder_gateway::objects::usage::Counts;

/// Counts bytes of one answer; tells them when it goes.
pub(crate) struct Tally {
    /// Who counts.
    pub objects: Arc<Objects>,
    /// Whose request it was.
    pub key_id: String,
    /// What it counts as.
    pub usage: &'static str,
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
        if self.status.is_server_error() {
            counts.system_errors = 1;
        } else if self.status.is_client_error() {
            counts.user_errors = 1;
        } else {
            counts.count = 1;
        }
        let sent = if self.whole { &mut counts.bytes_out } else { &mut counts.bytes_out_incomplete };
        *sent = self.sent;
        counts
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.objects.count_usage(&self.key_id, self.usage, self.counts());
    }
}
