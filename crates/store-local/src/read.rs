//! Pages of rows and of partitions, read on the caller's thread: rows in memory take microseconds.

use bytes::Bytes;
use larder_store::{
    Clock, Kind, Layout, Partition, PartitionPage, Range, ReadOrder, ReadQuery, Result, Row, RowPage, Stopped, Table,
    Timestamp,
};

use crate::entry;
use crate::mirror;
use crate::tree_id::TreeId;
use crate::trees::{Trees, damaged};

/// One page of live rows, from one snapshot.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn read_page(trees: &Trees, partition: &Partition, query: &ReadQuery, now: Timestamp) -> Result<RowPage> {
    match partition.table.layout() {
        Layout::Packed => packed_page(trees, partition, query, now),
        Layout::Wide => wide_page(trees, partition, query, now),
    }
}

/// The live rows up to the limit. One more live row shows that the limit was reached.
fn first_page(rows: impl Iterator<Item = Result<Row>>, limit: usize, now: Timestamp) -> Result<RowPage> {
    // Race: the sweep may not have reached an expired row yet; no reader sees it [invariant 41].
    let mut live = rows.filter(|row| row.as_ref().map_or(true, |row| row.is_live(now)));
    let rows = live.by_ref().take(limit).collect::<Result<_>>()?;
    let stopped = if live.next().transpose()?.is_some() { Stopped::Limit } else { Stopped::End };
    Ok(RowPage { rows, stopped })
}

fn packed_page(trees: &Trees, partition: &Partition, query: &ReadQuery, now: Timestamp) -> Result<RowPage> {
    let rows = trees.cached_rows(&entry::partition_key(partition))?.unwrap_or_default();
    let rows = rows.into_iter().filter(|row| contains(&query.range, &row.name));
    match query.order {
        ReadOrder::Forward => first_page(rows.map(Ok), query.limit, now),
        ReadOrder::Reverse => first_page(rows.rev().map(Ok), query.limit, now),
    }
}

/// The only row of a packed partition, if it is live; `None` for any other partition, and when the read fails.
pub(crate) fn single_row(trees: &Trees, partition: &Partition, clock: &dyn Clock) -> Option<Row> {
    if partition.table.layout() != Layout::Packed {
        return None;
    }
    let row = trees.cached_single_row(&entry::partition_key(partition)).ok()??;
    // Race: the sweep may not have reached an expired row yet; no reader sees it [invariant 41]. Only a row that can expire
    // costs a look at the clock.
    (row.expires.is_none() || row.is_live(clock.now())).then_some(row)
}

/// The row of this name in a wide partition, if it is live; `None` also when the read fails.
pub(crate) fn row_of_name(trees: &Trees, partition: &Partition, name: &Bytes, clock: &dyn Clock) -> Option<Row> {
    if partition.table.layout() != Layout::Wide {
        return None;
    }
    let row = wide_row(trees, partition, name).ok()??;
    // Race: as above [invariant 41].
    (row.expires.is_none() || row.is_live(clock.now())).then_some(row)
}

/// Reads from a snapshot: a plain read would see half of the group that the committer inserts.
fn wide_page(trees: &Trees, partition: &Partition, query: &ReadQuery, now: Timestamp) -> Result<RowPage> {
    if let Some(name) = query.range.single_name() {
        return first_page(wide_row(trees, partition, &name).transpose().into_iter(), query.limit, now);
    }
    let start = entry::partition_key(partition);
    let from = query.range.from.as_ref().map_or_else(|| start.clone(), |from| entry::row_key(partition, from));
    let to = query.range.to.as_ref().map_or_else(|| entry::prefix_end(&start), |to| entry::row_key(partition, to));
    if from >= to {
        return Ok(RowPage { rows: Vec::new(), stopped: Stopped::End });
    }
    mirror::read(partition.table, |tree_id| {
        let entries = trees.range(tree_id, from.clone(), Some(to.clone()), query.order);
        let row = |entry: Result<_>| {
            let (key, value): (Bytes, Bytes) = entry?;
            entry::decode_wide(key.slice(start.len()..), value).map_err(|error| damaged(tree_id, error))
        };
        first_page(entries.map(row), query.limit, now)
    })
}

/// One row, by a point read: Bloom filters skip tables without it, which a range read cannot.
fn wide_row(trees: &Trees, partition: &Partition, name: &Bytes) -> Result<Option<Row>> {
    let stored = trees.get_committed(TreeId::Wide, &entry::row_key(partition, name))?;
    let row = stored.map(|stored| entry::decode_wide(name.clone(), stored));
    row.transpose().map_err(|error| damaged(TreeId::Wide, error))
}

