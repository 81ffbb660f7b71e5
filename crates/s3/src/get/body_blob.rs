//! A blob of an object or part, opened on the way where it is encrypted.

use bytes::{Bytes, BytesMut};
use larder_core::Core;
use larder_rows::content::BlobId;
use larder_store::{BlobReader, Kind, body_slice};

use super::reader::missing_bytes;
use crate::Result;
use crate::encryption::BytesKey;
use crate::rules::sealed_body::{BodyCipher, CHUNK_BYTES, SealedChunk, TAG_BYTES, sealed_chunk, sealed_length};

/// Reads the bytes of one blob as the client stored them.
pub(crate) struct BodyBlob {
    blob: Box<dyn BlobReader>,
    /// Its length before it was sealed, in bytes.
    length: u64,
    opener: Option<Opener>,
}

/// Opens chunks, and keeps the last ones: readers may ask for less than a chunk.
struct Opener {
    cipher: BodyCipher,
    /// The offset of the first byte of `opened`.
    begin: u64,
    opened: Bytes,
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
        let cipher = key.map(|key| key.key.body_cipher(&id.0)).transpose()?;
        let opener = cipher.map(|cipher| Opener { cipher, begin: 0, opened: Bytes::new() });
        Ok(Some(Self { blob, length, opener }))
    }

    /// At least one byte from offset `from`, and at most `max`; empty at the end.
    ///
    /// # Errors
    /// `Damaged`: never wrong bytes.
    pub(super) async fn read(&mut self, from: u64, max: usize) -> Result<Bytes> {
        let Some(opener) = &mut self.opener else { return Ok(self.blob.read(from, max).await?) };
        if from >= self.length {
            return Ok(Bytes::new());
        }
        if !opener.has(from) {
            opener.read(&mut *self.blob, from, max, self.length).await?;
        }
        Ok(body_slice(&opener.opened, from - opener.begin, max))
    }
}

impl Opener {
    fn has(&self, at: u64) -> bool {
        at >= self.begin && at - self.begin < self.opened.len() as u64
    }

    /// Reads and opens the chunk with the byte at `from`, and whole ones after it up to `max` bytes.
    async fn read(&mut self, blob: &mut dyn BlobReader, from: u64, max: usize, length: u64) -> Result<()> {
        let begin = from - from % CHUNK_BYTES as u64;
        let mut chunks = Vec::new();
        for at in 0..(max / CHUNK_BYTES).max(1) {
            let chunk = sealed_chunk(begin + (at * CHUNK_BYTES) as u64, length);
            let is_last = chunk.is_last;
            chunks.push(chunk);
            if is_last {
                break;
            }
        }
        let mut opened = BytesMut::with_capacity(chunks.len() * (CHUNK_BYTES + TAG_BYTES));
        for chunk in chunks {
            read_sealed(blob, &chunk, &mut opened).await?;
            self.cipher.open_tail(&chunk, &mut opened)?;
        }
        (self.begin, self.opened) = (begin, opened.freeze());
        Ok(())
    }
}

/// Appends the stored bytes of a chunk.
async fn read_sealed(blob: &mut dyn BlobReader, chunk: &SealedChunk, to: &mut BytesMut) -> Result<()> {
    let mut at = chunk.stored.start;
    while at < chunk.stored.end {
        let left = usize::try_from(chunk.stored.end - at).unwrap_or(usize::MAX);
        let piece = blob.read(at, left).await?;
        if piece.is_empty() {
            return Err(missing_bytes());
        }
        to.extend_from_slice(&piece);
        at += piece.len() as u64;
    }
    Ok(())
}
