//! HyperLogLog: an estimate of the number of different elements, from registers that only grow.
//!
//! The first bits of an element's SHA-1 choose a register, which keeps the greatest number of leading zeros, plus one, of the bits
//! behind them (Flajolet et al.). Riak's registers have the same hash and bits (basho/hyper, `insert/2`), so a move merges them; Riak looks
//! at as many bits for zeros as for the register, which ends a long run earlier. The estimate is that of Ertl, which needs no
//! tables of corrections. Registers are stored in chunks of [`CHUNK_REGISTERS`], so an added element rewrites one chunk.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use sha1::{Digest as _, Sha1};

const VERSION: u8 = 1;
/// Registers in a row; with fewer bits of precision there are fewer.
pub const CHUNK_REGISTERS: usize = 256;
/// The fewest and the most bits of precision.
const PRECISIONS: std::ops::RangeInclusive<u8> = 4..=16;

/// What the registers of a row are: the bits of precision, and the hash of the elements. Its byte is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HllForm(pub u8);

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

/// The registers of a whole HyperLogLog, by their form: a bucket's precision may have been lowered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HllRegisters(BTreeMap<HllForm, Vec<u8>>);

impl HllForm {
    /// Marks registers by SHA-1. Those without it are of a hash that no element is added by any more.
    const BY_SHA1: u8 = 0x40;

    /// The form of new registers of this precision.
    #[must_use]
    pub fn new(precision: u8) -> Self {
        Self(Self::BY_SHA1 | precision.clamp(*PRECISIONS.start(), *PRECISIONS.end()))
    }

    /// The bits of precision.
    #[must_use]
    pub fn precision(self) -> u8 {
        self.0 & !Self::BY_SHA1
    }

    /// Whether a Riak has registers of this form, too.
    #[must_use]
    pub fn is_riaks(self) -> bool {
        self.0 & Self::BY_SHA1 != 0
    }

    /// The number of registers.
    fn registers(self) -> usize {
        1 << self.precision().min(*PRECISIONS.end())
    }
}

impl HllPlace {
    /// The place of `element` among registers by SHA-1 of this precision.
    #[must_use]
    pub fn for_element(element: &[u8], precision: u8) -> Self {
        let precision = HllForm::new(precision).precision();
        let digest: [u8; 20] = Sha1::digest(element).into();
        let hash = digest[..8].iter().fold(0, |hash: u64, byte| hash << 8 | u64::from(*byte));
        // A one below the rest ends the count of zeros at 65 - precision.
        let rank_bits = (hash << precision) | (1 << (precision - 1));
        Self::at((hash >> (64 - precision)) as usize, rank_bits.leading_zeros() as u8 + 1)
    }

    /// The place of a register by its number.
    #[must_use]
    pub fn at(index: usize, rank: u8) -> Self {
        Self { chunk: (index / CHUNK_REGISTERS) as u8, register: (index % CHUNK_REGISTERS) as u8, rank }
    }
}

impl HllChunk {
    /// Registers of this form, all zero.
    #[must_use]
    pub fn new(form: HllForm) -> Self {
        Self(vec![0; CHUNK_REGISTERS.min(form.registers())])
    }

    /// Adds an element; whether it changed a register.
    pub fn raise(&mut self, place: HllPlace) -> bool {
        let register = &mut self.0[usize::from(place.register)];
        let raised = place.rank > *register;
        *register = place.rank.max(*register);
        raised
    }

    /// Takes the greater number of each register.
    pub fn merge(&mut self, other: &Self) {
        take_greater(&mut self.0, &other.0);
    }

    /// The sum of its registers, which grows with each that does.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|rank| u64::from(*rank)).sum()
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 1 + self.0.len());
        out.raw(&self.0);
        out.finish()
    }

    /// Reads the stored form of a chunk of registers of this form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes, form: HllForm) -> Result<Self, DecodeError> {
        if !PRECISIONS.contains(&form.precision()) {
            return Err(DecodeError::Invalid("precision"));
        }
        let registers = FieldDecoder::versioned(value, VERSION)?.rest();
        if registers.len() != Self::new(form).0.len() {
            return Err(DecodeError::Invalid("registers"));
        }
        Ok(Self(registers.into()))
    }
}

