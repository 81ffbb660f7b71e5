//! Values of data types as messages, piece by piece, so that a value is in memory once: as the bytes to send.
//!
//! ```text
//! DtValue       counter 1, set 2, map 3, hll 4, gset 5     DtUpdateResp  the same, two higher
//! MapEntry      field 1, counter 2, set 3, register 4, flag 5, map 6
//! ```
//!
//! Updates of data types from their messages, after a count of their parts: two bytes of a message may become hundreds in
//! memory.

use std::fmt;

use bytes::{BufMut as _, BytesMut};
use larder_kv::rules::datatypes::{
    Datatype, DatatypeUpdate, EmbeddedType, EmbeddedUpdate, FieldEdit, FieldName, MapEdits, SetEdit, ValuePiece,
};
use prost::encoding::{WireType, encode_key, encode_varint};

use super::messages::{CounterOp, DtOp, MapField, MapOp, MapUpdate, SetOp};
use crate::pb::put_scan::fields;

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
        put_number(MAP_FIELD_TYPE, embedded_code(field.embedded), &mut name);
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
fn embedded_code(embedded: EmbeddedType) -> u64 {
    match embedded {
        EmbeddedType::Counter => 1,
        EmbeddedType::Set => 2,
        EmbeddedType::Register => 3,
        EmbeddedType::Flag => 4,
        EmbeddedType::Map => 5,
    }
}

