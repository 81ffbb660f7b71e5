//! Constructors of responses.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::body::S3Body;

/// A response.
pub type S3Response = Response<S3Body>;

/// Media type of XML documents.
pub(crate) const XML: HeaderValue = HeaderValue::from_static("application/xml");
/// Media type of bucket policies and of Riak CS's JSON documents.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response without a body.
#[must_use]
pub fn empty(status: StatusCode) -> S3Response {
    with(status, S3Body::empty())
}

/// A response without headers.
#[must_use]
pub fn with(status: StatusCode, body: S3Body) -> S3Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// A response with this media type.
#[must_use]
pub fn typed(status: StatusCode, media: HeaderValue, body: impl Into<Bytes>) -> S3Response {
    let mut response = with(status, S3Body::full(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

/// A response with an XML document.
#[must_use]
pub fn xml(status: StatusCode, document: impl Into<Bytes>) -> S3Response {
    typed(status, XML, document)
}

/// 200 with an XML document.
#[must_use]
pub fn document(document: impl Into<Bytes>) -> S3Response {
    xml(StatusCode::OK, document)
}

/// A response with a JSON document.
#[must_use]
pub fn json(status: StatusCode, text: impl Into<Bytes>) -> S3Response {
    typed(status, JSON, text)
}

/// Sets a header. An invalid value is dropped: a response without the header is better than none.
pub fn set(response: &mut S3Response, name: HeaderName, value: impl TryInto<HeaderValue>) {
    if let Ok(value) = value.try_into() {
        response.headers_mut().insert(name, value);
    }
}
