//! The space that a store owes its disk: bytes of removed and replaced entries that no merge of tables has given back yet.
//!
//! Nothing is counted on the way of a write. The tables say how many entries and tombstones they have, and the files of large values
//! how many of their bytes no table names any more. An entry above the lowest level may hide one below it, of the mean size:
//!
//! ```text
//! memtables          ┐  each entry and each tombstone may hide one value
//! levels 0 to 5      ┘
//! level 6               its values are alive, unless one of those hides them; its tombstones count as those above
//! large values          dead once the table that named them was merged
//! ```
//! So the number is a bound: new keys look like replaced ones until a merge has shown that they hide nothing.

use std::time::Duration;

use crate::tree_id::PerTree;

const MIB: u64 = 1024 * 1024;
/// A store that rests may keep this many dead bytes in any case, and a part of all its bytes.
const DEAD_KEPT: u64 = 32 * MIB;
const DEAD_PART_KEPT: u64 = 5;
/// It may keep this many tombstones in any case, and a part of its entries: a listing passes a thousand in about a millisecond.
const TOMBSTONES_KEPT: u64 = 5_000;
const TOMBSTONE_PART_KEPT: u64 = 16;
/// A tree with less than this part of all dead bytes is left alone.
const TREE_PART: u64 = 8;
/// On a short disk a tree pays from these bytes on, or from this part of its own.
const SHORT_KEPT: u64 = 64 * 1024;
const SHORT_PART_KEPT: u64 = 64;
/// A debt that was left for want of room is due again once there is more by this part.
const MORE_ROOM_PART: u64 = 4;
/// A debt that a merge left, such as entries that a reader still needs, is tried again after this: at rest, and on a short disk.
const SETTLED_FOR: Duration = Duration::from_secs(600);
const SHORT_SETTLED_FOR: Duration = Duration::from_secs(2);

/// The bytes of a tree on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TreeSpace {
    /// All of them.
    pub(crate) bytes: u64,
    /// Those of them that may be dead.
    pub(crate) dead: u64,
    /// Its entries.
    pub(crate) entries: u64,
    /// Those of them that are tombstones: a listing reads them all.
    pub(crate) tombstones: u64,
}

impl TreeSpace {
    /// Dead bytes from which on the tree pays on a short disk.
    pub(crate) fn kept_when_short(self) -> u64 {
        (self.bytes / SHORT_PART_KEPT).max(SHORT_KEPT)
    }

    /// The bytes that are not dead, at least.
    pub(crate) fn live(self) -> u64 {
        self.bytes.saturating_sub(self.dead)
    }
}

/// The debts that a look finds due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DueDebts {
    /// The trees to merge.
    pub(crate) trees: PerTree<bool>,
    /// Whether every memtable that rests is to be flushed, so that journal files go.
    pub(crate) journals: bool,
}

/// How merges that reclaim a tree's space ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DebtPayment {
    /// A further one would give nothing back.
    Whole,
    /// A further one needs more than these bytes of room.
    ShortOf(u64),
    /// Other work went first.
    Interrupted,
}

/// A look at debts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DebtLook {
    pub(crate) now: Duration,
    /// Bytes that a merge could write.
    pub(crate) room: u64,
}

/// Counts of a tree's entries, as its tables have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TableCounts {
    /// Bytes of tables, and of files of large values.
    pub(crate) bytes: u64,
    /// Bytes of large values that no table names.
    pub(crate) unnamed: u64,
    /// Entries of all tables.
    pub(crate) entries: u64,
    /// Those of them that are tombstones.
    pub(crate) removals: u64,
    /// Entries of memtables.
    pub(crate) unflushed: u64,
    /// Entries of tables in the lowest level with a value.
    pub(crate) lowest: u64,
    /// Tombstones, in tables and memtables.
    pub(crate) tombstones: u64,
}

