//! Answers, with the headers that keep pages of others away from the console.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};
use maud::Markup;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::faults::ConsoleFault;
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

/// Bytes of an object in memory at a time.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// The events of an answer that goes on until its client leaves.
pub(crate) type EventStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The bytes of an object.
pub(crate) type ObjectStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The thing that a change was about, where neither its link nor its fields have it.
#[derive(Debug, Clone)]
pub(crate) struct ChangeTarget(pub(crate) String);

/// The body of an answer.
pub(crate) enum ConsoleBody {
    /// In memory; taken by the first read.
    Full(Option<Bytes>),
    /// Server-sent events.
    Events(EventStream),
    /// The bytes of an object, and how many are left. An error breaks the answer off: the browser sees that it is not whole.
    Object(ObjectStream, u64),
}

impl std::fmt::Debug for ConsoleBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(bytes) => write!(f, "ConsoleBody({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Self::Events(_) => f.write_str("ConsoleBody(events)"),
            Self::Object(_, left) => write!(f, "ConsoleBody({left} bytes of an object)"),
        }
    }
}

impl ConsoleBody {
    /// Bytes of memory that the body holds while it is sent.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Full(bytes) => bytes.as_ref().map_or(0, Bytes::len) as u64,
            Self::Events(_) => EVENT_BYTES,
            Self::Object(..) => 2 * PIECE_BYTES as u64,
        }
    }
}

impl Body for ConsoleBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => {
                events.as_mut().poll_next(cx).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Object(pieces, left) => pieces.as_mut().poll_next(cx).map(|piece| {
                let piece = piece?;
                Some(piece.map(|bytes| {
                    *left = left.saturating_sub(bytes.len() as u64);
                    Frame::data(bytes)
                }))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None) | Self::Object(_, 0))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Events(_) => SizeHint::default(),
            Self::Object(_, left) => SizeHint::with_exact(*left),
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

/// A short text for a script of the console.
pub(crate) fn text(text: String) -> ConsoleReply {
    with_type(StatusCode::OK, HeaderValue::from_static("text/plain; charset=utf-8"), text.into())
}

/// The bytes of an object of this length. `name`: a file to save; without it the browser shows what it can.
pub(crate) fn object(pieces: ObjectStream, length: u64, media: &HeaderValue, name: Option<&[u8]>) -> ConsoleReply {
    let mut reply = Response::new(ConsoleBody::Object(pieces, length));
    reply.headers_mut().insert(CONTENT_TYPE, media.clone());
    let disposition = name.map(|name| {
        let encoded = percent_encode(name, NON_ALPHANUMERIC);
        format!("attachment; filename*=UTF-8''{encoded}")
    });
    if let Some(Ok(disposition)) = disposition.map(HeaderValue::try_from) {
        reply.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    }
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

/// Most fields that are read; no page has as many.
const FIELDS_MAX: usize = 32;

/// Decoded fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConsoleFields(Vec<(Bytes, Bytes)>);

impl ConsoleFields {
    /// The fields of `application/x-www-form-urlencoded` bytes: `%XX` is a byte, `+` a space.
    pub(crate) fn parse(encoded: &[u8]) -> Self {
        let parts = encoded.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).take(FIELDS_MAX);
        let field = |part: &[u8]| {
            let at = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
            (decoded(&part[..at]), decoded(part.get(at + 1..).unwrap_or_default()))
        };
        Self(parts.map(field).collect())
    }

    /// Whether a field is there, empty or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name.as_bytes())
    }

    /// The value of a field; empty without it.
    pub(crate) fn bytes(&self, name: &str) -> Bytes {
        self.given(name).unwrap_or_default()
    }

    /// The value of a field that is there and not empty.
    pub(crate) fn given(&self, name: &str) -> Option<Bytes> {
        let found = self.0.iter().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    }

    /// The word of a field that has one of these.
    ///
    /// # Errors
    /// Another word, or none.
    pub(crate) fn word(&self, name: &str, words: &[&'static str]) -> Result<&'static str, ConsoleFault> {
        let given = self.text(name);
        let word = words.iter().copied().find(|word| *word == given);
        word.ok_or_else(|| ConsoleFault::bad(format!("The field {name} is one of: {}.", words.join(", "))))
    }

    /// Whether the field `switch` is `on` or `off`.
    ///
    /// # Errors
    /// Neither.
    pub(crate) fn switch(&self) -> Result<bool, ConsoleFault> {
        Ok(self.word("switch", &["on", "off"])? == "on")
    }

    /// All fields as text; `None` where one holds other bytes.
    pub(crate) fn texts(&self) -> Option<Vec<(String, String)>> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).ok();
        self.0.iter().map(|(name, value)| Some((text(name)?, text(value)?.replace("\r\n", "\n")))).collect()
    }

    /// The value of a field as text; bytes that are no UTF-8 become replacement characters.
    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.bytes(name)).into_owned()
    }
}

fn decoded(part: &[u8]) -> Bytes {
    let spaced: Vec<u8> = part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::href::Href;

    #[test]
    fn fields_are_bytes() {
        let fields = ConsoleFields::parse(b"a=1%00%ff&b=x+y%2B&&c&d=e=f&a=2");
        assert_eq!(fields.bytes("a"), &b"1\0\xff"[..]);
        assert_eq!(fields.text("b"), "x y+");
        assert_eq!((fields.given("c"), fields.bytes("d"), fields.given("e")), (None, "e=f".into(), None));
    }

    #[test]
    fn every_name_survives_a_link() {
        let all: Vec<u8> = (0..=255).collect();
        for name in [&all[..], b".", b"..", b"/", b"a b+c", b"&key=1#", "\u{202e}\u{1f375}".as_bytes()] {
            let link = Href::to("/object").with("key", name).with("bucket", b"b").text();
            let (_, query) = link.split_once('?').unwrap();
            let fields = ConsoleFields::parse(query.as_bytes());
            assert_eq!((fields.bytes("key"), fields.bytes("bucket")), (Bytes::copy_from_slice(name), "b".into()));
        }
    }
}
