//! The head of a key: the rows that are read before all others. Clocks say what a reader sees, markers what is dead.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::limits::METADATA_BYTES_MAX;
use larder_rows::{ActorId, Row, Timestamp};

use super::context::{ActorClocks, is_within};
use super::import_plan::ImportRecord;
use super::row_name::{CounterSource, DatatypeLeaf, DatatypePath, DatatypeRowName};

const VERSION: u8 = 1;
/// The version of the rows of totals.
const TOTALS_VERSION: u8 = 1;

/// Clocks and markers of a key. A key without clocks does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatatypeHead {
    /// The last clock of each actor.
    pub clocks: ActorClocks,
    /// The clock of each actor up to which a quorum has its rows.
    pub confirmed: ActorClocks,
    /// Parts of the value that were removed at once.
    pub markers: Vec<RemovalMarker>,
    /// What imports have seen of the source of a move; `None` before the first one.
    pub import: Option<ImportRecord>,
}

/// The removal of a large part: rows in it that are not newer than the clocks are dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalMarker {
    /// The part.
    pub path: DatatypePath,
    /// The actor that removed it.
    pub remover: ActorId,
    /// The clocks that it saw.
    pub clocks: ActorClocks,
    /// The stamp of the marker's row.
    pub stamp: Timestamp,
}

impl DatatypeHead {
    /// Adds a row of the head.
    ///
    /// # Errors
    /// [`DecodeError`] for a row of the data, and for damage.
    pub fn add(&mut self, row: &Row) -> Result<(), DecodeError> {
        match DatatypeRowName::decode(&row.name)? {
            DatatypeRowName::Clock(actor) => {
                let value = ClockValue::decode(row.value.clone())?;
                self.clocks.insert(actor, row.stamp);
                self.confirmed.insert(actor, value.confirmed);
            }
            DatatypeRowName::Marker(path, remover) => {
                let clocks = decode_clocks(row.value.clone())?;
                self.markers.push(RemovalMarker { path, remover, clocks, stamp: row.stamp });
            }
            DatatypeRowName::Import => self.import = Some(ImportRecord::decode(row)?),
            DatatypeRowName::Data(..) => return Err(DecodeError::Invalid("row of a head")),
        }
        Ok(())
    }

    /// The head as one machine shows it: whoever sees a clock there sees all rows up to it.
    #[must_use]
    pub fn all_confirmed(mut self) -> Self {
        self.confirmed.clone_from(&self.clocks);
        self
    }

    /// Whether the key exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        !self.clocks.is_empty()
    }

    /// The greatest stamp of its rows.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        let markers = self.markers.iter().map(|marker| marker.stamp);
        let import = self.import.iter().map(|record| record.stamp);
        self.clocks.values().copied().chain(markers).chain(import).max().unwrap_or_default()
    }

    /// Whether a marker removed this row.
    #[must_use]
    pub fn is_dead(&self, path: &DatatypePath, leaf: &DatatypeLeaf, stamp: Timestamp) -> bool {
        let Some(actor) = leaf.actor() else { return false };
        self.markers.iter().any(|marker| marker.covers(path, actor, stamp))
    }
}

impl RemovalMarker {
    /// Whether it removed this version of a row.
    #[must_use]
    pub fn covers(&self, path: &DatatypePath, actor: ActorId, stamp: Timestamp) -> bool {
        is_within(&self.clocks, actor, stamp) && self.path.contains(path)
    }

    /// The value of its row.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 8 + 16 * self.clocks.len());
        out.varint(self.clocks.len() as u64);
        for (actor, clock) in &self.clocks {
            out.u64(actor.0);
            out.u64(clock.0);
        }
        out.finish()
    }
}

fn decode_clocks(value: Bytes) -> Result<ActorClocks, DecodeError> {
    let mut rest = FieldDecoder::versioned(value, VERSION)?;
    let mut clocks = ActorClocks::new();
    for _ in 0..rest.count(METADATA_BYTES_MAX)? {
        let actor = ActorId(rest.u64()?);
        clocks.insert(actor, Timestamp(rest.u64()?));
    }
    rest.finish()?;
    Ok(clocks)
}

