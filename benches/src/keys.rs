//! Keys that never collide, and values that do not compress.

/// The length of every key.
pub(crate) const KEY_BYTES: usize = 16;

/// The size of the pool that values are cut from.
const POOL_BYTES: usize = 1_024 * 1_024;

/// The letters before the number, which name the kind of a key.
const LETTERS_MAX: usize = 4;

/// Random numbers from a seed: fast, the same in each run.
#[derive(Debug, Clone)]
pub(crate) struct BenchRandom(u64);

impl BenchRandom {
    /// A generator with its own sequence for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number (xorshift64*).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The key of `kind` with this number: the kind, then the number scattered over 48 bits, so that keys are not sorted.
pub(crate) fn key(kind: &str, number: u64) -> [u8; KEY_BYTES] {
    debug_assert!(kind.len() == LETTERS_MAX, "a kind is four letters");
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4B) & 0xFFFF_FFFF_FFFF;
    let mut name = [b'0'; KEY_BYTES];
    for (place, letter) in name.iter_mut().zip(kind.bytes()) {
        *place = letter;
    }
    for (index, place) in name[LETTERS_MAX..].iter_mut().enumerate() {
        *place = b"0123456789abcdef"[((scattered >> (44 - 4 * index)) & 15) as usize];
    }
    name
}

/// Random bytes that values are cut from, so that they do not compress.
#[derive(Debug)]
pub(crate) struct ValuePool {
    pool: Vec<u8>,
}

impl ValuePool {
    /// A pool for values up to `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let mut random = BenchRandom::new(0);
        let words = (POOL_BYTES + bytes_max).div_ceil(8);
        Self { pool: (0..words).flat_map(|_| random.next().to_le_bytes()).collect() }
    }

    /// A value of `bytes` bytes from a random offset.
    pub(crate) fn cut(&self, random: &mut BenchRandom, bytes: usize) -> &[u8] {
        let from = random.below((self.pool.len() - bytes) as u64) as usize;
        &self.pool[from..from + bytes]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_never_collide_and_are_not_sorted() {
        let names: Vec<_> = (0..10_000).map(|number| key("read", number)).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(!names.is_sorted());
        assert!(names.iter().all(|name| name.iter().all(u8::is_ascii_alphanumeric)));
        assert_ne!(key("read", 1), key("miss", 1));
    }

    #[test]
    fn values_have_their_size_and_differ() {
        let values = ValuePool::new(102_400);
        let mut random = BenchRandom::new(7);
        let first = values.cut(&mut random, 102_400);
        assert_eq!(first.len(), 102_400);
        assert_ne!(first, values.cut(&mut random, 102_400));
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = BenchRandom::new(3);
        assert!((0..1_000).all(|_| random.below(10) < 10));
    }
}
