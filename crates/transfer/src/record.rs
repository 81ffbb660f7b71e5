//! The records of a segment: rows of one partition, blobs, pieces of blobs.
//!
//! ```text
//! rows    1 · table u8 · n_val u8 · partition key · guard · count · (name · value · stamp u64 · expires u64, 0: never)…
//! guard   0, or 1 and the head's stamp u64 and flags: 1 the partition begins, 2 it ends here, its head is the first row
//! blob    2 · id 24 bytes · table u8 · n_val u8 · partition key · row name · length u64
//! piece   3 · bytes: as many follow a blob as make up its length
//! ```

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Partition, Row, Table, Timestamp};

const ROWS: u8 = 1;
const BLOB: u8 = 2;
const PIECE: u8 = 3;

const FIRST: u8 = 1;
const LAST: u8 = 2;

/// Most rows of a record.
pub(crate) const ROWS_MAX: usize = 4096;
/// Longest piece of a blob, in bytes.
pub(crate) const PIECE_BYTES_MAX: usize = 1024 * 1024;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SegmentRecord {
    /// Rows of one partition.
    Rows(PartitionRows),
    /// A blob; its bytes follow.
    Blob(BlobStart),
    /// The next bytes of the blob before.
    Piece(Bytes),
}

/// Rows of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionRows {
    /// The partition.
    pub(crate) partition: Partition,
    /// For guarded tables: the position of these rows in their partition.
    pub(crate) guard: Option<GuardPosition>,
    /// The rows.
    pub(crate) rows: Vec<Row>,
}

/// The position of rows in a guarded partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuardPosition {
    /// The stamp of the partition's head.
    pub(crate) head: Timestamp,
    /// Whether these are the first rows of the partition.
    pub(crate) first: bool,
    /// Whether these are the last rows of the partition; the first of them is then its head.
    pub(crate) last: bool,
}

/// The beginning of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlobStart {
    /// Its identity.
    pub(crate) id: BlobId,
    /// Its owner.
    pub(crate) owner: BlobOwner,
    /// Its length in bytes.
    pub(crate) length: u64,
}

impl SegmentRecord {
    /// The record's bytes in a segment.
    pub(crate) fn encode(&self) -> Bytes {
        match self {
            Self::Rows(rows) => rows.encode(),
            Self::Blob(blob) => blob.encode(),
            Self::Piece(bytes) => {
                let mut out = FieldEncoder::with_capacity(bytes.len() + 1);
                out.u8(PIECE);
                out.raw(bytes);
                out.finish()
            }
        }
    }

    /// Decodes a record; names and values share the memory of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::new(bytes);
        let record = match rest.u8()? {
            ROWS => Self::Rows(PartitionRows::take(&mut rest)?),
            BLOB => Self::Blob(BlobStart::take(&mut rest)?),
            PIECE => return Ok(Self::Piece(rest.rest())),
            _ => return Err(DecodeError::Invalid("record")),
        };
        rest.finish()?;
        Ok(record)
    }
}

impl PartitionRows {
    /// Bytes of the rows.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.name.len() + row.value.len() + 16).sum()
    }

    fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::with_capacity(self.bytes() + 20 * self.rows.len() + self.partition.key.len() + 32);
        out.u8(ROWS);
        put_partition(&mut out, &self.partition);
        match self.guard {
            None => out.u8(0),
            Some(GuardPosition { head, first, last }) => {
                out.u8(1);
                out.u64(head.0);
                out.u8(u8::from(first) * FIRST + u8::from(last) * LAST);
            }
        }
        out.varint(self.rows.len() as u64);
        for row in &self.rows {
            out.bytes(&row.name);
            out.bytes(&row.value);
            out.u64(row.stamp.0);
            out.u64(row.expires.unwrap_or_default().0);
        }
        out.finish()
    }

    fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        let partition = partition(rest)?;
        let guard = match rest.u8()? {
            0 => None,
            1 => Some((rest.u64()?, rest.u8()?)).map(|(head, flags)| GuardPosition {
                head: Timestamp(head),
                first: flags & FIRST != 0,
                last: flags & LAST != 0,
            }),
            _ => return Err(DecodeError::Invalid("guard")),
        };
        if guard.is_some() != partition.table.is_guarded() {
            return Err(DecodeError::Invalid("guard"));
        }
        let count = rest.count(ROWS_MAX)?;
        let row = |_| {
            let (name, value, stamp) = (rest.bytes()?, rest.bytes()?, rest.u64()?);
            Ok(Row {
                name,
                value,
                stamp: Timestamp(stamp),
                expires: Some(Timestamp(rest.u64()?)).filter(|&expires| expires != Timestamp::ZERO),
            })
        };
        let rows = (0..count).map(row).collect::<Result<Vec<_>, DecodeError>>()?;
        if guard.is_some_and(|guard| guard.last && rows.is_empty()) {
            return Err(DecodeError::Invalid("head"));
        }
        Ok(Self { partition, guard, rows })
    }
}

