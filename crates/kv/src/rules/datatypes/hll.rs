//! HyperLogLog: an estimate of the number of different elements, from registers that only grow.
//!
//! The first bits of an element's hash choose a register, which keeps the greatest number of leading zeros, plus one, of the
//! other bits (Flajolet et al.). The estimate is that of Ertl, which needs no tables of corrections. Registers are stored in
//! chunks of [`CHUNK_REGISTERS`], so an added element rewrites one chunk.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::hash;

const VERSION: u8 = 1;
/// Registers in a row; with fewer bits of precision there are fewer.
pub const CHUNK_REGISTERS: usize = 256;
/// The fewest and the most bits of precision.
const PRECISIONS: std::ops::RangeInclusive<u8> = 4..=16;

/// The place of an element: a register, and the number that it must have at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HllPlace {
    /// The number of the chunk.
    pub chunk: u8,
    /// The register in the chunk.
    pub register: u8,
    /// The least number in it.
    pub rank: u8,
}

/// The registers of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HllChunk(Vec<u8>);

/// The registers of a whole HyperLogLog, by precision: a bucket's precision may have been lowered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HllRegisters(BTreeMap<u8, Vec<u8>>);

impl HllPlace {
    /// The place of `element` among 2^`precision` registers.
    #[must_use]
    pub fn for_element(element: &[u8], precision: u8) -> Self {
        let precision = precision.clamp(*PRECISIONS.start(), *PRECISIONS.end());
        // A stored register depends on it, and a client must not find elements that raise a register at will.
        let hash = hash::id64(&[element]);
        let index = (hash >> (64 - precision)) as usize;
        // A one below the rest ends the count of zeros at 65 - precision.
        let rank_bits = (hash << precision) | (1 << (precision - 1));
        Self {
            chunk: (index / CHUNK_REGISTERS) as u8,
            register: (index % CHUNK_REGISTERS) as u8,
            rank: rank_bits.leading_zeros() as u8 + 1,
        }
    }
}

impl HllChunk {
    /// Registers of this precision, all zero.
    #[must_use]
    pub fn new(precision: u8) -> Self {
        Self(vec![0; CHUNK_REGISTERS.min(1 << precision.min(16))])
    }

    /// Adds an element; whether it changed a register.
    pub fn raise(&mut self, place: HllPlace) -> bool {
        let register = &mut self.0[usize::from(place.register)];
        let raised = place.rank > *register;
        *register = place.rank.max(*register);
        raised
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 1 + self.0.len());
        out.raw(&self.0);
        out.finish()
    }

    /// Reads the stored form of a chunk of this precision.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes, precision: u8) -> Result<Self, DecodeError> {
        if !PRECISIONS.contains(&precision) {
            return Err(DecodeError::Invalid("precision"));
        }
        let registers = FieldDecoder::versioned(value, VERSION)?.rest();
        if registers.len() != Self::new(precision).0.len() {
            return Err(DecodeError::Invalid("registers"));
        }
        Ok(Self(registers.into()))
    }
}

impl HllRegisters {
    /// Merges a chunk.
    pub fn merge(&mut self, precision: u8, chunk: u8, registers: &HllChunk) {
        let all = self.0.entry(precision).or_insert_with(|| vec![0; 1 << precision]);
        let begin = usize::from(chunk) * CHUNK_REGISTERS;
        for (known, new) in all.iter_mut().skip(begin).zip(&registers.0) {
            *known = (*known).max(*new);
        }
    }

    /// The estimated number of different elements.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        let Some(least) = self.0.keys().next().copied() else { return 0 };
        let mut merged = vec![0; 1 << least];
        for (precision, registers) in &self.0 {
            for (index, rank) in registers.iter().enumerate() {
                let (index, rank) = reduced(index, *rank, precision - least);
                merged[index] = rank.max(merged[index]);
            }
        }
        estimate(&merged, least)
    }
}

