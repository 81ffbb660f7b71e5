//! The cells of one partition on one replica: rows and tombstones.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use larder_store::memory::{RowMap, page};
use larder_store::{Change, PartitionChanges, Range, ReadOrder, ReadQuery, Row, RowPage, Timestamp};

/// The newest write of one name. The order of the fields is the order of precedence: the later write, then a removal,
/// then the greater value. The other fields only make replicas agree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplicaCell {
    /// Time of the write: the row's stamp in plain tables, the ballot of the compare-and-set in guarded ones.
    written: u64,
    /// Set on a tombstone: time of the removal.
    gone: Option<Timestamp>,
    value: Bytes,
    stamp: Timestamp,
    expires: Option<Timestamp>,
}

/// A removal of every cell that is not newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartitionTombstone {
    written: u64,
    since: Timestamp,
}

/// One write that a replica applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CellWrite {
    Cell(Bytes, ReplicaCell),
    Clear(PartitionTombstone),
}

/// One partition of one replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReplicaCells {
    cells: BTreeMap<Bytes, ReplicaCell>,
    cleared: Option<PartitionTombstone>,
}

impl ReplicaCell {
    fn put(row: Row, written: u64) -> Self {
        Self { written, gone: None, value: row.value, stamp: row.stamp, expires: row.expires }
    }

    fn removal(written: u64, since: Timestamp) -> Self {
        Self { written, gone: Some(since), value: Bytes::new(), stamp: Timestamp::ZERO, expires: None }
    }

    /// Time since when the row is absent; `None` while it is present.
    fn dead_since(&self, now: Timestamp) -> Option<Timestamp> {
        self.gone.or(self.expires.filter(|expires| *expires <= now))
    }

    fn row(&self, name: &Bytes) -> Option<Row> {
        let Self { value, stamp, expires, .. } = self;
        self.gone.is_none().then(|| Row { name: name.clone(), value: value.clone(), stamp: *stamp, expires: *expires })
    }
}

/// Changes to a plain partition as replica writes.
pub(super) fn writes(changes: &[Change], since: Timestamp) -> Vec<CellWrite> {
    let write = |change: &Change| match change {
        Change::Put(row) => CellWrite::Cell(row.name.clone(), ReplicaCell::put(row.clone(), row.stamp.0)),
        Change::Remove { name, stamp } => CellWrite::Cell(name.clone(), ReplicaCell::removal(stamp.0, since)),
        Change::Clear { stamp } => CellWrite::Clear(PartitionTombstone { written: stamp.0, since }),
    };
    changes.iter().map(write).collect()
}

/// Changes to a guarded partition with the live rows `rows`. Replicas order them by ballot, not by stamp, so changes
/// that an older stamp must not make are left out here.
pub(super) fn paxos_writes(changes: Vec<Change>, rows: &RowMap, ballot: u64, since: Timestamp) -> Vec<CellWrite> {
    let mut writes = Vec::new();
    for change in changes {
        let older = |name: &Bytes, stamp: Timestamp| rows.get(name).is_none_or(|row| row.stamp <= stamp);
        match change {
            Change::Put(row) if rows.get(&row.name).is_none_or(|present| row.supersedes(present)) => {
                writes.push(CellWrite::Cell(row.name.clone(), ReplicaCell::put(row, ballot)));
            }
            Change::Remove { name, stamp } if older(&name, stamp) => {
                writes.push(CellWrite::Cell(name, ReplicaCell::removal(ballot, since)));
            }
            Change::Clear { stamp } => {
                // One below the ballot, so that rows written together with the clear stay.
                let taken = rows.values().filter(|row| row.stamp <= stamp).map(|row| row.name.clone());
                writes.extend(taken.map(|name| CellWrite::Cell(name, ReplicaCell::removal(ballot - 1, since))));
            }
            Change::Put(_) | Change::Remove { .. } => {}
        }
    }
    writes
}

