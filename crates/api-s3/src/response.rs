//! Responses: their constructors, their bodies, which are sent whole or in pieces, and the accounting of their bytes for usage
//! reports and metrics.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use larder_core::metrics::RequestOutcome;
use larder_net::{PIECE_BYTES_MAX, break_off, response_memory};
use larder_s3::get::ObjectReader;
use larder_s3::usage::UsageCounts;
use larder_s3::{Objects, TrackedRequest};

use crate::xml::PROLOG;

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

/// Interval of keep-alive bytes while a response awaits its outcome.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A response body in pieces.
pub type S3BodyStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The body of a response.
pub struct S3Body {
    content: S3BodyContent,
    accounting: Option<RequestAccounting>,
}

enum S3BodyContent {
    Full(Bytes),
    Streamed { pieces: S3BodyStream, remaining: Option<u64> },
}

impl std::fmt::Debug for S3Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.content {
            S3BodyContent::Full(bytes) => write!(f, "S3Body({} bytes)", bytes.len()),
            S3BodyContent::Streamed { remaining, .. } => write!(f, "S3Body(pieces of {remaining:?})"),
        }
    }
}

impl S3Body {
    /// An empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    /// A body held in memory.
    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        Self { content: S3BodyContent::Full(bytes), accounting: None }
    }

    /// A streamed body; without a length it is sent chunked.
    #[must_use]
    pub fn streamed(pieces: S3BodyStream, length: Option<u64>) -> Self {
        Self { content: S3BodyContent::Streamed { pieces, remaining: length }, accounting: None }
    }

    /// The bytes of an object: the `length` bytes that `reader` was opened for. Damage found while sending ends the
    /// connection early; a client never gets wrong bytes.
    #[must_use]
    pub fn object(reader: ObjectReader, length: u64) -> Self {
        if length == 0 {
            return Self::empty();
        }
        let pieces = stream::unfold((reader, length), |(mut reader, remaining)| async move {
            if remaining == 0 {
                return None;
            }
            let max = usize::try_from(remaining).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
            // Bound: one piece at a time is in memory, whatever the size of the object.
            match reader.next(max).await {
                // A short object must not look complete, so the stream ends with an error.
                Ok(bytes) if bytes.is_empty() => Some((Err(io::ErrorKind::UnexpectedEof.into()), (reader, 0))),
                Ok(bytes) => {
                    let remaining = remaining.saturating_sub(bytes.len() as u64);
                    Some((Ok(bytes), (reader, remaining)))
                }
                Err(error) => Some((Err(break_off("read of an object", error)), (reader, 0))),
            }
        });
        Self::streamed(Box::pin(pieces), Some(length))
    }

    /// A document that takes long. The XML declaration is sent at once, then a space every ten seconds, then the rest.
    /// The status is sent before the outcome is known, so use it only for slow operations.
    #[must_use]
    pub fn kept_alive(document: impl Future<Output = Bytes> + Send + 'static) -> Self {
        let prolog = stream::iter([Ok(Bytes::from_static(PROLOG.as_bytes()))]);
        let pieces = stream::unfold(Some(Box::pin(document)), |waiting| async move {
            let mut document = waiting?;
            // Clients and proxies give up on a silent connection; white space before the root element is valid XML.
            match tokio::time::timeout(KEEP_ALIVE_INTERVAL, document.as_mut()).await {
                Ok(bytes) => Some((Ok(without_prolog(bytes)), None)),
                Err(_) => Some((Ok(Bytes::from_static(b" ")), Some(document))),
            }
        });
        Self::streamed(Box::pin(futures_util::StreamExt::chain(prolog, pieces)), None)
    }

    /// The bytes, if the body is in memory.
    #[must_use]
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.content {
            S3BodyContent::Full(bytes) => Some(bytes),
            S3BodyContent::Streamed { .. } => None,
        }
    }

    /// Attaches the accounting of the body's bytes.
    #[must_use]
    pub(crate) fn with_accounting(mut self, accounting: RequestAccounting) -> Self {
        self.accounting = Some(accounting);
        self
    }

    /// Bytes of memory held while the body is sent.
    #[must_use]
    pub(crate) fn memory(&self) -> u64 {
        match &self.content {
            S3BodyContent::Full(bytes) => bytes.len() as u64,
            S3BodyContent::Streamed { remaining, .. } => response_memory(*remaining),
        }
    }

    /// Bytes left to send, if known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.content {
            S3BodyContent::Full(bytes) => Some(bytes.len() as u64),
            S3BodyContent::Streamed { remaining, .. } => *remaining,
        }
    }
}

