//! Decides what an import of a source's state changes in the rows of a key.
//!
//! ```text
//! seen by the imports before: a: 3     state: clock a: 5; tea by (a, 2), oats by (a, 5)
//!   here   milk A@3    not in the state, which has seen (a, 3): removed at the source, so it is removed here
//!          tea  –      by (a, 2), which an import brought: a client removed it here, so it does not come back
//!          oats –      by (a, 5), which no import brought: it is added, also if a client removed older oats
//!          beer G@70   of a client of this server: it stays
//! ```
//! The rows that are there are shown to the plan one by one, so that it holds the state and the changes, never the value.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_core::rules::refusals::DatatypeError;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::limits::METADATA_BYTES_MAX;
use larder_rows::{ActorId, Change, Row, Timestamp};

use super::context::ActorClocks;
use super::head::{ClockValue, CounterTotals, DatatypeHead};
use super::hll::{HllChunk, HllForm};
use super::row_name::{DatatypeLeaf, DatatypeRowName};
use super::source_datatype::{ImportedRow, SourceClock, SourceDatatype, is_covered, merged_registers, source_actor};

const VERSION: u8 = 1;

/// What the imports of a key have seen of its source: the row that tells an element which a client removed here from a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportRecord {
    /// How often the value was deleted at the source.
    pub incarnation: u64,
    /// The writes of the source that imports have seen.
    pub clock: SourceClock,
    /// The stamp of its row; zero before it is stored.
    pub stamp: Timestamp,
}

/// The state of a key at its source, as an import takes it.
#[derive(Debug, Clone, Copy)]
pub struct ImportTerms<'a> {
    /// The state; `None`: the source has no value.
    pub state: Option<&'a SourceDatatype>,
    /// Whether everything that was imported and is not in the state is gone at the source, also what its clock does not tell.
    pub is_whole: bool,
    /// Whether the source deleted the value and made it anew: nothing of the imports before counts.
    pub is_anew: bool,
}

/// What an import is to change.
#[derive(Debug)]
pub struct ImportPlan<'a> {
    terms: ImportTerms<'a>,
    head: &'a DatatypeHead,
    before: ImportRecord,
    after: ImportRecord,
    /// The rows of the state that were not met yet.
    pending: BTreeMap<Bytes, ImportedRow>,
    /// Actors of the imports before, with the last write of each that they have seen.
    known: ActorClocks,
    /// Whether the state only grows: its parts have no dots, and none is removed.
    only_grows: bool,
    /// Actors of the state, with the last write of each.
    covered: ActorClocks,
    /// Whether the imports before have seen all writes of the state.
    is_noted: bool,
    changes: Vec<Change>,
    has_others: bool,
    has_newer: bool,
}

/// The changes of an import, in the order in which replicas take them.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportChanges {
    /// Rows of the value, added and removed.
    pub rows: Vec<Change>,
    /// The clocks that stand after it.
    pub clocks: ActorClocks,
    /// The clocks that go.
    pub gone: ActorClocks,
    /// What imports have seen after it.
    pub record: ImportRecord,
    /// How the key differs from the state apart from these changes.
    pub difference: ImportDifference,
}

/// How a key differs from the state of its source although an import has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportDifference {
    /// Not at all.
    Nothing,
    /// Clients here added or removed something.
    Clients,
    /// It has newer writes of the source than the state.
    Newer,
}

impl<'a> ImportPlan<'a> {
    /// A plan over this head; the rows of the value follow.
    #[must_use]
    pub fn new(terms: ImportTerms<'a>, head: &'a DatatypeHead) -> Self {
        let before = head.import.clone().unwrap_or_default();
        let is_gone = terms.state.is_none() || terms.is_anew;
        let mut after = match is_gone && !before.clock.is_empty() {
            true => {
                ImportRecord { incarnation: before.incarnation + 1, clock: SourceClock::new(), stamp: before.stamp }
            }
            false => before.clone(),
        };
        let pending = terms.state.map(|state| state.imported_rows(after.incarnation)).unwrap_or_default();
        let covered = terms.state.map(|state| actor_clocks(state.clock(), after.incarnation)).unwrap_or_default();
        let known = actor_clocks(&before.clock, before.incarnation);
        for (actor, count) in terms.state.into_iter().flat_map(SourceDatatype::clock) {
            let last = after.clock.entry(actor.clone()).or_default();
            *last = (*count).max(*last);
        }
        let is_noted = before.incarnation == after.incarnation && before.clock == after.clock;
        let only_grows = terms.state.is_some_and(SourceDatatype::only_grows);
        let changes = Vec::new();
        Self {
            terms,
            head,
            before,
            after,
            pending,
            known,
            only_grows,
            covered,
            is_noted,
            changes,
            has_others: false,
            has_newer: false,
        }
    }

