//! The bytes of a blob file, version 1. Numbers are big endian, checks are CRC-32.
//!
//! ```text
//! head    "LRDB" · version u8 · bytes of the head u32 · block size u32 · id 24 · table u8
//!         · partition (varint length, bytes) · row (varint length, bytes) · check u32 of all before it
//! blocks  up to `block size` bytes · check u32 of (check of the head, number of the block u64, bytes)
//! foot    length of the body u64 · check u32 of (check of the head, length) · "LRDE"
//! ```
//! All blocks but the last are full, so the offset of a block is computed. Every check covers the check of the head: blocks of
//! another blob, or in another order, fail.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Error, Kind, Partition, Result, Table};

const MAGIC: &[u8; 4] = b"LRDB";
const MAGIC_END: &[u8; 4] = b"LRDE";
const VERSION: u8 = 1;
/// Bytes of magic, version and length, which precede the rest of the head.
pub(super) const HEAD_START_BYTES: usize = 9;
/// Longest head; names of partitions and rows are far shorter.
pub(super) const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a check.
pub(super) const CHECK_BYTES: usize = 4;
/// Bytes of the foot.
pub(super) const FOOT_BYTES: usize = 16;
const BLOCK_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// The head of a blob file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlobFileHead {
    /// The blob in the file.
    pub(super) id: BlobId,
    /// The row that the blob belongs to.
    pub(super) owner: BlobOwner,
    /// Bytes in a full block.
    pub(super) block: u32,
}

/// The layout of a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobLayout {
    /// Check of the head, which seeds all other checks.
    pub(super) seed: u32,
    /// Bytes of the head.
    pub(super) head: u64,
    /// Bytes in a full block.
    pub(super) block: u64,
    /// Bytes of the body.
    pub(super) length: u64,
}

impl BlobFileHead {
    /// Encodes the head; its check is the last four bytes.
    ///
    /// # Errors
    /// `Misuse` for names longer than any row's.
    pub(super) fn encode(&self) -> Result<Bytes> {
        let mut names = FieldEncoder::default();
        put_owner(&mut names, &self.owner);
        let length = HEAD_START_BYTES + 4 + self.id.0.len() + names.written().len() + CHECK_BYTES;
        if length > HEAD_BYTES_MAX {
            return Err(Error::new(Kind::Misuse, "the names of a blob's owner are too long"));
        }
        let mut out = FieldEncoder::with_capacity(length);
        out.raw(MAGIC);
        out.u8(VERSION);
        out.raw(&(length as u32).to_be_bytes());
        out.raw(&self.block.to_be_bytes());
        out.raw(&self.id.0);
        out.raw(names.written());
        let check = crc32fast::hash(out.written());
        out.raw(&check.to_be_bytes());
        Ok(out.finish())
    }

    /// The length of the head that begins with these bytes.
    ///
    /// # Errors
    /// `Damaged` if they begin no head, or one of an unknown version.
    pub(super) fn length(start: &[u8; HEAD_START_BYTES]) -> Result<usize> {
        let [m0, m1, m2, m3, version, l0, l1, l2, l3] = *start;
        if [m0, m1, m2, m3] != *MAGIC {
            return Err(damaged("not a blob file"));
        }
        if version != VERSION {
            return Err(damaged(&DecodeError::UnknownVersion(version).to_string()));
        }
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if (HEAD_START_BYTES + CHECK_BYTES..=HEAD_BYTES_MAX).contains(&length) {
            return Ok(length);
        }
        Err(damaged("impossible length of the head"))
    }

    /// Decodes a whole head of the length from [`Self::length`]; returns its check, too.
    ///
    /// # Errors
    /// `Damaged`.
    pub(super) fn decode(bytes: &Bytes) -> Result<(Self, u32)> {
        let Some((body, check)) = bytes.split_last_chunk::<CHECK_BYTES>() else {
            return Err(damaged("head cut off"));
        };
        let check = u32::from_be_bytes(*check);
        if check != crc32fast::hash(body) {
            return Err(damaged("check of the head"));
        }
        let mut rest = FieldDecoder::new(bytes.slice(HEAD_START_BYTES..body.len()));
        let head = Self::fields(&mut rest).map_err(|error| Error::caused(Kind::Damaged, "blob head", error))?;
        rest.finish().map_err(|error| Error::caused(Kind::Damaged, "blob head", error))?;
        Ok((head, check))
    }

