//! The rows as they will be once the current group is committed, so that the requests of a group see each other.
//!
//! ```text
//! BatchDraft     one batch on trial: it changes the overlay, and undoes that when it is dropped before `keep`
//! GroupOverlay   the batches of the group so far
//! Trees          committed rows
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_store::{
    Batch, Change, Error, Kind, Layout, Partition, PartitionChanges, ReadOrder, Result, Row, Timestamp,
};

use crate::entry;
use crate::mirror;
use crate::tree_id::TreeId;
use crate::trees::{Trees, damaged};

/// A packed partition in memory.
#[derive(Debug, Clone, Default)]
struct PackedEntry {
    rows: Vec<Row>,
    /// Whether a committed entry exists, which must be removed when no row is left.
    stored: bool,
}

/// The changes of a group so far.
#[derive(Debug, Default)]
pub(crate) struct GroupOverlay {
    packed: BTreeMap<Bytes, PackedEntry>,
    wide: BTreeMap<Bytes, Option<Row>>,
    bulk: BTreeMap<Bytes, Option<Bytes>>,
    /// Bytes of rows that the group will write.
    bytes: usize,
}

/// A change to undo: a key with the change of the group that it had before.
#[derive(Debug)]
enum UndoStep {
    Packed(Bytes, Option<PackedEntry>),
    Wide(Bytes, Option<Option<Row>>),
    Bulk(Bytes, Option<Option<Bytes>>),
}

impl PackedEntry {
    fn bytes(&self) -> usize {
        self.rows.iter().map(row_bytes).sum()
    }
}

fn row_bytes(row: &Row) -> usize {
    row.name.len() + row.value.len()
}

impl GroupOverlay {
    /// Bytes that the group will write.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The writes to the trees.
    pub(crate) fn into_writes(self) -> Vec<(TreeId, Bytes, Option<Bytes>)> {
        let mut writes = Vec::with_capacity(self.packed.len() + self.wide.len() + self.bulk.len());
        writes.extend(self.packed.into_iter().filter_map(|(key, packed)| match packed {
            PackedEntry { rows, .. } if !rows.is_empty() => {
                Some((TreeId::Packed, key, Some(entry::encode_packed(&rows))))
            }
            // Without a tombstone an older version of the entry would come back from a deeper level.
            PackedEntry { stored: true, .. } => Some((TreeId::Packed, key, None)),
            // The entry came and went within the group: no table has it.
            PackedEntry { stored: false, .. } => None,
        }));
        let wide = self.wide.into_iter();
        writes.extend(wide.map(|(key, row)| (TreeId::Wide, key, row.map(|row| entry::encode_wide(&row)))));
        writes.extend(self.bulk.into_iter().map(|(key, value)| (TreeId::Bulk, key, value)));
        mirror::add_copies(&mut writes);
        writes
    }

    /// Sets a packed entry, or removes its change; returns the change before. The group writes an entry once, with its last
    /// rows: the earlier size of a repeated key does not count.
    fn set_packed(&mut self, key: Bytes, packed: Option<PackedEntry>) -> Option<PackedEntry> {
        replace(&mut self.packed, &mut self.bytes, key, packed, PackedEntry::bytes)
    }

    /// As [`Self::set_packed`], a wide row.
    fn set_wide(&mut self, key: Bytes, row: Option<Option<Row>>) -> Option<Option<Row>> {
        replace(&mut self.wide, &mut self.bytes, key, row, |row| row.as_ref().map_or(0, row_bytes))
    }

    /// As [`Self::set_packed`], a bulk row.
    fn set_bulk(&mut self, key: Bytes, value: Option<Option<Bytes>>) -> Option<Option<Bytes>> {
        replace(&mut self.bulk, &mut self.bytes, key, value, |value| value.as_ref().map_or(0, Bytes::len))
    }

    fn undo(&mut self, step: UndoStep) {
        match step {
            UndoStep::Packed(key, before) => drop(self.set_packed(key, before)),
            UndoStep::Wide(key, before) => drop(self.set_wide(key, before)),
            UndoStep::Bulk(key, before) => drop(self.set_bulk(key, before)),
        }
    }
}

/// Sets or removes the change of a key, and adjusts the sum of the sizes; returns the change before.
fn replace<C>(
    changes: &mut BTreeMap<Bytes, C>,
    bytes: &mut usize,
    key: Bytes,
    change: Option<C>,
    size: impl Fn(&C) -> usize,
) -> Option<C> {
    *bytes += change.as_ref().map_or(0, &size);
    let before = match change {
        Some(change) => changes.insert(key, change),
        None => changes.remove(&key),
    };
    *bytes -= before.as_ref().map_or(0, &size);
    before
}

