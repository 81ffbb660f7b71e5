//! Turns updates into changes of rows: those of one actor at one clock, applied together.
//!
//! The editor holds the rows that the updates needed, and shows them with the edits made so far. Each update is applied whole or
//! not at all, so several requests share one batch. Every changed row is stamped with the one clock, or removed at the stamp
//! that was read: a removal takes what its writer saw and nothing newer.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_core::rules::refusals::DatatypeError;
use larder_rows::codec::prefix_successor;
use larder_rows::{ActorId, Change, Row, Timestamp};

use super::context::{ActorClocks, DatatypeContext, is_within};
use super::head::{ClockValue, CounterTotals, DatatypeHead, NamedIncrement};
use super::row_name::{CounterSource, DatatypeLeaf, DatatypePath, DatatypeRowName};

/// The value of a row that only says that something is there.
pub(super) const PRESENT: Bytes = Bytes::from_static(&[1]);

/// The writer of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EditorTerms {
    /// The actor whose rows are written.
    pub actor: ActorId,
    /// The clock of the batch, above every stamp that was read.
    pub clock: Timestamp,
    /// On replicas: the clock up to which a quorum has the actor's rows. `None`: one machine shows all that it stored.
    pub confirmed: Option<Timestamp>,
    /// The precision of new registers of a HyperLogLog.
    pub precision: u8,
    /// Expiry of rows that only stop late writes and retries.
    pub forget: Timestamp,
}

/// A change of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RowEdit {
    Put { value: Bytes, stamp: Timestamp, expires: Option<Timestamp> },
    Remove { stamp: Timestamp },
}

/// A row as the editor shows it.
pub(super) struct ShownRow {
    pub(super) name: Bytes,
    pub(super) path: DatatypePath,
    pub(super) leaf: DatatypeLeaf,
    pub(super) value: Bytes,
    pub(super) stamp: Timestamp,
    /// The batch that wrote it; `None` for a row that no context names.
    dot: Option<(ActorId, Timestamp)>,
}

/// A moment to go back to.
#[derive(Debug, Clone, Copy)]
pub struct EditorMark {
    undo: usize,
    markers: usize,
    touched: bool,
}

/// The edits of one batch.
#[derive(Debug)]
pub struct DatatypeEditor {
    pub(super) terms: EditorTerms,
    pub(super) head: DatatypeHead,
    stored: BTreeMap<Bytes, Row>,
    oversized: Vec<DatatypePath>,
    edits: BTreeMap<Bytes, RowEdit>,
    undo: Vec<(Bytes, Option<RowEdit>)>,
    bytes: usize,
    pub(super) touched: bool,
}

impl EditorTerms {
    /// Whether an increment with an id is a row of its own: several gateways may count it at once.
    #[must_use]
    pub(super) fn names_increments(&self) -> bool {
        self.confirmed.is_some()
    }
}

impl DatatypeEditor {
    /// An editor over a head and rows as they were read. Of the `oversized` parts only the first rows are there.
    #[must_use]
    pub fn new(
        terms: EditorTerms,
        head: DatatypeHead,
        rows: impl IntoIterator<Item = Row>,
        oversized: Vec<DatatypePath>,
    ) -> Self {
        let stored = rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        let (edits, undo) = (BTreeMap::new(), Vec::new());
        Self { terms, head, stored, oversized, edits, undo, bytes: 0, touched: false }
    }

    /// The state to go back to when an update is refused.
    #[must_use]
    pub fn mark(&self) -> EditorMark {
        EditorMark { undo: self.undo.len(), markers: self.head.markers.len(), touched: self.touched }
    }

    /// Takes back every edit since `mark`.
    pub fn roll_back(&mut self, mark: EditorMark) {
        while self.undo.len() > mark.undo {
            let Some((name, edit)) = self.undo.pop() else { return };
            self.replace(&name, edit);
        }
        self.head.markers.truncate(mark.markers);
        self.touched = mark.touched;
    }

    /// Whether a part of the key is hidden by a marker.
    #[must_use]
    pub fn has_markers(&self) -> bool {
        !self.head.markers.is_empty()
    }

