//! Riak's statistics at `/stats`, and the same counters for Prometheus at `/metrics`.

use hyper::StatusCode;
use hyper::header::{HeaderValue, VARY};
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use super::accept;
use super::call::RiakCall;
use super::reply::{JSON, RiakResponse, TEXT, VARY_BOTH, page, typed};

/// `/stats`: one JSON object; for `text/plain` the same object with a line for each statistic.
#[must_use]
pub(super) fn get(call: &RiakCall<'_>) -> RiakResponse {
    let media = accept::media(call.headers, &["application/json", "text/plain"]);
    let stats = call.gateway.stats().into_iter().map(|(name, value)| (name.to_owned(), value));
    let stats = Value::Object(stats.collect::<Map<_, _>>());
    let mut reply = match media {
        None => return page(StatusCode::NOT_ACCEPTABLE),
        Some(0) => typed(StatusCode::OK, JSON, stats.to_string()),
        Some(_) => typed(StatusCode::OK, TEXT, pretty(&stats)),
    };
    // Riak compresses the answer to a GET only.
    let vary = if call.is_head() { HeaderValue::from_static("Accept") } else { VARY_BOTH };
    reply.headers_mut().insert(VARY, vary);
    reply
}

fn pretty(stats: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    // A write to a vector does not fail.
    let _ = stats.serialize(&mut Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    ")));
    out.push(b'\n');
    out
}

/// `/metrics`.
#[must_use]
pub(super) fn metrics(call: &RiakCall<'_>) -> RiakResponse {
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    typed(StatusCode::OK, media, call.gateway.metrics_text())
}
