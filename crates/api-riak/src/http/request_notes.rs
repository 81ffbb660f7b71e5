//! Notes about a request after its answer is made: its id, its line in the audit log, and the line of a slow one.
//!
//! Most requests get none of them: an id costs as much as a lookup of a small object's headers, so only answers that someone may ask
//! about have one.

use std::time::Duration;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use larder_core::{AuditEvent, AuditOutcome, AuditSink};
use larder_kv::Gateway;
use larder_net::{RequestSource, Requester};
use larder_rows::text::beginning;

use super::path::Segments;
use super::reply::RiakResponse;
use super::routes::{PathPart, Resource, Route, RouteMatch, find};

/// The id of a request, from its client or made here.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id of a client.
const ID_BYTES_MAX: usize = 64;
/// Bytes of a name in the log, and of a key: it may be personal.
const NAME_BYTES_SHOWN: usize = 128;
const KEY_BYTES_SHOWN: usize = 16;

/// Takes the notes that the settings ask for.
pub(super) fn log_request(
    gateway: &Gateway,
    slow_after: Option<Duration>,
    requester: &Requester<'_>,
    user: Option<&str>,
    request: &Parts,
    reply: &mut RiakResponse,
) {
    let elapsed = requester.elapsed();
    let is_slow = slow_after.is_some_and(|limit| elapsed > limit);
    if is_slow || has_id(reply.status().as_u16()) {
        let id = reply.headers().get(REQUEST_ID).cloned();
        let id = id.unwrap_or_else(|| request_id(gateway, &request.headers));
        if is_slow {
            log_slow(requester.source, elapsed, request, reply, &id);
        }
        reply.headers_mut().insert(REQUEST_ID, id);
    }
    if let Some(log) = gateway.context().audit() {
        audit(log, requester.source, user, request, reply);
    }
}

/// Gives a failed request its id, for the answer and the log.
pub(super) fn set_id(gateway: &Gateway, headers: &HeaderMap, reply: &mut RiakResponse) {
    reply.headers_mut().insert(REQUEST_ID, request_id(gateway, headers));
}

/// The id in an answer.
pub(super) fn reply_id(reply: &RiakResponse) -> Option<&str> {
    reply.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok())
}

/// Whether answers with this status have an id: refusals and errors. An absent object and a condition that does not hold are none.
fn has_id(status: u16) -> bool {
    status >= 400 && !matches!(status, 404 | 412)
}

/// The client's id, if it is of use in a log line, or a new one.
fn request_id(gateway: &Gateway, headers: &HeaderMap) -> HeaderValue {
    let is_valid =
        |id: &&HeaderValue| (1..=ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    let new = || HeaderValue::from_str(&gateway.context().new_request_id()).ok();
    headers.get(REQUEST_ID).filter(is_valid).cloned().or_else(new).unwrap_or(HeaderValue::from_static("-"))
}

fn log_slow(source: RequestSource, elapsed: Duration, request: &Parts, reply: &RiakResponse, id: &HeaderValue) {
    let segments = Segments::new(request.uri.path());
    let route = request_route(request);
    let part = |part, shown: usize| {
        let raw = segments.raw(route?.place(part)?);
        let cut = beginning(raw, shown);
        Some(if cut.len() < raw.len() { format!("{cut}…") } else { cut.to_owned() })
    };
    tracing::warn!(
        request = id.to_str().ok(),
        client = %source.address,
        method = %request.method,
        resource = route.map(|route| tracing::field::debug(route.resource)),
        bucket_type = part(PathPart::Type, NAME_BYTES_SHOWN),
        bucket = part(PathPart::Bucket, NAME_BYTES_SHOWN),
        key = part(PathPart::Key, KEY_BYTES_SHOWN),
        status = reply.status().as_u16(),
        millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        "request slow: it took longer than slow-log allows"
    );
}

/// The route of a request, looked up again: most requests have no notes.
fn request_route(request: &Parts) -> Option<&'static Route> {
    match find(&Segments::new(request.uri.path()), &request.method) {
        RouteMatch::Route(route) => Some(route),
        RouteMatch::NotAllowed(_) | RouteMatch::None => None,
    }
}

/// Reports refused requests, and changes of types and buckets.
fn audit(log: &dyn AuditSink, source: RequestSource, user: Option<&str>, request: &Parts, reply: &RiakResponse) {
    let status = reply.status().as_u16();
    let outcome = AuditOutcome::from_status(status);
    // Before the table of routes is looked at again: every request comes here.
    if outcome != AuditOutcome::Refused && !may_be_audited(request) {
        return;
    }
    let route = request_route(request);
    if outcome == AuditOutcome::Refused || route.is_some_and(|route| is_audited(route, &request.method)) {
        let resource = route.map_or_else(String::new, |route| format!(" {:?}", route.resource));
        log.record(&AuditEvent {
            face: "http",
            who: user,
            from: Some(source.address),
            action: &format!("{}{resource}", request.method),
            target: request.uri.path(),
            outcome,
            status: Some(status),
            request: reply_id(reply),
        });
    }
}

/// Whether [`is_audited`] can hold: those routes have one of these words, which paths have as they stand.
fn may_be_audited(request: &Parts) -> bool {
    let path = request.uri.path();
    let is_change = matches!(request.method, Method::PUT | Method::DELETE);
    is_change && (path.contains("/props") || path.starts_with("/riak/"))
}

/// Whether the audit log has a line for each such request.
fn is_audited(route: &Route, method: &Method) -> bool {
    let is_props = matches!(route.resource, Resource::TypeProps | Resource::BucketProps | Resource::OldBucket);
    is_props && matches!(*method, Method::PUT | Method::DELETE)
}

#[cfg(test)]
mod tests {
    use super::super::routes::{PathPart, ROUTES};
    use super::*;

    #[test]
    fn each_audited_route_has_the_word_that_is_looked_for() {
        let audited =
            ROUTES.iter().filter(|route| is_audited(route, &Method::PUT) || is_audited(route, &Method::DELETE));
        let mut seen = 0;
        for route in audited {
            let word =
                |word: &str| route.parts.iter().any(|part| matches!(part, PathPart::Word(known) if *known == word));
            let is_old = matches!(route.parts.first(), Some(PathPart::Word("riak")));
            assert!(word("props") || is_old, "{:?}", route.resource);
            seen += 1;
        }
        assert!(seen >= 3, "{seen}");
    }

    #[test]
    fn refusals_and_errors_have_an_id_and_lookups_have_none() {
        for (status, expected) in
            [(200, false), (304, false), (404, false), (412, false), (400, true), (403, true), (503, true)]
        {
            assert_eq!(has_id(status), expected, "{status}");
        }
    }
}
