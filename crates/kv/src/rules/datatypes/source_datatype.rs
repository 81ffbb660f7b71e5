//! A data type as another store has it: what each write left, named by the *dot* of that write.
//!
//! ```text
//! set {tea, milk} at the source                      rows here (A and B stand for the writers a and b of the source)
//!   clock      a: 3, b: 1                            clock A@3, clock B@1
//!   tea        written by (a, 2) and by (b, 1)       element tea, A @2    element tea, B @1
//!   milk       written by (a, 3)                     element milk, A @3
//! ```
//! A writer of the source becomes an actor here, and the number of its write the stamp of the row. So a row has one name and one
//! stamp whenever, however often and through whichever gateway it is imported, and of two states the engine keeps the newer rows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use larder_core::rules::props::Datatype;
use larder_core::rules::refusals::DatatypeError;
use larder_rows::codec::DecodeError;
use larder_rows::limits::{
    DATATYPE_DEPTH_MAX, DATATYPE_NAME_BYTES_MAX, DATATYPE_ROW_NAME_BYTES_MAX, REGISTER_BYTES_MAX,
};
use larder_rows::{ActorId, Timestamp, hash};

use super::editor::PRESENT;
use super::head::CounterTotals;
use super::hll::{HllChunk, HllForm, HllPlace};
use super::needs::{NAME_REST, check_length};
use super::row_name::{CounterSource, DatatypeLeaf, DatatypePath, DatatypeRowName};

/// The highest byte of the actors that stand for writers of a source. No gateway has one of these.
const SOURCE_ACTORS: u64 = ActorId::SOURCES.0;
/// Totals up to this one are stamps as they are; of larger ones 2^16 share a stamp, and the engine keeps the greater.
const EXACT_TOTALS: u64 = 1 << 44;
const COARSE_BITS: u32 = 16;
/// The greatest number of a register of a HyperLogLog, which has six bits at the source.
const REGISTER_MAX: u8 = 63;
/// The version of a register's value with a time of its own.
const TIMED_REGISTER: u8 = 2;

/// The last write of each writer of a source, by its name there.
pub type SourceClock = BTreeMap<Bytes, u64>;

/// A write at the source: its writer, and its number among the writes of this one, from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceDot {
    /// The writer.
    pub actor: Bytes,
    /// The number.
    pub count: u64,
}

/// What a write may leave at a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SourcePart {
    Presence,
    Element(Bytes),
    Register,
    Flag,
    Counter,
    Chunk(HllForm, u8),
}

/// The name of what one writer left at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SourceRowName {
    path: DatatypePath,
    part: SourcePart,
    actor: Bytes,
}

/// What a writer left: the number of its write, and the value of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceRow {
    count: u64,
    value: Bytes,
}

/// A data type at its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDatatype {
    datatype: Datatype,
    clock: SourceClock,
    rows: BTreeMap<SourceRowName, SourceRow>,
}

/// A row of a state, as it is stored here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImportedRow {
    pub(super) actor: Bytes,
    pub(super) stamp: Timestamp,
    pub(super) value: Bytes,
}

impl SourceRow {
    /// The row of a chunk; its count grows with each register.
    fn registers(chunk: &HllChunk) -> Self {
        Self { count: chunk.sum() + 1, value: chunk.encode() }
    }

    /// Takes what another row of the same name has beyond this one.
    fn merge(&mut self, part: &SourcePart, other: Self) {
        if let SourcePart::Chunk(form, _) = part {
            let merged = merged_registers(*form, &self.value, &other.value);
            *self = merged.map_or(other, |(stamp, value)| Self { count: stamp.0, value });
        } else if (other.count, &other.value) > (self.count, &self.value) {
            *self = other;
        }
    }
}

impl SourceDatatype {
    /// The writer of a value that names none: an empty one, or one that only grows.
    pub const NAMELESS: Bytes = Bytes::from_static(b"");

    /// A value of this type without parts, which has seen these writes.
    #[must_use]
    pub fn new(datatype: Datatype, clock: SourceClock) -> Self {
        Self { datatype, clock, rows: BTreeMap::new() }
    }

