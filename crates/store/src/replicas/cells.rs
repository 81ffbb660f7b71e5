//! What one replica knows of one partition: rows, and what is left of removed ones.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::memory::{Rows, page};
use crate::{Change, Micros, Order, Page, PartitionChanges, Range, ReadQuery, Row, Stamp};

/// What is known of one name. The order of fields is the rule: what was written later stays, then a removal, then the greater
/// value; whatever comes after only makes replicas agree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    /// When it was written: its stamp in plain tables, the ballot of its swap in guarded ones.
    written: u64,
    /// Set on a removal: when it was made.
    gone: Option<Micros>,
    value: Bytes,
    stamp: Stamp,
    expires: Option<Micros>,
}

/// A removal of everything that is not newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clear {
    written: u64,
    since: Micros,
}

/// One thing that replicas tell each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    Cell(Bytes, Cell),
    Clear(Clear),
}

/// One partition of one replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cells {
    cells: BTreeMap<Bytes, Cell>,
    cleared: Option<Clear>,
}

impl Cell {
    fn put(row: Row, written: u64) -> Self {
        Self { written, gone: None, value: row.value, stamp: row.stamp, expires: row.expires }
    }

    fn removal(written: u64, since: Micros) -> Self {
        Self { written, gone: Some(since), value: Bytes::new(), stamp: 0, expires: None }
    }

    /// Since when there is nothing to read; `None` while there is.
    fn dead_since(&self, now: Micros) -> Option<Micros> {
        self.gone.or(self.expires.filter(|expires| *expires <= now))
    }

    fn row(&self, name: &Bytes) -> Option<Row> {
        let Self { value, stamp, expires, .. } = self;
        self.gone.is_none().then(|| Row { name: name.clone(), value: value.clone(), stamp: *stamp, expires: *expires })
    }
}

/// Changes to a plain partition as replicas are told them.
pub(super) fn writes(changes: &[Change], since: Micros) -> Vec<Write> {
    let write = |change: &Change| match change {
        Change::Put(row) => Write::Cell(row.name.clone(), Cell::put(row.clone(), row.stamp)),
        Change::Remove { name, stamp } => Write::Cell(name.clone(), Cell::removal(*stamp, since)),
        Change::Clear { stamp } => Write::Clear(Clear { written: *stamp, since }),
    };
    changes.iter().map(write).collect()
}

/// Changes to a guarded partition that reads as `rows` now: they are written at a ballot, so what they may not take is left out.
pub(super) fn balloted(changes: Vec<Change>, rows: &Rows, ballot: u64, since: Micros) -> Vec<Write> {
    let mut writes = Vec::new();
    for change in changes {
        let older = |name: &Bytes, stamp: Stamp| rows.get(name).is_none_or(|row| row.stamp <= stamp);
        match change {
            Change::Put(row) if rows.get(&row.name).is_none_or(|present| row.supersedes(present)) => {
                writes.push(Write::Cell(row.name.clone(), Cell::put(row, ballot)));
            }
            Change::Remove { name, stamp } if older(&name, stamp) => {
                writes.push(Write::Cell(name, Cell::removal(ballot, since)));
            }
            Change::Clear { stamp } => {
                // Just below the ballot: rows written with the clear stay.
                let taken = rows.values().filter(|row| row.stamp <= stamp).map(|row| row.name.clone());
                writes.extend(taken.map(|name| Write::Cell(name, Cell::removal(ballot - 1, since))));
            }
            Change::Put(_) | Change::Remove { .. } => {}
        }
    }
    writes
}

impl Cells {
    pub(super) fn write(&mut self, write: &Write) {
        match write {
            Write::Cell(name, cell) => {
                if self.cleared.is_some_and(|cleared| cell.written <= cleared.written) {
                    return;
                }
                let known = self.cells.entry(name.clone()).or_insert_with(|| cell.clone());
                if cell > known {
                    known.clone_from(cell);
                }
            }
            Write::Clear(clear) => {
                self.cleared = self.cleared.max(Some(*clear));
                self.cells.retain(|_, cell| cell.written > clear.written);
            }
        }
    }

    /// What `other` would have to be told to know all this too.
    pub(super) fn unknown_to(&self, other: &Self) -> Vec<Write> {
        let clear = self.cleared.filter(|cleared| Some(*cleared) > other.cleared).map(Write::Clear);
        let is_new = |name: &Bytes, cell: &Cell| other.cells.get(name).is_none_or(|known| cell > known);
        let cells = self.cells.iter().filter(|(name, cell)| is_new(name, cell));
        clear.into_iter().chain(cells.map(|(name, cell)| Write::Cell(name.clone(), cell.clone()))).collect()
    }

    /// Everything, in words for another replica.
    pub(super) fn absorb(&mut self, other: &Self) {
        for write in other.unknown_to(self) {
            self.write(&write);
        }
    }

    /// The part of it in a range.
    pub(super) fn slice(&self, range: &Range) -> Self {
        let cells = self.range(range).map(|(name, cell)| (name.clone(), cell.clone())).collect();
        Self { cells, cleared: self.cleared }
    }

    fn range(&self, range: &Range) -> impl DoubleEndedIterator<Item = (&Bytes, &Cell)> {
        let from = range.from.clone().unwrap_or_default();
        // A range that ends before it begins has nothing in it.
        let to = range.to.clone().map_or(Bound::Unbounded, |to| Bound::Excluded(to.max(from.clone())));
        self.cells.range((Bound::Included(from), to))
    }

    /// Live rows and dead ones that a replica walks over to fill the page.
    pub(super) fn met(&self, query: &ReadQuery, now: Micros) -> (usize, usize) {
        let (mut live, mut dead) = (0, 0);
        let mut meet = |cell: &Cell| {
            let is_dead = cell.dead_since(now).is_some();
            *if is_dead { &mut dead } else { &mut live } += 1;
            live < query.limit
        };
        match query.order {
            Order::Forward => self.range(&query.range).all(|(_, cell)| meet(cell)),
            Order::Reverse => self.range(&query.range).rev().all(|(_, cell)| meet(cell)),
        };
        (live, dead)
    }

    /// Live rows by name.
    pub(super) fn rows(&self, now: Micros) -> Rows {
        let rows = self.cells.iter().filter_map(|(name, cell)| cell.row(name));
        rows.filter(|row| row.is_live(now)).map(|row| (row.name.clone(), row)).collect()
    }

    pub(super) fn page(&self, query: &ReadQuery, now: Micros) -> Page {
        page(&self.rows(now), query, now)
    }

    /// Rows without expiry that there would be after `changes`.
    pub(super) fn count_after(mut self, one: &PartitionChanges, now: Micros) -> usize {
        for write in writes(&one.changes, now) {
            self.write(&write);
        }
        self.rows(now).values().filter(|row| row.expires.is_none()).count()
    }

    /// Forgets what has been dead since before `horizon`.
    pub(super) fn purge(&mut self, horizon: Micros, now: Micros) {
        self.cells.retain(|_, cell| cell.dead_since(now).is_none_or(|since| since > horizon));
        self.cleared = self.cleared.filter(|cleared| cleared.since > horizon);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.cleared.is_none()
    }
}
