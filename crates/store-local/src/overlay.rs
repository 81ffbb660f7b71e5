//! Rows as they will be once the group under way is committed, so that queued writes see each other.
//!
//! ```text
//! Draft     one batch being tried: dropped, nothing happened; absorbed, the next batch of the group sees it
//! Overlay   the batches of the group so far
//! Spaces    what is committed
//! ```

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use larder_store::{Change, Error, Kind, Layout, Micros, Partition, PartitionChanges, Result, Row, Stamp};

use crate::merge;
use crate::spaces::{Space, Spaces, damaged};
use crate::{entry, keys};

/// A packed partition in memory.
#[derive(Debug, Clone, Default)]
struct Packed {
    rows: Vec<Row>,
    /// Whether there is an entry on disk that must be removed when no row is left.
    stored: bool,
}

/// What a group has changed so far.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    packed: HashMap<Bytes, Packed>,
    wide: BTreeMap<Bytes, Option<Row>>,
    bulk: BTreeMap<Bytes, Option<Bytes>>,
    /// Bytes of packed entries and bulk rows that it will write, and of wide rows at least as many.
    bytes: usize,
}

impl Packed {
    fn bytes(&self) -> usize {
        self.rows.iter().map(row_bytes).sum()
    }
}

fn row_bytes(row: &Row) -> usize {
    row.name.len() + row.value.len()
}

impl Overlay {
    /// Takes over what a batch changed.
    pub(crate) fn absorb(&mut self, draft: Self) {
        let wide: usize = draft.wide.values().flatten().map(row_bytes).sum();
        let bulk: usize = draft.bulk.values().flatten().map(Bytes::len).sum();
        self.bytes += wide + bulk;
        for (key, packed) in draft.packed {
            self.bytes += packed.bytes();
            let before = self.packed.insert(key, packed);
            self.bytes -= before.map_or(0, |before| before.bytes());
        }
        self.wide.extend(draft.wide);
        self.bulk.extend(draft.bulk);
    }

    /// One packed entry of these rows, for tests.
    #[cfg(test)]
    pub(crate) fn of_packed(key: Bytes, rows: Vec<Row>) -> Self {
        let mut own = Self::default();
        own.packed.insert(key, Packed { rows, stored: false });
        let mut group = Self::default();
        group.absorb(own);
        group
    }

    /// Bytes that it will write.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The packed entries with their bytes.
    pub(crate) fn packed_sizes(&self) -> impl Iterator<Item = (&Bytes, usize)> {
        self.packed.iter().map(|(key, packed)| (key, packed.bytes()))
    }

    /// The writes that make it real.
    pub(crate) fn into_writes(self) -> Vec<(Space, Bytes, Option<Bytes>)> {
        let packed = self.packed.into_iter().filter_map(|(key, packed)| match packed {
            Packed { rows, .. } if !rows.is_empty() => Some((Space::Packed, key, Some(entry::encode_packed(&rows)))),
            Packed { stored: true, .. } => Some((Space::Packed, key, None)),
            Packed { stored: false, .. } => None,
        });
        let wide = self.wide.into_iter().map(|(key, row)| (Space::Wide, key, row.map(|row| entry::encode_wide(&row))));
        let bulk = self.bulk.into_iter().map(|(key, value)| (Space::Bulk, key, value));
        packed.chain(wide).chain(bulk).collect()
    }
}

/// One batch being tried against the group so far.
pub(crate) struct Draft<'a> {
    spaces: &'a Spaces,
    group: &'a Overlay,
    own: Overlay,
    now: Micros,
}

impl<'a> Draft<'a> {
    /// Nothing changed yet. Rows that expired at `now` are not there.
    pub(crate) fn new(spaces: &'a Spaces, group: &'a Overlay, now: Micros) -> Self {
        Self { spaces, group, own: Overlay::default(), now }
    }

    /// What was changed.
    pub(crate) fn finish(self) -> Overlay {
        self.own
    }

    /// Applies changes to a partition.
    ///
    /// # Errors
    /// `TooManyRows`, `Changed`, `Damaged`, `Io`: drop the draft then.
    pub(crate) fn change(&mut self, partition: &Partition, changes: &[Change], rows_max: Option<usize>) -> Result<()> {
        match partition.table.layout() {
            Layout::Packed => self.change_packed(partition, changes, rows_max),
            Layout::Wide => self.change_wide(partition, changes, rows_max),
        }
    }

