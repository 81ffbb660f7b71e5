//! Bytes on their way in and out, a piece at a time.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use larder_model::content::BlobRef;
use larder_store::{BlobReader, Blobs, Kind};

use crate::{Error, Result};

/// A request body, read front to back. Who implements it keeps a pace: a body that does not come breaks off in bounded time.
#[async_trait]
pub trait ByteStream: Send {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>>;

    /// What came behind the end of the body: a checksum's header name and value.
    fn trailing(&mut self) -> Option<(String, Bytes)> {
        None
    }
}

/// The request's body could not be read to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

/// What a put brings.
pub enum Upload {
    /// All of it.
    Bytes(Bytes),
    /// A stream, with its length when that was announced.
    Stream {
        /// The pieces.
        stream: Box<dyn ByteStream>,
        /// Announced length in bytes.
        length: Option<u64>,
    },
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Upload({} bytes)", bytes.len()),
            Self::Stream { length, .. } => write!(f, "Upload(stream of {length:?})"),
        }
    }
}

/// The bytes of a value on their way out.
pub enum Download {
    /// All of it.
    Bytes(Bytes),
    /// A blob, held open.
    Blob(Box<dyn BlobReader>),
    /// A blob that is opened when its turn comes: of several siblings only one is held at a time. It may be gone by then.
    Later(Arc<dyn Blobs>, BlobRef),
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Download({} bytes)", self.length())
    }
}

impl Download {
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
    /// [`Error::Damaged`] when the checksum of a block does not hold, or when a blob opened late is gone.
    pub async fn piece(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        if let Self::Later(blobs, blob) = self {
            *self = Self::Blob(open(blobs.as_ref(), blob).await?);
        }
        match self {
            Self::Bytes(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(max).min(bytes.len());
                Ok(bytes.slice(from..to))
            }
            Self::Blob(blob) => blob.read(offset, max).await.map_err(Error::from),
            Self::Later(..) => Ok(Bytes::new()),
        }
    }
}

/// Opens a blob that has to be as long as its row says.
pub(crate) async fn open(blobs: &dyn Blobs, blob: &BlobRef) -> larder_store::Result<Box<dyn BlobReader>> {
    let reader = blobs.open(blob.id).await?;
    if reader.length() == blob.length {
        return Ok(reader);
    }
    Err(larder_store::Error::new(Kind::Damaged, "a large body is not as long as its object says"))
}

/// The next piece of a body.
///
/// # Errors
/// [`Error::BrokenBody`].
pub(crate) async fn next(stream: &mut dyn ByteStream) -> Result<Option<Bytes>> {
    stream.next().await.transpose().map_err(|error| Error::BrokenBody(error.to_string()))
}

/// Reads pieces until there are more than `enough` bytes or the stream ends. One piece is not copied.
///
/// # Errors
/// [`Error::BrokenBody`].
pub(crate) async fn collect(stream: &mut dyn ByteStream, enough: usize) -> Result<Bytes> {
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