/// One batch on trial against the group so far.
pub(crate) struct BatchDraft<'a> {
    trees: &'a Trees,
    group: &'a mut GroupOverlay,
    undo: Vec<UndoStep>,
    now: Timestamp,
}

impl<'a> BatchDraft<'a> {
    /// An empty draft. Rows that are expired at `now` count as absent.
    pub(crate) fn new(trees: &'a Trees, group: &'a mut GroupOverlay, now: Timestamp) -> Self {
        Self { trees, group, undo: Vec::new(), now }
    }

    /// Leaves the changes of the draft in the group.
    pub(crate) fn keep(mut self) {
        self.undo.clear();
    }

    /// The packed entries that the draft changed, with their bytes.
    pub(crate) fn packed_sizes(&self) -> impl Iterator<Item = (&Bytes, usize)> {
        self.undo.iter().filter_map(|step| match step {
            UndoStep::Packed(key, _) => self.group.packed.get(key).map(|packed| (key, packed.bytes())),
            UndoStep::Wide(..) | UndoStep::Bulk(..) => None,
        })
    }

    /// Applies a batch.
    ///
    /// # Errors
    /// `TooManyRows`, `Changed`, `Damaged`, `Io`: the draft is half applied and must be dropped.
    pub(crate) fn apply(&mut self, batch: Batch) -> Result<()> {
        for changes in batch.partitions {
            // The committer is the only writer, so no change comes between this check and the group.
            if let Some(expected) = &changes.expected_rows {
                self.check_expected(&changes.partition, expected)?;
            }
            match changes.partition.table.layout() {
                Layout::Packed => self.change_packed(changes)?,
                Layout::Wide => self.change_wide(changes)?,
            }
        }
        Ok(())
    }

