//! Bodies. Requests are collected or streamed; answers go out whole or in pieces. A large body never is in memory as a whole.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::stream::{self, StreamExt as _};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::HeaderMap;
use larder_admission::MemorySpent;
use larder_core::Error;
use larder_core::body::{BodyError, ByteStream, GetBody, PutBody};
use larder_net::{
    ArrivingBody, IncomingError, PIECE_BYTES_MAX, RatedIncoming, Requester, break_off, response_memory, upload_memory,
};
use md5::{Digest as _, Md5};

/// Bodies with an announced length up to this are collected before the gateway sees them.
const COLLECT_BYTES_MAX: u64 = 64 * 1024;

/// The pieces of an answer.
pub(super) type BodyPieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The body of an answer.
pub struct RiakBody(RiakBodySource);

enum RiakBodySource {
    Full(Bytes),
    Pieces { pieces: BodyPieces, length: Option<u64>, memory: u64 },
}

impl std::fmt::Debug for RiakBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            RiakBodySource::Full(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            RiakBodySource::Pieces { length, .. } => write!(f, "Body(pieces of {length:?})"),
        }
    }
}

impl RiakBody {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    /// A body in memory.
    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        Self(RiakBodySource::Full(bytes))
    }

    /// A body in pieces; without a length it goes out chunked.
    #[must_use]
    pub fn pieces(pieces: BodyPieces, length: Option<u64>) -> Self {
        Self(RiakBodySource::Pieces { pieces, length, memory: response_memory(length) })
    }

    /// A body of JSON documents, each in a chunk of its own: old clients take a chunk for a document. None is empty.
    #[must_use]
    pub(super) fn documents(several: impl Stream<Item = Vec<Bytes>> + Send + 'static) -> Self {
        Self::pieces(Box::pin(several.map(stream::iter).flatten().map(Ok)), None)
    }

    /// The same body, with so many bytes in memory besides the piece being sent.
    #[must_use]
    pub(super) fn with_extra_memory(mut self, bytes: u64) -> Self {
        if let RiakBodySource::Pieces { memory, .. } = &mut self.0 {
            *memory += bytes;
        }
        self
    }

    /// `length` bytes of a value from `offset`.
    #[must_use]
    pub fn part(download: GetBody, offset: u64, length: u64) -> Self {
        match download {
            GetBody::Bytes(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(bytes.len());
                Self::full(bytes.slice(from..to))
            }
            blob => Self::pieces(read_pieces(blob, offset, length), Some(length)),
        }
    }

    /// All of a value.
    #[must_use]
    pub fn from_download(download: GetBody) -> Self {
        let length = download.length();
        Self::part(download, 0, length)
    }

    /// Bytes of memory that the body holds while it is sent.
    #[must_use]
    pub(super) fn memory(&self) -> u64 {
        match &self.0 {
            RiakBodySource::Full(bytes) => bytes.len() as u64,
            RiakBodySource::Pieces { memory, .. } => *memory,
        }
    }

    /// The bytes of a body in memory; `None` for pieces.
    #[must_use]
    pub fn into_full(self) -> Option<Bytes> {
        match self.0 {
            RiakBodySource::Full(bytes) => Some(bytes),
            RiakBodySource::Pieces { .. } => None,
        }
    }
}

/// The pieces of `length` bytes of a value from `offset`. Damage on the way breaks the answer off: clients get no wrong bytes.
#[must_use]
pub(super) fn read_pieces(download: GetBody, offset: u64, length: u64) -> BodyPieces {
    let pieces = stream::unfold((download, offset, length), |(mut download, offset, left)| async move {
        if left == 0 {
            return None;
        }
        let max = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
        let piece = download.piece(offset, max).await;
        let piece = piece.map_err(|error| break_off("read of an object's body", error));
        match piece {
            // A short body must not look complete: the error breaks the connection off.
            Ok(bytes) if bytes.is_empty() => Some((Err(io::ErrorKind::UnexpectedEof.into()), (download, offset, 0))),
            Ok(bytes) => {
                let count = bytes.len() as u64;
                Some((Ok(bytes), (download, offset + count, left - count)))
            }
            Err(error) => Some((Err(error), (download, offset, 0))),
        }
    });
    Box::pin(pieces)
}

impl HttpBody for RiakBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            RiakBodySource::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            RiakBodySource::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            RiakBodySource::Pieces { pieces, .. } => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|result| result.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, RiakBodySource::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            RiakBodySource::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            RiakBodySource::Pieces { length: Some(length), .. } => SizeHint::with_exact(*length),
            RiakBodySource::Pieces { length: None, .. } => SizeHint::default(),
        }
    }
}