    /// A counter: the sums that each writer added and took away.
    ///
    /// # Errors
    /// [`DatatypeError::SourceState`]: sums that no counter reaches.
    pub fn counter(totals: impl IntoIterator<Item = (Bytes, u64, u64)>) -> Result<Self, DatatypeError> {
        let mut state = Self::new(Datatype::Counter, SourceClock::new());
        for (actor, plus, minus) in totals {
            let operations = plus.checked_add(minus).ok_or(DatatypeError::SourceState("totals beyond 64 bits"))?;
            let count = coarse(operations);
            let known = state.clock.entry(actor.clone()).or_default();
            *known = count.max(*known);
            if operations > 0 {
                let totals = CounterTotals { operations, plus: plus.into(), minus: minus.into() };
                let dot = SourceDot { actor, count };
                state.keep(&DatatypePath::root(), SourcePart::Counter, dot, totals.encode());
            }
        }
        Ok(state)
    }

    /// A HyperLogLog: its registers above zero, by their number. Whoever made them, the greater of two counts.
    ///
    /// # Errors
    /// [`DatatypeError::SourceState`]: registers that no HyperLogLog of this precision has.
    pub fn hyperloglog(precision: u8, registers: impl IntoIterator<Item = (u32, u8)>) -> Result<Self, DatatypeError> {
        let form = HllForm::new(precision);
        if form.precision() != precision {
            return Err(DatatypeError::SourceState("a precision of a HyperLogLog"));
        }
        let (mut chunks, mut sum) = (BTreeMap::new(), 1);
        for (index, rank) in registers {
            if index >> precision != 0 || rank > REGISTER_MAX {
                return Err(DatatypeError::SourceState("a register of a HyperLogLog"));
            }
            let place = HllPlace::at(index as usize, rank);
            chunks.entry(place.chunk).or_insert_with(|| HllChunk::new(form)).raise(place);
        }
        let mut rows = BTreeMap::new();
        for (number, chunk) in chunks {
            let (path, part) = (DatatypePath::root(), SourcePart::Chunk(form, number));
            rows.insert(SourceRowName { path, part, actor: Self::NAMELESS }, SourceRow::registers(&chunk));
            sum += chunk.sum();
        }
        // Registers have no dots, and none ever shrinks: their sum tells the newer state.
        Ok(Self { datatype: Datatype::Hll, clock: [(Self::NAMELESS, sum)].into(), rows })
    }

    /// Its data type.
    #[must_use]
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The writes that it has seen.
    #[must_use]
    pub fn clock(&self) -> &SourceClock {
        &self.clock
    }

    /// A write made the field at `path`, or something in it.
    pub fn add_presence(&mut self, path: &DatatypePath, dot: SourceDot) {
        self.keep(path, SourcePart::Presence, dot, PRESENT);
    }

    /// A write added an element.
    pub fn add_element(&mut self, path: &DatatypePath, element: Bytes, dot: SourceDot) {
        self.keep(path, SourcePart::Element(element), dot, PRESENT);
    }

    /// A write enabled a flag.
    pub fn add_flag(&mut self, path: &DatatypePath, dot: SourceDot) {
        self.keep(path, SourcePart::Flag, dot, PRESENT);
    }

    /// A write assigned a register at this time of its source, in microseconds since 1970.
    pub fn add_register(&mut self, path: &DatatypePath, dot: SourceDot, time: u64, value: &Bytes) {
        self.keep(path, SourcePart::Register, dot, timed_register(time, value));
    }

    /// The totals of a writer in a counter of a map, at its last write there.
    pub fn add_counter(&mut self, path: &DatatypePath, dot: SourceDot, plus: u64, minus: u64) {
        let totals = CounterTotals { operations: dot.count, plus: plus.into(), minus: minus.into() };
        self.keep(path, SourcePart::Counter, dot, totals.encode());
    }

    /// Whether nothing of it is ever removed.
    #[must_use]
    pub fn only_grows(&self) -> bool {
        matches!(self.datatype, Datatype::Gset | Datatype::Hll)
    }

