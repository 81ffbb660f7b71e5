//! Parts of an upload, and the manifest of an object made of them.

use bytes::Bytes;

use crate::codec::{DecodeError, Decoder, Encoder};
use crate::content::BlobId;
use crate::rows::Micros;

use super::version::fields::{array, optional, put_optional};

const VERSION: u8 = 1;

/// Highest part number.
pub const PART_NUMBER_MAX: u16 = 10_000;
/// Parts in a row of a manifest.
pub const MANIFEST_ROW_PARTS: usize = 256;

/// A part of an upload; its row is named by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 1.
    pub number: u16,
    /// MD5 of its bytes.
    pub md5: [u8; 16],
    /// Its length in bytes.
    pub length: u64,
    /// Where its bytes are; `None` when it has none.
    pub blob: Option<BlobId>,
    /// When it was written.
    pub modified: Micros,
    /// Its checksum in the upload's algorithm: the digest alone.
    pub checksum: Option<Bytes>,
}

impl Part {
    /// Name of the row of the part with this number: rows sort by number.
    #[must_use]
    pub fn row_name(number: u16) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    /// The value of its row.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::with_capacity(128);
        out.u8(VERSION);
        out.raw(&self.md5);
        out.varint(self.length);
        out.u64(self.modified);
        put_blob_and_checksum(&mut out, self.blob, self.checksum.as_ref());
        out.finish()
    }

    /// Reads a row.
    ///
    /// # Errors
    /// [`DecodeError`]: an unknown version is never guessed at.
    pub fn decode(name: &[u8], value: Bytes) -> Result<Self, DecodeError> {
        let number = name.try_into().map(u16::from_be_bytes).map_err(|_| DecodeError::Invalid("part number"))?;
        let number = part_number(number.into())?;
        let mut rest = Decoder::new(value);
        rest.version(VERSION)?;
        let (md5, length, modified) = (array(&mut rest)?, rest.varint()?, rest.u64()?);
        let (blob, checksum) = blob_and_checksum(&mut rest)?;
        rest.finish()?;
        Ok(Self { number, md5, length, blob, modified, checksum })
    }
}

/// A part of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestPart {
    /// Its number, from 1.
    pub number: u16,
    /// Its length in bytes.
    pub length: u64,
    /// Where its bytes are; `None` when it has none.
    pub blob: Option<BlobId>,
    /// Its checksum in the object's algorithm.
    pub checksum: Option<Bytes>,
}

impl From<&Part> for ManifestPart {
    fn from(part: &Part) -> Self {
        Self { number: part.number, length: part.length, blob: part.blob, checksum: part.checksum.clone() }
    }
}

/// The rows of the manifest of an object made of `parts`: names and values. A name is the offset of the first byte, so the
/// bytes at any offset are in the row with the greatest name that is not greater.
///
/// A row has [`MANIFEST_ROW_PARTS`] parts; more only when these have no bytes at all, as two rows cannot begin at one offset.
#[must_use]
pub fn manifest_rows(parts: &[ManifestPart]) -> Vec<(Bytes, Bytes)> {
    let (mut rows, mut rest, mut offset) = (Vec::new(), parts, 0_u64);
    while !rest.is_empty() {
        let filled = rest.iter().position(|part| part.length > 0).map_or(rest.len(), |at| at + 1);
        let (row, behind) = rest.split_at(filled.max(MANIFEST_ROW_PARTS).min(rest.len()));
        let first = parts.len() - rest.len();
        rows.push((Bytes::copy_from_slice(&offset.to_be_bytes()), manifest_value(first, row)));
        offset = row.iter().fold(offset, |offset, part| offset.saturating_add(part.length));
        rest = behind;
    }
    rows
}

/// Reads a row of a manifest: the offset of its first byte, the index of its first part in the object (from 0), its parts.
///
/// # Errors
/// [`DecodeError`]: an unknown version is never guessed at.
pub fn decode_manifest_row(name: &[u8], value: Bytes) -> Result<(u64, u32, Vec<ManifestPart>), DecodeError> {
    let offset = name.try_into().map(u64::from_be_bytes).map_err(|_| DecodeError::Invalid("offset"))?;
    let mut rest = Decoder::new(value);
    rest.version(VERSION)?;
    let first = u32::try_from(rest.varint()?).map_err(|_| DecodeError::Invalid("part index"))?;
    let mut parts = Vec::new();
    for _ in 0..rest.count(PART_NUMBER_MAX.into())? {
        let (number, length) = (part_number(rest.varint()?)?, rest.varint()?);
        let (blob, checksum) = blob_and_checksum(&mut rest)?;
        parts.push(ManifestPart { number, length, blob, checksum });
    }
    rest.finish()?;
    Ok((offset, first, parts))
}

fn manifest_value(first: usize, parts: &[ManifestPart]) -> Bytes {
    let mut out = Encoder::with_capacity(16 + 64 * parts.len());
    out.u8(VERSION);
    out.varint(first as u64);
    out.varint(parts.len() as u64);
    for part in parts {
        out.varint(part.number.into());
        out.varint(part.length);
        put_blob_and_checksum(&mut out, part.blob, part.checksum.as_ref());
    }
    out.finish()
}

fn part_number(number: u64) -> Result<u16, DecodeError> {
    let number = u16::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
    number.ok_or(DecodeError::Invalid("part number"))
}

fn put_blob_and_checksum(out: &mut Encoder, blob: Option<BlobId>, checksum: Option<&Bytes>) {
    put_optional(out, blob, |out, blob| out.raw(&blob.0));
    put_optional(out, checksum, |out, checksum| out.bytes(checksum));
}

fn blob_and_checksum(rest: &mut Decoder) -> Result<(Option<BlobId>, Option<Bytes>), DecodeError> {
    let blob = optional(rest, |rest| Ok(BlobId(array(rest)?)))?;
    Ok((blob, optional(rest, Decoder::bytes)?))
}
