//! `/ping`: whether the server answers.

use hyper::StatusCode;

use super::accept;
use super::call::RiakCall;
use super::reply::{HTML, RiakResponse, page, typed};

/// `OK`.
#[must_use]
pub(super) fn get(call: &RiakCall<'_>) -> RiakResponse {
    match accept::media(call.headers, &["text/html"]) {
        Some(_) => typed(StatusCode::OK, HTML, "OK"),
        None => page(StatusCode::NOT_ACCEPTABLE),
    }
}
