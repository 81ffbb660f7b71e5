//! The entries of the trees: their keys, their values, and how a change alters the rows of a value.
//!
//! ```text
//! keys    table u8 · partition (varint length, bytes) · row name        wide
//!         table u8 · partition (varint length, bytes)                   packed: the whole partition is one entry
//!         40       · key of a bulk row                                  bulk
//! values  version 01 · per row, names ascending: name (string) · stamp · expiry · value (string)      packed
//!         version 01 · stamp · expiry · value to the end                                              wide
//! stamp   u64 · expiry  00, or 01 and u64 · string  varint length, bytes; numbers big endian
//! ```
//! The length marks the end of the partition, so the rows of a partition are adjacent and sorted by name. Decoded values share
//! the memory of the entry. [`apply_change`] and the functions that it uses alone compare stamps: the last write wins.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder, prefix_successor, varint_len};
use larder_store::{Change, Partition, Row, Table, Timestamp};

/// Longest key that lsm-tree takes, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize;

// The longest key of the contract fits, with its table's byte and its length.
const _: () = assert!(larder_store::contract::KEY_BYTES_MAX + 4 <= KEY_BYTES_MAX);

/// Table byte of bulk rows.
const BULK_TABLE: u8 = 0x40;

/// The version that this build writes and reads; it refuses any other.
const VERSION: u8 = 1;

/// Most bytes of a row beside its name and value.
const ROW_OVERHEAD: usize = 28;

/// Key of a partition: the key of a packed entry, and the prefix of the keys of wide rows.
pub(crate) fn partition_key(partition: &Partition) -> Bytes {
    key_encoder(partition, 0).finish()
}

/// Key of a wide row.
pub(crate) fn row_key(partition: &Partition, name: &[u8]) -> Bytes {
    let mut key = key_encoder(partition, name.len());
    key.raw(name);
    key.finish()
}

/// Key of a bulk row.
pub(crate) fn bulk_key(key: &[u8]) -> Bytes {
    let mut out = FieldEncoder::with_capacity(key.len() + 1);
    out.u8(BULK_TABLE);
    out.raw(key);
    out.finish()
}

/// The first key of all bulk rows, and the first key after them.
pub(crate) fn bulk_bounds() -> (Bytes, Bytes) {
    (Bytes::from_static(&[BULK_TABLE]), Bytes::from_static(&[BULK_TABLE + 1]))
}

/// The first key of a table, and the first key after it.
pub(crate) fn table_bounds(table: Table) -> (Bytes, Bytes) {
    (Bytes::copy_from_slice(&[table.code()]), Bytes::copy_from_slice(&[table.code() + 1]))
}

/// The first key after all keys that begin with `prefix`, which begins with a table's byte.
pub(crate) fn prefix_end(prefix: &[u8]) -> Bytes {
    prefix_successor(prefix).unwrap_or_default()
}

/// Decodes a key: the partition, and the row's name (empty in packed keys).
pub(crate) fn split_key(key: &Bytes) -> Result<(Partition, Bytes), DecodeError> {
    let mut rest = FieldDecoder::new(key.clone());
    let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
    let key = rest.bytes()?;
    Ok((Partition::new(table, key), rest.rest()))
}

/// The key of a partition, with capacity for a name of this length.
fn key_encoder(partition: &Partition, name_length: usize) -> FieldEncoder {
    // Exactly its length: bytes with room left over would take a second allocation when they are finished.
    let length = 1 + varint_len(partition.key.len() as u64) + partition.key.len() + name_length;
    let mut key = FieldEncoder::with_capacity(length);
    key.u8(partition.table.code());
    key.bytes(&partition.key);
    key
}

/// Encodes the rows of a packed partition, sorted by name.
pub(crate) fn encode_packed(rows: &[Row]) -> Bytes {
    let size = rows.iter().map(|row| row.name.len() + row.value.len() + ROW_OVERHEAD).sum::<usize>();
    let mut entry = FieldEncoder::with_capacity(size + 1);
    entry.u8(VERSION);
    for row in rows {
        entry.bytes(&row.name);
        entry.u64(row.stamp.0);
        put_expiry(&mut entry, row.expires);
        entry.bytes(&row.value);
    }
    entry.finish()
}

