//! A blob of an object or part, opened on the way where it is encrypted.

use bytes::Bytes;
use larder_core::Core;
use larder_encryption::SealedBlob;
use larder_encryption::sealed_body::sealed_length;
use larder_rows::content::BlobId;
use larder_store::{BlobReader, Kind};

use crate::Result;
use crate::encryption::BytesKey;

/// Reads the bytes of one blob as the client stored them.
pub(crate) struct BodyBlob {
    blob: Box<dyn BlobReader>,
    sealed: Option<SealedBlob>,
}

impl BodyBlob {
    /// Opens a blob of this length; `None` when it is gone.
    ///
    /// # Errors
    /// `Damaged` for a blob of another length.
    pub(super) async fn open(gateway: &Core, id: BlobId, length: u64, key: Option<&BytesKey>) -> Result<Option<Self>> {
        let stored = if key.is_some() { sealed_length(length) } else { length };
        let blob = match gateway.context().ports.blobs.open(id).await {
            Ok(blob) if blob.length() == stored => blob,
            Ok(_) => return Err(larder_core::Error::Damaged("a blob is not as long as its object says".into()).into()),
            Err(error) if error.kind == Kind::NoSuchBlob => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let cipher = key.map(|key| key.cipher(&id.0)).transpose()?;
        Ok(Some(Self { blob, sealed: cipher.map(|cipher| SealedBlob::new(cipher, 0, length)) }))
    }

    /// At least one byte from offset `from`, and at most `max`; empty at the end.
    ///
    /// # Errors
    /// `Damaged`: never wrong bytes.
    pub(super) async fn read(&mut self, from: u64, max: usize) -> Result<Bytes> {
        match &mut self.sealed {
            None => Ok(self.blob.read(from, max).await?),
            Some(sealed) => Ok(sealed.read(&mut *self.blob, from, max).await?),
        }
    }
}
