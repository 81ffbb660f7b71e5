//! The checksum algorithms of S3, over a whole object or over the checksums of its parts.

mod hasher;

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_rows::codec::coded;

pub use hasher::{ChecksumHasher, Md5Hasher, combine_full, composite};

coded! {
    /// A checksum algorithm.
    /// The name is that in headers and documents.
    pub enum Algorithm {
        /// `CRC32`
        Crc32 = 1, "CRC32";
        /// `CRC32C`
        Crc32c = 2, "CRC32C";
        /// `CRC64NVME`
        Crc64Nvme = 3, "CRC64NVME";
        /// `SHA1`
        Sha1 = 4, "SHA1";
        /// `SHA256`
        Sha256 = 5, "SHA256";
        /// `SHA512`
        Sha512 = 6, "SHA512";
        /// `MD5`, apart from that of an entity tag.
        Md5 = 7, "MD5";
        /// `XXHASH64`: XXH64 with seed 0.
        Xxhash64 = 8, "XXHASH64";
        /// `XXHASH3`: XXH3 of 64 bits with its default secret.
        Xxhash3 = 9, "XXHASH3";
        /// `XXHASH128`: XXH3 of 128 bits with its default secret.
        Xxhash128 = 10, "XXHASH128";
    }
}

/// The properties of an algorithm.
struct AlgorithmFacts {
    header: &'static str,
    element: &'static str,
    digest_length: usize,
    /// The kinds of checksum for multipart uploads; the first is the default.
    kinds: &'static [ChecksumKind],
}

impl Algorithm {
    fn facts(self) -> AlgorithmFacts {
        const EITHER: &[ChecksumKind] = &[ChecksumKind::Composite, ChecksumKind::FullObject];
        const COMPOSITE: &[ChecksumKind] = &[ChecksumKind::Composite];
        const WHOLE: &[ChecksumKind] = &[ChecksumKind::FullObject];
        let (header, element, digest_length, kinds) = match self {
            Self::Crc32 => ("x-amz-checksum-crc32", "ChecksumCRC32", 4, EITHER),
            Self::Crc32c => ("x-amz-checksum-crc32c", "ChecksumCRC32C", 4, EITHER),
            Self::Crc64Nvme => ("x-amz-checksum-crc64nvme", "ChecksumCRC64NVME", 8, WHOLE),
            Self::Sha1 => ("x-amz-checksum-sha1", "ChecksumSHA1", 20, COMPOSITE),
            Self::Sha256 => ("x-amz-checksum-sha256", "ChecksumSHA256", 32, COMPOSITE),
            Self::Sha512 => ("x-amz-checksum-sha512", "ChecksumSHA512", 64, COMPOSITE),
            Self::Md5 => ("x-amz-checksum-md5", "ChecksumMD5", 16, COMPOSITE),
            Self::Xxhash64 => ("x-amz-checksum-xxhash64", "ChecksumXXHASH64", 8, COMPOSITE),
            Self::Xxhash3 => ("x-amz-checksum-xxhash3", "ChecksumXXHASH3", 8, COMPOSITE),
            Self::Xxhash128 => ("x-amz-checksum-xxhash128", "ChecksumXXHASH128", 16, COMPOSITE),
        };
        AlgorithmFacts { header, element, digest_length, kinds }
    }

    /// The header that carries its checksums, in lower case.
    #[must_use]
    pub fn header(self) -> &'static str {
        self.facts().header
    }

    /// The XML element that carries its checksums.
    #[must_use]
    pub fn element(self) -> &'static str {
        self.facts().element
    }

    /// Length of a digest in bytes.
    #[must_use]
    pub fn digest_length(self) -> usize {
        self.facts().digest_length
    }

    /// The kinds that the checksum of a multipart upload may have. An object put in one piece always has a full checksum.
    #[must_use]
    pub fn multipart_kinds(self) -> &'static [ChecksumKind] {
        self.facts().kinds
    }

    /// Whether the checksum of a multipart upload may be of this kind.
    #[must_use]
    pub fn allows(self, kind: ChecksumKind) -> bool {
        self.multipart_kinds().contains(&kind)
    }

    /// The kind of the checksum of a multipart upload whose client names none.
    #[must_use]
    pub fn default_kind(self) -> ChecksumKind {
        self.multipart_kinds()[0]
    }

    /// The algorithm whose checksums this header carries, in any case.
    #[must_use]
    pub fn from_header(header: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.header().eq_ignore_ascii_case(header))
    }
}

coded! {
    /// The bytes that a checksum is computed over.
    /// The name is that in headers and documents.
    pub enum ChecksumKind {
        /// All bytes: `FULL_OBJECT`.
        FullObject = 1, "FULL_OBJECT";
        /// The checksums of the parts, with their count: `COMPOSITE`.
        Composite = 2, "COMPOSITE";
    }
}

/// A checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The digest, big endian.
    pub digest: Bytes,
    /// The number of parts of a composite checksum, at least one; `None` for a full checksum.
    pub parts: Option<u32>,
}

impl Checksum {
    /// A full checksum with this digest.
    #[must_use]
    pub fn full(algorithm: Algorithm, digest: Bytes) -> Self {
        Self { algorithm, digest, parts: None }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ChecksumKind {
        if self.parts.is_some() { ChecksumKind::Composite } else { ChecksumKind::FullObject }
    }

    /// Its text form in headers and documents: base64, followed by `-` and the number of parts when it is composite.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = STANDARD.encode(&self.digest);
        if let Some(parts) = self.parts {
            text.push_str(&format!("-{parts}"));
        }
        text
    }

    /// Reads [`Self::text`] back; `None` for text that is no checksum of this algorithm.
    #[must_use]
    pub fn parse(algorithm: Algorithm, text: &str) -> Option<Self> {
        let text = text.trim();
        // Base64 has no hyphen, so the first one separates the count.
        let (digest, parts) = match text.split_once('-') {
            Some((digest, count)) => (digest, Some(part_count(count)?)),
            None => (text, None),
        };
        let digest = STANDARD.decode(digest).ok().filter(|digest| digest.len() == algorithm.digest_length())?;
        Some(Self { algorithm, digest: digest.into(), parts })
    }
}

/// The number of parts after the hyphen of a checksum or an entity tag.
pub(super) fn part_count(text: &str) -> Option<u32> {
    // One spelling for each count: `01` would make a second form of an entity tag.
    text.parse().ok().filter(|count: &u32| *count > 0 && count.to_string() == text)
}
