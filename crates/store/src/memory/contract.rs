//! What callers must not do, found before anything is done.

use larder_model::limits::BATCH_BYTES_MAX;
use larder_model::rows::changes_bytes;

use std::collections::BTreeSet;

use crate::{Batch, Change, Error, Head, Kind, Layout, Partition, Result, Stamp};

/// Refuses a page of nothing: a reader that goes on would never end.
pub(super) fn limit(limit: usize) -> Result<()> {
    if limit == 0 { Err(misuse("a page of no rows")) } else { Ok(()) }
}

/// Refuses a batch that breaks the contract of `apply`.
pub(super) fn batch(batch: &Batch) -> Result<()> {
    for one in &batch.partitions {
        if one.partition.table.is_guarded() {
            return Err(misuse(format!("apply on the guarded table {}", one.partition.table.name())));
        }
        changes(&one.changes)?;
    }
    fits(batch.bytes())
}

/// Refuses a swap that breaks the contract of `apply_if`. The head is the last of `all`.
pub(super) fn swap(partition: &Partition, expected: Option<Stamp>, head: &Head, all: &[Change]) -> Result<()> {
    if !partition.table.is_guarded() {
        return Err(misuse(format!("apply_if on the plain table {}", partition.table.name())));
    }
    if expected.is_some_and(|expected| head.row.stamp <= expected) {
        return Err(misuse("a head that is not newer than the one it replaces"));
    }
    changes(all)?;
    let shadow = head.shadow_change();
    if let Some((shadow, _)) = &shadow
        && (shadow.table.is_guarded() || shadow.table.layout() != Layout::Wide)
    {
        return Err(misuse(format!("a shadow in the table {}", shadow.table.name())));
    }
    let shadow = shadow.map_or(0, |(shadow, change)| shadow.key.len() + changes_bytes(&[change]));
    fits(partition.key.len() + changes_bytes(all) + shadow)
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

fn fits(bytes: usize) -> Result<()> {
    if bytes > BATCH_BYTES_MAX {
        return Err(Error::new(Kind::TooLarge, format!("a batch of {bytes} bytes; {BATCH_BYTES_MAX} at most")));
    }
    Ok(())
}

fn misuse(context: impl Into<String>) -> Error {
    Error::new(Kind::Misuse, context)
}