    /// Merges another state of the same value: of what one of them lacks, that goes which it has seen and removed.
    pub fn merge(&mut self, other: Self) {
        let only_grows = self.only_grows();
        let Self { clock, mut rows, .. } = other;
        if !only_grows {
            self.rows.retain(|name, row| rows.contains_key(name) || !is_covered(&clock, &name.actor, row.count));
            rows.retain(|name, row| self.rows.contains_key(name) || !is_covered(&self.clock, &name.actor, row.count));
        }
        for (name, row) in rows {
            self.keep_row(name, row);
        }
        for (actor, count) in clock {
            let known = self.clock.entry(actor).or_default();
            *known = count.max(*known);
        }
        if self.datatype == Datatype::Hll {
            let sum = self.rows.values().map(|row| row.count - 1).sum::<u64>() + 1;
            self.clock.insert(Self::NAMELESS, sum);
        }
    }

    /// Whether both show the same value, whoever wrote its parts.
    #[must_use]
    pub fn shows_as(&self, other: &Self) -> bool {
        self.shown() == other.shown()
    }

    /// Each place with what it shows: the sum of a counter, the last register, and nothing of other parts.
    fn shown(&self) -> BTreeMap<(&DatatypePath, &SourcePart), (i128, Timestamp, Bytes)> {
        let mut shown = BTreeMap::new();
        for (name, row) in &self.rows {
            let place = shown.entry((&name.path, &name.part)).or_insert((0, Timestamp::ZERO, Bytes::new()));
            match name.part {
                SourcePart::Presence | SourcePart::Element(_) | SourcePart::Flag => {}
                SourcePart::Register => {
                    let (time, value) = register_content(Timestamp(row.count), &row.value);
                    if (time, &value) >= (place.1, &place.2) {
                        (place.1, place.2) = (time, value);
                    }
                }
                SourcePart::Chunk(..) => place.2 = row.value.clone(),
                SourcePart::Counter => {
                    let sum = |totals: CounterTotals| totals.plus.cast_signed() - totals.minus.cast_signed();
                    place.0 += CounterTotals::decode(row.value.clone()).map_or(0, sum);
                }
            }
        }
        shown.retain(|(_, part), _| **part != SourcePart::Presence);
        shown
    }

    /// Takes what was removed by one who had seen these writes.
    pub fn remove_seen(&mut self, clock: &SourceClock) {
        self.rows.retain(|name, row| !is_covered(clock, &name.actor, row.count));
    }

    /// Takes the parts of another state of the same key; both are of different places.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// Checks that rows here can hold it, and that no stamp is after `now`.
    ///
    /// # Errors
    /// As an update that makes it; [`DatatypeError::SourceState`] for a clock that no source has.
    pub fn check(&self, now: Timestamp) -> Result<(), DatatypeError> {
        let counts = self.rows.values().map(|row| row.count);
        // A stamp of the future would move the clock of this server there, and hide later writes.
        if self.clock.values().copied().chain(counts).any(|count| count == 0 || count > now.0) {
            return Err(DatatypeError::SourceState("a clock of the future"));
        }
        for (name, row) in &self.rows {
            let depth = name.path.fields()?.len();
            if depth > DATATYPE_DEPTH_MAX {
                return Err(DatatypeError::TooMany { part: "maps in each other", max: DATATYPE_DEPTH_MAX });
            }
            check_length(
                "a field with the fields around it",
                name.path.bytes() + NAME_REST,
                DATATYPE_ROW_NAME_BYTES_MAX,
            )?;
            if let SourcePart::Element(element) = &name.part {
                check_length("an element", element.len(), DATATYPE_NAME_BYTES_MAX)?;
                let bytes = name.path.element_prefix(element).len() + NAME_REST;
                check_length("an element with the fields around it", bytes, DATATYPE_ROW_NAME_BYTES_MAX)?;
            }
            if name.part == SourcePart::Register {
                check_length("a register", row.value.len().saturating_sub(9), REGISTER_BYTES_MAX)?;
            }
        }
        Ok(())
    }