impl TableCounts {
    /// The bytes, and those that may be dead.
    pub(crate) fn space(self) -> TreeSpace {
        let named = self.bytes.saturating_sub(self.unnamed);
        // Of those with a value: many tombstones beside them would make each look small.
        let mean = named / self.entries.saturating_sub(self.removals).max(1);
        let newer = self.entries.saturating_sub(self.lowest) + self.unflushed;
        let dead = self.unnamed + newer.saturating_mul(mean).min(named);
        TreeSpace { bytes: self.bytes, dead, entries: self.entries + self.unflushed, tombstones: self.tombstones }
    }
}

/// The debts that merges could not pay.
#[derive(Debug, Default)]
pub(crate) struct SettledDebts(PerTree<Option<SettledDebt>>);

#[derive(Debug, Clone, Copy)]
struct SettledDebt {
    at: Duration,
    left: TreeSpace,
    payment: DebtPayment,
}

impl SettledDebts {
    /// Notes what a tree still has after merges that ended like this.
    pub(crate) fn settle(&mut self, tree: usize, left: TreeSpace, payment: DebtPayment, now: Duration) {
        self.0[tree] = Some(SettledDebt { at: now, left, payment });
    }

    /// The debts that are due at rest: trees that rest pay once the whole store owes too much, or their tombstones slow listings. `journals`
    /// are bytes of journal files, which tables replace.
    pub(crate) fn due_at_rest(
        &self,
        spaces: PerTree<TreeSpace>,
        journals: u64,
        rests: PerTree<bool>,
        look: DebtLook,
    ) -> DueDebts {
        let bytes = spaces.iter().map(|space| space.bytes).sum::<u64>() + journals;
        let left: PerTree<TreeSpace> = std::array::from_fn(|tree| self.left(tree, look, SETTLED_FOR));
        let owed: PerTree<u64> = std::array::from_fn(|tree| spaces[tree].dead.saturating_sub(left[tree].dead));
        let all = owed.iter().sum::<u64>() + journals;
        let is_too_much = all > DEAD_KEPT + bytes / DEAD_PART_KEPT;
        let is_due = |tree: usize| {
            let tombstones = spaces[tree].tombstones.saturating_sub(left[tree].tombstones);
            let slows_listings = tombstones > TOMBSTONES_KEPT.max(spaces[tree].entries / TOMBSTONE_PART_KEPT);
            rests[tree] && (is_too_much && owed[tree] >= all / TREE_PART || slows_listings)
        };
        DueDebts { trees: std::array::from_fn(is_due), journals: is_too_much && journals >= all / TREE_PART }
    }

    /// The trees that pay on a short disk, at rest or not.
    pub(crate) fn due_on_short_disk(&self, spaces: PerTree<TreeSpace>, look: DebtLook) -> PerTree<bool> {
        std::array::from_fn(|tree| {
            let left = self.left(tree, look, SHORT_SETTLED_FOR);
            spaces[tree].dead.saturating_sub(left.dead) >= spaces[tree].kept_when_short()
        })
    }