    fn fields(rest: &mut FieldDecoder) -> std::result::Result<Self, DecodeError> {
        let block = rest.raw(4)?.iter().fold(0, |value, &byte| (value << 8) | u32::from(byte));
        if block == 0 || block > BLOCK_BYTES_MAX {
            return Err(DecodeError::Invalid("block size"));
        }
        let id = rest.raw(24)?.as_ref().try_into().map_err(|_| DecodeError::Truncated)?;
        Ok(Self { id: BlobId(id), owner: take_owner(rest)?, block })
    }
}

impl BlobLayout {
    /// Number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.length.div_ceil(self.block)
    }

    /// Bytes of the body in a block.
    pub(super) fn block_bytes(&self, index: u64) -> usize {
        let before = index.saturating_mul(self.block);
        self.length.saturating_sub(before).min(self.block) as usize
    }

    /// Bytes of a block in the file, with its check.
    pub(super) fn stored_bytes(&self, index: u64) -> usize {
        self.block_bytes(index) + CHECK_BYTES
    }

    /// The offset of a block.
    pub(super) fn block_at(&self, index: u64) -> u64 {
        self.head + index * (self.block + CHECK_BYTES as u64)
    }

    /// Bytes of the file.
    fn file_bytes(&self) -> Option<u64> {
        let checks = self.blocks().checked_mul(CHECK_BYTES as u64)?;
        self.head.checked_add(self.length)?.checked_add(checks)?.checked_add(FOOT_BYTES as u64)
    }

    /// The foot of the file.
    pub(super) fn foot(&self) -> [u8; FOOT_BYTES] {
        let mut foot = [0; FOOT_BYTES];
        foot[..8].copy_from_slice(&self.length.to_be_bytes());
        foot[8..12].copy_from_slice(&self.foot_check().to_be_bytes());
        foot[12..].copy_from_slice(MAGIC_END);
        foot
    }

    fn foot_check(&self) -> u32 {
        let mut check = crc32fast::Hasher::new();
        check.update(&self.seed.to_be_bytes());
        check.update(&self.length.to_be_bytes());
        check.finalize()
    }

    /// The shape of a file of `file_bytes` bytes that ends in `foot`.
    ///
    /// # Errors
    /// `Damaged` if the foot does not decode, or the file has another length than it states.
    pub(super) fn read(
        head: &BlobFileHead,
        head_bytes: u64,
        seed: u32,
        foot: &[u8; FOOT_BYTES],
        file_bytes: u64,
    ) -> Result<Self> {
        let length = foot[..8].iter().fold(0, |value, &byte| (value << 8) | u64::from(byte));
        let layout = Self { seed, head: head_bytes, block: u64::from(head.block), length };
        if *foot != layout.foot() {
            return Err(damaged("check of the foot"));
        }
        if layout.file_bytes() != Some(file_bytes) {
            return Err(damaged("not as long as its foot says"));
        }
        Ok(layout)
    }
}

/// The running check of one block.
pub(super) fn block_check(seed: u32, index: u64) -> crc32fast::Hasher {
    let mut check = crc32fast::Hasher::new();
    check.update(&seed.to_be_bytes());
    check.update(&index.to_be_bytes());
    check
}

/// Encodes the names of an owner.
pub(super) fn put_owner(out: &mut FieldEncoder, owner: &BlobOwner) {
    out.u8(owner.partition.table.code());
    out.bytes(&owner.partition.key);
    out.bytes(&owner.row);
}

/// Decodes the names of an owner into their own memory: the input may be a whole row of 1 MiB.
pub(super) fn take_owner(rest: &mut FieldDecoder) -> std::result::Result<BlobOwner, DecodeError> {
    let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
    let key = Bytes::copy_from_slice(&rest.bytes()?);
    let row = Bytes::copy_from_slice(&rest.bytes()?);
    Ok(BlobOwner { partition: Partition::new(table, key), row })
}

/// The error of wrong bytes.
pub(super) fn damaged(what: &str) -> Error {
    Error::new(Kind::Damaged, format!("blob: {what}"))
}
