//! Checks of the caller's side of the [`crate::Store`] contract, which every engine makes before a call does anything.

use bytes::Bytes;
use larder_rows::changes_bytes;

use crate::{Batch, Change, DerivedRow, Error, HeadWrite, Kind, Layout, Partition, Result, Row, Timestamp};

/// Longest key of a packed partition; in a wide table, of a partition and the name of its row together.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize - 4;

/// Refuses a limit of 0: a reader that follows such pages never ends.
///
/// # Errors
/// `Misuse`.
pub fn check_limit(limit: usize) -> Result<()> {
    if limit == 0 { Err(misuse("a page with the limit zero")) } else { Ok(()) }
}

/// Refuses a batch that breaks the contract of `apply`. Returns the bytes of the batch.
///
/// # Errors
/// `Misuse`, `TooLarge`.
pub fn check_batch(batch: &Batch, bytes_max: usize) -> Result<usize> {
    for part in &batch.partitions {
        if part.partition.table.is_guarded() {
            return Err(misuse(format!("apply on the guarded table {}", part.partition.table.name())));
        }
        if part.expected_rows.is_some() && part.partition.table.layout() != Layout::Packed {
            return Err(misuse(format!("rows seen in the wide table {}", part.partition.table.name())));
        }
        check_changes(&part.partition, &part.changes, None)?;
    }
    check_size(batch.bytes(), bytes_max)
}

/// Refuses a compare-and-set that breaks the contract of `apply_if`. Returns the bytes of its rows.
///
/// # Errors
/// `Misuse`, `TooLarge`.
pub fn check_compare_and_set(
    partition: &Partition,
    expected: Option<Timestamp>,
    head: &HeadWrite,
    changes: &[Change],
    bytes_max: usize,
) -> Result<usize> {
    if !partition.table.is_guarded() {
        return Err(misuse(format!("apply_if on the plain table {}", partition.table.name())));
    }
    // Race: a head that kept its stamp would let a second writer pass the same guard [invariant 20].
    head.check(expected)?;
    check_changes(partition, changes, Some(&head.row))?;
    if let Some(derived) = &head.derived {
        check_key(&derived.partition, derived.name.len())?;
    }
    let mut bytes = partition.key.len() + changes_bytes(changes) + head.row.bytes();
    bytes += head.derived.as_ref().map_or(0, DerivedRow::bytes);
    if let Some(beside) = &head.beside {
        check_changes(&beside.partition, &beside.changes, None)?;
        bytes += beside.partition.key.len() + changes_bytes(&beside.changes);
    }
    check_size(bytes, bytes_max)
}

/// Refuses changes that write one row twice, or a row that no removal can take, or under too long a key.
fn check_changes(partition: &Partition, changes: &[Change], head: Option<&Row>) -> Result<()> {
    let puts = changes.iter().filter_map(|change| if let Change::Put(row) = change { Some(row) } else { None });
    if puts.chain(head).any(|row| row.stamp == Timestamp::ZERO) {
        return Err(misuse("a row with the stamp zero"));
    }
    let mut names: Vec<&Bytes> = changes.iter().filter_map(changed_name).chain(head.map(|row| &row.name)).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(misuse(format!("two changes to the row {:?}", pair[0])));
    }
    check_key(partition, names.iter().map(|name| name.len()).max().unwrap_or(0))
}

fn changed_name(change: &Change) -> Option<&Bytes> {
    match change {
        Change::Put(Row { name, .. }) | Change::Remove { name, .. } => Some(name),
        Change::Clear { .. } => None,
    }
}

fn check_key(partition: &Partition, name_bytes: usize) -> Result<()> {
    let name_bytes = if partition.table.layout() == Layout::Wide { name_bytes } else { 0 };
    check_at_most("a key", partition.key.len() + name_bytes, KEY_BYTES_MAX).map(drop)
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<usize> {
    check_at_most("a batch", bytes, bytes_max)
}

fn check_at_most(what: &str, bytes: usize, bytes_max: usize) -> Result<usize> {
    if bytes > bytes_max {
        return Err(Error::new(Kind::TooLarge, format!("{what} of {bytes} bytes; {bytes_max} at most")));
    }
    Ok(bytes)
}

fn misuse(context: impl Into<String>) -> Error {
    Error::new(Kind::Misuse, context)
}
