//! Pages of rows and of partitions, read by the caller's own thread: rows in memory take microseconds.

use std::ops::ControlFlow;

use bytes::Bytes;
use larder_store::{
    Kind, Layout, Micros, Order, Page, Partition, PartitionPage, Range, ReadQuery, Result, Row, Stopped, Table,
};

use crate::spaces::{Space, Spaces, damaged};
use crate::{entry, keys};

/// One page of live rows of one moment.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn page(spaces: &Spaces, partition: &Partition, query: &ReadQuery, now: Micros) -> Result<Page> {
    let mut page = PageBuilder { rows: Vec::new(), limit: query.limit.max(1), stopped: Stopped::End, now };
    match partition.table.layout() {
        Layout::Packed => packed_page(spaces, partition, query, &mut page)?,
        Layout::Wide => wide_page(spaces, partition, query, &mut page)?,
    }
    Ok(page.finish())
}

struct PageBuilder {
    rows: Vec<Row>,
    limit: usize,
    stopped: Stopped,
    now: Micros,
}

impl PageBuilder {
    /// Adds a row if it is live. The one behind the last that fits tells that the limit was reached.
    fn add(&mut self, row: Row) -> ControlFlow<()> {
        if !row.is_live(self.now) {
            return ControlFlow::Continue(());
        }
        if self.rows.len() == self.limit {
            self.stopped = Stopped::Limit;
            return ControlFlow::Break(());
        }
        self.rows.push(row);
        ControlFlow::Continue(())
    }

    fn finish(self) -> Page {
        Page { rows: self.rows, stopped: self.stopped }
    }
}

fn packed_page(spaces: &Spaces, partition: &Partition, query: &ReadQuery, page: &mut PageBuilder) -> Result<()> {
    let rows = spaces.cached_rows(&keys::partition_key(partition))?.unwrap_or_default();
    let rows = rows.into_iter().filter(|row| contains(&query.range, &row.name));
    match query.order {
        Order::Forward => add_all(page, rows.map(Ok)),
        Order::Reverse => add_all(page, rows.rev().map(Ok)),
    }
}

/// Reads from a snapshot: a plain read would see half of a group that is being committed.
fn wide_page(spaces: &Spaces, partition: &Partition, query: &ReadQuery, page: &mut PageBuilder) -> Result<()> {
    if let Some(name) = query.range.only() {
        return add_all(page, wide_row(spaces, partition, &name).transpose().into_iter());
    }
    let start = keys::partition_key(partition);
    let from = query.range.from.as_ref().map_or_else(|| start.clone(), |from| keys::row_key(partition, from));
    let to = query.range.to.as_ref().map_or_else(|| keys::behind(&start), |to| keys::row_key(partition, to));
    if from >= to {
        return Ok(());
    }
    let entries = spaces.range(Space::Wide, from..to);
    let row = |entry: Result<_>| {
        let (key, value): (Bytes, Bytes) = entry?;
        entry::decode_wide(key.slice(start.len()..), value).map_err(|error| damaged(Space::Wide, error))
    };
    match query.order {
        Order::Forward => add_all(page, entries.map(row)),
        Order::Reverse => add_all(page, entries.rev().map(row)),
    }
}

/// One row: filters tell tables without it, which a range cannot ask.
fn wide_row(spaces: &Spaces, partition: &Partition, name: &Bytes) -> Result<Option<Row>> {
    let stored = spaces.settled(Space::Wide, &keys::row_key(partition, name))?;
    let row = stored.map(|stored| entry::decode_wide(name.clone(), stored));
    row.transpose().map_err(|error| damaged(Space::Wide, error))
}

fn add_all(page: &mut PageBuilder, rows: impl Iterator<Item = Result<Row>>) -> Result<()> {
    for row in rows {
        if page.add(row?).is_break() {
            break;
        }
    }
    Ok(())
}

fn contains(range: &Range, name: &Bytes) -> bool {
    range.from.as_ref().is_none_or(|from| name >= from) && range.to.as_ref().is_none_or(|to| name < to)
}

