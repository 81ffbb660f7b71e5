//! The stored form of rows below [`super::DerivedRowStore`]: every value begins with a format byte.
//!
//! ```text
//! guarded row     1 · value
//! head            2 · table u8 · partition key · name · 0, or 1 and the derived row's value · value to the end
//! derived row     1 · value                                       confirmed: the value at this stamp of the head
//!                 2                                               absent; expires after a day
//!                 3 · table u8 · partition key · name of the head intent: a writer may be replacing this head; ask the head
//! ```
//! Of two derived rows with one stamp the greater format byte wins, so the row that an intent replaces never hides the
//! intent.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};

use crate::{Change, DerivedRow, Error, Kind, Partition, Result, Row, Table, Timestamp};

const PLAIN: u8 = 1;
const HEAD: u8 = 2;

const CONFIRMED: u8 = 1;
const ABSENT: u8 = 2;
const INTENT: u8 = 3;

/// How long an absent row keeps older writes of its row from reappearing.
pub(super) const DAY: u64 = 24 * 3600 * 1_000_000;

/// The row of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadName {
    pub(super) partition: Partition,
    pub(super) row: Bytes,
}

/// A stored row of a table of derived rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DerivedRowState {
    /// The value at the head's stamp.
    Confirmed(Bytes),
    /// The row is absent at the head's stamp.
    Absent,
    /// A writer may be replacing the head: the head decides.
    Intent(HeadName),
}

/// Encodes a value of a guarded table: a row without a derived row, or a head with the value of its derived row.
pub(super) fn encode_guarded(value: &Bytes, derived: Option<&DerivedRow>) -> Bytes {
    let Some(DerivedRow { partition, name, value: derived_value }) = derived else {
        return with_format_byte(PLAIN, value);
    };
    let mut out = FieldEncoder::with_capacity(value.len() + derived.map_or(0, DerivedRow::bytes) + 16);
    out.u8(HEAD);
    encode_head_name(&mut out, partition, name);
    match derived_value {
        None => out.u8(0),
        Some(derived_value) => {
            out.u8(1);
            out.bytes(derived_value);
        }
    }
    out.raw(value);
    out.finish()
}

/// Decodes [`encode_guarded`].
///
/// # Errors
/// `Damaged`.
pub(super) fn decode_guarded(stored: Bytes) -> Result<(Bytes, Option<DerivedRow>)> {
    let mut rest = FieldDecoder::new(stored);
    let read = || match rest.u8()? {
        PLAIN => Ok((rest.rest(), None)),
        HEAD => {
            let HeadName { partition, row: name } = decode_head_name(&mut rest)?;
            let value = match rest.u8()? {
                0 => None,
                1 => Some(rest.bytes()?),
                _ => return Err(DecodeError::Invalid("derived row")),
            };
            Ok((rest.rest(), Some(DerivedRow { partition, name, value })))
        }
        form => Err(DecodeError::UnknownVersion(form)),
    };
    read().map_err(|error| damaged("a guarded row", error))
}

/// Encodes the value of a confirmed row.
pub(super) fn encode_confirmed(value: &Bytes) -> Bytes {
    with_format_byte(CONFIRMED, value)
}

/// The confirmed or absent row of a head with this stamp.
pub(super) fn confirmed_row(name: Bytes, derived_value: Option<&Bytes>, stamp: Timestamp) -> Row {
    match derived_value {
        Some(value) => Row { name, value: encode_confirmed(value), stamp, expires: None },
        // A row, not a removal: in every engine it hides older writes of its name for a day.
        None => Row { name, value: Bytes::from_static(&[ABSENT]), stamp, expires: Some(stamp.saturating_add(DAY)) },
    }
}

