//! Digests and their text forms, for ids, entity tags and keys that the server makes.

use sha1::{Digest, Sha1};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// SHA-1 of several byte strings. Each is prefixed by its length, so two lists with the same concatenation differ.
#[must_use]
pub fn sha1_of(parts: &[&[u8]]) -> [u8; 20] {
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
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all pieces.
    #[must_use]
    pub fn finish(self) -> [u8; 20] {
        self.0.finalize().into()
    }
}

/// The first 16 bytes of [`sha1_of`], as a number.
#[must_use]
pub fn id128(parts: &[&[u8]]) -> u128 {
    let digest = sha1_of(parts);
    digest.iter().take(16).fold(0, |id, &byte| (id << 8) | u128::from(byte))
}

/// The first 8 bytes of [`sha1_of`], as a number.
#[must_use]
pub fn id64(parts: &[&[u8]]) -> u64 {
    (id128(parts) >> 64) as u64
}

/// A hash as Riak writes it: base 62 with digits, capitals and small letters, the most significant digit first.
#[must_use]
pub fn base62(number: u128) -> String {
    // Dividing 128 bits is slow: this cuts off groups of ten digits, which fit 64 bits, and divides those.
    const GROUP: u128 = 62_u128.pow(10);
    let (mut rest, mut digits) = (number, [0; 22]);
    let mut at = digits.len();
    loop {
        let (mut group, last) = ((rest % GROUP) as u64, rest < GROUP);
        rest /= GROUP;
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
        assert_ne!(sha1_of(&[b"ab", b"c"]), sha1_of(&[b"a", b"bc"]));
    }
}
