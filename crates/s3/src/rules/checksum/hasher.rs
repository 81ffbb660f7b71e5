//! Digests of bytes that arrive in pieces.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use super::{Algorithm, Checksum};

/// Computes the checksum of bytes that arrive in pieces.
#[derive(Debug, Clone)]
pub struct ChecksumHasher {
    algorithm: Algorithm,
    state: HasherState,
}

#[derive(Debug, Clone)]
enum HasherState {
    Crc(Box<crc_fast::Digest>),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl ChecksumHasher {
    /// A hasher that has seen no bytes.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match (crc_of(algorithm), algorithm) {
            (Some(crc), _) => HasherState::Crc(Box::new(crc_fast::Digest::new(crc))),
            (None, Algorithm::Sha1) => HasherState::Sha1(Sha1::new()),
            (None, _) => HasherState::Sha256(Sha256::new()),
        };
        Self { algorithm, state }
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.state {
            HasherState::Crc(crc) => crc.update(piece),
            HasherState::Sha1(sha) => sha.update(piece),
            HasherState::Sha256(sha) => sha.update(piece),
        }
    }

    /// The digest of all pieces, big endian.
    #[must_use]
    pub fn finish(self) -> Bytes {
        match self.state {
            HasherState::Crc(crc) => crc_bytes(self.algorithm, crc.finalize()),
            HasherState::Sha1(sha) => Bytes::copy_from_slice(&sha.finalize()),
            HasherState::Sha256(sha) => Bytes::copy_from_slice(&sha.finalize()),
        }
    }

    /// The checksum of `bytes`.
    #[must_use]
    pub fn digest(algorithm: Algorithm, bytes: &[u8]) -> Checksum {
        let mut hasher = Self::new(algorithm);
        hasher.update(bytes);
        Checksum::full(algorithm, hasher.finish())
    }
}

/// Computes the MD5 of bytes that arrive in pieces.
#[derive(Debug, Clone, Default)]
pub struct Md5Hasher(md5::Md5);

impl Md5Hasher {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all pieces.
    #[must_use]
    pub fn finish(self) -> [u8; 16] {
        self.0.finalize().into()
    }

    /// The digest of `bytes`.
    #[must_use]
    pub fn digest(bytes: &[u8]) -> [u8; 16] {
        md5::Md5::digest(bytes).into()
    }
}

/// The CRC of an algorithm; `None` for the SHA algorithms.
pub(super) fn crc_of(algorithm: Algorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        Algorithm::Sha1 | Algorithm::Sha256 => None,
    }
}

/// The digest of a CRC: its low bytes, big endian.
pub(super) fn crc_bytes(algorithm: Algorithm, crc: u64) -> Bytes {
    let bytes = crc.to_be_bytes();
    Bytes::copy_from_slice(&bytes[bytes.len() - algorithm.digest_length()..])
}
