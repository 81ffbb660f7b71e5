//! The stored form of the column `v`: the row's value, then its expiry.
//!
//! ```text
//! value · 0                        never expires
//! value · expiry u64 · 1           expires at this microsecond of the store's clock
//! ```
//! Of two cells with one timestamp Cassandra keeps the greater bytes. The value comes first and 0 is the least byte, so
//! of two rows that never expire the greater value wins. (A cell with a TTL wins over one without; the store promises
//! nothing there.)
//!
//! The expiry in the value decides, compared with the store's clock on every read. Cassandra's TTL only cleans up, well
//! after it.

use bytes::{Buf, Bytes};
use larder_store::{Error, Kind, Result, Timestamp};
use scylla::cluster::metadata::ColumnType;
use scylla::errors::SerializationError;
use scylla::serialize::value::SerializeValue;
use scylla::serialize::writers::{CellWriter, WrittenCellProof};

const NEVER: u8 = 0;
const EXPIRES: u8 = 1;

/// Seconds between a row's expiry and its TTL: more than any clock skew or slow read.
const MARGIN_SECONDS: u64 = 60;

/// The last second of a TTL in Cassandra 4.1 is in January 2038. A row that expires later gets no TTL and is not
/// cleaned up; readers still see it expire.
const END_SECONDS_MAX: u64 = 2_147_000_000;

/// A bound value of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BoundValue<'a> {
    /// A name or a key.
    Blob(&'a [u8]),
    /// A row's value with its expiry.
    Stored(&'a Bytes, Option<Timestamp>),
    /// A TTL or a limit.
    Int(i32),
    /// A stamp.
    BigInt(i64),
    /// A stamp that may be absent.
    Timestamp(Option<i64>),
}

impl SerializeValue for BoundValue<'_> {
    fn serialize<'b>(
        &self,
        column: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> std::result::Result<WrittenCellProof<'b>, SerializationError> {
        match self {
            Self::Blob(bytes) => bytes.serialize(column, writer),
            Self::Int(number) => number.serialize(column, writer),
            Self::BigInt(number) => number.serialize(column, writer),
            Self::Timestamp(stamp) => stamp.serialize(column, writer),
            Self::Stored(value, expires) => {
                let mut cell = writer.into_value_builder();
                cell.append_bytes(value);
                match expires {
                    None => cell.append_bytes(&[NEVER]),
                    Some(expires) => {
                        cell.append_bytes(&expires.0.to_be_bytes());
                        cell.append_bytes(&[EXPIRES]);
                    }
                }
                cell.finish().map_err(SerializationError::new)
            }
        }
    }
}

/// Decodes a stored value: the value and its expiry.
///
/// # Errors
/// `Damaged`.
pub(crate) fn decode_value(mut stored: Bytes) -> Result<(Bytes, Option<Timestamp>)> {
    // The last byte tells the form: the value before it may hold any bytes.
    match stored.last() {
        Some(&NEVER) => {
            stored.truncate(stored.len() - 1);
            Ok((stored, None))
        }
        Some(&EXPIRES) if stored.len() >= 9 => {
            let expires = stored.slice(stored.len() - 9..).get_u64();
            stored.truncate(stored.len() - 9);
            Ok((stored, Some(Timestamp(expires))))
        }
        _ => Err(Error::new(Kind::Damaged, "a stored value without a known end")),
    }
}

/// The TTL of a row written `now`, in seconds; 0 for none.
pub(crate) fn ttl_seconds(expires: Option<Timestamp>, now: Timestamp) -> i32 {
    let Some(expires) = expires else { return 0 };
    // A row that has expired already keeps a positive TTL: zero would keep it for ever.
    let end = expires.max(now).0.div_ceil(1_000_000).saturating_add(MARGIN_SECONDS);
    if end > END_SECONDS_MAX {
        return 0;
    }
    i32::try_from(end.saturating_sub(now.0 / 1_000_000)).unwrap_or(0)
}