    /// Bytes of the changes so far, as a batch counts them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The changes with the clock row; none if no update changed anything.
    #[must_use]
    pub fn finish(mut self) -> Vec<Change> {
        if self.touched {
            // The clock stands in every batch: a reader of the clock has seen all rows below it [invariant 109].
            // Race: whether a quorum takes this batch is not known yet; a context must not cover it [invariant 152].
            let confirmed = self.terms.confirmed.unwrap_or(self.terms.clock);
            self.put(DatatypeRowName::Clock(self.terms.actor).encode(), ClockValue { confirmed }.encode());
        }
        let change = |(name, edit)| match edit {
            RowEdit::Put { value, stamp, expires } => Change::Put(Row { name, value, stamp, expires }),
            RowEdit::Remove { stamp } => Change::Remove { name, stamp },
        };
        self.edits.into_iter().map(change).collect()
    }

    /// The rows below a prefix, with the edits made so far.
    pub(super) fn shown_below(&self, prefix: &Bytes) -> Result<Vec<ShownRow>, DatatypeError> {
        let range = || (std::ops::Bound::Included(prefix.clone()), prefix_end(prefix));
        let mut names: Vec<&Bytes> = self.stored.range(range()).map(|(name, _)| name).collect();
        names.extend(self.edits.range(range()).map(|(name, _)| name));
        names.sort_unstable();
        names.dedup();
        names.into_iter().filter_map(|name| self.shown(name).transpose()).collect()
    }

    /// A row, with the edits made so far; `None` if it is not there or dead.
    pub(super) fn shown(&self, name: &Bytes) -> Result<Option<ShownRow>, DatatypeError> {
        let (value, stamp) = match (self.edits.get(name), self.stored.get(name)) {
            (Some(RowEdit::Put { value, stamp, .. }), _) => (value.clone(), *stamp),
            (Some(RowEdit::Remove { .. }), _) | (None, None) => return Ok(None),
            (None, Some(row)) => (row.value.clone(), row.stamp),
        };
        let DatatypeRowName::Data(path, leaf) = DatatypeRowName::decode(name)? else { return Ok(None) };
        if self.head.is_dead(&path, &leaf, stamp) {
            return Ok(None);
        }
        let dot = match leaf {
            DatatypeLeaf::Increment(_) => {
                let increment = NamedIncrement::decode(value.clone())?;
                Some((increment.actor, increment.clock))
            }
            _ => leaf.actor().map(|actor| (actor, stamp)),
        };
        Ok(Some(ShownRow { name: name.clone(), path, leaf, value, stamp, dot }))
    }

    /// Writes a row.
    pub(super) fn put(&mut self, name: Bytes, value: Bytes) {
        self.edit(&name, Some(RowEdit::Put { value, stamp: self.terms.clock, expires: None }));
    }

    /// Writes the increment that an id names. The caller has seen that there is none.
    pub(super) fn put_increment(&mut self, path: &DatatypePath, id: &Bytes, by: i64) {
        let name = DatatypeRowName::Data(path.clone(), DatatypeLeaf::Increment(id.clone())).encode();
        let increment = NamedIncrement { amount: by.into(), actor: self.terms.actor, clock: self.terms.clock };
        // Race: a repeat through another gateway is the same row, and a removal of it stops repeats that come later [invariant 154].
        let edit = RowEdit::Put { value: increment.encode(), stamp: NamedIncrement::STAMP, expires: None };
        self.edit(&name, Some(edit));
    }

    /// Writes a row as it is shown, one that never expires, at its own stamp, with the clock that lets readers see it.
    pub(super) fn put_again(&mut self, row: ShownRow) {
        // Race: a single replica may have it; once this is answered, reads of the others show it, too [invariant 186].
        self.edit(&row.name, Some(RowEdit::Put { value: row.value, stamp: row.stamp, expires: None }));
        self.touched = true;
    }

    /// Writes a row that the store forgets after a while.
    pub(super) fn put_for_a_while(&mut self, name: Bytes, value: Bytes) {
        let expires = Some(self.terms.forget);
        self.edit(&name, Some(RowEdit::Put { value, stamp: self.terms.clock, expires }));
    }

