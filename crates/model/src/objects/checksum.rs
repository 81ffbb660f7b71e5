//! The five checksum algorithms, of a whole object or of the checksums of its parts.

use bytes::Bytes;

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Algorithm {
    /// `CRC32`
    Crc32 = 1,
    /// `CRC32C`
    Crc32c = 2,
    /// `CRC64NVME`
    Crc64Nvme = 3,
    /// `SHA1`
    Sha1 = 4,
    /// `SHA256`
    Sha256 = 5,
}

/// What a checksum was computed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// All bytes: `FULL_OBJECT`.
    FullObject = 1,
    /// The checksums of the parts, with their count: `COMPOSITE`.
    Composite = 2,
}

/// A checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The digest, big endian.
    pub digest: Bytes,
    /// How many parts it is made of; `None` over all bytes.
    pub parts: Option<u32>,
}
