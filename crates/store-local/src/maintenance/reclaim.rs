//! Gives the space of removed and replaced entries back: on a short disk at once, else while the store rests.
//!
//! lsm-tree merges level 0 once it has four tables. Removals are small, so a store that only removes, or that rests, would not come
//! to that, and the removed values would keep their space.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{EngineTree, Maintenance, RETRY_FIRST, RetryPause};
use crate::output_sync::is_over_bound;
use crate::quiet::QuietMemtables;
use crate::space_debt::{DebtLook, DebtPayment, DueDebts};
use crate::tree_id::PerTree;
use crate::tree_reclaim::ReclaimedPart;

/// An active journal file with more bytes is sealed, so that it goes once they are in tables.
const ACTIVE_JOURNAL_KEPT: u64 = 4 * 1024 * 1024;

/// Most tables that are cut until a step with the slices fits.
const CUTS_MAX: u32 = 16;

impl Maintenance {
    /// Seals memtables that rest and are large, and those whose removals or journals are in the way; returns the trees that owe
    /// space.
    pub(super) fn seal_quiet_memtables(&self, quiet: &mut QuietMemtables) -> PerTree<bool> {
        #[cfg(test)]
        if self.rotation_held.load(Ordering::Relaxed) {
            return PerTree::default();
        }
        let (now, full) = (self.ports.clock.monotonic(), self.sizes.memtable);
        let bytes = self.trees.all().each_ref().map(EngineTree::active_bytes);
        let looked = quiet.look(now, bytes, full);
        let is_short = self.ports.space.is_short();
        if looked.is_none() && !is_short {
            return PerTree::default();
        }
        let rests = looked.unwrap_or_default();
        let due = self.due_debts(rests, is_short);
        if due.journals && self.files.active_bytes() > ACTIVE_JOURNAL_KEPT {
            // The next group goes into a new file, and a later flush releases this one.
            self.files.ask_to_rotate();
        }
        for (at, tree) in self.trees.all().iter().enumerate() {
            let is_in_the_way = due.trees[at] || rests[at] && due.journals;
            let is_large = rests[at] && QuietMemtables::is_large(bytes[at], full);
            if bytes[at] > 0 && (is_in_the_way || is_large) {
                // Between two groups: a table ends with a whole group.
                let _no_group = self.inserting.lock();
                tree.rotate();
            }
        }
        due.trees
    }

    /// The debts to pay now, without those of trees that a compactor works on.
    fn due_debts(&self, rests: PerTree<bool>, is_short: bool) -> DueDebts {
        let (now, journals) = (self.ports.clock.monotonic(), self.files.bytes());
        let spaces = self.trees.all().each_ref().map(EngineTree::space);
        let look = DebtLook { now, room: self.merge_room() };
        let state = self.state.lock();
        let mut due = match is_short {
            true => DueDebts { trees: state.settled.due_on_short_disk(spaces, look), journals: false },
            false => state.settled.due_at_rest(spaces, journals, rests, look),
        };
        // Bound: each look during a long merge would flush one more small table.
        for (at, is_due) in due.trees.iter_mut().enumerate() {
            *is_due &= !state.reclaim_due[at] && !state.reclaims[at] && state.compaction_pauses[at].until <= now;
        }
        due
    }

    /// Hands the trees that owe space to the compactors, once their removals are in tables.
    pub(super) fn begin_reclaiming(&self, owing: PerTree<bool>) {
        if !owing.contains(&true) {
            return;
        }
        let mut state = self.state.lock();
        for (due, owes) in state.reclaim_due.iter_mut().zip(owing) {
            *due |= owes;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Merges a tree until that gives no more space back, or until another tree must be compacted.
    pub(super) fn reclaim(&self, tree: &EngineTree) {
        let at = tree.id as usize;
        self.state.lock().reclaims[at] = true;
        let paid = self.pay_debt(tree);
        let mut state = self.state.lock();
        state.reclaims[at] = false;
        match paid {
            // The next look finds the rest due, unless the tree is busy by then.
            Ok(DebtPayment::Interrupted) => {}
            Ok(payment) => {
                state.settled.settle(at, tree.space(), payment, self.ports.clock.monotonic());
                // Writers do not wait for a tree that has no room to be merged.
                let last = if payment == DebtPayment::Whole { Duration::ZERO } else { RETRY_FIRST };
                state.compaction_pauses[at] = RetryPause { until: Duration::ZERO, last };
                self.set_merge_need(&state);
            }
            Err(error) => {
                drop(state);
                self.handle_compaction_error(tree, &error);
            }
        }
    }

    /// Whether a tree must be compacted now; one that is paused after damage does not count, for it may be paused for minutes.
    fn has_due_compaction(&self) -> bool {
        let (now, state) = (self.ports.clock.monotonic(), self.state.lock());
        state.compaction_due.iter().zip(&state.compaction_pauses).any(|(due, pause)| *due && pause.until <= now)
    }

    /// Merges until a further merge would give nothing back.
    fn pay_debt(&self, tree: &EngineTree) -> lsm_tree::Result<DebtPayment> {
        let mut before = tree.space();
        let (mut part, mut cuts) = (ReclaimedPart::Whole, 0);
        for pass in 1.. {
            let version = tree.version();
            let room = self.merge_room();
            if part == ReclaimedPart::Whole && !tree.can_merge_whole(room) {
                part = ReclaimedPart::Step;
            }
            let fits = self.merge(tree, part, room)?;
            let has_changed = tree.version() != version;
            let after = tree.space();
            // A first pass finds the dead bytes of files of large values, and later ones give them back.
            let has_more = tree.unnamed_bytes() > 0 && (pass == 1 || after.dead < before.dead);
            before = after;
            part = match part {
                ReclaimedPart::Whole if !fits => ReclaimedPart::Step,
                ReclaimedPart::Whole if !has_more || !has_changed => return Ok(DebtPayment::Whole),
                ReclaimedPart::Step if !fits || !has_changed => ReclaimedPart::Cut,
                // Bound: tables whose values live are never cut so small that a step with them fits.
                ReclaimedPart::Cut if !fits || !has_changed || cuts == CUTS_MAX => {
                    return Ok(DebtPayment::ShortOf(room));
                }
                ReclaimedPart::Cut => {
                    cuts += 1;
                    ReclaimedPart::Step
                }
                ReclaimedPart::Step => {
                    cuts = 0;
                    part
                }
                ReclaimedPart::Whole => part,
            };
            // Bound: from the second pass on, since a first one of large values always finds more.
            if self.stopped.load(Ordering::Acquire) || pass > 1 && self.has_due_compaction() {
                return Ok(DebtPayment::Interrupted);
            }
        }
        Ok(DebtPayment::Whole)
    }

    /// Does one merge. Returns whether it fitted: if not, it changed nothing.
    fn merge(&self, tree: &EngineTree, part: ReclaimedPart, room: u64) -> lsm_tree::Result<bool> {
        let merged = tree.reclaim(part, room, self.trees.snapshots.watermark());
        self.note_levels(tree);
        // The files that it replaced go before the next one, which may need their space.
        self.release_retired();
        match merged {
            Err(error) if is_over_bound(&error) => {
                self.state.lock().needs_cleanup[tree.id as usize] = true;
                // Its files go first: they have the room that the next one needs. A directory that is not clean takes none.
                self.clean_up(tree).map_err(|()| error)?;
                Ok(false)
            }
            merged => merged.map(|()| true),
        }
    }

    /// The bytes that a merge may write before the files go that it replaces: the rest is for flushes and deletes.
    fn merge_room(&self) -> u64 {
        self.ports.space.free() / 2
    }
}