    /// The space after the last merge of a tree, unless that is to be tried again.
    fn left(&self, tree: usize, look: DebtLook, settled_for: Duration) -> TreeSpace {
        let is_settled = |settled: &SettledDebt| {
            let has_more_room = match settled.payment {
                DebtPayment::ShortOf(room) => look.room > room + room / MORE_ROOM_PART,
                DebtPayment::Whole | DebtPayment::Interrupted => false,
            };
            look.now.saturating_sub(settled.at) < settled_for && !has_more_room
        };
        self.0[tree].filter(is_settled).map_or_else(TreeSpace::default, |settled| settled.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: DebtLook = DebtLook { now: Duration::from_secs(1000), room: 100 * MIB };
    const NONE: TreeSpace = TreeSpace { bytes: 0, dead: 0, entries: 0, tombstones: 0 };

    fn space(bytes: u64, dead: u64) -> TreeSpace {
        TreeSpace { bytes: bytes * MIB, dead: dead * MIB, ..TreeSpace::default() }
    }

    #[test]
    fn a_tombstone_that_is_not_merged_counts_as_much_as_a_value() {
        let values = TableCounts { bytes: 100 * MIB, entries: 200, lowest: 200, ..TableCounts::default() };
        assert_eq!(values.space().dead, 0);
        assert_eq!(TableCounts { unflushed: 50, ..values }.space().dead, 25 * MIB);
        assert_eq!(TableCounts { unflushed: 500, ..values }.space().dead, 100 * MIB, "no more than there is");
        assert_eq!(TableCounts { lowest: 150, ..values }.space().dead, 25 * MIB, "entries above may hide others");
        assert_eq!(TableCounts { unnamed: 40 * MIB, ..values }.space().dead, 40 * MIB);
        let emptied = TableCounts { entries: 400, removals: 200, ..values };
        assert_eq!(emptied.space().live(), 0, "a removal for each value once looked as if half of the bytes were live");
    }

    #[test]
    fn a_tree_that_rests_pays_when_the_store_owes_a_fifth() {
        let debts = SettledDebts::default();
        let rests = [true; 4];
        let due = |spaces, journals, rests| debts.due_at_rest(spaces, journals * MIB, rests, NOW).trees;
        assert_eq!(due([space(20, 20), space(0, 0), space(0, 0), NONE], 0, rests), [false; 4], "little");
        assert_eq!(due([space(1000, 190), space(0, 0), space(0, 0), NONE], 0, rests), [false; 4], "a fifth");
        assert_eq!(due([space(1000, 20), space(0, 0), space(500, 400), NONE], 0, rests), [false, false, true, false]);
        assert_eq!(
            due([space(1000, 20), space(0, 0), space(500, 400), NONE], 0, [true, true, false, true]),
            [false; 4],
            "busy"
        );
        assert_eq!(
            due([space(100, 40), space(0, 0), space(0, 0), NONE], 100, rests),
            [true, false, false, false],
            "with journals"
        );
        let journals = |bytes: u64| debts.due_at_rest([TreeSpace::default(); 4], bytes * MIB, rests, NOW);
        assert_eq!([20, 60].map(|bytes| journals(bytes).journals), [false, true]);
    }

    #[test]
    fn many_tombstones_of_few_bytes_go_as_well() {
        let debts = SettledDebts::default();
        let due = |entries, tombstones| {
            let wide = TreeSpace { entries, tombstones, ..space(3, 3) };
            debts.due_at_rest([space(0, 0), wide, space(0, 0), NONE], 0, [true; 4], NOW).trees[1]
        };
        assert_eq!([due(20_000, 4_000), due(20_000, 6_000), due(1_000_000, 6_000)], [false, true, false]);
    }

    #[test]
    fn a_debt_that_a_merge_left_waits_until_it_grows_or_ten_minutes_passed() {
        let mut debts = SettledDebts::default();
        let spaces = [space(500, 400), space(0, 0), space(0, 0), NONE];
        debts.settle(0, spaces[0], DebtPayment::Whole, NOW.now);
        let after = |seconds| DebtLook { now: NOW.now + Duration::from_secs(seconds), ..NOW };
        let due = |spaces, look| debts.due_at_rest(spaces, 0, [true; 4], look).trees[0];
        assert!(!due(spaces, after(10)));
        assert!(!due(spaces, DebtLook { room: 1000 * MIB, ..after(10) }), "no merge would give it back");
        assert!(due([space(900, 800), spaces[1], spaces[2], NONE], after(10)));
        assert!(due(spaces, after(600)));
    }

    #[test]
    fn a_debt_that_was_left_for_want_of_room_once_waited_ten_minutes_with_room_to_pay_it() {
        let mut debts = SettledDebts::default();
        let spaces = [space(500, 400), space(0, 0), space(0, 0), NONE];
        debts.settle(0, spaces[0], DebtPayment::ShortOf(80 * MIB), NOW.now);
        let due = |room| debts.due_at_rest(spaces, 0, [true; 4], DebtLook { room: room * MIB, ..NOW }).trees[0];
        assert_eq!([80, 100, 101].map(due), [false, false, true]);
    }

    #[test]
    fn on_a_short_disk_every_tree_pays_early() {
        let debts = SettledDebts::default();
        let spaces =
            [space(100, 1), space(100, 2), TreeSpace { bytes: 1000, dead: 1000, ..TreeSpace::default() }, NONE];
        assert_eq!(debts.due_on_short_disk(spaces, NOW), [false, true, false, false]);
    }
}
