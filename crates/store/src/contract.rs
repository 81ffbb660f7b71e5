//! What callers must not do, found before anything is done.

use std::collections::BTreeSet;

use larder_model::rows::changes_bytes;

use crate::{Batch, Change, Error, Head, Kind, Layout, Partition, Result, Shadow, Stamp};

/// Refuses a page of nothing: a reader that goes on would never end.
pub(crate) fn limit(limit: usize) -> Result<()> {
    if limit == 0 { Err(misuse("a page of no rows")) } else { Ok(()) }
}

/// Refuses a batch that breaks the contract of `apply`.
pub(crate) fn batch(batch: &Batch, bytes_max: usize) -> Result<()> {
    for one in &batch.partitions {
        if one.partition.table.is_guarded() {
            return Err(misuse(format!("apply on the guarded table {}", one.partition.table.name())));
        }
        if one.seen.is_some() && one.partition.table.layout() != Layout::Packed {
            return Err(misuse(format!("rows seen in the wide table {}", one.partition.table.name())));
        }
        changes(&one.changes)?;
    }
    fits(batch.bytes(), bytes_max)
}

/// Refuses a swap that breaks the contract of `apply_if`. The head is the last of `all`.
pub(crate) fn swap(
    partition: &Partition,
    expected: Option<Stamp>,
    head: &Head,
    all: &[Change],
    bytes_max: usize,
) -> Result<()> {
    if !partition.table.is_guarded() {
        return Err(misuse(format!("apply_if on the plain table {}", partition.table.name())));
    }
    head.check(expected)?;
    changes(all)?;
    let shadow = head.shadow.as_ref().map_or(0, Shadow::bytes);
    fits(partition.key.len() + changes_bytes(all) + shadow, bytes_max)
}

fn changes(changes: &[Change]) -> Result<()> {
    let mut names = BTreeSet::new();
    for change in changes {
        let name = match change {
            Change::Put(row) if row.stamp == 0 => return Err(misuse("a row with the stamp zero")),
            Change::Put(row) => &row.name,
            Change::Remove { name, .. } => name,
            Change::Clear { .. } => continue,
        };
        if !names.insert(name) {
            return Err(misuse(format!("two changes to the row {name:?}")));
        }
    }
    Ok(())
}

fn fits(bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes > bytes_max {
        return Err(Error::new(Kind::TooLarge, format!("a batch of {bytes} bytes; {bytes_max} at most")));
    }
    Ok(())
}

fn misuse(context: impl Into<String>) -> Error {
    Error::new(Kind::Misuse, context)
}
