//! What rows look like below [`super::Shadowed`]. Every value begins with the byte of its form.
//!
//! ```text
//! guarded row     1 · value
//! head            2 · table u8 · partition key · name · 0, or 1 and the shadow's value · value to the end
//! shadow          1 · value                                       as the head said at this stamp
//!                 2                                               is not there; expires after a day
//!                 3 · table u8 · partition key · name of the head a head with a greater stamp is being written: ask it
//! ```
//! Of two shadows with one stamp the greater form stays, so a pending one is never hidden by the one it replaces.

use bytes::Bytes;

use larder_model::codec::{DecodeError, Decoder, Encoder};

use crate::{Change, Error, Kind, Partition, Result, Row, Shadow, Stamp, Table};

const PLAIN: u8 = 1;
const HEAD: u8 = 2;

const CONFIRMED: u8 = 1;
const ABSENT: u8 = 2;
const PENDING: u8 = 3;

/// A day: how long an absent shadow keeps older writes of its row from coming back.
pub(super) const DAY: u64 = 24 * 3600 * 1_000_000;

/// Which row a head is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadName {
    pub(super) partition: Partition,
    pub(super) row: Bytes,
}

/// A row of a table of shadows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// As the head said.
    Confirmed(Bytes),
    /// The head said that there is none.
    Absent,
    /// Whatever the head says.
    Pending(HeadName),
}

/// A value of a guarded table: of a row without a shadow, or of a head and what it says of its shadow.
pub(super) fn guarded(value: &Bytes, shadow: Option<&Shadow>) -> Bytes {
    let Some(Shadow { partition, name, value: says }) = shadow else { return tagged(PLAIN, value) };
    let mut out = Encoder::with_capacity(value.len() + shadow.map_or(0, Shadow::bytes) + 16);
    out.u8(HEAD);
    row_name(&mut out, partition, name);
    match says {
        None => out.u8(0),
        Some(says) => {
            out.u8(1);
            out.bytes(says);
        }
    }
    out.raw(value);
    out.finish()
}

/// Reads [`guarded`] back.
///
/// # Errors
/// `Damaged`.
pub(super) fn of_guarded(stored: Bytes) -> Result<(Bytes, Option<Shadow>)> {
    let mut rest = Decoder::new(stored);
    let read = || match rest.u8()? {
        PLAIN => Ok((rest.rest(), None)),
        HEAD => {
            let HeadName { partition, row: name } = of_row_name(&mut rest)?;
            let value = match rest.u8()? {
                0 => None,
                1 => Some(rest.bytes()?),
                _ => return Err(DecodeError::Invalid("shadow")),
            };
            Ok((rest.rest(), Some(Shadow { partition, name, value })))
        }
        form => Err(DecodeError::UnknownVersion(form)),
    };
    read().map_err(|error| damaged("a guarded row", error))
}

/// The value of a shadow that is `value`.
pub(super) fn confirmed(value: &Bytes) -> Bytes {
    tagged(CONFIRMED, value)
}

/// The row that says what a head with this stamp says.
pub(super) fn settled(name: Bytes, says: Option<&Bytes>, stamp: Stamp) -> Row {
    match says {
        Some(value) => Row { name, value: confirmed(value), stamp, expires: None },
        None => Row { name, value: Bytes::from_static(&[ABSENT]), stamp, expires: Some(stamp.saturating_add(DAY)) },
    }
}

/// The row that tells its readers to ask a head.
pub(super) fn pending(name: Bytes, head: &HeadName, stamp: Stamp) -> Row {
    let mut out = Encoder::with_capacity(head.partition.key.len() + head.row.len() + 8);
    out.u8(PENDING);
    row_name(&mut out, &head.partition, &head.row);
    Row { name, value: out.finish(), stamp, expires: None }
}

/// Reads a row of a table of shadows.
///
/// # Errors
/// `Damaged`.
pub(super) fn of_entry(stored: Bytes) -> Result<Entry> {
    let mut rest = Decoder::new(stored);
    let read = || match rest.u8()? {
        CONFIRMED => Ok(Entry::Confirmed(rest.rest())),
        ABSENT => Ok(Entry::Absent),
        PENDING => Ok(Entry::Pending(of_row_name(&mut rest)?)),
        form => Err(DecodeError::UnknownVersion(form)),
    };
    read().map_err(|error| damaged("a shadow", error))
}

/// The change with the value of its row in another form.
pub(super) fn reformed(change: Change, form: impl FnOnce(&Bytes) -> Bytes) -> Change {
    match change {
        Change::Put(row) => Change::Put(Row { value: form(&row.value), ..row }),
        other => other,
    }
}

fn tagged(form: u8, value: &Bytes) -> Bytes {
    [&[form], &value[..]].concat().into()
}

fn row_name(out: &mut Encoder, partition: &Partition, name: &Bytes) {
    out.u8(partition.table.code());
    out.bytes(&partition.key);
    out.bytes(name);
}

fn of_row_name(rest: &mut Decoder) -> std::result::Result<HeadName, DecodeError> {
    let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
    let partition = Partition::own(table, rest.bytes()?);
    Ok(HeadName { partition, row: rest.bytes()? })
}

fn damaged(what: &str, error: DecodeError) -> Error {
    Error::caused(Kind::Damaged, format_args!("{what} is damaged"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(table: Table) -> Partition {
        Partition::own(table, "p")
    }

    #[test]
    fn values_come_back_in_every_form() {
        let (plain, says) = (Bytes::from("value"), Bytes::from("says"));
        for value in [None, Some(says.clone())] {
            let shadow = Shadow { partition: partition(Table::Entries), name: "key".into(), value };
            let stored = guarded(&plain, Some(&shadow));
            assert_eq!(of_guarded(stored).unwrap(), (plain.clone(), Some(shadow)));
        }
        assert_eq!(of_guarded(guarded(&plain, None)).unwrap(), (plain, None));
        let head = HeadName { partition: partition(Table::Heads), row: "h".into() };
        let forms = [
            (settled("k".into(), Some(&says), 5), Entry::Confirmed(says.clone())),
            (settled("k".into(), None, 5), Entry::Absent),
            (pending("k".into(), &head, 5), Entry::Pending(head)),
        ];
        assert!(forms.is_sorted_by(|a, b| b.0.supersedes(&a.0)), "a pending shadow wins a tie");
        for (row, entry) in forms {
            assert_eq!(of_entry(row.value).unwrap(), entry);
        }
    }

    #[test]
    fn what_is_not_known_is_damaged() {
        for stored in [&b""[..], b"\0", b"\x09x", b"\x02\x08\x01p\x01n\x02", b"\x03\xee\x01p\x01n"] {
            let stored = Bytes::copy_from_slice(stored);
            assert!(of_guarded(stored.clone()).is_err_and(|error| error.kind == Kind::Damaged), "{stored:?}");
            let entry = of_entry(stored.clone());
            assert!(entry.is_err_and(|error| error.kind == Kind::Damaged) || stored[0] == ABSENT, "{stored:?}");
        }
    }
}