/// A stamp as Cassandra's timestamp.
///
/// # Errors
/// `Misuse` beyond 63 bits.
pub(crate) fn timestamp(stamp: Timestamp) -> Result<i64> {
    i64::try_from(stamp.0).map_err(|_| Error::new(Kind::Misuse, format!("the stamp {stamp} has more than 63 bits")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scylla::cluster::metadata::NativeType;

    fn stored(value: &[u8], expires: Option<Timestamp>) -> Bytes {
        let (value, mut cell) = (Bytes::copy_from_slice(value), Vec::new());
        let column = ColumnType::Native(NativeType::Blob);
        BoundValue::Stored(&value, expires).serialize(&column, CellWriter::new(&mut cell)).unwrap();
        assert_eq!(cell[..4], u32::try_from(cell.len() - 4).unwrap().to_be_bytes(), "the cell says its length");
        Bytes::from(cell).slice(4..)
    }

    proptest! {
        #[test]
        fn stored_values_decode_to_themselves(value: Vec<u8>, expires: Option<u64>) {
            let expires = expires.map(Timestamp);
            prop_assert_eq!(decode_value(stored(&value, expires)).unwrap(), (Bytes::from(value), expires));
        }

        #[test]
        fn stored_values_have_the_order_of_values(value: Vec<u8>, more: Vec<u8>, other: Vec<u8>) {
            let longer = [&value[..], &more].concat();
            for other in [&longer, &other] {
                prop_assert_eq!(stored(&value, None).cmp(&stored(other, None)), value.cmp(other));
            }
        }

        #[test]
        fn any_bytes_decode_or_are_damaged(bytes: Vec<u8>) {
            let _ = decode_value(bytes.into());
        }
    }

    #[test]
    fn golden_values_decode() {
        assert_eq!(stored(b"v", None), &b"v\0"[..]);
        assert_eq!(stored(b"v", Some(Timestamp(0x0102))), &b"v\0\0\0\0\0\0\x01\x02\x01"[..]);
        for damaged in [&b""[..], b"v\x02", b"\0\0\0\0\0\0\0\x01"] {
            let kind = decode_value(Bytes::copy_from_slice(damaged)).unwrap_err().kind;
            assert_eq!(kind, Kind::Damaged, "{damaged:?}");
        }
    }

    #[test]
    fn a_ttl_ends_after_the_expiry_never_before() {
        let now = 1_700_000_000_400_000;
        assert_eq!(ttl_seconds(None, Timestamp(now)), 0);
        assert_eq!(ttl_seconds(Some(Timestamp(now)), Timestamp(now)), 61);
        assert_eq!(ttl_seconds(Some(Timestamp(now - 50_000_000)), Timestamp(now)), 61, "born expired");
        assert_eq!(ttl_seconds(Some(Timestamp::ZERO), Timestamp(now)), 61);
        assert_eq!(ttl_seconds(Some(Timestamp(now + 10_000_000)), Timestamp(now)), 71);
        assert_eq!(ttl_seconds(Some(Timestamp(now + 1)), Timestamp(now + 600_000)), 60, "from a whole second on");
        assert_eq!(ttl_seconds(Some(Timestamp::MAX), Timestamp(now)), 0, "beyond the last TTL of Cassandra: no TTL");
        assert_eq!(ttl_seconds(Some(Timestamp(2_200_000_000_000_000)), Timestamp(now)), 0);
        assert!(ttl_seconds(Some(Timestamp(2_146_000_000_000_000)), Timestamp(now)) > 400_000_000);
    }

    #[test]
    fn a_stamp_beyond_63_bits_is_misuse() {
        assert_eq!(timestamp(Timestamp(1 << 50)).unwrap(), 1 << 50);
        assert_eq!(timestamp(Timestamp(1 << 63)).unwrap_err().kind, Kind::Misuse);
    }
}
