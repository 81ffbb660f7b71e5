//! Answers: how they are put together.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::body::Body;

/// An answer on its way out.
pub type Reply = Response<Body>;

/// Media type of documents.
pub(crate) const XML: HeaderValue = HeaderValue::from_static("application/xml");
/// Media type of policies, and of Riak CS's own documents.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer without a body.
#[must_use]
pub fn empty(status: StatusCode) -> Reply {
    with(status, Body::empty())
}

/// An answer without headers.
#[must_use]
pub fn with(status: StatusCode, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply
}

/// An answer of this media type.
#[must_use]
pub fn typed(status: StatusCode, media: HeaderValue, body: impl Into<Bytes>) -> Reply {
    let mut reply = with(status, Body::full(body.into()));
    reply.headers_mut().insert(CONTENT_TYPE, media);
    reply
}

/// A document.
#[must_use]
pub fn xml(status: StatusCode, document: impl Into<Bytes>) -> Reply {
    typed(status, XML, document)
}

/// 200 with a document.
#[must_use]
pub fn document(document: impl Into<Bytes>) -> Reply {
    xml(StatusCode::OK, document)
}

/// JSON.
#[must_use]
pub fn json(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    typed(status, JSON, text)
}

/// Sets a header. A value that no header can have is left out: better without than not at all.
pub fn set(reply: &mut Reply, name: HeaderName, value: impl TryInto<HeaderValue>) {
    if let Ok(value) = value.try_into() {
        reply.headers_mut().insert(name, value);
    }
}
