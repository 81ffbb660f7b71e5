//! Answers, with the headers that keep pages of others away from the console.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};
use maud::Markup;

use crate::href::Href;

/// An answer of the console.
pub(crate) type ConsoleReply = Response<ConsoleBody>;

/// Scripts, styles and requests of the console's own host alone; nothing inline; no page may frame it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const CROSS_ORIGIN_OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const CROSS_ORIGIN_RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
/// Memory of a stream of events: one event is at most a few KiB.
const EVENT_BYTES: u64 = 16 * 1024;

/// The events of an answer that goes on until its client leaves.
pub(crate) type EventStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The body of an answer.
pub(crate) enum ConsoleBody {
    /// In memory; taken by the first read.
    Full(Option<Bytes>),
    /// Server-sent events.
    Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl std::fmt::Debug for ConsoleBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(bytes) => write!(f, "ConsoleBody({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Self::Events(_) => f.write_str("ConsoleBody(events)"),
        }
    }
}

impl ConsoleBody {
    /// Bytes of memory that the body holds while it is sent.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Full(bytes) => bytes.as_ref().map_or(0, Bytes::len) as u64,
            Self::Events(_) => EVENT_BYTES,
        }
    }
}

impl Body for ConsoleBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => {
                events.as_mut().poll_next(cx).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// A page.
pub(crate) fn page(status: StatusCode, markup: Markup) -> ConsoleReply {
    with_type(status, HTML, markup.into_string().into())
}

/// A file that belongs to the program.
pub(crate) fn asset(media: &'static str, text: &'static str) -> ConsoleReply {
    with_type(StatusCode::OK, HeaderValue::from_static(media), Bytes::from_static(text.as_bytes()))
}

/// A stream of server-sent events.
pub(crate) fn events(stream: EventStream) -> ConsoleReply {
    let mut reply = Response::new(ConsoleBody::Events(stream));
    reply.headers_mut().insert(CONTENT_TYPE, EVENTS);
    reply
}

/// Sends the browser to another page after a change, so that a reload does not repeat the change.
pub(crate) fn redirect(to: Href) -> ConsoleReply {
    let mut reply = Response::new(ConsoleBody::Full(None));
    *reply.status_mut() = StatusCode::SEE_OTHER;
    // A link is percent-encoded, so it is a valid header.
    if let Ok(to) = HeaderValue::from_str(&to.text()) {
        reply.headers_mut().insert(LOCATION, to);
    }
    reply
}

/// Adds the headers that every answer has.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Browsers send the origin of a form then, also in clear, where they say nothing of its site.
    headers.insert(REFERRER_POLICY, SAME_ORIGIN);
    headers.insert(CROSS_ORIGIN_OPENER, SAME_ORIGIN);
    headers.insert(CROSS_ORIGIN_RESOURCE, SAME_ORIGIN);
    // A page has data that a shared computer must not keep.
    headers.insert(CACHE_CONTROL, NO_STORE);
}

fn with_type(status: StatusCode, media: HeaderValue, bytes: Bytes) -> ConsoleReply {
    let mut reply = Response::new(ConsoleBody::Full(Some(bytes)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, media);
    reply
}
