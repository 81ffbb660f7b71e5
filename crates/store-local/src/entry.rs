//! The values of the trees: the rows of a packed partition, or one wide row.
//!
//! ```text
//! packed  version 01 · per row, names ascending: name (string) · stamp · expiry · value (string)
//! wide    version 01 · stamp · expiry · value to the end
//! stamp   u64 · expiry  00, or 01 and u64 · string  varint length, bytes; numbers big endian
//! ```
//! Decoded values share the memory of the entry.

use bytes::Bytes;
use larder_model::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_store::{Row, Timestamp};

/// The version that this build writes and reads; it refuses any other.
const VERSION: u8 = 1;

/// Most bytes of a row beside its name and value.
const ROW_OVERHEAD: usize = 28;

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
        let name = rest.bytes()?;
        let stamp = rest.u64()?;
        let expires = take_expiry(&mut rest)?;
        let value = rest.bytes()?;
        if rows.last().is_some_and(|last| last.name >= name) {
            return Err(DecodeError::Invalid("order of rows"));
        }
        rows.push(Row { name, value, stamp: Timestamp(stamp), expires });
    }
    Ok(rows)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row() -> impl Strategy<Value = Row> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        (bytes(), bytes(), any::<u64>(), any::<Option<u64>>()).prop_map(|(name, value, stamp, expires)| Row {
            name: name.into(),
            value: value.into(),
            stamp: Timestamp(stamp),
            expires: expires.map(Timestamp),
        })
    }

    proptest! {
        #[test]
        fn packed_entries_survive_a_round_trip(mut rows in proptest::collection::vec(row(), 0..8)) {
            rows.sort_by(|a, b| a.name.cmp(&b.name));
            rows.dedup_by(|a, b| a.name == b.name);
            prop_assert_eq!(decode_packed(encode_packed(&rows)), Ok(rows));
        }

        #[test]
        fn wide_entries_survive_a_round_trip(row in row()) {
            prop_assert_eq!(decode_wide(row.name.clone(), encode_wide(&row)), Ok(row));
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = decode_packed(bytes.clone().into());
            let _ = decode_wide(Bytes::new(), bytes.clone().into());
        }
    }

    #[test]
    fn values_share_the_memory_of_the_entry() {
        let row = Row { name: "n".into(), value: vec![7; 1000].into(), stamp: Timestamp(1), expires: None };
        let entry = encode_packed(&[row]);
        let rows = decode_packed(entry.clone()).unwrap();
        assert!(entry.as_ptr_range().contains(&rows[0].value.as_ptr()));
    }
}
