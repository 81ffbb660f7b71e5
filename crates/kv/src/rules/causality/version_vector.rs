//! The causal past of a key that is not in dots: which slots are superseded, and up to which clock.
//!
//! One gateway writes a slot, one write after the other, and overwrites it only when all of it is superseded. A writer that saw
//! `slot@clock` and replaced it therefore knows that no write to the slot up to that clock is alive, now or later. The entry
//! tells the owner of the slot that it may reuse it, and a reader that a row it meets there came back after its removal.

use larder_rows::Timestamp;
use larder_rows::limits::VECTOR_ENTRIES_MAX;

use super::context::{SHARED_SLOT, Slot};
use super::write::SupersededRow;

/// One slot of a [`VersionVector`]: every write to it up to `clock` is superseded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VectorEntry {
    /// The slot.
    pub slot: Slot,
    /// The last superseded clock.
    pub clock: Timestamp,
}

/// Superseded slots with their last superseded clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionVector(Vec<VectorEntry>);

impl VersionVector {
    /// The union: each slot once, with its greatest clock, the newest first.
    pub fn merge(entries: impl IntoIterator<Item = VectorEntry>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        // The greatest clock first, so that the deduplication keeps it.
        entries.sort_unstable_by_key(|entry| (entry.slot, std::cmp::Reverse(entry.clock)));
        entries.dedup_by_key(|entry| entry.slot);
        // The newest first: the excess that a row drops is the oldest.
        entries.sort_unstable_by_key(|entry| (std::cmp::Reverse(entry.clock), entry.slot));
        Self(entries)
    }

    /// The clock up to which `slot` is superseded, 0 when it has no entry.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Timestamp {
        self.iter().filter(|entry| entry.slot == slot).map(|entry| entry.clock).max().unwrap_or_default()
    }

    /// The entries in their order.
    pub fn iter(&self) -> impl Iterator<Item = VectorEntry> {
        self.0.iter().copied()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the first [`VECTOR_ENTRIES_MAX`] entries and returns the others.
    fn split_off_excess(&mut self) -> Self {
        // The oldest entries fall away: such a slot costs a new row, never a value.
        Self(self.0.split_off(self.0.len().min(VECTOR_ENTRIES_MAX)))
    }

    /// Keeps the entries that `keep` accepts, of these the first [`VECTOR_ENTRIES_MAX`].
    pub(super) fn retain_bounded(&mut self, keep: impl FnMut(&VectorEntry) -> bool) {
        self.0.retain(keep);
        self.0.truncate(VECTOR_ENTRIES_MAX);
    }
}

/// Takes entries as they come, in their order.
impl FromIterator<VectorEntry> for VersionVector {
    fn from_iter<I: IntoIterator<Item = VectorEntry>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl Extend<VectorEntry> for VersionVector {
    fn extend<I: IntoIterator<Item = VectorEntry>>(&mut self, entries: I) {
        self.0.extend(entries);
    }
}

impl IntoIterator for VersionVector {
    type Item = VectorEntry;
    type IntoIter = std::vec::IntoIter<VectorEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The superseded slots that a write knows of, split into those that its row stores and those that it drops.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CarriedVector {
    /// The newest entries, newest first: the row stores them.
    pub stored: VersionVector,
    /// The other entries. No row names them after this write has replaced the rows that did.
    pub dropped: VersionVector,
}

impl CarriedVector {
    /// The vector of a write into `slot` whose context has `vector` and which replaces `superseded`.
    #[must_use]
    pub fn from_write(slot: Slot, vector: &VersionVector, superseded: &[SupersededRow]) -> Self {
        let superseded = superseded.iter().filter_map(SupersededRow::vector_entry);
        // The own slot needs no entry: its row carries its clock.
        let mut stored = VersionVector::merge(vector.iter().chain(superseded).filter(|entry| entry.slot != slot));
        let dropped = stored.split_off_excess();
        Self { stored, dropped }
    }
}

impl SupersededRow {
    /// The row as a vector entry. A row that several actors write has none: its next write may come from any of them.
    #[must_use]
    pub fn vector_entry(&self) -> Option<VectorEntry> {
        let slot = Slot::from_row_name(&self.name).ok().filter(|slot| *slot != SHARED_SLOT)?;
        Some(VectorEntry { slot, clock: self.clock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::causality::DotFlags;
    use larder_rows::ActorId;

    fn entry(actor: u64, clock: Timestamp) -> VectorEntry {
        VectorEntry { slot: Slot { actor: ActorId(actor), birth: Timestamp(1) }, clock }
    }

    fn superseded(slot: Slot, clock: Timestamp) -> SupersededRow {
        SupersededRow { name: slot.row_name(), clock, flags: DotFlags::default() }
    }

    #[test]
    fn a_write_carries_the_rows_it_replaced_and_the_vector_of_its_context() {
        let slot = Slot { actor: ActorId(9), birth: Timestamp(1) };
        let replaced = [
            superseded(Slot { actor: ActorId(1), birth: Timestamp(1) }, Timestamp(7)),
            superseded(slot, Timestamp(8)),
            superseded(SHARED_SLOT, Timestamp(9)),
        ];
        let vector = [entry(1, Timestamp(5)), entry(2, Timestamp(6)), entry(9, Timestamp(3))].into_iter().collect();
        let stored = [entry(1, Timestamp(7)), entry(2, Timestamp(6))].into_iter().collect();
        let carried = CarriedVector::from_write(slot, &vector, &replaced);
        assert_eq!(carried, CarriedVector { stored, dropped: VersionVector::default() });
    }

    #[test]
    fn the_newest_entries_are_stored_and_the_others_reported() {
        let many = (1..=20).map(|at| entry(at, Timestamp(at))).collect();
        let carried = CarriedVector::from_write(Slot { actor: ActorId(99), birth: Timestamp(1) }, &many, &[]);
        let clocks = |vector: &VersionVector| vector.iter().map(|entry| entry.clock).collect::<Vec<_>>();
        assert_eq!(clocks(&carried.stored), (5..=20).rev().map(Timestamp).collect::<Vec<_>>());
        assert_eq!(clocks(&carried.dropped), [4, 3, 2, 1].map(Timestamp));
    }
}
