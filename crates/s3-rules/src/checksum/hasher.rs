//! Digests of bytes that arrive in pieces.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use sha1::{Digest as _, Sha1};
use sha2::{Sha256, Sha512};
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh64::Xxh64;

use super::{Algorithm, Checksum};

/// Computes the checksum of bytes that arrive in pieces.
#[derive(Clone)]
pub struct ChecksumHasher {
    algorithm: Algorithm,
    state: HasherState,
}

#[derive(Clone)]
enum HasherState {
    Crc(CrcAlgorithm, Box<crc_fast::Digest>),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Box<Sha512>),
    Md5(Md5Hasher),
    Xxh64(Box<Xxh64>),
    Xxh3(Box<Xxh3>),
    Xxh128(Box<Xxh3>),
}

impl ChecksumHasher {
    /// A hasher that has seen no bytes.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        let crc = |crc| HasherState::Crc(crc, Box::new(crc_fast::Digest::new(crc)));
        let state = match algorithm {
            Algorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 => HasherState::Sha1(Sha1::new()),
            Algorithm::Sha256 => HasherState::Sha256(Sha256::new()),
            Algorithm::Sha512 => HasherState::Sha512(Box::default()),
            Algorithm::Md5 => HasherState::Md5(Md5Hasher::default()),
            Algorithm::Xxhash64 => HasherState::Xxh64(Box::new(Xxh64::new(0))),
            Algorithm::Xxhash3 => HasherState::Xxh3(Box::default()),
            Algorithm::Xxhash128 => HasherState::Xxh128(Box::default()),
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
            HasherState::Crc(_, crc) => crc.update(piece),
            HasherState::Sha1(sha) => sha.update(piece),
            HasherState::Sha256(sha) => sha.update(piece),
            HasherState::Sha512(sha) => sha.update(piece),
            HasherState::Md5(md5) => md5.update(piece),
            HasherState::Xxh64(xxh) => xxh.update(piece),
            HasherState::Xxh3(xxh) | HasherState::Xxh128(xxh) => xxh.update(piece),
        }
    }

    /// The digest of all pieces, big endian.
    #[must_use]
    pub fn finish(self) -> Bytes {
        match self.state {
            HasherState::Crc(_, crc) => crc_bytes(self.algorithm, crc.finalize()),
            HasherState::Sha1(sha) => Bytes::copy_from_slice(&sha.finalize()),
            HasherState::Sha256(sha) => Bytes::copy_from_slice(&sha.finalize()),
            HasherState::Sha512(sha) => Bytes::copy_from_slice(&sha.finalize()),
            HasherState::Md5(md5) => Bytes::copy_from_slice(&md5.finish()),
            // The canonical form of each XXH is big endian.
            HasherState::Xxh64(xxh) => Bytes::copy_from_slice(&xxh.digest().to_be_bytes()),
            HasherState::Xxh3(xxh) => Bytes::copy_from_slice(&xxh.digest().to_be_bytes()),
            HasherState::Xxh128(xxh) => Bytes::copy_from_slice(&xxh.digest128().to_be_bytes()),
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

/// The CRC of an algorithm; `None` for the algorithms that are no CRC.
pub(super) fn crc_algorithm(algorithm: Algorithm) -> Option<CrcAlgorithm> {
    match ChecksumHasher::new(algorithm).state {
        HasherState::Crc(crc, _) => Some(crc),
        _ => None,
    }
}

/// The digest of a CRC: its low bytes, big endian.
pub(super) fn crc_bytes(algorithm: Algorithm, crc: u64) -> Bytes {
    let bytes = crc.to_be_bytes();
    Bytes::copy_from_slice(&bytes[bytes.len() - algorithm.digest_length()..])
}

/// The full checksum of an object from the digests and lengths of its parts, in their order. `None` when the algorithm is no
/// CRC or a digest has another length. Ten thousand parts take milliseconds.
#[must_use]
pub fn combine_full(algorithm: Algorithm, parts: &[(Bytes, u64)]) -> Option<Checksum> {
    let longest = parts.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let zeros = CrcZeroTable::up_to(crc_algorithm(algorithm)?, longest);
    let mut whole = 0;
    for (digest, length) in parts {
        if digest.len() != algorithm.digest_length() {
            return None;
        }
        let crc = digest.iter().fold(0, |crc, &byte| (crc << 8) | u64::from(byte));
        whole = zeros.shift_by(whole, *length) ^ crc;
    }
    Some(Checksum::full(algorithm, crc_bytes(algorithm, whole)))
}

/// The composite checksum of an object from the digests of its parts, in their order. There is at least one part.
#[must_use]
pub fn composite(algorithm: Algorithm, digests: &[Bytes]) -> Checksum {
    let mut hasher = ChecksumHasher::new(algorithm);
    digests.iter().for_each(|digest| hasher.update(digest));
    Checksum { algorithm, digest: hasher.finish(), parts: u32::try_from(digests.len()).ok() }
}

/// The effect of appended zero bytes on a CRC, as one matrix over bits for each power of two bytes. The CRC of two strings is
/// that of the first, shifted by the length of the second, xor that of the second. The library can combine two CRCs too, but
/// it squares all matrices again for each pair: a second for ten thousand parts.
struct CrcZeroTable {
    powers: Vec<[u64; 64]>,
}

impl CrcZeroTable {
    /// The matrices for strings of up to `longest` bytes.
    fn up_to(crc: crc_fast::CrcAlgorithm, longest: u64) -> Self {
        // In all three algorithms the CRC of no bytes is 0, so combining with it shifts a CRC and nothing else.
        let bits = if crc == crc_fast::CrcAlgorithm::Crc64Nvme { 64 } else { 32 };
        let mut power = [0; 64];
        for (bit, column) in power.iter_mut().enumerate().take(bits) {
            *column = crc_fast::checksum_combine(crc, 1 << bit, 0, 1);
        }
        let mut powers = Vec::new();
        for _ in 0..u64::BITS - longest.leading_zeros() {
            powers.push(power);
            power = power.map(|column| shift(&power, column));
        }
        Self { powers }
    }

    fn shift_by(&self, crc: u64, length: u64) -> u64 {
        let used = self.powers.iter().enumerate().filter(|(bit, _)| length >> bit & 1 == 1);
        used.fold(crc, |crc, (_, power)| shift(power, crc))
    }
}

fn shift(power: &[u64; 64], crc: u64) -> u64 {
    let set = power.iter().enumerate().filter(|(bit, _)| crc >> bit & 1 == 1);
    set.fold(0, |sum, (_, column)| sum ^ column)
}