impl ReplicaCells {
    pub(super) fn write(&mut self, write: &CellWrite) {
        match write {
            CellWrite::Cell(name, cell) => {
                // A write older than the partition tombstone is dropped even if it arrives later.
                if self.cleared.is_some_and(|cleared| cell.written <= cleared.written) {
                    return;
                }
                let known = self.cells.entry(name.clone()).or_insert_with(|| cell.clone());
                if cell > known {
                    known.clone_from(cell);
                }
            }
            CellWrite::Clear(clear) => {
                self.cleared = self.cleared.max(Some(*clear));
                self.cells.retain(|_, cell| cell.written > clear.written);
            }
        }
    }

    /// The writes that `other` misses.
    pub(super) fn missing_in(&self, other: &Self) -> Vec<CellWrite> {
        let clear = self.cleared.filter(|cleared| Some(*cleared) > other.cleared).map(CellWrite::Clear);
        let is_new = |name: &Bytes, cell: &ReplicaCell| other.cells.get(name).is_none_or(|known| cell > known);
        let cells = self.cells.iter().filter(|(name, cell)| is_new(name, cell));
        clear.into_iter().chain(cells.map(|(name, cell)| CellWrite::Cell(name.clone(), cell.clone()))).collect()
    }

    /// Applies the writes that `other` has and this misses.
    pub(super) fn merge(&mut self, other: &Self) {
        for write in other.missing_in(self) {
            self.write(&write);
        }
    }

    /// The cells of a range.
    pub(super) fn slice(&self, range: &Range) -> Self {
        let cells = self.range(range).map(|(name, cell)| (name.clone(), cell.clone())).collect();
        Self { cells, cleared: self.cleared }
    }

    fn range(&self, range: &Range) -> impl DoubleEndedIterator<Item = (&Bytes, &ReplicaCell)> {
        let from = range.from.clone().unwrap_or_default();
        // A map panics on a range that ends before it begins.
        let to = range.to.clone().map_or(Bound::Unbounded, |to| Bound::Excluded(to.max(from.clone())));
        self.cells.range((Bound::Included(from), to))
    }

    /// Live rows and dead ones that a replica scans to fill the page.
    pub(super) fn count_scanned(&self, query: &ReadQuery, now: Timestamp) -> (usize, usize) {
        let (mut live, mut dead) = (0, 0);
        let mut meet = |cell: &ReplicaCell| {
            let is_dead = cell.dead_since(now).is_some();
            *if is_dead { &mut dead } else { &mut live } += 1;
            live < query.limit
        };
        match query.order {
            ReadOrder::Forward => self.range(&query.range).all(|(_, cell)| meet(cell)),
            ReadOrder::Reverse => self.range(&query.range).rev().all(|(_, cell)| meet(cell)),
        };
        (live, dead)
    }

    /// Live rows by name.
    pub(super) fn rows(&self, now: Timestamp) -> RowMap {
        let rows = self.cells.iter().filter_map(|(name, cell)| cell.row(name));
        rows.filter(|row| row.is_live(now)).map(|row| (row.name.clone(), row)).collect()
    }

    pub(super) fn page(&self, query: &ReadQuery, now: Timestamp) -> RowPage {
        page(&self.rows(now), query, now)
    }

    /// Rows without expiry that the partition would hold after `changes`.
    pub(super) fn count_after(mut self, one: &PartitionChanges, now: Timestamp) -> usize {
        for write in writes(&one.changes, now) {
            self.write(&write);
        }
        self.rows(now).values().filter(|row| row.expires.is_none()).count()
    }

    /// Removes cells that are dead since before `horizon`.
    pub(super) fn purge(&mut self, horizon: Timestamp, now: Timestamp) {
        self.cells.retain(|_, cell| cell.dead_since(now).is_none_or(|since| since > horizon));
        self.cleared = self.cleared.filter(|cleared| cleared.since > horizon);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.cleared.is_none()
    }
}
