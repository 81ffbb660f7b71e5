//! `/health/live` and `/health/ready`: the probes of orchestrators. Riak has no such paths.

use hyper::StatusCode;

use super::call::RiakCall;
use super::reply::{RiakResponse, text};

/// 200 while the process answers; the store is not asked.
#[must_use]
pub(super) fn live() -> RiakResponse {
    text(StatusCode::OK, "live\n")
}

/// 200 while the server should get requests, else 503 with the reason.
#[must_use]
pub(super) fn ready(call: &RiakCall<'_>) -> RiakResponse {
    match call.gateway.readiness() {
        Ok(()) => text(StatusCode::OK, "ready\n"),
        Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
    }
}
