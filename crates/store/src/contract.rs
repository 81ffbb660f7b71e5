//! Checks of the caller's side of the [`crate::Store`] contract, made before a call does anything.

use std::collections::BTreeSet;

use larder_model::rows::changes_bytes;

use crate::{Batch, Change, DerivedRow, Error, HeadWrite, Kind, Layout, Partition, Result, Stamp};

/// Refuses a limit of 0: a reader that follows such pages never ends.
pub fn check_limit(limit: usize) -> Result<()> {
    if limit == 0 { Err(misuse("a page of no rows")) } else { Ok(()) }
}

/// Refuses a batch that breaks the contract of `apply`.
pub fn check_batch(batch: &Batch, bytes_max: usize) -> Result<()> {
    for one in &batch.partitions {
        if one.partition.table.is_guarded() {
            return Err(misuse(format!("apply on the guarded table {}", one.partition.table.name())));
        }
        if one.expected_rows.is_some() && one.partition.table.layout() != Layout::Packed {
            return Err(misuse(format!("rows seen in the wide table {}", one.partition.table.name())));
        }
        check_changes(&one.changes)?;
    }
    check_size(batch.bytes(), bytes_max)
}

/// Refuses a compare-and-set that breaks the contract of `apply_if`. The head is the last of `all`.
pub fn check_compare_and_set(
    partition: &Partition,
    expected: Option<Stamp>,
    head: &HeadWrite,
    all: &[Change],
    bytes_max: usize,
) -> Result<()> {
    if !partition.table.is_guarded() {
        return Err(misuse(format!("apply_if on the plain table {}", partition.table.name())));
    }
    head.check(expected)?;
    check_changes(all)?;
    let derived = head.derived.as_ref().map_or(0, DerivedRow::bytes);
    check_size(partition.key.len() + changes_bytes(all) + derived, bytes_max)
}

fn check_changes(changes: &[Change]) -> Result<()> {
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

fn check_size(bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes > bytes_max {
        return Err(Error::new(Kind::TooLarge, format!("a batch of {bytes} bytes; {bytes_max} at most")));
    }
    Ok(())
}

fn misuse(context: impl Into<String>) -> Error {
    Error::new(Kind::Misuse, context)
}
