//! A blob of sealed chunks, opened while it is read.

use bytes::{Bytes, BytesMut};
use larder_store::{BlobReader, Error, Kind, Result, body_slice};

use crate::sealed_body::{BodyCipher, CHUNK_BYTES, SealedChunk, TAG_BYTES, sealed_chunk};

/// Reads the bytes of a sealed body. It keeps the chunks opened last: readers may ask for less than one.
pub struct SealedBlob {
    cipher: BodyCipher,
    /// Bytes of the blob before the first chunk.
    before: u64,
    /// Length of the body before it was sealed, in bytes.
    length: u64,
    /// The offset of the first byte of `opened`.
    begin: u64,
    opened: Bytes,
}

impl SealedBlob {
    /// A body of this length in bytes, whose chunks begin `before` bytes into its blob.
    #[must_use]
    pub fn new(cipher: BodyCipher, before: u64, length: u64) -> Self {
        Self { cipher, before, length, begin: 0, opened: Bytes::new() }
    }

    /// At least one byte from offset `from`, and at most `max`; empty at the end.
    ///
    /// # Errors
    /// `Damaged`: never wrong bytes.
    pub async fn read(&mut self, blob: &mut dyn BlobReader, from: u64, max: usize) -> Result<Bytes> {
        if from >= self.length {
            return Ok(Bytes::new());
        }
        if !self.has(from) {
            self.open(blob, from, max).await?;
        }
        Ok(body_slice(&self.opened, from - self.begin, max))
    }

    fn has(&self, at: u64) -> bool {
        at >= self.begin && at - self.begin < self.opened.len() as u64
    }

    /// Reads and opens the chunk with the byte at `from`, and whole ones after it up to `max` bytes.
    async fn open(&mut self, blob: &mut dyn BlobReader, from: u64, max: usize) -> Result<()> {
        let begin = from - from % CHUNK_BYTES as u64;
        let mut chunks = Vec::new();
        for at in 0..(max / CHUNK_BYTES).max(1) {
            let chunk = sealed_chunk(begin + (at * CHUNK_BYTES) as u64, self.length);
            let is_last = chunk.is_last;
            chunks.push(chunk);
            if is_last {
                break;
            }
        }
        let mut opened = BytesMut::with_capacity(chunks.len() * (CHUNK_BYTES + TAG_BYTES));
        for chunk in chunks {
            read_chunk(blob, &chunk, self.before, &mut opened).await?;
            self.cipher.open_tail(&chunk, &mut opened)?;
        }
        (self.begin, self.opened) = (begin, opened.freeze());
        Ok(())
    }
}

/// Appends the stored bytes of a chunk.
async fn read_chunk(blob: &mut dyn BlobReader, chunk: &SealedChunk, before: u64, to: &mut BytesMut) -> Result<()> {
    let (mut at, end) = (before + chunk.stored.start, before + chunk.stored.end);
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        let piece = blob.read(at, left).await?;
        if piece.is_empty() {
            return Err(Error::new(Kind::Damaged, "a blob ends before its last chunk"));
        }
        to.extend_from_slice(&piece);
        at += piece.len() as u64;
    }
    Ok(())
}