    /// The live row of this name.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn row(&self, partition: &Partition, name: &Bytes) -> Result<Option<Row>> {
        let row = match partition.table.layout() {
            Layout::Packed => {
                let PackedEntry { mut rows, .. } = self.packed(&entry::partition_key(partition))?;
                rows.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| rows.swap_remove(at))
            }
            Layout::Wide => self.wide(&entry::row_key(partition, name), name)?,
        };
        Ok(row.filter(|row| row.is_live(self.now)))
    }

    /// Writes or removes a bulk row.
    pub(crate) fn put_bulk(&mut self, key: Bytes, value: Option<Bytes>) {
        let before = self.group.set_bulk(key.clone(), Some(value));
        self.undo.push(UndoStep::Bulk(key, before));
    }

    /// Removes the expired rows of a packed entry, or an expired wide row; returns how many. A row that was written again since
    /// the sweep read it is not expired any more and stays.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn purge(&mut self, tree_id: TreeId, key: &Bytes) -> Result<usize> {
        match tree_id {
            TreeId::Packed => {
                let mut packed = self.packed(key)?;
                let before = packed.rows.len();
                entry::drop_expired(&mut packed.rows, self.now);
                let purged = before - packed.rows.len();
                if purged > 0 {
                    self.set_packed(key.clone(), packed);
                }
                Ok(purged)
            }
            TreeId::Wide => {
                let expired = self.wide(key, &Bytes::new())?.is_some_and(|row| !row.is_live(self.now));
                if expired {
                    self.set_wide(key.clone(), None);
                }
                Ok(usize::from(expired))
            }
            TreeId::Bulk | TreeId::Mirror => Ok(0),
        }
    }

    /// Refuses a change whose writer read other live rows than the packed partition holds now.
    fn check_expected(&self, partition: &Partition, expected: &[(Bytes, Timestamp)]) -> Result<()> {
        let packed = self.packed(&entry::partition_key(partition))?;
        let live = packed.rows.iter().filter(|row| row.is_live(self.now));
        match live.map(|row| (&row.name, row.stamp)).eq(expected.iter().map(|(name, stamp)| (name, *stamp))) {
            true => Ok(()),
            false => Err(Error::new(Kind::Changed, "the partition holds other rows")),
        }
    }

    fn change_packed(&mut self, changes: PartitionChanges) -> Result<()> {
        let key = entry::partition_key(&changes.partition);
        // Expired rows go first: they must not win against a change with an older stamp.
        let mut packed = self.packed(&key)?;
        entry::drop_expired(&mut packed.rows, self.now);
        let mut changed = false;
        for change in changes.changes {
            changed |= entry::apply_change(&mut packed.rows, change);
            // A put may bring an expired row: it must not win against a later change of this batch either.
            entry::drop_expired(&mut packed.rows, self.now);
        }
        // After all changes: a batch may replace one row by another at the limit [invariant 9].
        check_rows(packed.rows.iter(), changes.rows_max)?;
        if changed {
            self.set_packed(key, packed);
        }
        Ok(())
    }

    fn change_wide(&mut self, changes: PartitionChanges) -> Result<()> {
        let PartitionChanges { partition, changes, rows_max, fresh, .. } = changes;
        for change in changes {
            match change {
                Change::Put(row) if fresh => self.set_wide(entry::row_key(&partition, &row.name), Some(row)),
                Change::Put(row) => self.put_wide(entry::row_key(&partition, &row.name), row)?,
                Change::Remove { name, stamp } => self.remove_wide(entry::row_key(&partition, &name), &name, stamp)?,
                Change::Clear { stamp } => self.clear_wide(&partition, stamp)?,
            }
        }
        match rows_max {
            None => Ok(()),
            Some(_) => check_rows(self.wide_rows(&partition)?.values(), rows_max),
        }
    }

    fn put_wide(&mut self, key: Bytes, row: Row) -> Result<()> {
        // As in packed partitions: an expired row does not win against an older stamp.
        let old = self.wide(&key, &row.name)?.filter(|old| old.is_live(self.now));
        if old.is_none_or(|old| entry::changes_row(&row, &old)) {
            self.set_wide(key, Some(row));
        }
        Ok(())
    }

    fn remove_wide(&mut self, key: Bytes, name: &Bytes, stamp: Timestamp) -> Result<()> {
        if self.wide(&key, name)?.is_some_and(|row| entry::is_removed_by(&row, stamp)) {
            self.set_wide(key, None);
        }
        Ok(())
    }

    /// Reads the whole partition; the cost grows with its size.
    fn clear_wide(&mut self, partition: &Partition, stamp: Timestamp) -> Result<()> {
        let falling = self.wide_rows(partition)?.into_iter().filter(|(_, row)| entry::is_removed_by(row, stamp));
        falling.for_each(|(key, _)| self.set_wide(key, None));
        Ok(())
    }

    fn set_packed(&mut self, key: Bytes, packed: PackedEntry) {
        let before = self.group.set_packed(key.clone(), Some(packed));
        self.undo.push(UndoStep::Packed(key, before));
    }

    fn set_wide(&mut self, key: Bytes, row: Option<Row>) {
        let before = self.group.set_wide(key.clone(), Some(row));
        self.undo.push(UndoStep::Wide(key, before));
    }

    fn packed(&self, key: &Bytes) -> Result<PackedEntry> {
        // The group hides committed rows: each request sees the earlier ones [invariant 36].
        if let Some(packed) = self.group.packed.get(key) {
            return Ok(packed.clone());
        }
        let rows = self.trees.newest_rows(key)?;
        Ok(rows.map(|rows| PackedEntry { rows, stored: true }).unwrap_or_default())
    }

    fn wide(&self, key: &Bytes, name: &Bytes) -> Result<Option<Row>> {
        if let Some(row) = self.group.wide.get(key) {
            return Ok(row.clone());
        }
        let stored = self.trees.get(TreeId::Wide, key)?;
        stored.map(|stored| decode(name.clone(), stored)).transpose()
    }

    /// All rows of a wide partition by key, without their values.
    fn wide_rows(&self, partition: &Partition) -> Result<BTreeMap<Bytes, Row>> {
        let from = entry::partition_key(partition);
        let to = entry::prefix_end(&from);
        let mut rows = mirror::read(partition.table, |tree_id| {
            let pairs = self.trees.range(tree_id, from.clone(), Some(to.clone()), ReadOrder::Forward);
            let row = |(key, value)| Ok((key, Row { value: Bytes::new(), ..decode(Bytes::new(), value)? }));
            pairs.map(|pair| row(pair?)).collect::<Result<BTreeMap<_, _>>>()
        })?;
        // The changes of the group hide the rows of the tree.
        for (key, row) in self.group.wide.range(from..to) {
            match row {
                Some(row) => rows.insert(key.clone(), row.clone()),
                None => rows.remove(key),
            };
        }
        Ok(rows)
    }
}

impl Drop for BatchDraft<'_> {
    fn drop(&mut self) {
        // The last step first: a key that the draft changed twice gets back the change from before the draft.
        while let Some(step) = self.undo.pop() {
            self.group.undo(step);
        }
    }
}

fn decode(name: Bytes, stored: Bytes) -> Result<Row> {
    entry::decode_wide(name, stored).map_err(|error| damaged(TreeId::Wide, error))
}

/// Refuses more than `rows_max` rows without an expiry.
fn check_rows<'r>(rows: impl Iterator<Item = &'r Row>, rows_max: Option<usize>) -> Result<()> {
    let rows = rows.filter(|row| row.expires.is_none()).count();
    match rows_max {
        Some(rows_max) if rows > rows_max => {
            let context = format!("the partition would hold {rows} rows, {rows_max} are allowed");
            Err(Error::new(Kind::TooManyRows { rows }, context))
        }
        _ => Ok(()),
    }
}
