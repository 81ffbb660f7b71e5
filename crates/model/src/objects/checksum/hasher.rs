//! Digests of bytes that come in pieces.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use super::{Algorithm, Checksum};

/// Computes the checksum of bytes that come in pieces.
#[derive(Debug, Clone)]
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Crc(Box<crc_fast::Digest>),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    /// A hasher that has seen no bytes.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match (crc_of(algorithm), algorithm) {
            (Some(crc), _) => State::Crc(Box::new(crc_fast::Digest::new(crc))),
            (None, Algorithm::Sha1) => State::Sha1(Sha1::new()),
            (None, _) => State::Sha256(Sha256::new()),
        };
        Self { algorithm, state }
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.state {
            State::Crc(crc) => crc.update(piece),
            State::Sha1(sha) => sha.update(piece),
            State::Sha256(sha) => sha.update(piece),
        }
    }

    /// The digest of all pieces, big endian.
    #[must_use]
    pub fn finish(self) -> Bytes {
        match self.state {
            State::Crc(crc) => crc_bytes(self.algorithm, crc.finalize()),
            State::Sha1(sha) => Bytes::copy_from_slice(&sha.finalize()),
            State::Sha256(sha) => Bytes::copy_from_slice(&sha.finalize()),
        }
    }

    /// The checksum of `bytes`.
    #[must_use]
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Checksum {
        let mut hasher = Self::new(algorithm);
        hasher.update(bytes);
        Checksum::full(algorithm, hasher.finish())
    }
}

/// MD5 of bytes that come in pieces.
#[derive(Debug, Clone, Default)]
pub struct Md5(md5::Md5);

impl Md5 {
    /// Takes the next piece.
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
    pub fn of(bytes: &[u8]) -> [u8; 16] {
        md5::Md5::digest(bytes).into()
    }
}

/// The polynomial of an algorithm that is a CRC.
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
