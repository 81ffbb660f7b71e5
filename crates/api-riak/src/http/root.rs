//! The list of resources at `/`, from which old clients take their paths.

use std::collections::BTreeSet;

use hyper::StatusCode;
use hyper::header::{HeaderValue, LINK, VARY};
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use super::accept;
use super::call::RiakCall;
use super::headers::insert;
use super::reply::{HTML, JSON, RiakResponse, TEXT, VARY_BOTH, page, text, typed};
use super::routes::{PathPart, ROUTES};

/// The name and first segment of every resource, as HTML or JSON. As in Riak, a name has a member for each of its paths.
#[must_use]
pub(super) fn get(call: &RiakCall<'_>) -> RiakResponse {
    let resources = resources();
    let mut reply = match accept::media(call.headers, &["text/html", "application/json"]) {
        None => return page(StatusCode::NOT_ACCEPTABLE),
        Some(0) => typed(StatusCode::OK, HTML, list(&resources)),
        Some(_) => typed(StatusCode::OK, JSON, object(&resources)),
    };
    let links: Vec<_> = resources.iter().map(|(name, path)| format!("</{path}>; rel=\"{name}\"")).collect();
    insert(reply.headers_mut(), LINK, links.join(","));
    reply.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    reply
}

fn resources() -> BTreeSet<(&'static str, &'static str)> {
    let first = |parts: &[PathPart]| match parts.first() {
        Some(PathPart::Word(word)) => *word,
        _ => "",
    };
    ROUTES.iter().filter(|route| !route.name.is_empty()).map(|route| (route.name, first(route.parts))).collect()
}

fn list(resources: &BTreeSet<(&str, &str)>) -> String {
    let items: String =
        resources.iter().map(|(name, path)| format!("<li><a href=\"/{path}\">{name}</a></li>")).collect();
    format!("<html><body><ul>{items}</ul></body></html>")
}

fn object(resources: &BTreeSet<(&str, &str)>) -> String {
    let members: Vec<_> = resources.iter().map(|(name, path)| format!("\"{name}\":\"/{path}\"")).collect();
    format!("{{{}}}", members.join(","))
}

/// `OK`.
#[must_use]
pub(super) fn ping(call: &RiakCall<'_>) -> RiakResponse {
    match accept::media(call.headers, &["text/html"]) {
        Some(_) => typed(StatusCode::OK, HTML, "OK"),
        None => page(StatusCode::NOT_ACCEPTABLE),
    }
}

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

/// `/stats`: one JSON object; for `text/plain` the same object with a line for each statistic.
#[must_use]
pub(super) fn stats(call: &RiakCall<'_>) -> RiakResponse {
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