    /// Its rows by their names here.
    pub(super) fn imported_rows(&self, incarnation: u64) -> BTreeMap<Bytes, ImportedRow> {
        let row = |(name, row): (&SourceRowName, &SourceRow)| {
            let actor = source_actor(&name.actor, incarnation);
            let leaf = match &name.part {
                SourcePart::Presence => DatatypeLeaf::Presence(actor),
                SourcePart::Element(element) => DatatypeLeaf::Element(element.clone(), actor),
                SourcePart::Register => DatatypeLeaf::Register(actor),
                SourcePart::Flag => DatatypeLeaf::Flag(actor),
                SourcePart::Counter => DatatypeLeaf::Counter(CounterSource { actor, birth: Timestamp::ZERO }),
                SourcePart::Chunk(form, chunk) => DatatypeLeaf::Chunk(*form, *chunk, actor),
            };
            let stored = DatatypeRowName::Data(name.path.clone(), leaf).encode();
            let (actor, value) = (name.actor.clone(), row.value.clone());
            (stored, ImportedRow { actor, stamp: Timestamp(row.count), value })
        };
        self.rows.iter().map(row).collect()
    }

    fn keep(&mut self, path: &DatatypePath, part: SourcePart, dot: SourceDot, value: Bytes) {
        let SourceDot { actor, count } = dot;
        self.keep_row(SourceRowName { path: path.clone(), part, actor }, SourceRow { count, value });
    }

    fn keep_row(&mut self, name: SourceRowName, row: SourceRow) {
        match self.rows.entry(name) {
            Entry::Vacant(vacant) => drop(vacant.insert(row)),
            Entry::Occupied(mut known) => {
                let part = known.key().part.clone();
                known.get_mut().merge(&part, row);
            }
        }
    }
}

/// The stored registers of the same chunk, the greater of two each, with the stamp that they have in an import.
pub(super) fn merged_registers(form: HllForm, one: &Bytes, other: &Bytes) -> Result<(Timestamp, Bytes), DecodeError> {
    let mut chunk = HllChunk::decode(one.clone(), form)?;
    chunk.merge(&HllChunk::decode(other.clone(), form)?);
    let SourceRow { count, value } = SourceRow::registers(&chunk);
    Ok((Timestamp(count), value))
}

/// The actor here of a writer of the source. A value that was deleted there and made anew has other ones.
#[must_use]
pub fn source_actor(actor: &[u8], incarnation: u64) -> ActorId {
    ActorId(SOURCE_ACTORS | hash::id64(&[actor, &incarnation.to_be_bytes()]) >> 8)
}

/// Whether these writes contain this one.
pub(super) fn is_covered(clock: &SourceClock, actor: &Bytes, count: u64) -> bool {
    clock.get(actor).is_some_and(|last| count <= *last)
}

/// A stamp for the totals of a writer: it grows with them, and stays below every time of this century.
fn coarse(operations: u64) -> u64 {
    // Stamps begin at 1.
    match operations.checked_sub(EXACT_TOTALS) {
        None => operations + 1,
        Some(beyond) => EXACT_TOTALS + (beyond >> COARSE_BITS) + 1,
    }
}

fn timed_register(time: u64, value: &Bytes) -> Bytes {
    [&[TIMED_REGISTER], &time.to_be_bytes()[..], value].concat().into()
}

