//! Totals of counters: each source only grows, and a reset remembers the totals that it saw.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::limits::METADATA_BYTES_MAX;
use larder_rows::{ActorId, Timestamp};

use super::row_name::CounterSource;

const VERSION: u8 = 1;

/// All increments of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterTotals {
    /// The number of increments, zeros included. It orders the totals of a source.
    pub operations: u64,
    /// The sum of the positive increments.
    pub plus: u128,
    /// The sum of the negative increments, as a positive number.
    pub minus: u128,
}

/// The greatest totals of each source at its resets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CounterResets(pub BTreeMap<CounterSource, CounterTotals>);

/// A counter as its rows say: sources, and what of them was reset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CounterSum {
    sources: BTreeMap<CounterSource, CounterTotals>,
    resets: CounterResets,
}

impl CounterTotals {
    /// The totals after one more increment.
    #[must_use]
    pub fn plus(self, by: i64) -> Self {
        let size = u128::from(by.unsigned_abs());
        Self {
            operations: self.operations + 1,
            plus: self.plus + if by > 0 { size } else { 0 },
            minus: self.minus + if by < 0 { size } else { 0 },
        }
    }

    /// The stored form.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 41);
        self.put(&mut out);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let totals = Self::take(&mut rest)?;
        rest.finish()?;
        Ok(totals)
    }

    fn put(self, out: &mut FieldEncoder) {
        out.u64(self.operations);
        out.raw(&self.plus.to_be_bytes());
        out.raw(&self.minus.to_be_bytes());
    }

    fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        let operations = rest.u64()?;
        let (plus, minus) = (u128::from_be_bytes(rest.array()?), u128::from_be_bytes(rest.array()?));
        Ok(Self { operations, plus, minus })
    }
}

impl CounterResets {
    /// Resets a source at these totals, unless it was reset later.
    pub fn add(&mut self, source: CounterSource, totals: CounterTotals) {
        let known = self.0.entry(source).or_default();
        // A source has one writer, so more operations are later totals [invariant 108].
        if totals.operations > known.operations {
            *known = totals;
        }
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 8 + 56 * self.0.len());
        out.varint(self.0.len() as u64);
        for (source, totals) in &self.0 {
            out.u64(source.actor.0);
            out.u64(source.birth.0);
            totals.put(&mut out);
        }
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let mut resets = Self::default();
        for _ in 0..rest.count(METADATA_BYTES_MAX)? {
            let source = CounterSource { actor: ActorId(rest.u64()?), birth: Timestamp(rest.u64()?) };
            resets.0.insert(source, CounterTotals::take(&mut rest)?);
        }
        rest.finish()?;
        Ok(resets)
    }
}

impl CounterSum {
    /// Adds a row of totals.
    pub fn add_source(&mut self, source: CounterSource, totals: CounterTotals) {
        self.sources.insert(source, totals);
    }

    /// Adds a row of resets.
    pub fn add_resets(&mut self, resets: CounterResets) {
        resets.0.into_iter().for_each(|(source, totals)| self.resets.add(source, totals));
    }

    /// Whether an increment was not reset.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.sources.iter().any(|(source, totals)| totals.operations > self.reset_of(source).operations)
    }

    /// The value: all increments that were not reset.
    #[must_use]
    pub fn value(&self) -> i128 {
        let net = |totals: CounterTotals| totals.plus.wrapping_sub(totals.minus).cast_signed();
        let live = |(source, totals): (&CounterSource, &CounterTotals)| {
            let reset = self.reset_of(source);
            // A late replica may show totals from before the reset: they are all reset.
            if totals.operations > reset.operations { net(*totals).wrapping_sub(net(reset)) } else { 0 }
        };
        self.sources.iter().map(live).fold(0, i128::wrapping_add)
    }

    fn reset_of(&self, source: &CounterSource) -> CounterTotals {
        self.resets.0.get(source).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(actor: u64) -> CounterSource {
        CounterSource { actor: ActorId(actor), birth: Timestamp(1) }
    }

    proptest! {
        #[test]
        fn totals_and_resets_decode_to_themselves(increments: Vec<i64>, actors: Vec<u64>) {
            let totals = increments.iter().fold(CounterTotals::default(), |totals, by| totals.plus(*by));
            prop_assert_eq!(CounterTotals::decode(totals.encode()), Ok(totals));
            let mut resets = CounterResets::default();
            actors.iter().for_each(|actor| resets.add(source(*actor), totals));
            prop_assert_eq!(CounterResets::decode(resets.encode()), Ok(resets));
        }

        #[test]
        fn random_totals_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = CounterTotals::decode(bytes.clone().into());
            let _ = CounterResets::decode(bytes.into());
        }

        #[test]
        fn the_value_is_the_sum_of_the_increments(increments: Vec<(u8, i64)>) {
            let mut sources = BTreeMap::<_, CounterTotals>::new();
            for (actor, by) in &increments {
                let totals = sources.entry(source(u64::from(*actor))).or_default();
                *totals = totals.plus(*by);
            }
            let mut sum = CounterSum::default();
            sources.into_iter().for_each(|(source, totals)| sum.add_source(source, totals));
            prop_assert_eq!(sum.value(), increments.iter().map(|(_, by)| i128::from(*by)).sum::<i128>());
        }
    }

    #[test]
    fn a_reset_takes_the_totals_that_it_saw_and_no_later_increment() {
        let seen = CounterTotals::default().plus(10);
        let mut sum = CounterSum::default();
        let mut resets = CounterResets::default();
        resets.add(source(1), seen);
        resets.add(source(1), CounterTotals::default().plus(3).plus(4));
        resets.add(source(1), seen);
        assert_eq!(resets.0[&source(1)].operations, 2, "an older reset does not replace a later one");
        sum.add_resets(resets);
        sum.add_source(source(1), CounterTotals::default().plus(3).plus(4));
        assert_eq!((sum.value(), sum.is_live()), (0, false));
        sum.add_source(source(1), CounterTotals::default().plus(3).plus(4).plus(0));
        assert_eq!((sum.value(), sum.is_live()), (0, true));
        sum.add_source(source(1), CounterTotals::default().plus(3).plus(4).plus(0).plus(-5));
        assert_eq!((sum.value(), sum.is_live()), (-5, true));
    }

    #[test]
    fn the_golden_totals_still_decode() {
        let totals = CounterTotals { operations: 2, plus: 3, minus: 4 };
        let golden = b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04";
        assert_eq!(totals.encode(), golden.as_ref());
        let mut resets = CounterResets::default();
        resets.add(source(7), totals);
        let row = [b"\x01\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x01".as_ref(), &golden[1..]].concat();
        assert_eq!(resets.encode(), row);
    }
}