/// The value of a clock row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockValue {
    /// The clock up to which a quorum has the actor's rows. Where one machine is the engine, every clock that a read shows.
    pub confirmed: Timestamp,
}

impl ClockValue {
    /// The stored form.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 9);
        out.u64(self.confirmed.0);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let confirmed = Timestamp(rest.u64()?);
        rest.finish()?;
        Ok(Self { confirmed })
    }
}

/// One increment whose id names its row, so that gateways that count it twice write one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedIncrement {
    /// What it adds.
    pub amount: i128,
    /// The actor that wrote it.
    pub actor: ActorId,
    /// The clock of its batch.
    pub clock: Timestamp,
}

impl NamedIncrement {
    /// The stamp of each such row: a repeat is the same write, and a removal stops all repeats.
    pub const STAMP: Timestamp = Timestamp(1);

    /// The stored form.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 33);
        out.raw(&self.amount.to_be_bytes());
        out.u64(self.actor.0);
        out.u64(self.clock.0);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let amount = i128::from_be_bytes(rest.array()?);
        let (actor, clock) = (ActorId(rest.u64()?), Timestamp(rest.u64()?));
        rest.finish()?;
        Ok(Self { amount, actor, clock })
    }
}

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
    /// The sum of the increments that ids name; `None` without any.
    named: Option<i128>,
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
        let mut out = FieldEncoder::versioned(TOTALS_VERSION, 41);
        self.put(&mut out);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, TOTALS_VERSION)?;
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
        let mut out = FieldEncoder::versioned(TOTALS_VERSION, 8 + 56 * self.0.len());
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
        let mut rest = FieldDecoder::versioned(value, TOTALS_VERSION)?;
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

    /// Adds a row of an increment that its id names.
    pub fn add_named(&mut self, increment: NamedIncrement) {
        self.named = Some(self.named.unwrap_or_default().wrapping_add(increment.amount));
    }

    /// Adds a row of resets.
    pub fn add_resets(&mut self, resets: CounterResets) {
        resets.0.into_iter().for_each(|(source, totals)| self.resets.add(source, totals));
    }

    /// Whether an increment was not reset.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.named.is_some() || self.sources.iter().any(|(source, totals)| !self.is_reset(source, totals))
    }

    /// The value: all increments that were not reset.
    #[must_use]
    pub fn value(&self) -> i128 {
        let net = |totals: CounterTotals| totals.plus.wrapping_sub(totals.minus).cast_signed();
        let live = |(source, totals): (&CounterSource, &CounterTotals)| match self.is_reset(source, totals) {
            // A late replica may show totals from before the reset: they are all reset.
            true => 0,
            false => net(*totals).wrapping_sub(net(self.live_reset(source, totals))),
        };
        self.sources.iter().map(live).fold(self.named.unwrap_or_default(), i128::wrapping_add)
    }

    /// What each source adds and takes away, what was reset among the other. Neither number ever shrinks.
    pub(super) fn shares(&self) -> impl Iterator<Item = (CounterSource, i128, i128)> {
        self.sources.iter().filter(|(source, totals)| !self.is_reset(source, totals)).map(|(source, totals)| {
            let reset = self.live_reset(source, totals);
            let sum = |a: u128, b: u128| i128::try_from(a.saturating_add(b)).unwrap_or(i128::MAX);
            (*source, sum(totals.plus, reset.minus), sum(totals.minus, reset.plus))
        })
    }

    /// The shares as the source of a move takes them back, none of which ever shrinks: those of its own writers as they are there,
    /// what was reset of these as that of [`ActorId::RESETS`], and those of writers here also when all of them was reset.
    pub(super) fn shares_for_source(&self) -> Vec<(CounterSource, i128, i128)> {
        let number = |number: u128| i128::try_from(number).unwrap_or(i128::MAX);
        let mut resets = (0_i128, 0_i128);
        let mut shares: Vec<_> = self
            .sources
            .iter()
            .map(|(source, totals)| {
                let reset = self.live_reset(source, totals);
                let (plus, minus) = (number(totals.plus), number(totals.minus));
                let (reset_plus, reset_minus) = (number(reset.plus), number(reset.minus));
                if source.actor.is_of_source() {
                    resets = (resets.0.saturating_add(reset_minus), resets.1.saturating_add(reset_plus));
                    return (*source, plus, minus);
                }
                (*source, plus.saturating_add(reset_minus), minus.saturating_add(reset_plus))
            })
            .collect();
        if resets != (0, 0) {
            let source = CounterSource { actor: ActorId::RESETS, birth: Timestamp::ZERO };
            shares.push((source, resets.0, resets.1));
        }
        shares
    }

    /// Whether a reset took all of these totals.
    fn is_reset(&self, source: &CounterSource, totals: &CounterTotals) -> bool {
        totals.operations <= self.source_reset(source).operations
    }

    /// What of the totals was reset.
    fn live_reset(&self, source: &CounterSource, totals: &CounterTotals) -> CounterTotals {
        let reset = self.source_reset(source);
        // The source of a move removed the counter, too, and began again at zero: the reset was of the totals before.
        let begins_anew = totals.plus < reset.plus || totals.minus < reset.minus;
        if begins_anew { CounterTotals::default() } else { reset }
    }

    fn source_reset(&self, source: &CounterSource) -> CounterTotals {
        self.resets.0.get(source).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn random_rows_of_a_head_decode_or_fail_without_panic(name: Vec<u8>, value: Vec<u8>) {
            let row = Row { name: name.into(), value: value.into(), stamp: Timestamp(1), expires: None };
            let _ = DatatypeHead::default().add(&row);
        }
    }

    #[test]
    fn the_golden_rows_of_a_head_still_decode() {
        let marker = RemovalMarker {
            path: DatatypePath::root(),
            remover: ActorId(7),
            clocks: [(ActorId(1), Timestamp(5))].into(),
            stamp: Timestamp(9),
        };
        let golden = Bytes::from_static(b"\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05");
        assert_eq!(marker.encode(), golden);
        let clock = Bytes::from_static(b"\x01\0\0\0\0\0\0\0\x05");
        assert_eq!(ClockValue { confirmed: Timestamp(5) }.encode(), clock);
        let row = |name: DatatypeRowName, value, stamp| Row { name: name.encode(), value, stamp, expires: None };
        let mut head = DatatypeHead::default();
        head.add(&row(DatatypeRowName::Marker(DatatypePath::root(), ActorId(7)), golden, Timestamp(9))).unwrap();
        assert!(!head.exists());
        head.add(&row(DatatypeRowName::Clock(ActorId(1)), clock, Timestamp(6))).unwrap();
        let (clocks, confirmed) = ([(ActorId(1), Timestamp(6))].into(), [(ActorId(1), Timestamp(5))].into());
        assert_eq!(head, DatatypeHead { clocks, confirmed, markers: vec![marker], import: None });
        let is_dead =
            |stamp| head.is_dead(&DatatypePath::root(), &DatatypeLeaf::Presence(ActorId(1)), Timestamp(stamp));
        assert_eq!((is_dead(5), is_dead(6)), (true, false));
    }
}

#[cfg(test)]
mod totals_tests {
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
            let _ = NamedIncrement::decode(bytes.clone().into());
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
    fn a_source_that_began_anew_was_once_shown_below_its_reset() {
        let totals = |operations, plus| CounterTotals { operations, plus, minus: 0 };
        let mut resets = CounterResets::default();
        resets.add(source(1), totals(5, 10));
        let mut sum = CounterSum::default();
        sum.add_resets(resets);
        sum.add_source(source(1), totals(9, 3));
        assert_eq!(sum.value(), 3);
        assert_eq!(sum.shares().collect::<Vec<_>>(), [(source(1), 3, 0)]);
        sum.add_source(source(1), totals(9, 12));
        assert_eq!(sum.value(), 2);
        assert_eq!(sum.shares().collect::<Vec<_>>(), [(source(1), 12, 10)], "no share ever shrinks");
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