/// The body of a put: collected when it is short, else as a stream. `max` is the longest object.
///
/// # Errors
/// The announced length exceeds `max`, a short body broke off, or there is no memory for the body now.
pub(super) async fn upload(body: ArrivingBody<'_>, headers: &HeaderMap, max: u64) -> Result<PutBody, Error> {
    let length = body.length();
    // Refused by the announced length, before a byte of the body is read.
    if let Some(bytes) = length.filter(|bytes| *bytes > max) {
        return Err(Error::TooLarge { bytes, max });
    }
    let check = Md5Check::from_headers(headers)?;
    if length.is_some_and(|length| length <= COLLECT_BYTES_MAX) {
        let bytes = collect(body, COLLECT_BYTES_MAX).await?;
        return matched(check, &bytes).map(|()| PutBody::Bytes(bytes));
    }
    let body = body.admit(upload_memory(length)).await.map_err(busy)?;
    Ok(PutBody::Stream { stream: Box::new(UploadStream { body, check }), length })
}

/// Collects a body. A single piece, the usual form of a short body, is not copied.
///
/// # Errors
/// The body exceeds `max` or broke off, or there is no memory for it now.
pub(super) async fn collect(body: ArrivingBody<'_>, max: u64) -> Result<Bytes, Error> {
    collect_parsed(body, max, |length| length).await
}

/// As [`collect`], for a body that takes this much memory for its length once it is parsed.
///
/// # Errors
/// As [`collect`].
pub(super) async fn collect_parsed(
    body: ArrivingBody<'_>,
    max: u64,
    memory: impl Fn(u64) -> u64,
) -> Result<Bytes, Error> {
    let (incoming, requester) = body.into_parts();
    collect_admitted(incoming, requester, max, memory).await
}

/// As [`collect_parsed`], for a request that goes on to hold memory after its body.
///
/// # Errors
/// As [`collect`].
pub(super) async fn collect_admitted(
    body: RatedIncoming,
    requester: &Requester<'_>,
    max: u64,
    memory: impl Fn(u64) -> u64,
) -> Result<Bytes, Error> {
    let announced = body.length();
    if let Some(bytes) = announced.filter(|bytes| *bytes > max) {
        return Err(Error::TooLarge { bytes, max });
    }
    // Without a length the bound is held: the body may grow to it.
    requester.hold(memory(announced.unwrap_or(max))).await.map_err(busy)?;
    let mut body = UploadStream { body, check: None };
    let Some(first) = body.next().await.transpose().map_err(broken)? else { return Ok(Bytes::new()) };
    if body.body.is_at_end() {
        return within(first.len(), max).map(|()| first);
    }
    let mut all = BytesMut::from(first.as_ref());
    while let Some(bytes) = body.next().await.transpose().map_err(broken)? {
        // An unannounced length is known only as it arrives.
        within(all.len() + bytes.len(), max)?;
        all.extend_from_slice(&bytes);
    }
    Ok(all.freeze())
}

/// Checks a whole body against its `Content-MD5`, if it has one.
///
/// # Errors
/// It differs, or the header is none.
pub(super) fn check_md5(headers: &HeaderMap, body: &[u8]) -> Result<(), Error> {
    matched(Md5Check::from_headers(headers)?, body)
}

fn matched(check: Option<Md5Check>, body: &[u8]) -> Result<(), Error> {
    match check.is_none_or(|check| check.covers_all(body)) {
        true => Ok(()),
        false => Err(Error::BrokenBody(MISMATCH.into())),
    }
}

/// The error of a request whose client has no memory left.
pub(super) fn busy(MemorySpent: MemorySpent) -> Error {
    Error::Overloaded { retry_after: 1 }
}

fn within(bytes: usize, max: u64) -> Result<(), Error> {
    let bytes = bytes as u64;
    if bytes > max { Err(Error::TooLarge { bytes, max }) } else { Ok(()) }
}

fn broken(error: BodyError) -> Error {
    Error::BrokenBody(error.0)
}

const MISMATCH: &str = "The body does not match its Content-MD5 header";

/// The digest of a `Content-MD5` header, and the hash so far.
struct Md5Check {
    expected: [u8; 16],
    hash: Md5,
}

impl Md5Check {
    fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let Some(value) = headers.get("content-md5") else { return Ok(None) };
        let decoded = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        let expected = decoded.ok_or_else(|| Error::BrokenBody(MISMATCH.into()))?;
        Ok(Some(Self { expected, hash: Md5::new() }))
    }

    fn covers_all(mut self, bytes: &[u8]) -> bool {
        self.hash.update(bytes);
        self.holds()
    }

    fn holds(self) -> bool {
        self.hash.finalize().as_slice() == self.expected
    }
}

/// A request's body as a stream for the gateway, checked against its `Content-MD5`.
struct UploadStream {
    body: RatedIncoming,
    check: Option<Md5Check>,
}

#[async_trait]
impl ByteStream for UploadStream {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self.body.next().await {
            Ok(Some(bytes)) => {
                if let Some(check) = &mut self.check {
                    check.hash.update(&bytes);
                }
                Some(Ok(bytes))
            }
            Ok(None) => {
                // An error instead of the end: the gateway must not store bytes that the client did not send.
                let held = self.check.take().is_none_or(Md5Check::holds);
                if held { None } else { Some(Err(BodyError(MISMATCH.into()))) }
            }
            Err(IncomingError::TooSlow) => Some(Err(BodyError("The request body did not arrive in time".into()))),
            Err(IncomingError::BrokenOff(error)) => {
                Some(Err(BodyError(format!("The request body broke off: {error}"))))
            }
        }
    }
}
