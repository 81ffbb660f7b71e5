//! Bodies: requests come in collected or as a stream, answers go out whole or in pieces. Never more than a piece of a large
//! one is held.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::stream;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::HeaderMap;
use md5::{Digest as _, Md5};

use larder_admission::MemorySpent;
use larder_gateway::Error;
use larder_gateway::body::{BodyError, ByteStream, Download, Upload};
use larder_http_edge::{ArrivingBody, IncomingError, PIECE_BYTES_MAX, PacedIncoming, held_by_pieces, held_by_stream};

/// Bodies announced up to this length are collected before the gateway sees them.
const COLLECT_BYTES_MAX: u64 = 64 * 1024;

/// The pieces of an answer.
pub(super) type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The body of an answer.
pub struct Body(Kind);

enum Kind {
    Full(Bytes),
    Pieces { pieces: Pieces, length: Option<u64>, memory: u64 },
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Full(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Kind::Pieces { length, .. } => write!(f, "Body(pieces of {length:?})"),
        }
    }
}

impl Body {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    /// All of it at once.
    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        Self(Kind::Full(bytes))
    }

    /// A piece at a time; without a length it goes out chunked.
    #[must_use]
    pub fn pieces(pieces: Pieces, length: Option<u64>) -> Self {
        Self(Kind::Pieces { pieces, length, memory: held_by_pieces(length) })
    }

    /// The same, with so many bytes in memory beside the piece that is sent.
    #[must_use]
    pub(super) fn beside(mut self, bytes: u64) -> Self {
        if let Kind::Pieces { memory, .. } = &mut self.0 {
            *memory += bytes;
        }
        self
    }

    /// `length` bytes of a value from `offset`.
    #[must_use]
    pub fn part(download: Download, offset: u64, length: u64) -> Self {
        match download {
            Download::Bytes(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(bytes.len());
                Self::full(bytes.slice(from..to))
            }
            blob => Self::pieces(read(blob, offset, length), Some(length)),
        }
    }

    /// All of a value.
    #[must_use]
    pub fn of(download: Download) -> Self {
        let length = download.length();
        Self::part(download, 0, length)
    }

    /// Bytes of memory that it holds while it is sent.
    #[must_use]
    pub(super) fn memory(&self) -> u64 {
        match &self.0 {
            Kind::Full(bytes) => bytes.len() as u64,
            Kind::Pieces { memory, .. } => *memory,
        }
    }

    /// The bytes, when they are all here.
    #[must_use]
    pub fn into_full(self) -> Option<Bytes> {
        match self.0 {
            Kind::Full(bytes) => Some(bytes),
            Kind::Pieces { .. } => None,
        }
    }
}

/// The pieces of `length` bytes of a value from `offset`. Damage found on the way breaks the answer off: never wrong bytes.
#[must_use]
pub(super) fn read(download: Download, offset: u64, length: u64) -> Pieces {
    let pieces = stream::unfold((download, offset, length), |(mut download, offset, left)| async move {
        if left == 0 {
            return None;
        }
        let max = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
        let piece = download.piece(offset, max).await.map_err(|error| {
            tracing::error!(%error, "an object's body broke off while it was sent");
            io::Error::other(error)
        });
        match piece {
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

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Kind::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Pieces { pieces, .. } => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|one| one.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pieces { length: Some(length), .. } => SizeHint::with_exact(*length),
            Kind::Pieces { length: None, .. } => SizeHint::default(),
        }
    }
}

/// The body of a put: collected when it is short, else as a stream. `max` is the longest an object may be.
///
/// # Errors
/// The announced length is greater than `max`, a short body broke off, or there is no memory for it now.
pub(super) async fn upload(body: ArrivingBody<'_>, headers: &HeaderMap, max: u64) -> Result<Upload, Error> {
    let length = body.length();
    if let Some(bytes) = length.filter(|bytes| *bytes > max) {
        return Err(Error::TooLarge { bytes, max });
    }
    let check = Check::of(headers)?;
    if length.is_some_and(|length| length <= COLLECT_BYTES_MAX) {
        let bytes = collect(body, COLLECT_BYTES_MAX).await?;
        return match check.is_none_or(|check| check.of_all(&bytes)) {
            true => Ok(Upload::Bytes(bytes)),
            false => Err(Error::BrokenBody(MISMATCH.into())),
        };
    }
    let body = body.admit(held_by_stream(length)).await.map_err(busy)?;
    Ok(Upload::Stream { stream: Box::new(Streamed { body, check }), length })
}

/// All of it. One piece, which is what a short body comes in, is not copied.
///
/// # Errors
/// It is longer than `max`, broke off, or there is no memory for it now.
pub(super) async fn collect(body: ArrivingBody<'_>, max: u64) -> Result<Bytes, Error> {
    let announced = body.length();
    if let Some(bytes) = announced.filter(|bytes| *bytes > max) {
        return Err(Error::TooLarge { bytes, max });
    }
    let body = body.admit(announced.unwrap_or(max)).await.map_err(busy)?;
    let mut body = Streamed { body, check: None };
    let Some(first) = body.next().await.transpose().map_err(broken)? else { return Ok(Bytes::new()) };
    if body.body.is_at_end() {
        return within(first.len(), max).map(|()| first);
    }
    let mut all = BytesMut::from(first.as_ref());
    while let Some(bytes) = body.next().await.transpose().map_err(broken)? {
        within(all.len() + bytes.len(), max)?;
        all.extend_from_slice(&bytes);
    }
    Ok(all.freeze())
}

fn busy(MemorySpent: MemorySpent) -> Error {
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

/// What a `Content-MD5` header promises, and the hash so far.
struct Check {
    expected: [u8; 16],
    hash: Md5,
}

impl Check {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let Some(value) = headers.get("content-md5") else { return Ok(None) };
        let decoded = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        let expected = decoded.ok_or_else(|| Error::BrokenBody(MISMATCH.into()))?;
        Ok(Some(Self { expected, hash: Md5::new() }))
    }

    fn of_all(mut self, bytes: &[u8]) -> bool {
        self.hash.update(bytes);
        self.holds()
    }

    fn holds(self) -> bool {
        self.hash.finalize().as_slice() == self.expected
    }
}

/// A request's body as the gateway reads it.
struct Streamed {
    body: PacedIncoming,
    check: Option<Check>,
}

#[async_trait]
impl ByteStream for Streamed {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self.body.next().await {
            Ok(Some(bytes)) => {
                if let Some(check) = &mut self.check {
                    check.hash.update(&bytes);
                }
                Some(Ok(bytes))
            }
            Ok(None) => {
                let held = self.check.take().is_none_or(Check::holds);
                if held { None } else { Some(Err(BodyError(MISMATCH.into()))) }
            }
            Err(IncomingError::TooSlow) => Some(Err(BodyError("The request body did not arrive in time".into()))),
            Err(IncomingError::BrokenOff(error)) => {
                Some(Err(BodyError(format!("The request body broke off: {error}"))))
            }
        }
    }
}
