//! Log lines about requests that failed by the server's fault, in every protocol.

use larder_core::Error;
use larder_net::RateLimitedLog;

static FAILED: RateLimitedLog = RateLimitedLog::new();

/// Whether an error is the server's own; errors of clients and of the moment have no line in the log.
pub(crate) fn is_of_server(error: &Error) -> bool {
    matches!(error, Error::Internal(_) | Error::Damaged(_))
}

/// Logs an error of the server, at a bounded rate, as clients can cause it as often as they ask; `request` is the id in its answer,
/// if it has one.
pub(crate) fn log_server_error(error: &Error, request: Option<&str>) {
    if is_of_server(error)
        && let Some(line) = FAILED.admit_now()
    {
        let left_out = line.left_out;
        tracing::error!(request, %error, left_out, "request failed: the client gets an error of the server");
    }
}