/// Decodes the rows of a packed partition, expired ones too.
///
/// # Errors
/// [`DecodeError`] for another version, bytes that end too early, or names out of order.
pub(crate) fn decode_packed(entry: Bytes) -> Result<Vec<Row>, DecodeError> {
    let mut rest = FieldDecoder::new(entry);
    rest.version(VERSION)?;
    let mut rows: Vec<Row> = Vec::new();
    while rest.remaining() > 0 {
        let row = take_packed_row(&mut rest)?;
        if rows.last().is_some_and(|last| last.name >= row.name) {
            return Err(DecodeError::Invalid("order of rows"));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Decodes a packed partition that has one row, expired or not; `None` for one with another number of rows.
///
/// # Errors
/// As [`decode_packed`]; of several rows the first alone is checked.
pub(crate) fn decode_single(entry: Bytes) -> Result<Option<Row>, DecodeError> {
    let mut rest = FieldDecoder::new(entry);
    rest.version(VERSION)?;
    if rest.remaining() == 0 {
        return Ok(None);
    }
    let row = take_packed_row(&mut rest)?;
    Ok((rest.remaining() == 0).then_some(row))
}

fn take_packed_row(rest: &mut FieldDecoder) -> Result<Row, DecodeError> {
    let name = rest.bytes()?;
    let stamp = Timestamp(rest.u64()?);
    let expires = take_expiry(rest)?;
    Ok(Row { name, value: rest.bytes()?, stamp, expires })
}

/// Encodes a wide row; its name is in the key.
pub(crate) fn encode_wide(row: &Row) -> Bytes {
    let mut entry = FieldEncoder::with_capacity(row.value.len() + ROW_OVERHEAD);
    entry.u8(VERSION);
    entry.u64(row.stamp.0);
    put_expiry(&mut entry, row.expires);
    entry.raw(&row.value);
    entry.finish()
}

/// Decodes a wide row of this name.
///
/// # Errors
/// [`DecodeError`] for another version, or bytes that end too early.
pub(crate) fn decode_wide(name: Bytes, entry: Bytes) -> Result<Row, DecodeError> {
    let mut rest = FieldDecoder::new(entry);
    rest.version(VERSION)?;
    let stamp = rest.u64()?;
    let expires = take_expiry(&mut rest)?;
    Ok(Row { name, value: rest.rest(), stamp: Timestamp(stamp), expires })
}

fn put_expiry(entry: &mut FieldEncoder, expires: Option<Timestamp>) {
    match expires {
        None => entry.u8(0),
        Some(expires) => {
            entry.u8(1);
            entry.u64(expires.0);
        }
    }
}

fn take_expiry(rest: &mut FieldDecoder) -> Result<Option<Timestamp>, DecodeError> {
    match rest.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Timestamp(rest.u64()?))),
        _ => Err(DecodeError::Invalid("expiry")),
    }
}

/// Applies a change to the rows of a packed partition, which stay sorted by name. Returns whether a row changed.
pub(crate) fn apply_change(rows: &mut Vec<Row>, change: Change) -> bool {
    match change {
        Change::Put(row) => put_row(rows, row),
        Change::Remove { name, stamp } => match rows.binary_search_by(|row| row.name.cmp(&name)) {
            Ok(at) if is_removed_by(&rows[at], stamp) => {
                rows.remove(at);
                true
            }
            _ => false,
        },
        Change::Clear { stamp } => retain(rows, |row| !is_removed_by(row, stamp)),
    }
}

/// Removes expired rows. Returns whether there were any.
pub(crate) fn drop_expired(rows: &mut Vec<Row>, now: Timestamp) -> bool {
    retain(rows, |row| row.is_live(now))
}

/// Whether a removal at `stamp` removes this row; the removal wins a tie.
pub(crate) fn is_removed_by(row: &Row, stamp: Timestamp) -> bool {
    // Engines that take the last arrival would differ from those that compare stamps [invariant 40].
    row.stamp <= stamp
}

/// Whether a write of `new` over `old` changes the row.
pub(crate) fn changes_row(new: &Row, old: &Row) -> bool {
    new.supersedes(old) && new != old
}

fn put_row(rows: &mut Vec<Row>, row: Row) -> bool {
    match rows.binary_search_by(|old| old.name.cmp(&row.name)) {
        Ok(at) if changes_row(&row, &rows[at]) => rows[at] = row,
        Ok(_) => return false,
        Err(at) => rows.insert(at, row),
    }
    true
}

fn retain(rows: &mut Vec<Row>, keep: impl Fn(&Row) -> bool) -> bool {
    let before = rows.len();
    rows.retain(keep);
    rows.len() != before
}

#[cfg(test)]
mod tests;
