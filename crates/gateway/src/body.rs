//! Bytes on their way in and out, a piece at a time.

use async_trait::async_trait;
use bytes::Bytes;

use larder_store::BlobReader;

use crate::{Error, Result};

/// A request body, read front to back.
#[async_trait]
pub trait ByteStream: Send {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>>;
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
        }
    }

    /// The piece from `offset`, at most `max` bytes; empty at the end.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the checksum of a block does not hold.
    pub async fn piece(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        match self {
            Self::Bytes(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(max).min(bytes.len());
                Ok(bytes.slice(from..to))
            }
            Self::Blob(blob) => blob.read(offset, max).await.map_err(Error::from),
        }
    }
}
