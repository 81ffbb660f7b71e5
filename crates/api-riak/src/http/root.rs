//! The list of resources at `/`, from which old clients take their paths.

use std::collections::BTreeSet;

use hyper::StatusCode;
use hyper::header::{HeaderValue, LINK, VARY};

use super::accept;
use super::call::RiakCall;
use super::headers::insert;
use super::reply::{HTML, JSON, RiakResponse, page, typed};
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