impl HllRegisters {
    /// Merges a chunk.
    pub fn merge(&mut self, form: HllForm, chunk: u8, registers: &HllChunk) {
        let all = self.0.entry(form).or_insert_with(|| vec![0; form.registers()]);
        let begin = usize::from(chunk) * CHUNK_REGISTERS;
        take_greater(all.get_mut(begin..).unwrap_or_default(), &registers.0);
    }

    /// The registers that a Riak merges with its own, in the form of the least precision. `None`: some are of another hash.
    #[must_use]
    pub fn in_riaks_form(&self, precision: u8) -> Option<(HllForm, Vec<u8>)> {
        if self.0.keys().any(|form| !form.is_riaks()) {
            return None;
        }
        let empty = || (HllForm::new(precision), vec![0; HllForm::new(precision).registers()]);
        Some(self.joined(true).unwrap_or_else(empty))
    }

    /// The estimated number of different elements.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        // Of two hashes nothing tells that elements are the same, so all count.
        let joined = [true, false].into_iter().filter_map(|is_riaks| self.joined(is_riaks));
        joined.map(|(form, registers)| estimate(&registers, form.precision())).sum()
    }

    /// The registers of one hash, at the least precision of them.
    fn joined(&self, is_riaks: bool) -> Option<(HllForm, Vec<u8>)> {
        let of_hash = || self.0.iter().filter(|(form, _)| form.is_riaks() == is_riaks);
        let least = *of_hash().next()?.0;
        let mut joined = vec![0; least.registers()];
        for (form, registers) in of_hash() {
            for (index, rank) in registers.iter().enumerate() {
                let (index, rank) = reduced(index, *rank, form.precision() - least.precision());
                joined[index] = rank.max(joined[index]);
            }
        }
        Some((least, joined))
    }
}

fn take_greater(registers: &mut [u8], other: &[u8]) {
    for (known, new) in registers.iter_mut().zip(other) {
        *known = (*known).max(*new);
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
        let (form, mut chunks) = (HllForm::new(precision), BTreeMap::new());
        for element in elements {
            let place = HllPlace::for_element(&element.to_be_bytes(), precision);
            chunks.entry(place.chunk).or_insert_with(|| HllChunk::new(form)).raise(place);
        }
        let mut all = HllRegisters::default();
        for (chunk, registers) in chunks {
            let stored = HllChunk::decode(registers.encode(), form).unwrap();
            all.merge(form, chunk, &stored);
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
        for (more, fewer) in [(14, 11), (16, 4), (5, 4)] {
            let (high, low) = (registers(0..50_000, more), registers(0..50_000, fewer));
            let mut mixed = high.clone();
            mixed.0.insert(HllForm::new(fewer), vec![0; 1 << fewer]);
            assert_eq!(mixed.in_riaks_form(14), low.in_riaks_form(14), "{more} to {fewer}");
            assert_eq!(mixed.estimate(), low.estimate());
        }
    }

    #[test]
    fn a_merge_is_the_union() {
        let (form, mut both) = (HllForm::new(14), registers(0..3_000, 14));
        let other = registers(2_000..5_000, 14);
        for (chunk, part) in other.0[&form].chunks(CHUNK_REGISTERS).enumerate() {
            both.merge(form, chunk as u8, &HllChunk(part.to_vec()));
        }
        assert_eq!(both, registers(0..5_000, 14));
    }

    /// Stored registers depend on the hash: another one would count every element again. That of "a" was observed on a Riak 3.2.3.
    #[test]
    fn the_golden_places_are_those_of_riak() {
        assert_eq!(HllPlace::for_element(b"a", 14), HllPlace::at(0x21bd, 1));
        assert_eq!(HllForm::new(14).0, 0x4e);
        assert_eq!(HllChunk::new(HllForm::new(4)).encode(), [b"\x01".as_ref(), &[0; 16]].concat());
        assert!(HllChunk::decode(Bytes::from_static(b"\x01\0"), HllForm::new(14)).is_err());
    }

    #[test]
    fn registers_of_the_hash_before_still_count_and_go_to_no_riak() {
        let (before, mut all) = (HllForm(14), registers(0..10, 14));
        let mut chunk = HllChunk::new(before);
        (0..5).for_each(|register| assert!(chunk.raise(HllPlace::at(register, 3))));
        all.merge(before, 7, &chunk);
        assert_eq!((all.estimate(), all.in_riaks_form(14)), (15, None));
        assert!(registers(0..10, 14).in_riaks_form(14).is_some());
    }
}
