//! Notes about a request after its answer is made: its line in the audit log.

use hyper::Method;
use hyper::http::request::Parts;
use larder_gateway::{AuditEvent, AuditOutcome, AuditSink, Gateway};
use larder_http_edge::RequestSource;

use super::path::Segments;
use super::reply::RiakResponse;
use super::routes::{Resource, Route, RouteMatch, find};

/// Takes the notes that the settings ask for.
pub(super) fn take_notes(gateway: &Gateway, source: RequestSource, request: &Parts, reply: &RiakResponse) {
    if let Some(log) = gateway.core.audit() {
        audit(log, source, request, reply);
    }
}

/// Reports refused requests, and changes of types and buckets.
fn audit(log: &dyn AuditSink, source: RequestSource, request: &Parts, reply: &RiakResponse) {
    let status = reply.status().as_u16();
    let outcome = AuditOutcome::of_status(status);
    // A second lookup: only the audit log needs the route here.
    let route = match find(&Segments::of(request.uri.path()), &request.method) {
        RouteMatch::Route(route) => Some(route),
        RouteMatch::NotAllowed(_) | RouteMatch::None => None,
    };
    if outcome == AuditOutcome::Refused || route.is_some_and(|route| is_audited(route, &request.method)) {
        let resource = route.map_or_else(String::new, |route| format!(" {:?}", route.resource));
        log.record(&AuditEvent {
            face: "http",
            who: None,
            from: Some(source.address),
            action: &format!("{}{resource}", request.method),
            target: request.uri.path(),
            outcome,
            status: Some(status),
            request: None,
        });
    }
}

/// Whether the audit log has a line for each such request.
fn is_audited(route: &Route, method: &Method) -> bool {
    let is_props = matches!(route.resource, Resource::TypeProps | Resource::BucketProps | Resource::OldBucket);
    is_props && matches!(*method, Method::PUT | Method::DELETE)
}