fn contains(range: &Range, name: &Bytes) -> bool {
    range.from.as_ref().is_none_or(|from| name >= from) && range.to.as_ref().is_none_or(|to| name < to)
}

/// One page of partitions that have a live row, in the order of their keys in the tree.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn read_partitions(
    trees: &Trees,
    table: Table,
    after: Option<Bytes>,
    limit: usize,
    now: Timestamp,
) -> Result<PartitionPage> {
    let (first, end) = entry::table_bounds(table);
    let mut from = after.map_or(first, |key| entry::prefix_end(&entry::partition_key(&Partition::new(table, key))));
    let mut partitions = Vec::new();
    // A new range for each partition: it skips the other rows of a wide one without reading them.
    while let Some(partition) = mirror::read(table, |tree_id| next_partition(trees, tree_id, &from, &end, now))? {
        from = entry::prefix_end(&entry::partition_key(&partition));
        partitions.push(partition);
        if partitions.len() >= limit {
            let next = partitions.last().map(|last: &Partition| last.key.clone());
            return Ok(PartitionPage { partitions, next });
        }
    }
    Ok(PartitionPage { partitions, next: None })
}

/// The first partition from this key on that has a live row.
fn next_partition(
    trees: &Trees,
    tree_id: TreeId,
    from: &Bytes,
    end: &Bytes,
    now: Timestamp,
) -> Result<Option<Partition>> {
    if from >= end {
        return Ok(None);
    }
    for entry in trees.range(tree_id, from.clone(), Some(end.clone()), ReadOrder::Forward) {
        let (key, value) = entry?;
        let (partition, name) = entry::split_key(&key).map_err(|error| damaged(tree_id, error))?;
        if has_row(TreeId::for_table(partition.table), name, value, |row| row.is_live(now))? {
            // A copy: the key may be a view of a whole block.
            let key = Bytes::copy_from_slice(&partition.key);
            return Ok(Some(Partition { key, ..partition }));
        }
    }
    Ok(None)
}

/// Whether any row of an entry passes the test.
fn has_row(tree_id: TreeId, name: Bytes, value: Bytes, test: impl Fn(&Row) -> bool) -> Result<bool> {
    let outcome = match tree_id {
        TreeId::Packed => entry::decode_packed(value).map(|rows| rows.iter().any(test)),
        TreeId::Wide | TreeId::Bulk | TreeId::Mirror => entry::decode_wide(name, value).map(|row| test(&row)),
    };
    outcome.map_err(|error| damaged(tree_id, error))
}

/// Keys of entries with expired rows among the next `limit` entries from `from` on, and the key to continue at.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn find_expired(
    trees: &Trees,
    tree_id: TreeId,
    from: &Bytes,
    limit: usize,
    now: Timestamp,
) -> Result<ExpiredEntries> {
    let mut expired = ExpiredEntries { keys: Vec::new(), seen: 0, next: None };
    let (mut last, mut is_damaged) = (from.clone(), false);
    for entry in trees.range(tree_id, from.clone(), None, ReadOrder::Forward) {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) if error.kind == Kind::Damaged => {
                is_damaged = true;
                expired.seen += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        last = key.clone();
        // Damaged values count as well.
        if expired.seen >= limit {
            expired.next = Some(Bytes::copy_from_slice(&key));
            break;
        }
        expired.seen += 1;
        if has_row(tree_id, Bytes::new(), value, |row| !row.is_live(now))? {
            expired.keys.push((tree_id, Bytes::copy_from_slice(&key)));
        }
    }
    if is_damaged && expired.next.is_none() {
        // A damaged block ended the range. The sweep skips it, or it would never get past it; readers hide expired rows all the same.
        let after = trees.tree(tree_id).key_after_damage(&last, limit + 1);
        expired.next = after.map(|key| Bytes::copy_from_slice(&key)).filter(|key| *key > last);
    }
    Ok(expired)
}

/// The result of [`find_expired`].
pub(crate) struct ExpiredEntries {
    /// Entries with expired rows.
    pub(crate) keys: Vec<(TreeId, Bytes)>,
    /// Entries read.
    pub(crate) seen: usize,
    /// The key to continue at; `None` at the end.
    pub(crate) next: Option<Bytes>,
}