fn without_prolog(document: Bytes) -> Bytes {
    if document.starts_with(PROLOG.as_bytes()) { document.slice(PROLOG.len()..) } else { document }
}

impl HttpBody for S3Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = match &mut self.content {
            S3BodyContent::Full(bytes) if bytes.is_empty() => None,
            S3BodyContent::Full(bytes) => Some(Ok(std::mem::take(bytes))),
            S3BodyContent::Streamed { pieces, remaining } => {
                let piece = std::task::ready!(pieces.as_mut().poll_next(cx));
                if let (Some(Ok(bytes)), Some(remaining)) = (&piece, remaining) {
                    *remaining = remaining.saturating_sub(bytes.len() as u64);
                }
                piece
            }
        };
        let is_complete = self.length() == Some(0) || piece.is_none();
        if let Some(accounting) = &mut self.accounting {
            accounting.sent +=
                piece.as_ref().and_then(|piece| piece.as_ref().ok()).map_or(0, |bytes| bytes.len() as u64);
            // Set with each frame: a connection dropped between frames counts as incomplete.
            accounting.is_complete = is_complete;
        }
        Poll::Ready(piece.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, S3BodyContent::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        self.length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Counts the bytes of one request and its response, and reports them when dropped. The numbers are final when the response has
/// been sent or its connection is gone.
pub(crate) struct RequestAccounting {
    /// The gateway's objects, which collect usage.
    pub objects: Arc<Objects>,
    /// The request's entry in the metrics.
    pub tracked: TrackedRequest,
    /// The caller's access key id and the usage name of the operation; `None` if anonymous.
    pub user: Option<(String, &'static str)>,
    /// Body bytes received; grows while the body is read.
    pub received: Arc<AtomicU64>,
    /// Status of the response.
    pub status: StatusCode,
    /// Body bytes sent so far.
    pub sent: u64,
    /// Whether the last byte was sent.
    pub is_complete: bool,
}

impl RequestAccounting {
    fn counts(&self) -> UsageCounts {
        let mut counts = UsageCounts { bytes_in: self.received.load(Ordering::Relaxed), ..UsageCounts::default() };
        match status_outcome(self.status) {
            RequestOutcome::Failed => counts.system_errors = 1,
            RequestOutcome::Refused => counts.user_errors = 1,
            RequestOutcome::Ok | RequestOutcome::NotFound => counts.count = 1,
        }
        let sent = if self.is_complete { &mut counts.bytes_out } else { &mut counts.bytes_out_incomplete };
        *sent = self.sent;
        counts
    }
}

// A dropped connection drops the body, so incomplete responses are counted too.
impl Drop for RequestAccounting {
    fn drop(&mut self) {
        let counts = self.counts();
        self.tracked.add_transferred_bytes(counts.bytes_in, self.sent);
        if let Some((key_id, usage)) = &self.user {
            self.objects.usage.count(key_id, usage, counts);
        }
    }
}

/// The outcome class of a status: success, client error or server error.
pub(crate) fn status_outcome(status: StatusCode) -> RequestOutcome {
    if status.is_server_error() {
        RequestOutcome::Failed
    } else if status.is_client_error() {
        RequestOutcome::Refused
    } else {
        RequestOutcome::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test(start_paused = true)]
    async fn a_slow_document_sends_spaces_until_it_is_ready() {
        let document = async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            crate::xml::XmlWriter::without_namespace("R").finish()
        };
        let body = S3Body::kept_alive(document);
        assert_eq!(body.length(), None);
        let all = body.collect().await.unwrap().to_bytes();
        assert_eq!(all, format!("{PROLOG}  <R></R>"));
    }

    #[tokio::test]
    async fn a_body_knows_its_remaining_length() {
        let pieces = stream::iter([Ok(Bytes::from_static(b"ab")), Ok(Bytes::from_static(b"c"))]);
        let mut body = S3Body::streamed(Box::pin(pieces), Some(3));
        assert_eq!(body.size_hint().exact(), Some(3));
        let _ = body.frame().await;
        assert_eq!(body.length(), Some(1));
        assert_eq!(S3Body::full(Bytes::from_static(b"x")).into_bytes().unwrap(), "x");
    }
}
