//! Merges of one tree that give the space of removed and replaced entries back, within the room that the disk has.
//!
//! One merge of all tables writes everything that lives, before the files go that it replaces. Where that does not fit, removals sink
//! in steps to what they remove. An upper level has few tables, so one of them meets many of the lowest: too many for the room. It
//! is cut into slices:
//!
//! ```text
//! level 0      removals and new values, flushed in slices on a short disk
//! an empty level   │ step: level 0 goes there, in slices
//! a level          │ cut: the wide tables there are merged with slices above them, into slices
//! the lowest       ▼ step: a slice is merged with the few tables that it meets; their files go
//! ```

use std::sync::Arc;

use lsm_tree::compaction::{Leveled, MoveDown};
use lsm_tree::{AbstractTree, InternalValue, Table, ValueType};

use crate::tree::EngineTree;
use crate::tree_id::TreeId;
use crate::tree_options::STALE_FILE_PARTS;

/// Most tables that a merge which reclaims space takes at once; those of large values hold only the places of their values.
const WHOLE_TABLES_MAX: u64 = 256;
/// Most slices of a memtable or a merge; each costs a sync.
const SLICES_MAX: u64 = 256;
/// Most slices that a table is cut into at a time.
const SLICES_PER_MERGE: u64 = 40;
/// A table that meets no more of the lowest level is not cut.
const NARROW: usize = 2;

/// A tree whose tables have less than this part of the bytes of its large values is one of places.
const PLACES_PART: u64 = 8;

/// The tables that a merge takes to reclaim space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReclaimedPart {
    /// All tables.
    Whole,
    /// The least tables of two levels, the lowest levels first.
    Step,
    /// The least tables of two levels above the lowest, which come out as slices.
    Cut,
}

impl EngineTree {
    /// Whether its tables are a small part of it, the places of values, so that a merge of all of them is little work.
    pub(crate) fn has_places(&self) -> bool {
        let version = self.lsm.current_version();
        let tables = || version.iter_tables().map(|table| table.metadata.file_size).sum::<u64>();
        self.id == TreeId::Bulk || self.separates && version.blob_files.on_disk_size() / PLACES_PART > tables()
    }

    /// Bytes of large values that no table names.
    pub(crate) fn unnamed_bytes(&self) -> u64 {
        self.lsm.current_version().gc_stats().stale_bytes()
    }

    /// Whether one merge of all tables is expected to write at most `room` bytes, since the files that it replaces go afterwards,
    /// and to be short work.
    pub(crate) fn can_merge_whole(&self, room: u64) -> bool {
        let version = self.lsm.current_version();
        // It writes a part of the files of large values anew that have at least a quarter of dead bytes.
        let unnamed = version.gc_stats().stale_bytes();
        let large = version.blob_files.on_disk_size().saturating_sub(unnamed);
        let moved = (large / STALE_FILE_PARTS).min(3 * unnamed);
        let tables = version.iter_tables().map(table_bytes).sum::<u64>();
        match self.id == TreeId::Bulk {
            true => tables + moved <= room,
            // Tables of rows have their values, so what is dead in them is not written again. How much that is, is an estimate:
            // the merge is tried where it may be half, and ends before it takes the last bytes of the disk [invariant 145].
            false => {
                let space = self.space();
                let is_expected = tables + moved <= room || space.live() <= room || space.dead >= space.live();
                tables <= WHOLE_TABLES_MAX * self.table_bytes && moved <= room && is_expected
            }
        }
    }

    /// Merges tables, so that removed and replaced entries give their space back. Writes at most `room` bytes of rows.
    ///
    /// # Errors
    /// As [`Self::compact`]; [`is_over_bound`](crate::output_sync::is_over_bound) for a merge that would have written more.
    pub(crate) fn reclaim(&self, part: ReclaimedPart, room: u64, watermark: u64) -> lsm_tree::Result<()> {
        // The bulk tree has places alone: its merges are never too large.
        if part == ReclaimedPart::Cut && self.id != TreeId::Bulk {
            self.prepare_cut(watermark)?;
        }
        self.merge_tables(room, || match part {
            ReclaimedPart::Whole => self.lsm.major_compact(self.table_bytes, watermark),
            ReclaimedPart::Step | ReclaimedPart::Cut if let Some(above) = self.above_empty() => {
                self.lsm.compact(Arc::new(MoveDown(above, above + 1)), watermark)
            }
            ReclaimedPart::Step => self.lsm.compact(Arc::new(self.next_step()), watermark),
            ReclaimedPart::Cut => self.lsm.compact(Arc::new(self.cutting()), watermark),
        })
    }

    /// The strategy of the next step: a lower level has its turn first, so that level 0 goes into an empty one, in slices.
    fn next_step(&self) -> Leveled {
        let upper = self.upper_levels();
        match upper.iter().skip(1).all(Vec::is_empty) {
            true => self.sinking.clone().with_table_target_size(self.slice_bytes(&upper)),
            false => self.sinking.clone(),
        }
    }

