//! Pseudo-random numbers, the same for the same seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use larder_rows::hash::id128;

/// SplitMix64: one word of state, good enough to choose faults and test cases.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator from `LARDER_TEST_SEED`, else from the clock. It prints the seed, so that a failure can be run again.
    #[must_use]
    #[allow(clippy::disallowed_methods, clippy::print_stderr, reason = "a test whose runs differ names its seed")]
    pub fn from_environment(test: &str) -> Self {
        let given = std::env::var("LARDER_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64)
        });
        eprintln!("{test}: LARDER_TEST_SEED={seed}");
        Self(seed)
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn number_below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// An index below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.number_below(bound as u64) as usize
    }

    /// True `per_mille` times of a thousand.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.number_below(1000) < u64::from(per_mille)
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// `length` bytes that no compression shrinks.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        // Eight bytes a step: tests are compiled without optimization, and iterators over bytes took a part of their time.
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.number().to_le_bytes()[..part.len()]);
        }
        bytes
    }
}

/// Fills `bytes` with values that never repeat in a process.
pub fn unique_bytes(bytes: &mut [u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    for chunk in bytes.chunks_mut(16) {
        let word = id128(&[&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes()]).to_be_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_reference_implementation() {
        let mut random = SplitMix64::new(1_234_567);
        let numbers = [random.number(), random.number(), random.number()];
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
