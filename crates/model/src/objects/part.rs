//! Parts of an upload, and the manifest of an object made of them.

use bytes::Bytes;

use crate::content::BlobId;
use crate::rows::Micros;

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