    /// Takes note of a row of the value that is there.
    ///
    /// # Errors
    /// [`DatatypeError::Damaged`].
    pub fn see(&mut self, row: Row) -> Result<(), DatatypeError> {
        let DatatypeRowName::Data(path, leaf) = DatatypeRowName::decode(&row.name)? else {
            return Err(DecodeError::Invalid("row of a value").into());
        };
        if self.head.is_dead(&path, &leaf, row.stamp) {
            return Ok(());
        }
        if let Some(there) = self.pending.remove(&row.name) {
            return match leaf {
                DatatypeLeaf::Chunk(form, _, actor) => self.compare_registers(form, actor, there, row),
                _ => self.compare(there, row),
            };
        }
        match leaf.actor().filter(|actor| self.known.contains_key(actor) || self.covered.contains_key(actor)) {
            Some(actor) if self.is_gone(actor, row.stamp) => {
                self.changes.push(Change::Remove { name: row.name, stamp: row.stamp });
            }
            Some(_) => self.has_newer = true,
            None => self.has_others |= !is_zero(&leaf, row.value)?,
        }
        Ok(())
    }

    /// The changes, after all rows of the value.
    #[must_use]
    pub fn finish(mut self) -> ImportChanges {
        let is_same_run = self.before.incarnation == self.after.incarnation;
        let mut removed_here = false;
        for (name, ImportedRow { actor, stamp, value }) in std::mem::take(&mut self.pending) {
            // Race: a client removed here what an import brought; it is not to come back [invariant 197].
            if is_same_run && !self.only_grows && is_covered(&self.before.clock, &actor, stamp.0) {
                removed_here = true;
                continue;
            }
            self.changes.push(Change::Put(Row { name, value, stamp, expires: None }));
        }
        let is_new = |(actor, last): &(ActorId, Timestamp)| {
            self.known.get(actor).is_none_or(|known| !is_same_run || known < last)
        };
        // Race: a client deleted the value here; the clock of a write that an import brought would bring the key back [invariant 197].
        let clocks = self.covered.iter().map(|(actor, last)| (*actor, *last)).filter(is_new).collect();
        let gone = match is_same_run {
            true => ActorClocks::new(),
            false => {
                let clocks = self.head.clocks.iter().filter(|(actor, _)| self.known.contains_key(actor));
                clocks.map(|(actor, clock)| (*actor, *clock)).collect()
            }
        };
        let difference = match (self.has_newer, self.has_others || removed_here) {
            (true, _) => ImportDifference::Newer,
            (false, true) => ImportDifference::Clients,
            (false, false) => ImportDifference::Nothing,
        };
        ImportChanges { rows: self.changes, clocks, gone, record: self.after, difference }
    }

    /// Compares a row of the state with the one that is there.
    fn compare(&mut self, there: ImportedRow, here: Row) -> Result<(), DatatypeError> {
        // Race: an older state that arrives late changes nothing [invariant 196].
        let is_newer = (here.stamp, &here.value) > (there.stamp, &there.value);
        let is_equal = (here.stamp, &here.value) == (there.stamp, &there.value);
        // Race: a minority may have it, of an import that broke off; the note of this one would vouch for it [invariant 199].
        let is_stored = self.before.incarnation == self.after.incarnation
            && is_covered(&self.before.clock, &there.actor, there.stamp.0);
        if self.only_grows || is_newer || is_equal && is_stored {
            self.has_newer |= here.stamp > there.stamp;
            return Ok(());
        }
        self.changes.push(Change::Put(Row { name: here.name, value: there.value, stamp: there.stamp, expires: None }));
        Ok(())
    }