    /// Applies one part of a batch.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub(crate) fn apply(&mut self, part: &PartitionChanges) -> Result<()> {
        if let Some(seen) = &part.seen {
            self.check_seen(&part.partition, seen)?;
        }
        self.change(&part.partition, &part.changes, part.rows_max)
    }

    /// The live row of this name.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn row(&self, partition: &Partition, name: &Bytes) -> Result<Option<Row>> {
        let row = match partition.table.layout() {
            Layout::Packed => {
                let Packed { mut rows, .. } = self.packed(&keys::partition_key(partition))?;
                rows.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| rows.swap_remove(at))
            }
            Layout::Wide => self.wide(&keys::row_key(partition, name), name)?,
        };
        Ok(row.filter(|row| row.is_live(self.now)))
    }

    /// Writes or removes a bulk row.
    pub(crate) fn put_bulk(&mut self, key: Bytes, value: Option<Bytes>) {
        self.own.bulk.insert(key, value);
    }

    /// Takes expired rows out of a packed entry or removes an expired wide row; answers how many. What changed since is spared.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn purge(&mut self, space: Space, key: &Bytes) -> Result<usize> {
        match space {
            Space::Packed => {
                let mut packed = self.packed(key)?;
                let before = packed.rows.len();
                merge::purge(&mut packed.rows, self.now);
                let purged = before - packed.rows.len();
                if purged > 0 {
                    self.own.packed.insert(key.clone(), packed);
                }
                Ok(purged)
            }
            Space::Wide => {
                let expired = self.wide(key, &Bytes::new())?.is_some_and(|row| !row.is_live(self.now));
                if expired {
                    self.own.wide.insert(key.clone(), None);
                }
                Ok(usize::from(expired))
            }
            Space::Bulk => Ok(0),
        }
    }

    /// Refuses to go on where a packed partition holds other live rows than were seen.
    fn check_seen(&self, partition: &Partition, seen: &[(Bytes, Stamp)]) -> Result<()> {
        let packed = self.packed(&keys::partition_key(partition))?;
        let live = packed.rows.iter().filter(|row| row.is_live(self.now));
        match live.map(|row| (&row.name, row.stamp)).eq(seen.iter().map(|(name, stamp)| (name, *stamp))) {
            true => Ok(()),
            false => Err(Error::new(Kind::Changed, "the partition holds other rows")),
        }
    }

    fn change_packed(&mut self, partition: &Partition, changes: &[Change], rows_max: Option<usize>) -> Result<()> {
        let key = keys::partition_key(partition);
        let mut packed = self.packed(&key)?;
        merge::purge(&mut packed.rows, self.now);
        let mut changed = false;
        for change in changes {
            changed |= merge::change_rows(&mut packed.rows, change);
            merge::purge(&mut packed.rows, self.now);
        }
        check_rows(packed.rows.iter(), rows_max)?;
        if changed {
            self.own.packed.insert(key, packed);
        }
        Ok(())
    }

    fn change_wide(&mut self, partition: &Partition, changes: &[Change], rows_max: Option<usize>) -> Result<()> {
        for change in changes {
            match change {
                Change::Put(row) => self.put_wide(keys::row_key(partition, &row.name), row)?,
                Change::Remove { name, stamp } => self.remove_wide(keys::row_key(partition, name), name, *stamp)?,
                Change::Clear { stamp } => self.clear_wide(partition, *stamp)?,
            }
        }
        match rows_max {
            None => Ok(()),
            Some(_) => check_rows(self.wide_rows(partition)?.values(), rows_max),
        }
    }

    fn put_wide(&mut self, key: Bytes, row: &Row) -> Result<()> {
        let old = self.wide(&key, &row.name)?.filter(|old| old.is_live(self.now));
        if old.is_none_or(|old| merge::stays(row, &old)) {
            self.own.wide.insert(key, Some(row.clone()));
        }
        Ok(())
    }

    fn remove_wide(&mut self, key: Bytes, name: &Bytes, stamp: Stamp) -> Result<()> {
        if self.wide(&key, name)?.is_some_and(|row| merge::falls(&row, stamp)) {
            self.own.wide.insert(key, None);
        }
        Ok(())
    }

    /// Reads the whole partition: as slow as it is large.
    fn clear_wide(&mut self, partition: &Partition, stamp: Stamp) -> Result<()> {
        let falling = self.wide_rows(partition)?.into_iter().filter(|(_, row)| merge::falls(row, stamp));
        self.own.wide.extend(falling.map(|(key, _)| (key, None)));
        Ok(())
    }

    fn packed(&self, key: &Bytes) -> Result<Packed> {
        if let Some(packed) = self.own.packed.get(key).or_else(|| self.group.packed.get(key)) {
            return Ok(packed.clone());
        }
        let rows = self.spaces.packed_rows(key)?;
        Ok(rows.map(|rows| Packed { rows, stored: true }).unwrap_or_default())
    }

    fn wide(&self, key: &Bytes, name: &Bytes) -> Result<Option<Row>> {
        if let Some(row) = self.own.wide.get(key).or_else(|| self.group.wide.get(key)) {
            return Ok(row.clone());
        }
        let stored = self.spaces.get(Space::Wide, key)?;
        stored.map(|stored| decode(name.clone(), stored)).transpose()
    }

    /// All rows of a wide partition by their keys, without their values.
    fn wide_rows(&self, partition: &Partition) -> Result<BTreeMap<Bytes, Row>> {
        let from = keys::partition_key(partition);
        let to = keys::behind(&from);
        let mut rows = BTreeMap::new();
        for pair in self.spaces.range(Space::Wide, from.clone()..to.clone()) {
            let (key, value) = pair?;
            let row = Row { value: Bytes::new(), ..decode(Bytes::new(), value)? };
            rows.insert(key, row);
        }
        for layer in [&self.group.wide, &self.own.wide] {
            for (key, row) in layer.range(from.clone()..to.clone()) {
                match row {
                    Some(row) => rows.insert(key.clone(), row.clone()),
                    None => rows.remove(key),
                };
            }
        }
        Ok(rows)
    }
}

fn decode(name: Bytes, stored: Bytes) -> Result<Row> {
    entry::decode_wide(name, stored).map_err(|error| damaged(Space::Wide, error))
}

/// Refuses more rows that never expire than allowed.
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
