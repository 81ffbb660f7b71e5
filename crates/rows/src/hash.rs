//! Digests and their text forms, for ids, entity tags and keys that the server makes.
//!
//! SHA-1 makes names that are stored, and names that a client must not meet by chance or by intent. XXH3 is some twenty times
//! faster and anyone can make two inputs with one hash: it is for what every read computes and no row depends on.

use sha1::{Digest, Sha1};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// SHA-1 of several byte strings. Each is prefixed by its length, so two lists with the same concatenation differ.
#[must_use]
#[inline]
pub fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut digest = Sha1::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Computes the SHA-1 of bytes that arrive in pieces.
#[derive(Debug, Clone, Default)]
pub struct Sha1Hasher(Sha1);

impl Sha1Hasher {
    /// Adds the next piece.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all pieces.
    #[must_use]
    #[inline]
    pub fn finish(self) -> [u8; 20] {
        self.0.finalize().into()
    }
}

/// The first 16 bytes of [`sha1`], as a number.
#[must_use]
#[inline]
pub fn id128(parts: &[&[u8]]) -> u128 {
    let digest = sha1(parts);
    digest.iter().take(16).fold(0, |id, &byte| (id << 8) | u128::from(byte))
}

/// The first 8 bytes of [`sha1`], as a number.
#[must_use]
#[inline]
pub fn id64(parts: &[&[u8]]) -> u64 {
    (id128(parts) >> 64) as u64
}

/// XXH3 of several byte strings, each with the hash of those before it as its seed: two lists with the same concatenation
/// differ.
#[must_use]
#[inline]
pub fn fast64(parts: &[&[u8]]) -> u64 {
    parts.iter().fold(0, |before, part| xxh3_64_with_seed(part, before))
}

/// XXH3 of bytes, in 128 bits.
#[must_use]
#[inline]
pub fn fast128(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// A hash in 22 digits of base 62: eleven for each half, the upper half first.
#[must_use]
#[inline]
pub fn base62_digits(hash: u128) -> [u8; 22] {
    let mut digits = [b'0'; 22];
    let (upper, lower) = digits.split_at_mut(11);
    for (half, mut quotient) in [(upper, (hash >> 64) as u64), (lower, hash as u64)] {
        for digit in half.iter_mut().rev() {
            *digit = BASE62[(quotient % 62) as usize];
            quotient /= 62;
        }
    }
    digits
}

/// A hash as Riak writes it: base 62 with digits, capitals and small letters, the most significant digit first.
#[must_use]
#[inline]
pub fn base62(number: u128) -> String {
    // Dividing 128 bits is slow: this cuts off groups of ten digits, which fit 64 bits, and divides those.
    const GROUP: u128 = 62_u128.pow(10);
    let (mut quotient, mut digits) = (number, [0; 22]);
    let mut at = digits.len();
    loop {
        let (mut group, last) = ((quotient % GROUP) as u64, quotient < GROUP);
        quotient /= GROUP;
        for _ in 0..10 {
            at -= 1;
            digits[at] = BASE62[(group % 62) as usize];
            group /= 62;
            if last && group == 0 {
                return digits[at..].iter().map(|&digit| char::from(digit)).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base62_writes_the_most_significant_digit_first() {
        assert_eq!(base62(0), "0");
        assert_eq!(base62(61), "z");
        assert_eq!(base62(62), "10");
        assert_eq!(base62(u128::MAX), "7n42DGM5Tflk9n8mt7Fhc7");
        assert_eq!(base62(62_u128.pow(10)), "10000000000");
        assert_eq!(base62(62_u128.pow(20) + 5), "100000000000000000005");
    }

    #[test]
    fn lists_with_the_same_concatenation_have_different_hashes() {
        assert_ne!(sha1(&[b"ab", b"c"]), sha1(&[b"a", b"bc"]));
        assert_ne!(fast64(&[b"ab", b"c"]), fast64(&[b"a", b"bc"]));
    }

    /// Clients keep what these hashes make, across restarts and between gateways.
    #[test]
    fn fast_hashes_are_the_published_xxh3() {
        assert_eq!(fast64(&[b""]), 0x2d06_8005_38d3_94c2);
        assert_eq!(fast128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_eq!(base62_digits(62_u128 + (1 << 64)), *b"0000000000100000000010");
        assert_eq!(base62_digits(u128::MAX), *b"LygHa16AHYFLygHa16AHYF");
    }
}