/// One page of partitions that have a live row, in the order of their keys in the engine.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn partitions(
    spaces: &Spaces,
    table: Table,
    after: Option<Bytes>,
    limit: usize,
    now: Micros,
) -> Result<PartitionPage> {
    let (first, end) = keys::table_bounds(table);
    let mut from = after.map_or(first, |key| keys::behind(&keys::partition_key(&Partition::own(table, key))));
    let mut found = Vec::new();
    while let Some(partition) = next_partition(spaces, &from, &end, now)? {
        from = keys::behind(&keys::partition_key(&partition));
        found.push(partition);
        if found.len() >= limit.max(1) {
            let next = found.last().map(|last: &Partition| last.key.clone());
            return Ok(PartitionPage { partitions: found, next });
        }
    }
    Ok(PartitionPage { partitions: found, next: None })
}

/// The first partition from this key on that has a live row.
fn next_partition(spaces: &Spaces, from: &Bytes, end: &Bytes, now: Micros) -> Result<Option<Partition>> {
    let Some(table) = from.first().copied().and_then(Table::from_code) else { return Ok(None) };
    let space = match table.layout() {
        Layout::Packed => Space::Packed,
        Layout::Wide => Space::Wide,
    };
    if from >= end {
        return Ok(None);
    }
    for entry in spaces.range(space, from.clone()..end.clone()) {
        let (key, value) = entry?;
        let (partition, name) = keys::split(&key).map_err(|error| damaged(space, error))?;
        if is_live(space, name, value, now)? {
            let key = Bytes::copy_from_slice(&partition.key);
            return Ok(Some(Partition { key, ..partition }));
        }
    }
    Ok(None)
}

fn is_live(space: Space, name: Bytes, value: Bytes, now: Micros) -> Result<bool> {
    let live = match space {
        Space::Packed => entry::decode_packed(value).map(|rows| rows.iter().any(|row| row.is_live(now))),
        Space::Wide | Space::Bulk => entry::decode_wide(name, value).map(|row| row.is_live(now)),
    };
    live.map_err(|error| damaged(space, error))
}

/// Keys of entries with expired rows among the next `limit` entries from `from` on, and where to go on; `None` at the end.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn expired(spaces: &Spaces, space: Space, from: &Bytes, limit: usize, now: Micros) -> Result<Expired> {
    let mut found = Expired { keys: Vec::new(), seen: 0, next: None };
    let mut last = from.clone();
    for entry in spaces.range(space, from.clone()..) {
        let (key, value) = match entry {
            Ok(entry) => entry,
            // The pass goes on behind the block: what is in it expires for readers all the same.
            Err(error) if error.kind == Kind::Damaged => {
                let behind = spaces.tree(space).behind_damage(&last, limit + 1);
                found.next = behind.map(|key| Bytes::copy_from_slice(&key)).filter(|key| *key > last);
                break;
            }
            Err(error) => return Err(error),
        };
        last = key.clone();
        if found.seen == limit {
            found.next = Some(Bytes::copy_from_slice(&key));
            break;
        }
        found.seen += 1;
        if has_expired(space, value, now)? {
            found.keys.push((space, Bytes::copy_from_slice(&key)));
        }
    }
    Ok(found)
}

/// What [`expired`] found.
pub(crate) struct Expired {
    /// Entries with expired rows.
    pub(crate) keys: Vec<(Space, Bytes)>,
    /// Entries looked at.
    pub(crate) seen: usize,
    /// Where to go on.
    pub(crate) next: Option<Bytes>,
}

fn has_expired(space: Space, value: Bytes, now: Micros) -> Result<bool> {
    let expired = match space {
        Space::Packed => entry::decode_packed(value).map(|rows| rows.iter().any(|row| !row.is_live(now))),
        Space::Wide | Space::Bulk => entry::decode_wide(Bytes::new(), value).map(|row| !row.is_live(now)),
    };
    expired.map_err(|error| damaged(space, error))
}