/// The type of a field with this number in messages.
pub(super) fn embedded_type(code: i32) -> Option<EmbeddedType> {
    EmbeddedType::ALL.into_iter().find(|embedded| u64::try_from(code) == Ok(embedded_code(*embedded)))
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

/// Deepest nesting of messages that is looked at; the decoder refuses less.
const DEPTH_MAX: usize = 100;

/// A message that has the fields of its type and means nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MeaninglessUpdate(&'static str);

impl fmt::Display for MeaninglessUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The update of an operation. Of several, Riak takes the first in this order.
///
/// # Errors
/// There is no operation, or a map's field and its operation differ in type.
pub(super) fn decode_update(op: DtOp) -> Result<DatatypeUpdate, MeaninglessUpdate> {
    if let Some(op) = op.counter_op {
        return Ok(DatatypeUpdate::Counter(amount(&op)));
    }
    if let Some(op) = op.set_op {
        return Ok(DatatypeUpdate::Set(edits(op)));
    }
    if let Some(op) = op.hll_op {
        return Ok(DatatypeUpdate::Hll(op.adds));
    }
    if let Some(op) = op.gset_op {
        return Ok(DatatypeUpdate::Gset(op.adds));
    }
    op.map_op.map_or(Err(MeaninglessUpdate("the update has no operation")), |op| map_edits(op).map(DatatypeUpdate::Map))
}

fn amount(op: &CounterOp) -> i64 {
    op.increment.unwrap_or(1)
}

fn edits(op: SetOp) -> Vec<SetEdit> {
    op.adds.into_iter().map(SetEdit::Add).chain(op.removes.into_iter().map(SetEdit::Remove)).collect()
}

fn map_edits(op: MapOp) -> Result<MapEdits, MeaninglessUpdate> {
    let removes = op.removes.into_iter().map(field_name).collect::<Result<_, _>>()?;
    let updates = op.updates.into_iter().map(field_edit).collect::<Result<_, _>>()?;
    Ok(MapEdits { removes, updates })
}

fn field_name(field: MapField) -> Result<FieldName, MeaninglessUpdate> {
    match (field.name, field.r#type.and_then(embedded_type)) {
        (Some(name), Some(embedded)) => Ok(FieldName { name, embedded }),
        _ => Err(MeaninglessUpdate("the field of a map has no name or no type")),
    }
}

fn field_edit(message: MapUpdate) -> Result<FieldEdit, MeaninglessUpdate> {
    use larder_kv::rules::datatypes::EmbeddedType as E;
    let field = field_name(message.field.unwrap_or_default())?;
    let update = match field.embedded {
        E::Counter => message.counter_op.map(|op| EmbeddedUpdate::Counter(amount(&op))),
        E::Set => message.set_op.map(|op| EmbeddedUpdate::Set(edits(op))),
        E::Register => message.register_op.map(EmbeddedUpdate::Register),
        E::Flag => match message.flag_op {
            Some(1) => Some(EmbeddedUpdate::Flag(true)),
            Some(2) => Some(EmbeddedUpdate::Flag(false)),
            _ => None,
        },
        E::Map => message.map_op.map(map_edits).transpose()?.map(EmbeddedUpdate::Map),
    };
    let update = update.ok_or(MeaninglessUpdate("the update of a field is not one of its type"))?;
    Ok(FieldEdit { name: field.name, update })
}

/// The messages within an update that hold its edits.
#[derive(Clone, Copy)]
enum ScanShape {
    Request,
    Op,
    /// A set, a set that only grows, a HyperLogLog.
    Elements,
    Map,
    Field,
}

/// The edits in the bytes of an update's message: elements, fields and removals at all depths. `None`: the bytes are no sequence
/// of fields, or are nested too deep.
pub(in crate::pb) fn count_edits(message: &[u8]) -> Option<usize> {
    count(ScanShape::Request, message, 0)
}

fn count(shape: ScanShape, message: &[u8], depth: usize) -> Option<usize> {
    use ScanShape::{Elements, Field, Map, Op, Request};
    if depth > DEPTH_MAX {
        return None;
    }
    let mut edits = 0;
    for field in fields(message) {
        let (number, bytes) = field?;
        let (own_edits, within) = match (shape, number) {
            (Request, 5) => (0, Some(Op)),
            (Op, 2 | 4 | 5) | (Field, 3) => (0, Some(Elements)),
            (Op, 3) | (Field, 6) => (0, Some(Map)),
            (Elements, _) | (Map, 1) => (1, None),
            (Map, 2) => (1, Some(Field)),
            _ => (0, None),
        };
        edits += own_edits + within.map_or(Some(0), |shape| count(shape, bytes, depth + 1))?;
    }
    Some(edits)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod pb_update_tests {
    use super::super::messages::{DtUpdateReq, GSetOp, HllOp};
    use super::*;
    use bytes::Bytes;
    use larder_kv::rules::datatypes::EmbeddedType;
    use proptest::prelude::*;
    use prost::Message as _;

    fn named(name: &'static str, code: i32) -> MapField {
        MapField { name: Some(name.into()), r#type: Some(code) }
    }

    fn set(adds: &[&'static str], removes: &[&'static str]) -> SetOp {
        let bytes = |list: &[&'static str]| list.iter().map(|element| Bytes::from(*element)).collect();
        SetOp { adds: bytes(adds), removes: bytes(removes) }
    }

    fn update_in(op: DtOp) -> Result<DatatypeUpdate, MeaninglessUpdate> {
        decode_update(op)
    }

    #[test]
    fn each_operation_becomes_the_update_of_its_type() {
        let counter = |increment| DtOp { counter_op: Some(CounterOp { increment }), ..DtOp::default() };
        assert_eq!(update_in(counter(None)), Ok(DatatypeUpdate::Counter(1)), "absent is one");
        assert_eq!(update_in(counter(Some(-2))), Ok(DatatypeUpdate::Counter(-2)));
        let both = DtOp { set_op: Some(set(&["a"], &["a", "b"])), gset_op: Some(GSetOp::default()), ..DtOp::default() };
        let edits = [SetEdit::Add("a".into()), SetEdit::Remove("a".into()), SetEdit::Remove("b".into())];
        assert_eq!(update_in(both), Ok(DatatypeUpdate::Set(edits.into())), "additions first, and a set before a gset");
        let adds = || vec![Bytes::from("a")];
        assert_eq!(
            update_in(DtOp { hll_op: Some(HllOp { adds: adds() }), ..DtOp::default() }),
            Ok(DatatypeUpdate::Hll(adds()))
        );
        assert_eq!(
            update_in(DtOp { gset_op: Some(GSetOp { adds: adds() }), ..DtOp::default() }),
            Ok(DatatypeUpdate::Gset(adds()))
        );
        assert_eq!(update_in(DtOp::default()), Err(MeaninglessUpdate("the update has no operation")));
    }

    #[test]
    fn the_type_of_a_field_and_its_operation_must_agree() {
        let update = |field, message: MapUpdate| {
            let message = MapUpdate { field: Some(field), ..message };
            update_in(DtOp { map_op: Some(MapOp { removes: Vec::new(), updates: vec![message] }), ..DtOp::default() })
        };
        let edit = |update| {
            let updates = vec![FieldEdit { name: "x".into(), update }];
            Ok(DatatypeUpdate::Map(MapEdits { removes: Vec::new(), updates }))
        };
        let flag = |flag_op| MapUpdate { flag_op: Some(flag_op), ..MapUpdate::default() };
        assert_eq!(update(named("x", 4), flag(1)), edit(EmbeddedUpdate::Flag(true)));
        assert_eq!(update(named("x", 4), flag(2)), edit(EmbeddedUpdate::Flag(false)));
        let counter = || MapUpdate { counter_op: Some(CounterOp::default()), ..MapUpdate::default() };
        assert_eq!(update(named("x", 1), counter()), edit(EmbeddedUpdate::Counter(1)));
        let register = MapUpdate { register_op: Some("v".into()), ..MapUpdate::default() };
        assert_eq!(update(named("x", 3), register), edit(EmbeddedUpdate::Register("v".into())));
        let map = MapUpdate { map_op: Some(MapOp::default()), ..MapUpdate::default() };
        assert_eq!(update(named("x", 5), map), edit(EmbeddedUpdate::Map(MapEdits::default())));
        for refused in [
            update(named("x", 2), counter()),
            update(named("x", 4), flag(3)),
            update(named("x", 4), MapUpdate::default()),
            update(named("x", 6), counter()),
            update(MapField { name: None, r#type: Some(1) }, counter()),
            update(MapField { name: Some("x".into()), r#type: None }, counter()),
        ] {
            assert!(refused.is_err(), "{refused:?}");
        }
        let removes = vec![named("x", 2), named("x", 1)];
        let removed = update_in(DtOp { map_op: Some(MapOp { removes, updates: Vec::new() }), ..DtOp::default() });
        let names = vec![FieldName::new("x", EmbeddedType::Set), FieldName::new("x", EmbeddedType::Counter)];
        assert_eq!(removed, Ok(DatatypeUpdate::Map(MapEdits { removes: names, updates: Vec::new() })));
    }

    #[test]
    fn edits_are_counted_at_every_depth_before_they_are_decoded() {
        let inner = MapOp { removes: vec![named("x", 1); 3], updates: Vec::new() };
        let updates = vec![
            MapUpdate { field: Some(named("m", 5)), map_op: Some(inner), ..MapUpdate::default() },
            MapUpdate { field: Some(named("s", 2)), set_op: Some(set(&["a", "b"], &["c"])), ..MapUpdate::default() },
        ];
        let op = DtOp { map_op: Some(MapOp { removes: vec![named("x", 1)], updates }), ..DtOp::default() };
        let request = DtUpdateReq { bucket: Some("b".into()), op: Some(op), ..DtUpdateReq::default() };
        assert_eq!(count_edits(&request.encode_to_vec()), Some(1 + 2 + 3 + 3));
        let hll = DtOp { hll_op: Some(HllOp { adds: vec![Bytes::new(); 7] }), ..DtOp::default() };
        assert_eq!(count_edits(&DtUpdateReq { op: Some(hll), ..DtUpdateReq::default() }.encode_to_vec()), Some(7));
    }

    #[test]
    fn deep_nesting_ends_no_thread() {
        let mut message = Vec::new();
        for at in 0..20_000 {
            let key = if at % 2 == 0 { 0x32 } else { 0x12 };
            let mut outer = vec![key];
            prost::encoding::encode_varint(message.len() as u64, &mut outer);
            outer.append(&mut message);
            message = outer;
        }
        let map = [&[0x1a][..], &prost_length(message.len()), &message].concat();
        let request = [&[0x2a][..], &prost_length(map.len()), &map].concat();
        assert_eq!(count_edits(&request), None);
        assert!(DtUpdateReq::decode(&request[..]).is_err());
    }

    fn prost_length(length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        prost::encoding::encode_varint(length as u64, &mut out);
        out
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_counted_or_refused(message: Vec<u8>) {
            let counted = count_edits(&message);
            if let Ok(request) = DtUpdateReq::decode(&message[..]) {
                let _ = decode_update(request.op.unwrap_or_default());
                prop_assert!(counted.is_some() || message.iter().any(|byte| matches!(byte & 7, 3 | 4)), "only groups decode uncounted");
            }
        }
    }
}