impl BlobStart {
    fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::with_capacity(self.owner.partition.key.len() + self.owner.row.len() + 64);
        out.u8(BLOB);
        out.raw(&self.id.0);
        put_partition(&mut out, &self.owner.partition);
        out.bytes(&self.owner.row);
        out.u64(self.length);
        out.finish()
    }

    fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        let id = rest.raw(24)?.as_ref().try_into().map(BlobId).map_err(|_| DecodeError::Truncated)?;
        let owner = BlobOwner { partition: partition(rest)?, row: rest.bytes()? };
        Ok(Self { id, owner, length: rest.u64()? })
    }
}

fn put_partition(out: &mut FieldEncoder, partition: &Partition) {
    out.u8(partition.table.code());
    out.u8(partition.copies);
    out.bytes(&partition.key);
}

fn partition(rest: &mut FieldDecoder) -> Result<Partition, DecodeError> {
    let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
    Ok(Partition { table, copies: rest.u8()?, key: rest.bytes()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..30).prop_map(Bytes::from)
    }

    fn row() -> impl Strategy<Value = Row> {
        (text(), text(), any::<u64>(), proptest::option::of(1..u64::MAX)).prop_map(|(name, value, stamp, expires)| {
            Row { name, value, stamp: Timestamp(stamp), expires: expires.map(Timestamp) }
        })
    }

    fn record() -> impl Strategy<Value = SegmentRecord> {
        let partition = || {
            (0..Table::ALL.len(), any::<u8>(), text()).prop_map(|(at, copies, key)| Partition {
                table: Table::ALL[at],
                copies,
                key,
            })
        };
        let rows = (partition(), any::<(u64, bool, bool)>(), vec(row(), 1..5)).prop_map(
            |(partition, (head, first, last), rows)| {
                let guard =
                    partition.table.is_guarded().then_some(GuardPosition { head: Timestamp(head), first, last });
                SegmentRecord::Rows(PartitionRows { partition, guard, rows })
            },
        );
        let blob = (any::<[u8; 24]>(), partition(), text(), any::<u64>()).prop_map(|(id, partition, row, length)| {
            SegmentRecord::Blob(BlobStart { id: BlobId(id), owner: BlobOwner { partition, row }, length })
        });
        prop_oneof![rows, blob, text().prop_map(SegmentRecord::Piece)]
    }

    proptest! {
        #[test]
        fn a_record_decodes_to_itself(record in record()) {
            prop_assert_eq!(SegmentRecord::decode(record.encode()), Ok(record));
        }

        #[test]
        fn arbitrary_bytes_decode_or_fail_without_a_panic(bytes: Vec<u8>) {
            let _ = SegmentRecord::decode(bytes.into());
        }

        #[test]
        fn damaged_records_decode_or_fail_without_a_panic(record in record(), at: usize, bit in 0..8_u8) {
            let mut bytes = record.encode().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let _ = SegmentRecord::decode(bytes.into());
        }
    }

    /// The stored bytes of each record: another encoding is another format and needs a new version.
    #[test]
    fn the_encoding_of_records_does_not_change() {
        let partition = Partition { table: Table::Heads, copies: 3, key: "k".into() };
        let head = Row { name: Bytes::new(), value: "v".into(), stamp: Timestamp(9), expires: None };
        let rows = PartitionRows {
            partition: partition.clone(),
            guard: Some(GuardPosition { head: Timestamp(9), first: true, last: true }),
            rows: vec![head],
        };
        let golden = b"\x01\x08\x03\x01k\x01\0\0\0\0\0\0\0\x09\x03\x01\0\x01v\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0";
        assert_eq!(SegmentRecord::Rows(rows).encode().as_ref(), golden);
        let owner = BlobOwner { partition, row: "r".into() };
        let blob = SegmentRecord::Blob(BlobStart { id: BlobId([7; 24]), owner, length: 5 });
        let golden = [&[2][..], &[7; 24], b"\x08\x03\x01k\x01r\0\0\0\0\0\0\0\x05"].concat();
        assert_eq!(blob.encode(), golden);
    }
}
