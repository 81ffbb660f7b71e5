//! Encrypted bytes of a body: chunks of AES-256-GCM, each of which a range read opens alone.
//!
//! ```text
//! chunk 0                chunk 1                … last chunk
//! 64 KiB sealed · tag    64 KiB sealed · tag      1 byte to 64 KiB sealed · tag (an empty body: the tag alone)
//! ```
//! The nonce of a chunk is its index and whether it is the last one, so chunks can neither be moved, nor left out, nor cut off.
//! Each body has a key of its own, so no nonce comes twice under one key.

use std::ops::Range;

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use bytes::{Bytes, BytesMut};

use crate::secret_key::{BadKey, SecretKey};

/// Bytes of a chunk before it is sealed.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes that sealing adds to a chunk.
pub const TAG_BYTES: usize = 16;
const SEALED_CHUNK: u64 = (CHUNK_BYTES + TAG_BYTES) as u64;

/// The stored length of a body of this length, in bytes.
#[must_use]
pub fn sealed_length(length: u64) -> u64 {
    let chunks = length.div_ceil(CHUNK_BYTES as u64).max(1);
    length.saturating_add(chunks.saturating_mul(TAG_BYTES as u64))
}

/// The length of a body with this stored length; 0 for one that no body has.
#[must_use]
pub fn opened_length(sealed: u64) -> u64 {
    sealed.saturating_sub(sealed.div_ceil(SEALED_CHUNK).max(1) * TAG_BYTES as u64)
}

/// The stored bytes of the chunk that has the byte at `offset` of a body of this length.
#[must_use]
pub fn sealed_chunk(offset: u64, length: u64) -> SealedChunk {
    let index = offset / CHUNK_BYTES as u64;
    let begin = index * SEALED_CHUNK;
    let end = begin.saturating_add(SEALED_CHUNK).min(sealed_length(length));
    SealedChunk { index, stored: begin..end, is_last: end == sealed_length(length) }
}

/// A chunk of a sealed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedChunk {
    /// Its number, from 0.
    pub index: u64,
    /// Its place in the stored bytes.
    pub stored: Range<u64>,
    /// Whether the body ends with it.
    pub is_last: bool,
}

/// Seals and opens the chunks of one body.
#[derive(Debug)]
pub struct BodyCipher {
    key: LessSafeKey,
}

impl BodyCipher {
    /// The cipher of the body with this key; no other body may have it.
    ///
    /// # Errors
    /// None in practice.
    pub fn new(key: &SecretKey) -> Result<Self, BadKey> {
        Ok(Self { key: key.cipher()? })
    }

    /// Seals a chunk.
    ///
    /// # Errors
    /// None in practice.
    pub fn seal(&self, index: u64, is_last: bool, chunk: &[u8]) -> Result<Bytes, BadKey> {
        let mut sealed = Vec::with_capacity(chunk.len() + TAG_BYTES);
        sealed.extend_from_slice(chunk);
        self.key.seal_in_place_append_tag(nonce(index, is_last), Aad::empty(), &mut sealed).map_err(|_| BadKey)?;
        Ok(sealed.into())
    }

    /// Opens the sealed chunk at the end of `bytes`, in place.
    ///
    /// # Errors
    /// [`BadKey`] for a chunk of another body, index or end, and for a damaged one.
    pub fn open_tail(&self, chunk: &SealedChunk, bytes: &mut BytesMut) -> Result<(), BadKey> {
        let sealed = usize::try_from(chunk.stored.end - chunk.stored.start).map_err(|_| BadKey)?;
        let begin = bytes.len().checked_sub(sealed).ok_or(BadKey)?;
        let nonce = nonce(chunk.index, chunk.is_last);
        let opened = self.key.open_in_place(nonce, Aad::empty(), &mut bytes[begin..]).map_err(|_| BadKey)?.len();
        bytes.truncate(begin + opened);
        Ok(())
    }

    /// Opens a body whose sealed bytes are all there.
    ///
    /// # Errors
    /// [`BadKey`], as [`Self::open_tail`].
    pub fn open_whole(&self, sealed: &[u8]) -> Result<Bytes, BadKey> {
        let length = opened_length(sealed.len() as u64);
        let (mut opened, mut offset) = (BytesMut::with_capacity(sealed.len()), 0);
        loop {
            let chunk = sealed_chunk(offset, length);
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            opened.extend_from_slice(sealed.get(at(chunk.stored.start)..at(chunk.stored.end)).ok_or(BadKey)?);
            self.open_tail(&chunk, &mut opened)?;
            if chunk.is_last {
                return Ok(opened.freeze());
            }
            offset += CHUNK_BYTES as u64;
        }
    }
}