/// The time of a register, and its value: that of its row, or one of its own if it was imported.
pub(super) fn register_content(stamp: Timestamp, value: &Bytes) -> (Timestamp, Bytes) {
    if value.first() == Some(&TIMED_REGISTER)
        && let Some(time) = value.get(1..9).and_then(|time| time.try_into().ok())
    {
        return (Timestamp(u64::from_be_bytes(time)), value.slice(9..));
    }
    (stamp, value.slice(1.min(value.len())..))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn dot(actor: &'static str, count: u64) -> SourceDot {
        SourceDot { actor: actor.into(), count }
    }

    fn clock(entries: &[(&'static str, u64)]) -> SourceClock {
        entries.iter().map(|(actor, count)| (Bytes::from_static(actor.as_bytes()), *count)).collect()
    }

    fn set(entries: &[(&'static str, u64)], elements: &[(&'static str, &'static str, u64)]) -> SourceDatatype {
        let mut state = SourceDatatype::new(Datatype::Set, clock(entries));
        for (element, actor, count) in elements {
            state.add_element(&DatatypePath::root(), (*element).into(), dot(actor, *count));
        }
        state
    }

    #[test]
    fn a_merge_keeps_what_the_other_has_not_seen() {
        let mut left = set(&[("a", 3)], &[("tea", "a", 1), ("milk", "a", 3)]);
        let right = set(&[("a", 2), ("b", 1)], &[("oats", "b", 1), ("tea", "a", 1)]);
        left.merge(right.clone());
        // The right one has not seen milk, and both have tea.
        let both = set(&[("a", 3), ("b", 1)], &[("tea", "a", 1), ("milk", "a", 3), ("oats", "b", 1)]);
        assert_eq!(left, both);
        let mut removed = set(&[("a", 3), ("b", 1)], &[("milk", "a", 3)]);
        removed.merge(right);
        assert_eq!(removed, set(&[("a", 3), ("b", 1)], &[("milk", "a", 3)]), "tea and oats were seen and removed");
    }

    #[test]
    fn a_state_shows_a_value_whoever_wrote_it() {
        let mut there = set(&[("a", 3)], &[("tea", "a", 1)]);
        let here = set(&[("a", 3), ("h", 9)], &[("milk", "h", 9)]);
        assert!(!there.shows_as(&here));
        there.merge(here.clone());
        assert!(there.shows_as(&here), "tea was removed here");
        let anew = set(&[("b", 1)], &[("milk", "b", 1)]);
        assert!(there != anew && there.shows_as(&anew));
        let counter = |totals: &[(&'static str, u64, u64)]| {
            SourceDatatype::counter(totals.iter().map(|(actor, plus, minus)| ((*actor).into(), *plus, *minus))).unwrap()
        };
        let both = counter(&[("a", 5, 1), ("h", 2, 0)]);
        assert!(both.shows_as(&counter(&[("x", 7, 1)])) && !both.shows_as(&counter(&[("a", 5, 1)])));
    }

    #[test]
    fn a_clock_of_the_future_and_names_that_are_too_long_are_refused() {
        let now = Timestamp(100);
        let state = |count, element: &[u8]| {
            let mut state = set(&[("a", count)], &[]);
            state.add_element(&DatatypePath::root(), Bytes::copy_from_slice(element), dot("a", 1));
            state.check(now)
        };
        assert_eq!(state(100, b"e"), Ok(()));
        assert_eq!(state(101, b"e"), Err(DatatypeError::SourceState("a clock of the future")));
        assert_eq!(state(0, b"e"), Err(DatatypeError::SourceState("a clock of the future")));
        assert!(state(1, &[0; DATATYPE_NAME_BYTES_MAX + 1]).is_err());
        let totals = |plus, minus| SourceDatatype::counter([("a".into(), plus, minus)]);
        assert_eq!(totals(u64::MAX, 1), Err(DatatypeError::SourceState("totals beyond 64 bits")));
        assert_eq!(totals(u64::MAX - 1, 1).unwrap().check(Timestamp(1_700_000_000_000_000)), Ok(()));
    }

    /// Stored rows have these names: another one would count everything once more.
    #[test]
    fn the_golden_rows_of_a_source_stay() {
        assert_eq!(source_actor(b"a", 0), ActorId(0xfeec_07f2_1d07_bced));
        assert_ne!(source_actor(b"a", 0), source_actor(b"a", 1));
        let rows = SourceDatatype::counter([("a".into(), 5, 2)]).unwrap().imported_rows(0);
        let (name, row) = rows.first_key_value().unwrap();
        assert_eq!(name.as_ref(), [&[2, 5][..], &source_actor(b"a", 0).0.to_be_bytes(), &[0; 8]].concat());
        assert_eq!(
            (row.stamp, CounterTotals::decode(row.value.clone())),
            (Timestamp(8), Ok(CounterTotals { operations: 7, plus: 5, minus: 2 }))
        );
        assert_eq!(register_content(Timestamp(9), &timed_register(7, &"x".into())), (Timestamp(7), "x".into()));
        assert_eq!(register_content(Timestamp(9), &Bytes::from_static(b"\x01x")), (Timestamp(9), "x".into()));
    }

    proptest! {
        #[test]
        fn stamps_grow_with_totals(totals in vec(any::<u64>(), 2), step in 0..1_000_000_u64) {
            let (less, more) = (totals[0], totals[0].saturating_add((totals[1] % 2 * step + 1) << COARSE_BITS));
            prop_assert!(coarse(less) <= coarse(more));
            prop_assert!(coarse(less) <= coarse(less.saturating_add(1)));
            prop_assert!(coarse(more) < 1_000_000_000_000_000);
        }
    }
}