    /// The strategy that merges a level above the deepest upper one into the next, in slices.
    fn cutting(&self) -> Leveled {
        let upper = self.upper_levels();
        let slice = self.slice_bytes(&upper);
        // The deepest one may keep its bytes: else it would be merged into the lowest.
        let ratio = 2.0 * upper.iter().map(|level| bytes(level)).sum::<u64>() as f32 / slice as f32;
        Leveled::default().with_l0_threshold(1).with_table_target_size(slice).with_level_ratio_policy(vec![ratio])
    }

    /// Copies some entries of the deepest upper level into level 0, if there is little above it: only tables that meet others are
    /// merged, and so cut.
    fn prepare_cut(&self, watermark: u64) -> lsm_tree::Result<()> {
        // Race: a flush could put a newer entry of a copied one's key below the copy, and reads find the first [invariant 147].
        let _alone = self.file_lock.write();
        let mut levels = self.levels();
        let lowest = levels.pop().unwrap_or_default();
        while levels.last().is_some_and(Vec::is_empty) {
            levels.pop();
        }
        // Tables of level 0 may meet each other: they need no copies.
        let Some(deepest) = levels.pop().filter(|_| !levels.is_empty()) else { return Ok(()) };
        let above = levels.concat();
        if bytes(&above) > bytes(&deepest) / SLICES_PER_MERGE {
            return Ok(());
        }
        self.note_leftovers(|| {
            let mut copies = Vec::new();
            for table in deepest.iter().filter(|table| is_wide(table, &lowest)) {
                let may_be_copied = |entry: &InternalValue| {
                    let key = &entry.key.user_key;
                    // Race: two entries with one place; a merge of both counts its bytes as dead, and drops the file [invariant 151].
                    let is_inline = entry.key.value_type != ValueType::Indirection;
                    // It has the number of its entry; it would hide a newer one from above.
                    is_inline && above.iter().all(|table| table.range(key..=key).next().is_none())
                };
                let mut copied = edges(table).filter(|entry| entry.as_ref().map_or(true, may_be_copied));
                copies.extend(self.write_tables(&mut copied)?.0);
            }
            match copies.is_empty() {
                true => Ok(()),
                false => self.lsm.register_tables(&copies, None, None, &[], watermark),
            }
        })
    }

    /// The tables of each level above the lowest.
    fn upper_levels(&self) -> Vec<Vec<Table>> {
        let mut levels = self.levels();
        levels.pop();
        levels
    }

    /// The tables of each level.
    fn levels(&self) -> Vec<Vec<Table>> {
        let version = self.lsm.current_version();
        version.iter_levels().map(|level| level.iter().flat_map(|run| run.iter()).cloned().collect()).collect()
    }

    /// The size of a slice of these levels, so that each meets about one table of the lowest.
    fn slice_bytes(&self, upper: &[Vec<Table>]) -> u64 {
        let all = upper.concat();
        // A strategy merges no table that is fifty times as large, and no level that is smaller.
        let least = all.iter().map(table_bytes).max().unwrap_or_default() / SLICES_PER_MERGE;
        let first = upper.iter().find(|level| !level.is_empty()).map_or(0, |level| bytes(level));
        (bytes(&all) / self.slices()).min(first).max(least).clamp(1, self.table_bytes)
    }

    /// Into how many slices upper tables are cut: each of them then meets about one table of the lowest level.
    pub(crate) fn slices(&self) -> u64 {
        let version = self.lsm.current_version();
        let lowest = version.level(version.level_count() - 1);
        lowest.map_or(1, |level| level.table_count() as u64).clamp(1, SLICES_MAX)
    }
}

fn table_bytes(table: &Table) -> u64 {
    table.metadata.file_size
}

fn bytes(tables: &[Table]) -> u64 {
    tables.iter().map(table_bytes).sum()
}

/// Whether a table meets so many of these that it is cut.
fn is_wide(table: &Table, lowest: &[Table]) -> bool {
    let range = &table.metadata.key_range;
    lowest.iter().filter(|other| other.metadata.key_range.overlaps_with_key_range(range)).count() > NARROW
}

/// The first entries of a table, as many bytes as two slices have, and the last one.
fn edges(table: &Table) -> impl Iterator<Item = lsm_tree::Result<InternalValue>> {
    let last = table.metadata.key_range.max();
    let mut left = 2 * table_bytes(table) / SLICES_PER_MERGE;
    let first = table.range(..last.clone()).take_while(move |entry| {
        let bytes = entry.as_ref().map_or(0, |entry| entry.key.user_key.len() + entry.value.len());
        let has_more = left > 0;
        left = left.saturating_sub(bytes as u64);
        has_more
    });
    first.chain(table.range(last.clone()..).take(1))
}