    /// Merges registers of the state with those that are there.
    fn compare_registers(
        &mut self,
        form: HllForm,
        actor: ActorId,
        there: ImportedRow,
        here: Row,
    ) -> Result<(), DatatypeError> {
        // Race: the state may be of another replica than the one before, or an older one [invariant 175].
        let (stamp, value) = merged_registers(form, &here.value, &there.value)?;
        self.has_newer |= value != there.value;
        // Race: a minority may have them, of an import that broke off; the note of this one would vouch for them [invariant 199].
        if value != here.value || !self.is_noted {
            // Registers of two states together may sum up to more than either state: the clocks cover every row, or its removal
            // at the source would leave it.
            let (clock, noted) =
                (self.covered.entry(actor).or_default(), self.after.clock.entry(there.actor).or_default());
            (*clock, *noted) = ((*clock).max(stamp), (*noted).max(stamp.0));
            self.changes.push(Change::Put(Row { name: here.name, value, stamp, expires: None }));
        }
        Ok(())
    }

    /// Whether the source has removed what it once wrote in a row.
    fn is_gone(&self, actor: ActorId, stamp: Timestamp) -> bool {
        let is_within = |clocks: &ActorClocks| clocks.get(&actor).is_some_and(|last| stamp <= *last);
        let is_dropped = self.terms.is_whole || self.before.incarnation != self.after.incarnation;
        // Race: the state is older than the row, whose write it has not seen [invariant 196].
        is_within(&self.covered) && !self.only_grows || is_dropped && is_within(&self.known)
    }
}

impl ImportChanges {
    /// Whether the key has everything of the state, and nothing of its source beside.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.rows.is_empty() && self.clocks.is_empty() && self.gone.is_empty()
    }

    /// The rows of its clocks; `confirmed` says up to which clock a quorum has the rows of each.
    pub fn clock_rows(&self, confirmed: impl Fn(ActorId, Timestamp) -> Timestamp) -> impl Iterator<Item = Change> {
        let put = move |(actor, clock): (&ActorId, &Timestamp)| {
            let value = ClockValue { confirmed: confirmed(*actor, *clock) }.encode();
            Change::Put(Row { name: DatatypeRowName::Clock(*actor).encode(), value, stamp: *clock, expires: None })
        };
        self.clocks.iter().map(put)
    }

    /// The removals of the clocks that go.
    pub fn gone_rows(&self) -> impl Iterator<Item = Change> {
        let removal = |(actor, clock): (&ActorId, &Timestamp)| Change::Remove {
            name: DatatypeRowName::Clock(*actor).encode(),
            stamp: *clock,
        };
        self.gone.iter().map(removal)
    }

    /// The row of what imports have seen.
    #[must_use]
    pub fn record_row(&self, stamp: Timestamp) -> Change {
        let name = DatatypeRowName::Import.encode();
        Change::Put(Row { name, value: self.record.encode(), stamp, expires: None })
    }
}

impl ImportRecord {
    /// Whether a state is of a value that was made anew: it has seen nothing that imports have.
    #[must_use]
    pub fn is_apart(&self, state: &SourceDatatype) -> bool {
        let known: BTreeSet<&Bytes> = self.clock.keys().collect();
        !known.is_empty() && state.clock().keys().all(|actor| !known.contains(actor))
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 10 + 24 * self.clock.len());
        out.varint(self.incarnation);
        out.varint(self.clock.len() as u64);
        for (actor, count) in &self.clock {
            out.bytes(actor);
            out.varint(*count);
        }
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(row: &Row) -> Result<Self, DecodeError> {
        let (value, stamp) = (row.value.clone(), row.stamp);
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let incarnation = rest.varint()?;
        let mut clock = SourceClock::new();
        for _ in 0..rest.count(METADATA_BYTES_MAX)? {
            let actor = rest.bytes()?;
            clock.insert(actor, rest.varint()?);
        }
        rest.finish()?;
        Ok(Self { incarnation, clock, stamp })
    }
}

/// The clocks of a source as those of actors here.
fn actor_clocks(clock: &SourceClock, incarnation: u64) -> ActorClocks {
    clock.iter().map(|(actor, count)| (source_actor(actor, incarnation), Timestamp(*count))).collect()
}

/// Whether a row is one that only stops late writes, and shows nothing.
fn is_zero(leaf: &DatatypeLeaf, value: Bytes) -> Result<bool, DatatypeError> {
    Ok(match leaf {
        DatatypeLeaf::Counter(_) => CounterTotals::decode(value)?.operations == 0,
        DatatypeLeaf::Chunk(form, _, _) => HllChunk::decode(value, *form)?.sum() == 0,
        DatatypeLeaf::Request(_) => true,
        _ => false,
    })
}
