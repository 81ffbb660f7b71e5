//! Streamed bodies of requests and responses.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use larder_rows::content::BlobRef;
use larder_store::{BlobReader, Blobs, Kind};

use crate::{Error, Result};

/// A request body, read front to back. Implementations enforce a pace: a stalled body fails in bounded time.
#[async_trait]
pub trait ByteStream: Send {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>>;

    /// The trailer of the body: a checksum's header name and value.
    fn trailing(&mut self) -> Option<(String, Bytes)> {
        None
    }
}

/// A request body that could not be read to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

/// The body of a put.
pub enum PutBody {
    /// In memory.
    Bytes(Bytes),
    /// A stream, with its length if announced.
    Stream {
        /// The pieces.
        stream: Box<dyn ByteStream>,
        /// Announced length in bytes.
        length: Option<u64>,
    },
}

impl std::fmt::Debug for PutBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "PutBody({} bytes)", bytes.len()),
            Self::Stream { length, .. } => write!(f, "PutBody(stream of {length:?})"),
        }
    }
}

/// The body of a value that was read.
pub enum GetBody {
    /// In memory.
    Bytes(Bytes),
    /// A blob, held open.
    Blob(Box<dyn BlobReader>),
    /// A blob opened with its first piece, so that a read of siblings holds one at a time. It may be removed by then.
    Later(Arc<dyn Blobs>, BlobRef),
}

impl std::fmt::Debug for GetBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GetBody({} bytes)", self.length())
    }
}

impl GetBody {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Blob(blob) => blob.length(),
            Self::Later(_, blob) => blob.length,
        }
    }

    /// The piece from `offset`, at most `max` bytes; empty at the end.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the checksum of a block is wrong, or when a blob opened late was removed.
    pub async fn piece(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        if let Self::Later(blobs, blob) = self {
            *self = Self::Blob(open(blobs.as_ref(), blob).await?);
        }
        match self {
            Self::Bytes(bytes) => Ok(larder_store::body_slice(bytes, offset, max)),
            Self::Blob(blob) => blob.read(offset, max).await.map_err(Error::from),
            Self::Later(..) => Ok(Bytes::new()),
        }
    }
}

/// Opens a blob and checks its length against its row.
pub async fn open(blobs: &dyn Blobs, blob: &BlobRef) -> larder_store::Result<Box<dyn BlobReader>> {
    let reader = blobs.open(blob.id).await?;
    // A shorter blob would end the body early without an error.
    if reader.length() == blob.length {
        return Ok(reader);
    }
    Err(larder_store::Error::new(Kind::Damaged, "a large body is not as long as its object says"))
}

/// The next piece of a body.
///
/// # Errors
/// [`Error::BrokenBody`].
pub async fn next(stream: &mut dyn ByteStream) -> Result<Option<Bytes>> {
    stream.next().await.transpose().map_err(|error| Error::BrokenBody(error.to_string()))
}

/// Reads pieces until there are more than `enough` bytes or the stream ends. One piece is not copied.
///
/// # Errors
/// [`Error::BrokenBody`].
pub async fn collect(stream: &mut dyn ByteStream, enough: usize) -> Result<Bytes> {
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    while first.len().max(more.len()) <= enough {
        let Some(piece) = next(stream).await? else { break };
        if first.is_empty() && more.is_empty() {
            first = piece;
            continue;
        }
        if more.is_empty() {
            more.extend_from_slice(&first);
        }
        more.extend_from_slice(&piece);
    }
    Ok(if more.is_empty() { first } else { more.freeze() })
}
