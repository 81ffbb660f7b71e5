//! Values of data types as messages, piece by piece, so that a value is in memory once: as the bytes to send.
//!
//! ```text
//! DtValue       counter 1, set 2, map 3, hll 4, gset 5     DtUpdateResp  the same, two higher
//! MapEntry      field 1, counter 2, set 3, register 4, flag 5, map 6
//! ```

use bytes::{BufMut as _, BytesMut};
use larder_kv::rules::datatypes::{Datatype, EmbeddedType, FieldName, ValuePiece};
use prost::encoding::{WireType, encode_key, encode_varint};

const MAP_ENTRY_FIELD: u32 = 1;
const MAP_FIELD_NAME: u32 = 1;
const MAP_FIELD_TYPE: u32 = 2;

/// The fields of a message that is being built with the pieces of a value.
#[derive(Debug)]
pub(super) struct PbValueWriter {
    datatype: Datatype,
    /// Added to the field numbers of `DtValue`.
    shift: u32,
    whole: BytesMut,
    /// The fields of maps whose end has not come, outermost first.
    open: Vec<OpenEntry>,
    has_root: bool,
    open_bytes: usize,
}

/// A `MapEntry` under way.
#[derive(Debug)]
struct OpenEntry {
    embedded: EmbeddedType,
    bytes: BytesMut,
    has_content: bool,
}

/// The message that a value is written into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueMessage {
    /// `DtValue`, within the answer to a fetch.
    Fetched,
    /// The answer to an update.
    Updated,
}

impl PbValueWriter {
    /// A value of this type without pieces.
    pub(super) fn new(datatype: Datatype, message: ValueMessage) -> Self {
        let shift = match message {
            ValueMessage::Fetched => 0,
            ValueMessage::Updated => 2,
        };
        Self { datatype, shift, whole: BytesMut::new(), open: Vec::new(), has_root: false, open_bytes: 0 }
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        self.whole.len() + self.open_bytes
    }

    /// Appends the next piece.
    pub(super) fn add(&mut self, piece: &ValuePiece) {
        match piece {
            ValuePiece::Field(field) => self.begin_field(field),
            ValuePiece::EndField => self.end_field(),
            other => self.put(|number, out| put_scalar(number, other, out)),
        }
    }

    /// Appends a field to the current value.
    fn put(&mut self, put: impl FnOnce(u32, &mut BytesMut)) {
        let number = self.number();
        match self.open.last_mut() {
            Some(open) => {
                let before = open.bytes.len();
                put(number, &mut open.bytes);
                open.has_content = true;
                self.open_bytes += open.bytes.len() - before;
            }
            None => {
                put(number, &mut self.whole);
                self.has_root = true;
            }
        }
    }

    /// The fields of the whole value.
    pub(super) fn finish(mut self) -> BytesMut {
        while !self.open.is_empty() {
            self.end_field();
        }
        if !self.has_root {
            let none = match self.datatype {
                Datatype::Counter => ValuePiece::Counter(0),
                Datatype::Hll => ValuePiece::Estimate(0),
                Datatype::Set | Datatype::Gset | Datatype::Map => return self.whole,
            };
            self.add(&none);
        }
        self.whole
    }

    /// The field number of a piece of the current value.
    fn number(&self) -> u32 {
        match self.open.last() {
            Some(open) => match open.embedded {
                EmbeddedType::Counter => 2,
                EmbeddedType::Set => 3,
                EmbeddedType::Register => 4,
                EmbeddedType::Flag => 5,
                EmbeddedType::Map => 6,
            },
            None => {
                self.shift
                    + match self.datatype {
                        Datatype::Counter => 1,
                        Datatype::Set => 2,
                        Datatype::Map => 3,
                        Datatype::Hll => 4,
                        Datatype::Gset => 5,
                    }
            }
        }
    }

    fn begin_field(&mut self, field: &FieldName) {
        let mut name = BytesMut::with_capacity(field.name.len() + 8);
        put_bytes(MAP_FIELD_NAME, &field.name, &mut name);
        put_number(MAP_FIELD_TYPE, code_of(field.embedded), &mut name);
        let mut bytes = BytesMut::with_capacity(name.len() + 16);
        put_bytes(MAP_ENTRY_FIELD, &name, &mut bytes);
        self.open_bytes += bytes.len();
        self.open.push(OpenEntry { embedded: field.embedded, bytes, has_content: false });
    }

    fn end_field(&mut self) {
        // A counter and a flag always have their value; an unset register has none.
        if let Some(open) = self.open.last().filter(|open| !open.has_content) {
            match open.embedded {
                EmbeddedType::Counter => self.add(&ValuePiece::Counter(0)),
                EmbeddedType::Flag => self.add(&ValuePiece::Flag(false)),
                EmbeddedType::Set | EmbeddedType::Register | EmbeddedType::Map => {}
            }
        }
        let Some(ended) = self.open.pop() else { return };
        self.open_bytes -= ended.bytes.len();
        self.put(|number, out| put_bytes(number, &ended.bytes, out));
    }
}

/// The number of a field's type in messages.
fn code_of(embedded: EmbeddedType) -> u64 {
    match embedded {
        EmbeddedType::Counter => 1,
        EmbeddedType::Set => 2,
        EmbeddedType::Register => 3,
        EmbeddedType::Flag => 4,
        EmbeddedType::Map => 5,
    }
}

/// The type of a field with this number in messages.
pub(super) fn embedded_of(code: i32) -> Option<EmbeddedType> {
    EmbeddedType::ALL.into_iter().find(|embedded| u64::try_from(code) == Ok(code_of(*embedded)))
}

/// The number of a data type in the answer to a fetch.
pub(super) fn datatype_code(datatype: Datatype) -> u64 {
    match datatype {
        Datatype::Counter => 1,
        Datatype::Set => 2,
        Datatype::Map => 3,
        Datatype::Hll => 4,
        Datatype::Gset => 5,
    }
}

fn put_scalar(number: u32, piece: &ValuePiece, out: &mut BytesMut) {
    match piece {
        ValuePiece::Counter(total) => put_number(number, zigzag(*total), out),
        ValuePiece::Estimate(estimate) => put_number(number, *estimate, out),
        ValuePiece::Flag(enabled) => put_number(number, u64::from(*enabled), out),
        ValuePiece::Element(bytes) | ValuePiece::Register(bytes) => put_bytes(number, bytes, out),
        ValuePiece::Field(_) | ValuePiece::EndField => {}
    }
}

/// A total as a `sint64`. One that does not fit is shown as the nearest that does.
fn zigzag(total: i128) -> u64 {
    let total = saturated(total);
    ((total << 1) ^ (total >> 63)) as u64
}

/// The nearest number of 64 bits.
pub(super) fn saturated(total: i128) -> i64 {
    i64::try_from(total).unwrap_or(if total < 0 { i64::MIN } else { i64::MAX })
}

/// Appends a field with a number.
pub(super) fn put_number(number: u32, value: u64, out: &mut BytesMut) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

/// Appends a field with bytes.
pub(super) fn put_bytes(number: u32, bytes: &[u8], out: &mut BytesMut) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

#[cfg(test)]
mod tests;
