//! Checksums of objects from the checksums of their parts.

use bytes::Bytes;

use super::hasher::{ChecksumHasher, crc_bytes, crc_of};
use super::{Algorithm, Checksum};

/// The full checksum of an object from the digests and lengths of its parts, in their order. `None` when the algorithm is no
/// CRC or a digest has another length. Ten thousand parts take milliseconds.
#[must_use]
pub fn combine_full(algorithm: Algorithm, parts: &[(Bytes, u64)]) -> Option<Checksum> {
    let longest = parts.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let zeros = CrcZeroTable::up_to(crc_of(algorithm)?, longest);
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
