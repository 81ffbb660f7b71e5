//! Checksums of objects from the checksums of their parts.

use bytes::Bytes;

use super::hasher::{Hasher, crc_bytes, crc_of};
use super::{Algorithm, Checksum};

/// The checksum of all bytes of an object from digests and lengths of its parts, in their order; `None` when the algorithm is
/// no CRC or a digest is not one of it. Ten thousand parts take milliseconds.
#[must_use]
pub fn combine_full(algorithm: Algorithm, parts: &[(Bytes, u64)]) -> Option<Checksum> {
    let longest = parts.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let zeros = Zeros::up_to(crc_of(algorithm)?, longest);
    let mut whole = 0;
    for (digest, length) in parts {
        if digest.len() != algorithm.digest_length() {
            return None;
        }
        let crc = digest.iter().fold(0, |crc, &byte| (crc << 8) | u64::from(byte));
        whole = zeros.append(whole, *length) ^ crc;
    }
    Some(Checksum::full(algorithm, crc_bytes(algorithm, whole)))
}

/// The checksum of the digests of the parts of an object, in their order; there is at least one.
#[must_use]
pub fn composite(algorithm: Algorithm, digests: &[Bytes]) -> Checksum {
    let mut hasher = Hasher::new(algorithm);
    digests.iter().for_each(|digest| hasher.update(digest));
    Checksum { algorithm, digest: hasher.finish(), parts: u32::try_from(digests.len()).ok() }
}

/// What zero bytes behind a text do to its CRC. That is linear over bits, so it is kept as what becomes of each bit alone: one
/// such matrix for every power of two bytes. The CRC of two texts is the first one's, moved so far, xor the second one's. (The
/// library combines two CRCs too, but squares all matrices anew for each pair: a second for ten thousand parts.)
struct Zeros {
    powers: Vec<[u64; 64]>,
}

impl Zeros {
    /// Enough for texts of up to `longest` bytes.
    fn up_to(crc: crc_fast::CrcAlgorithm, longest: u64) -> Self {
        // In all three algorithms the CRC of no bytes is 0, so combining with it moves a CRC and nothing else.
        let bits = if crc == crc_fast::CrcAlgorithm::Crc64Nvme { 64 } else { 32 };
        let mut power = [0; 64];
        for (bit, column) in power.iter_mut().enumerate().take(bits) {
            *column = crc_fast::checksum_combine(crc, 1 << bit, 0, 1);
        }
        let mut powers = Vec::new();
        for _ in 0..u64::BITS - longest.leading_zeros() {
            powers.push(power);
            power = power.map(|column| moved(&power, column));
        }
        Self { powers }
    }

    fn append(&self, crc: u64, length: u64) -> u64 {
        let used = self.powers.iter().enumerate().filter(|(bit, _)| length >> bit & 1 == 1);
        used.fold(crc, |crc, (_, power)| moved(power, crc))
    }
}

fn moved(power: &[u64; 64], crc: u64) -> u64 {
    let set = power.iter().enumerate().filter(|(bit, _)| crc >> bit & 1 == 1);
    set.fold(0, |sum, (_, column)| sum ^ column)
}
