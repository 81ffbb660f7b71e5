//! A blob as one bulk row, version 1: its key is the id.
//!
//! ```text
//! version u8 · table u8 · partition (varint length, bytes) · row (varint length, bytes)
//! · check u32 of (id, all before it) · check u32 of (first check, block number 0 u64, body) · body
//! ```
//! The first check covers the owner alone, so that the sweeper reads no bodies: with a damaged owner it would remove a blob in
//! use.

use bytes::{BufMut, Bytes, BytesMut};
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Error, Kind, Result};

use super::format::{CHECK_BYTES, block_check, damaged, put_owner, take_owner};

const VERSION: u8 = 1;

/// A row being built in its stored layout, so that finishing a row of announced length copies nothing.
pub(super) struct BulkRowBuilder {
    bytes: BytesMut,
    head: usize,
    check: crc32fast::Hasher,
}

impl BulkRowBuilder {
    /// A row without a body.
    pub(super) fn new(id: BlobId, owner: &BlobOwner) -> Self {
        let mut head = FieldEncoder::default();
        head.u8(VERSION);
        put_owner(&mut head, owner);
        let seed = head_check(id, head.written());
        let mut bytes = BytesMut::from(head.written());
        bytes.put_u32(seed);
        // The place of the body's check, which is known at the end.
        bytes.put_u32(0);
        Self { head: bytes.len(), bytes, check: block_check(seed, 0) }
    }

    /// Bytes of the body so far.
    pub(super) fn length(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Allocates for a body of this length.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Appends to the body.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.check.update(bytes);
        self.bytes.put_slice(bytes);
    }

    /// The body alone, for a file.
    pub(super) fn into_body(mut self) -> Bytes {
        self.bytes.split_off(self.head).freeze()
    }

    /// The row.
    pub(super) fn finish(mut self) -> Bytes {
        let check = self.check.finalize().to_be_bytes();
        self.bytes[self.head - CHECK_BYTES..self.head].copy_from_slice(&check);
        // The memtable keeps these bytes until the flush, so spare capacity is worth a copy.
        match self.bytes.capacity() > self.bytes.len() + self.bytes.len() / 4 {
            true => Bytes::copy_from_slice(&self.bytes),
            false => self.bytes.freeze(),
        }
    }
}

/// The owner of a row.
///
/// # Errors
/// `Damaged`.
pub(super) fn owner(id: BlobId, value: Bytes) -> Result<BlobOwner> {
    split(id, value).map(|(owner, _, _)| owner)
}

/// The body of a row, checked.
///
/// # Errors
/// `Damaged`.
pub(super) fn body(id: BlobId, value: Bytes) -> Result<Bytes> {
    let (_, seed, mut rest) = split(id, value)?;
    let stored = take_check(&mut rest)?;
    let body = rest.rest();
    let mut check = block_check(seed, 0);
    check.update(&body);
    if check.finalize() != stored {
        return Err(damaged("check of the body"));
    }
    Ok(body)
}

/// The owner, the check of the head, and the bytes after it.
fn split(id: BlobId, value: Bytes) -> Result<(BlobOwner, u32, FieldDecoder)> {
    let mut rest = FieldDecoder::new(value.clone());
    let owner = rest.version(VERSION).and_then(|()| take_owner(&mut rest)).map_err(broken)?;
    let seed = head_check(id, &value[..value.len() - rest.remaining()]);
    if take_check(&mut rest)? != seed {
        return Err(damaged("check of the head"));
    }
    Ok((owner, seed, rest))
}

fn head_check(id: BlobId, head: &[u8]) -> u32 {
    let mut check = crc32fast::Hasher::new();
    check.update(&id.0);
    check.update(head);
    check.finalize()
}

fn take_check(rest: &mut FieldDecoder) -> Result<u32> {
    let bytes = rest.raw(CHECK_BYTES).map_err(broken)?;
    Ok(bytes.iter().fold(0, |value, &byte| (value << 8) | u32::from(byte)))
}

fn broken(error: DecodeError) -> Error {
    Error::caused(Kind::Damaged, "blob row", error)
}