    /// Takes a row away: a stored one at its own stamp, so that a newer version stays.
    pub(super) fn take(&mut self, name: &Bytes) {
        // Race: another gateway may have written the row again since the read [invariant 110].
        let edit = self.stored.get(name).map(|row| RowEdit::Remove { stamp: row.stamp });
        self.edit(name, edit);
    }

    /// Takes a row of the head away, at the stamp that was read.
    pub(super) fn take_at(&mut self, name: &Bytes, stamp: Timestamp) {
        self.edit(name, Some(RowEdit::Remove { stamp }));
    }

    /// Whether a row of this name was stored before the batch.
    pub(super) fn is_stored(&self, name: &Bytes) -> bool {
        self.stored.contains_key(name)
    }

    /// Whether more rows are in the part than were read.
    pub(super) fn is_oversized(&self, path: &DatatypePath) -> bool {
        self.oversized.contains(path)
    }

    /// The newest counter row of this actor at the path; a new one at zero if there is none or it was zeroed.
    pub(super) fn own_counter(&mut self, path: &DatatypePath) -> Result<(CounterSource, CounterTotals), DatatypeError> {
        let mut counters = self.shown_below(&path.counter_prefix(self.terms.actor))?;
        if let Some(ShownRow { leaf: DatatypeLeaf::Counter(source), value, .. }) = counters.pop() {
            let totals = CounterTotals::decode(value)?;
            if totals.operations > 0 {
                return Ok((source, totals));
            }
        }
        // Bound: a counter that is removed again and again keeps the zeros of its last removal only [invariant 115].
        counters.iter().for_each(|row| self.take(&row.name));
        // Race: a row that is gone may be on its way back; a new birth begins at zero beside it [invariant 108].
        Ok((CounterSource { actor: self.terms.actor, birth: self.terms.clock }, CounterTotals::default()))
    }

    fn edit(&mut self, name: &Bytes, edit: Option<RowEdit>) {
        let before = self.replace(name, edit);
        self.undo.push((name.clone(), before));
    }

    fn replace(&mut self, name: &Bytes, edit: Option<RowEdit>) -> Option<RowEdit> {
        let cost = |edit: &RowEdit| {
            let value = if let RowEdit::Put { value, .. } = edit { value.len() } else { 0 };
            name.len() + value + 16
        };
        self.bytes += edit.as_ref().map_or(0, cost);
        let before = match edit {
            Some(edit) => self.edits.insert(name.clone(), edit),
            None => self.edits.remove(name),
        };
        self.bytes -= before.as_ref().map_or(0, cost);
        before
    }
}

impl ShownRow {
    /// Whether the reader of the context saw it; without a context everything that is shown.
    pub(super) fn is_seen(&self, context: Option<&DatatypeContext>) -> bool {
        let Some(context) = context else { return true };
        self.dot.is_some_and(|(actor, clock)| context.covers(&self.name, actor, clock))
    }

    /// Whether these clocks cover it.
    pub(super) fn is_within(&self, clocks: &ActorClocks) -> bool {
        self.dot.is_some_and(|(actor, clock)| is_within(clocks, actor, clock))
    }

    /// The actor that wrote it.
    pub(super) fn actor(&self) -> Option<ActorId> {
        self.dot.map(|(actor, _)| actor)
    }

    /// Whether it is a share of a counter, which grows in place or repeats: no marker takes it from another gateway.
    pub(super) fn is_counted(&self) -> bool {
        matches!(self.leaf, DatatypeLeaf::Counter(_) | DatatypeLeaf::Increment(_))
    }

    /// Whether it shows that its field is there.
    pub(super) fn shows_field(&self) -> bool {
        matches!(
            self.leaf,
            DatatypeLeaf::Presence(_) | DatatypeLeaf::Element(..) | DatatypeLeaf::Register(_) | DatatypeLeaf::Flag(_)
        )
    }
}

fn prefix_end(prefix: &Bytes) -> std::ops::Bound<Bytes> {
    prefix_successor(prefix).map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded)
}