/// The intent of a writer that is about to replace a head.
pub(super) fn intent_row(name: Bytes, head: &HeadName, stamp: Timestamp) -> Row {
    let mut out = FieldEncoder::with_capacity(head.partition.key.len() + head.row.len() + 8);
    out.u8(INTENT);
    encode_head_name(&mut out, &head.partition, &head.row);
    // Without an expiry: only this row leads readers to a head that was replaced before its writer died.
    Row { name, value: out.finish(), stamp, expires: None }
}

/// Decodes a row of a table of derived rows.
///
/// # Errors
/// `Damaged`.
pub(super) fn decode_derived(stored: Bytes) -> Result<DerivedRowState> {
    let mut rest = FieldDecoder::new(stored);
    let read = || match rest.u8()? {
        CONFIRMED => Ok(DerivedRowState::Confirmed(rest.rest())),
        ABSENT => Ok(DerivedRowState::Absent),
        INTENT => Ok(DerivedRowState::Intent(decode_head_name(&mut rest)?)),
        form => Err(DecodeError::UnknownVersion(form)),
    };
    read().map_err(|error| damaged("a derived row", error))
}

/// The change, with the value of its row mapped.
pub(super) fn map_value(change: Change, form: impl FnOnce(&Bytes) -> Bytes) -> Change {
    match change {
        Change::Put(row) => Change::Put(Row { value: form(&row.value), ..row }),
        other => other,
    }
}

fn with_format_byte(form: u8, value: &Bytes) -> Bytes {
    [&[form], &value[..]].concat().into()
}

fn encode_head_name(out: &mut FieldEncoder, partition: &Partition, name: &Bytes) {
    out.u8(partition.table.code());
    out.bytes(&partition.key);
    out.bytes(name);
}

fn decode_head_name(rest: &mut FieldDecoder) -> std::result::Result<HeadName, DecodeError> {
    let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
    let partition = Partition::new(table, rest.bytes()?);
    Ok(HeadName { partition, row: rest.bytes()? })
}

fn damaged(what: &str, error: DecodeError) -> Error {
    Error::caused(Kind::Damaged, format_args!("{what} is damaged"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(table: Table) -> Partition {
        Partition::new(table, "p")
    }

    #[test]
    fn every_stored_form_decodes_to_its_value() {
        let (plain, derived_value) = (Bytes::from("value"), Bytes::from("derived_value"));
        for value in [None, Some(derived_value.clone())] {
            let derived = DerivedRow { partition: partition(Table::Entries), name: "key".into(), value };
            let stored = encode_guarded(&plain, Some(&derived));
            assert_eq!(decode_guarded(stored).unwrap(), (plain.clone(), Some(derived)));
        }
        assert_eq!(decode_guarded(encode_guarded(&plain, None)).unwrap(), (plain, None));
        let head = HeadName { partition: partition(Table::Heads), row: "h".into() };
        let forms = [
            (
                confirmed_row("k".into(), Some(&derived_value), Timestamp(5)),
                DerivedRowState::Confirmed(derived_value.clone()),
            ),
            (confirmed_row("k".into(), None, Timestamp(5)), DerivedRowState::Absent),
            (intent_row("k".into(), &head, Timestamp(5)), DerivedRowState::Intent(head)),
        ];
        assert!(forms.is_sorted_by(|a, b| b.0.supersedes(&a.0)), "an intent wins a tie");
        for (row, entry) in forms {
            assert_eq!(decode_derived(row.value).unwrap(), entry);
        }
    }

    #[test]
    fn unknown_bytes_are_damaged() {
        for stored in [&b""[..], b"\0", b"\x09x", b"\x02\x08\x01p\x01n\x02", b"\x03\xee\x01p\x01n"] {
            let stored = Bytes::copy_from_slice(stored);
            assert!(decode_guarded(stored.clone()).is_err_and(|error| error.kind == Kind::Damaged), "{stored:?}");
            let entry = decode_derived(stored.clone());
            assert!(entry.is_err_and(|error| error.kind == Kind::Damaged) || stored[0] == ABSENT, "{stored:?}");
        }
    }
}
