//! Keys of the trees: the table's byte, the partition with its length, the row's name.
//!
//! ```text
//! table u8 · partition (varint length, bytes) · row name        wide
//! table u8 · partition (varint length, bytes)                   packed: the whole partition is one entry
//! 40       · key of a bulk row                                  bulk
//! ```
//! The length marks the end of the partition, so the rows of a partition are adjacent and sorted by name.

use bytes::Bytes;
use larder_model::codec::{DecodeError, FieldDecoder, FieldEncoder, prefix_successor};
use larder_store::{Partition, Table};

/// Longest key that lsm-tree takes, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize;

// The longest key of the contract fits, with its table's byte and its length.
const _: () = assert!(larder_store::contract::KEY_BYTES_MAX + 4 <= KEY_BYTES_MAX);

/// Table byte of bulk rows.
const BULK: u8 = 0x40;

/// Key of a partition: the key of a packed entry, and the prefix of the keys of wide rows.
pub(crate) fn partition_key(partition: &Partition) -> Bytes {
    encoder(partition, 0).finish()
}

/// Key of a wide row.
pub(crate) fn row_key(partition: &Partition, name: &[u8]) -> Bytes {
    let mut key = encoder(partition, name.len());
    key.raw(name);
    key.finish()
}

/// Key of a bulk row.
pub(crate) fn bulk_key(key: &[u8]) -> Bytes {
    let mut out = FieldEncoder::with_capacity(key.len() + 1);
    out.u8(BULK);
    out.raw(key);
    out.finish()
}

/// The first key of all bulk rows, and the first key after them.
pub(crate) fn bulk_bounds() -> (Bytes, Bytes) {
    (Bytes::from_static(&[BULK]), Bytes::from_static(&[BULK + 1]))
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
pub(crate) fn split(key: &Bytes) -> Result<(Partition, Bytes), DecodeError> {
    let mut rest = FieldDecoder::new(key.clone());
    let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
    let key = rest.bytes()?;
    Ok((Partition::new(table, key), rest.rest()))
}

/// The key of a partition, with capacity for a name of this length.
fn encoder(partition: &Partition, name_length: usize) -> FieldEncoder {
    let mut key = FieldEncoder::with_capacity(partition.key.len() + name_length + 4);
    key.u8(partition.table.code());
    key.bytes(&partition.key);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_survive_a_round_trip(partition in proptest::collection::vec(any::<u8>(), 0..300), name: Vec<u8>) {
            let partition = Partition::new(Table::Keys, partition);
            let key = row_key(&partition, &name);
            prop_assert_eq!(split(&key), Ok((partition, Bytes::from(name))));
        }

        #[test]
        fn rows_lie_between_their_partition_key_and_its_prefix_end(a: Vec<u8>, b: Vec<u8>, name: Vec<u8>) {
            let one = partition_key(&Partition::new(Table::Keys, a.clone()));
            let row = row_key(&Partition::new(Table::Keys, b.clone()), &name);
            prop_assert_eq!(row >= one && row < prefix_end(&one), a == b);
        }
    }
}
