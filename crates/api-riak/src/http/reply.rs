//! Builders of answers, and the default pages of Riak's server.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, VARY};
use hyper::{Response, StatusCode};

use super::body::RiakBody;

/// An HTTP answer.
pub type RiakResponse = Response<RiakBody>;

/// Media type of texts.
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
/// Media type of pages.
pub(super) const HTML: HeaderValue = HeaderValue::from_static("text/html");
/// Media type of JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// `Vary` of an object's answer.
pub(super) const VARY_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
/// `Vary` of an answer with siblings.
pub(super) const VARY_BOTH: HeaderValue = HeaderValue::from_static("Accept, Accept-Encoding");

/// Marks an answer from fewer replicas than requested.
pub(super) const DOWNGRADED: HeaderName = HeaderName::from_static("x-larder-stepped-down");
/// The context of an object.
pub(super) const VCLOCK: HeaderName = HeaderName::from_static("x-riak-vclock");
/// Marks a tombstone.
pub(super) const DELETED: HeaderName = HeaderName::from_static("x-riak-deleted");

/// An empty answer.
#[must_use]
pub(super) fn empty(status: StatusCode) -> RiakResponse {
    with_body(status, RiakBody::empty())
}

/// An answer with a body and no headers.
#[must_use]
pub(super) fn with_body(status: StatusCode, body: RiakBody) -> RiakResponse {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply
}

/// An answer with a body of this media type.
pub(super) fn typed(status: StatusCode, media: HeaderValue, body: impl Into<Bytes>) -> RiakResponse {
    let mut reply = with_body(status, RiakBody::full(body.into()));
    reply.headers_mut().insert(CONTENT_TYPE, media);
    reply
}

/// A text answer.
pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> RiakResponse {
    typed(status, TEXT, body)
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> RiakResponse {
    let mut reply = typed(status, JSON, body);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

/// 204 with a media type, as Riak sends it.
#[must_use]
pub(super) fn done(media: HeaderValue) -> RiakResponse {
    let mut reply = empty(StatusCode::NO_CONTENT);
    reply.headers_mut().insert(CONTENT_TYPE, media);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

/// The default page of a status.
#[must_use]
pub(super) fn page(status: StatusCode) -> RiakResponse {
    typed(status, HTML, page_text(status))
}

/// 404 with its page, after a lookup.
#[must_use]
pub(super) fn not_found_page() -> RiakResponse {
    let mut reply = page(StatusCode::NOT_FOUND);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

/// 405 with the allowed methods.
#[must_use]
pub(super) fn not_allowed(allow: &str) -> RiakResponse {
    let mut reply = page(StatusCode::METHOD_NOT_ALLOWED);
    if let Ok(allow) = HeaderValue::from_str(allow) {
        reply.headers_mut().insert(ALLOW, allow);
    }
    reply
}

/// 501 for an unknown method.
#[must_use]
pub(super) fn unknown_method(method: &str) -> RiakResponse {
    let body = format!(
        "<html><head><title>501 Not Implemented</title></head><body><h1>Not Implemented</h1>The server does not \
         support the {method:?} method.<br><P><HR><ADDRESS>mochiweb+webmachine web server</ADDRESS></body></html>"
    );
    typed(StatusCode::NOT_IMPLEMENTED, HTML, body)
}

fn page_text(status: StatusCode) -> Bytes {
    if status == StatusCode::NOT_FOUND {
        return Bytes::from_static(
            b"<HTML><HEAD><TITLE>404 Not Found</TITLE></HEAD><BODY><H1>Not Found</H1>The requested document was not \
              found on this server.<P><HR><ADDRESS>mochiweb+webmachine web server</ADDRESS></BODY></HTML>",
        );
    }
    let (code, reason) = (status.as_u16(), status.canonical_reason().unwrap_or("Error"));
    let page = format!(
        "<html><head><title>{code} {reason}</title></head><body><h1>{reason}</h1><p><hr><address>mochiweb+webmachine \
         web server</address></body></html>"
    );
    page.into()
}
