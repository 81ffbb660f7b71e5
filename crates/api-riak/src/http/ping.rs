//! Whether the server answers at all.

use hyper::StatusCode;

use super::accept;
use super::call::Call;
use super::reply::{HTML, Reply, page, typed};

/// `OK`.
#[must_use]
pub(super) fn get(call: &Call<'_>) -> Reply {
    match accept::media(call.headers, &["text/html"]) {
        Some(_) => typed(StatusCode::OK, HTML, "OK"),
        None => page(StatusCode::NOT_ACCEPTABLE),
    }
}
