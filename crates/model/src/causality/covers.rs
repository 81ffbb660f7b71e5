//! Dead slots that a writer knows of: what its row remembers of them for those who come later, and what nobody does.
//!
//! A slot is written by one gateway, one write after the other, and overwritten only when all of it was dead. So whoever saw
//! `slot@clock` and replaced it knows: nothing of that slot up to that clock is alive, now or ever. A cover says just that.
//! It tells the slot's owner that it may take the slot again, and a reader that a row it meets there came back from the dead.

use super::dot::{ANY_SLOT, Clock, Cover, Slot};
use super::write::Removed;
use crate::limits::COVERS_MAX;

/// The dead slots a write knows of, itself not among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Those its row remembers: the newest, newest first.
    pub carried: Vec<Cover>,
    /// Those nobody remembers any more once it has replaced what named them.
    pub dropped: Vec<Cover>,
}

impl Known {
    /// What a write to `own` knows that was told `covers` and removes `removed`.
    #[must_use]
    pub fn by(own: Slot, covers: &[Cover], removed: &[Removed]) -> Self {
        let removed = removed.iter().filter_map(Removed::cover);
        let mut carried = newest(covers.iter().copied().chain(removed).filter(|cover| cover.slot != own));
        let dropped = carried.split_off(carried.len().min(COVERS_MAX));
        Self { carried, dropped }
    }
}

impl Removed {
    /// The row as one that is dead. Rows that every gateway writes are of no slot, so nothing can be said of what comes there.
    #[must_use]
    pub fn cover(&self) -> Option<Cover> {
        let slot = Slot::from_row_name(&self.name).ok().filter(|slot| *slot != ANY_SLOT)?;
        Some(Cover { slot, clock: self.clock })
    }
}

/// The covers of several rows as one list: each slot once, with its last dead clock, the newest first.
pub(super) fn newest(covers: impl Iterator<Item = Cover>) -> Vec<Cover> {
    let mut covers: Vec<_> = covers.collect();
    covers.sort_unstable_by_key(|cover| (cover.slot, std::cmp::Reverse(cover.clock)));
    covers.dedup_by_key(|cover| cover.slot);
    covers.sort_unstable_by_key(|cover| (std::cmp::Reverse(cover.clock), cover.slot));
    covers
}

/// Up to which clock a slot is dead by `covers`, 0 for not at all.
#[must_use]
pub fn dead_until(covers: &[Cover], slot: Slot) -> Clock {
    covers.iter().filter(|cover| cover.slot == slot).map(|cover| cover.clock).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causality::DotFlags;

    fn cover(actor: u64, clock: Clock) -> Cover {
        Cover { slot: Slot { actor, birth: 1 }, clock }
    }

    fn removed(slot: Slot, clock: Clock) -> Removed {
        Removed { name: slot.row_name(), clock, flags: DotFlags::default() }
    }

    #[test]
    fn a_write_remembers_what_it_removed_and_what_it_was_told() {
        let own = Slot { actor: 9, birth: 1 };
        let gone = [removed(Slot { actor: 1, birth: 1 }, 7), removed(own, 8), removed(ANY_SLOT, 9)];
        let known = Known::by(own, &[cover(1, 5), cover(2, 6), cover(9, 3)], &gone);
        assert_eq!(known, Known { carried: vec![cover(1, 7), cover(2, 6)], dropped: Vec::new() });
    }

    #[test]
    fn the_newest_are_carried_and_the_others_named() {
        let many: Vec<_> = (1..=20).map(|at| cover(at, at)).collect();
        let known = Known::by(Slot { actor: 99, birth: 1 }, &many, &[]);
        assert_eq!(known.carried.iter().map(|one| one.clock).collect::<Vec<_>>(), (5..=20).rev().collect::<Vec<_>>());
        assert_eq!(known.dropped.iter().map(|one| one.clock).collect::<Vec<_>>(), [4, 3, 2, 1]);
    }
}