/// The register and rank with `bits` fewer bits of precision: they join the bits whose zeros are counted.
fn reduced(index: usize, rank: u8, bits: u8) -> (usize, u8) {
    let low = index & ((1 << bits) - 1);
    let rank = match (rank, low) {
        (0, _) => 0,
        (rank, 0) => rank + bits,
        // Bits of the index come first: the highest of them ends the zeros.
        _ => bits - (usize::BITS - 1 - low.leading_zeros()) as u8,
    };
    (index >> bits, rank)
}

/// Ertl's improved estimate.
fn estimate(registers: &[u8], precision: u8) -> u64 {
    let q = usize::from(64 - precision);
    let mut counts = vec![0_u32; q + 2];
    registers.iter().for_each(|rank| counts[usize::from(*rank).min(q + 1)] += 1);
    let m = registers.len() as f64;
    let mut z = m * tau(1.0 - f64::from(counts[q + 1]) / m);
    for count in counts[1..=q].iter().rev() {
        z = 0.5 * (z + f64::from(*count));
    }
    z += m * sigma(f64::from(counts[0]) / m);
    let estimate = m * m / (2.0 * std::f64::consts::LN_2 * z);
    if estimate.is_finite() { estimate.round() as u64 } else { 0 }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(elements: impl IntoIterator<Item = u64>, precision: u8) -> HllRegisters {
        let mut chunks = BTreeMap::new();
        for element in elements {
            let place = HllPlace::for_element(&element.to_be_bytes(), precision);
            chunks.entry(place.chunk).or_insert_with(|| HllChunk::new(precision)).raise(place);
        }
        let mut all = HllRegisters::default();
        for (chunk, registers) in chunks {
            let stored = HllChunk::decode(registers.encode(), precision).unwrap();
            all.merge(precision, chunk, &stored);
        }
        all
    }

    /// The standard error is 1.04 / sqrt(2^precision); five of them are missed once in two million tries.
    #[test]
    fn estimates_are_within_five_standard_errors() {
        for precision in [4, 8, 12, 14] {
            let error = 1.04 / f64::from(1_u32 << precision).sqrt();
            for count in [1_u64, 10, 100, 1000, 10_000, 100_000] {
                let estimate = registers(0..count, precision).estimate() as f64;
                let off = (estimate - count as f64).abs() / count as f64;
                assert!(off <= 5.0 * error + 0.5 / count as f64, "{count} at {precision}: {estimate}");
            }
        }
    }

    #[test]
    fn small_numbers_are_exact_at_the_usual_precision() {
        assert_eq!(HllRegisters::default().estimate(), 0);
        for count in 1..=20 {
            assert_eq!(registers(0..count, 14).estimate(), count);
        }
        assert_eq!(registers([7, 7, 7], 14).estimate(), 1, "an element counts once");
    }

    #[test]
    fn registers_reduced_to_fewer_bits_are_those_of_fewer_bits() {
        let mut mixed = registers(0..5_000, 14);
        let low = registers(0..5_000, 11);
        assert_eq!(HllRegisters(BTreeMap::from([(11, low.0[&11].clone())])).estimate(), low.estimate());
        mixed.0.insert(11, vec![0; 1 << 11]);
        assert_eq!(mixed.estimate(), low.estimate());
    }

    #[test]
    fn a_merge_is_the_union() {
        let mut both = registers(0..3_000, 14);
        let other = registers(2_000..5_000, 14);
        for (chunk, part) in other.0[&14].chunks(CHUNK_REGISTERS).enumerate() {
            both.merge(14, chunk as u8, &HllChunk(part.to_vec()));
        }
        assert_eq!(both, registers(0..5_000, 14));
    }

    /// Stored registers depend on the hash: another one would count every element again.
    #[test]
    fn the_golden_places_stay() {
        assert_eq!(HllPlace::for_element(b"a", 14), HllPlace { chunk: 41, register: 182, rank: 1 });
        assert_eq!(HllChunk::new(4).encode(), [b"\x01".as_ref(), &[0; 16]].concat());
        assert!(HllChunk::decode(Bytes::from_static(b"\x01\0"), 14).is_err());
    }
}