fn nonce(index: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&index.to_be_bytes());
    nonce[8] = u8::from(is_last);
    Nonce::assume_unique_for_key(nonce)
}

/// Seals a body while it arrives. It holds back one chunk: only the end of the body tells which one is the last.
#[derive(Debug)]
pub struct BodySealer {
    cipher: BodyCipher,
    index: u64,
    held: BytesMut,
}

impl BodySealer {
    /// A sealer at the begin of a body.
    #[must_use]
    pub fn new(cipher: BodyCipher) -> Self {
        Self { cipher, index: 0, held: BytesMut::with_capacity(CHUNK_BYTES) }
    }

    /// Takes a piece, and returns the chunks that are complete with it.
    ///
    /// # Errors
    /// None in practice.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<Vec<Bytes>, BadKey> {
        let mut chunks = Vec::new();
        while !piece.is_empty() {
            if self.held.len() == CHUNK_BYTES {
                chunks.push(self.cipher.seal(self.index, false, &self.held)?);
                self.held.clear();
                self.index += 1;
            }
            let (front, rest) = piece.split_at(piece.len().min(CHUNK_BYTES - self.held.len()));
            self.held.extend_from_slice(front);
            piece = rest;
        }
        Ok(chunks)
    }

    /// The last chunk.
    ///
    /// # Errors
    /// None in practice.
    pub fn finish(self) -> Result<Bytes, BadKey> {
        self.cipher.seal(self.index, true, &self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn cipher(key: u8) -> BodyCipher {
        BodyCipher::new(&SecretKey::new([key; 32])).unwrap()
    }

    fn sealed(pieces: &[&[u8]]) -> Vec<u8> {
        let mut sealer = BodySealer::new(cipher(1));
        let mut stored: Vec<u8> = pieces.iter().flat_map(|piece| sealer.push(piece).unwrap().concat()).collect();
        stored.extend_from_slice(&sealer.finish().unwrap());
        stored
    }

    fn opened(stored: &[u8]) -> Result<Bytes, BadKey> {
        cipher(1).open_whole(stored)
    }

    #[test]
    fn bodies_of_all_lengths_around_a_chunk_come_back() {
        const C: usize = CHUNK_BYTES;
        for length in [0, 1, 15, C - 1, C, C + 1, 2 * C - 1, 2 * C, 2 * C + 1, 3 * C + 5] {
            let body: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
            for piece in [1_000, C - 1, C, C + 1, 5 * C] {
                let pieces: Vec<&[u8]> = body.chunks(piece).collect();
                let stored = sealed(&pieces);
                assert_eq!(stored.len() as u64, sealed_length(length as u64), "{length}");
                assert_eq!(opened_length(stored.len() as u64), length as u64);
                assert_eq!(opened(&stored).unwrap(), body, "{length} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn moved_missing_and_foreign_chunks_are_refused() {
        const C: usize = CHUNK_BYTES + TAG_BYTES;
        let body = vec![9; 3 * CHUNK_BYTES];
        let stored = sealed(&[&body]);
        let swapped = [&stored[C..2 * C], &stored[..C], &stored[2 * C..]].concat();
        assert_eq!(opened(&swapped), Err(BadKey));
        assert_eq!(opened(&stored[..2 * C]), Err(BadKey), "cut off at a chunk");
        assert_eq!(opened(&stored[C..]), Err(BadKey), "without its begin");
        assert!(opened(&stored).is_ok());
        assert_eq!(cipher(2).open_whole(&stored), Err(BadKey));
        assert_eq!(opened(&[]), Err(BadKey));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_found(at: usize, bit in 0..8_u8, body in vec(any::<u8>(), 0..300)) {
            let mut stored = sealed(&[&body]);
            let at = at % stored.len();
            stored[at] ^= 1 << bit;
            prop_assert_eq!(opened(&stored), Err(BadKey));
        }

        #[test]
        fn lengths_are_each_other(length in 0..u64::MAX / 2) {
            prop_assert_eq!(opened_length(sealed_length(length)), length);
        }
    }
}
