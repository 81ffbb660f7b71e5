//! Values as messages: bytes that a Riak 3.2.3 sent, and messages that decode to what was written.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::super::messages::MapField;
use super::*;

/// `DtValue`, as a client decodes it.
#[derive(Clone, PartialEq, Message)]
struct DtValue {
    #[prost(sint64, optional, tag = "1")]
    counter_value: Option<i64>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    set_value: Vec<Bytes>,
    #[prost(message, repeated, tag = "3")]
    map_value: Vec<MapEntry>,
    #[prost(uint64, optional, tag = "4")]
    hll_value: Option<u64>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    gset_value: Vec<Bytes>,
}

/// A field of a map, as a client decodes it.
#[derive(Clone, PartialEq, Message)]
struct MapEntry {
    #[prost(message, optional, tag = "1")]
    field: Option<MapField>,
    #[prost(sint64, optional, tag = "2")]
    counter_value: Option<i64>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    set_value: Vec<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    register_value: Option<Bytes>,
    #[prost(bool, optional, tag = "5")]
    flag_value: Option<bool>,
    #[prost(message, repeated, tag = "6")]
    map_value: Vec<MapEntry>,
}

fn written(datatype: Datatype, message: ValueMessage, pieces: &[ValuePiece]) -> BytesMut {
    let mut writer = PbValueWriter::new(datatype, message);
    for piece in pieces {
        let before = writer.memory();
        writer.add(piece);
        assert!(writer.memory() >= before.saturating_sub(16) && writer.memory() <= before + piece.bytes() + 64);
    }
    writer.finish()
}

fn field(name: &'static str, embedded: EmbeddedType) -> ValuePiece {
    ValuePiece::Field(FieldName::new(name, embedded))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The map of the observed transcripts.
fn observed_map() -> Vec<ValuePiece> {
    use EmbeddedType::{Counter, Flag, Map, Register, Set};
    let end = || ValuePiece::EndField;
    vec![
        field("c", Counter),
        ValuePiece::Counter(2),
        end(),
        field("f", Flag),
        ValuePiece::Flag(true),
        end(),
        field("m", Map),
        field("r", Register),
        ValuePiece::Register("in".into()),
        end(),
        end(),
        field("r", Register),
        ValuePiece::Register("v".into()),
        end(),
        field("s", Set),
        ValuePiece::Element("x".into()),
        ValuePiece::Element("y".into()),
        end(),
    ]
}

#[test]
fn the_bytes_are_those_that_riak_sends() {
    use ValueMessage::{Fetched, Updated};
    let elements = [ValuePiece::Element("a".into()), ValuePiece::Element("b".into())];
    for (datatype, message, pieces, bytes) in [
        (Datatype::Counter, Fetched, &[ValuePiece::Counter(4)][..], "0808"),
        (Datatype::Counter, Fetched, &[], "0800"),
        (Datatype::Counter, Updated, &[ValuePiece::Counter(3)], "1806"),
        (Datatype::Set, Fetched, &elements, "120161120162"),
        (Datatype::Set, Updated, &elements, "220161220162"),
        (Datatype::Set, Fetched, &[], ""),
        (Datatype::Gset, Fetched, &elements, "2A01612A0162"),
        (Datatype::Gset, Updated, &elements, "3A01613A0162"),
        (Datatype::Hll, Updated, &[ValuePiece::Estimate(2)], "3002"),
        (
            Datatype::Map,
            Fetched,
            &observed_map(),
            "1A090A050A0163100110041A090A050A0166100428011A140A050A016D1005320B0A050A017210032202696E1A0A0A050A01721003220176\
             1A0D0A050A017310021A01781A0179",
        ),
    ] {
        assert_eq!(hex(&written(datatype, message, pieces)), bytes, "{datatype:?} {message:?}");
    }
}

#[test]
fn counters_and_flags_without_content_have_a_value_and_unset_registers_none() {
    use EmbeddedType::{Counter, Flag, Map, Register, Set};
    let pieces: Vec<_> = [Counter, Flag, Register, Set, Map]
        .into_iter()
        .flat_map(|embedded| [field("x", embedded), ValuePiece::EndField])
        .collect();
    let map = DtValue::decode(written(Datatype::Map, ValueMessage::Fetched, &pieces)).unwrap().map_value;
    let shown: Vec<_> =
        map.iter().map(|entry| (entry.counter_value, entry.flag_value, entry.register_value.clone())).collect();
    assert_eq!(
        shown,
        [(Some(0), None, None), (None, Some(false), None), (None, None, None), (None, None, None), (None, None, None)]
    );
    let types: Vec<_> = map.iter().map(|entry| entry.field.as_ref().and_then(|field| field.r#type)).collect();
    assert_eq!(types, [1, 4, 3, 2, 5].map(Some));
}

#[test]
fn a_total_beyond_64_bits_is_shown_as_the_nearest() {
    for (total, shown) in [(i128::MAX, i64::MAX), (i128::MIN, i64::MIN), (-5, -5), (i64::MIN.into(), i64::MIN)] {
        let bytes = written(Datatype::Counter, ValueMessage::Fetched, &[ValuePiece::Counter(total)]);
        assert_eq!(DtValue::decode(bytes).unwrap().counter_value, Some(shown));
    }
}

#[test]
fn every_type_of_field_has_its_number() {
    for embedded in EmbeddedType::ALL {
        assert_eq!(embedded_type(embedded_code(embedded) as i32), Some(embedded));
    }
    assert_eq!([0, 6, -1, i32::MIN].map(embedded_type), [None; 4]);
}

/// Fields with content, three levels deep at most.
fn entries(depth: u32) -> BoxedStrategy<Vec<MapEntry>> {
    let name = || vec(any::<u8>(), 0..4);
    let entry = |code: i32| {
        move |(name, entry): (Vec<u8>, MapEntry)| MapEntry {
            field: Some(MapField { name: Some(name.into()), r#type: Some(code) }),
            ..entry
        }
    };
    let counter = any::<i64>().prop_map(|count| MapEntry { counter_value: Some(count), ..MapEntry::default() });
    let set =
        vec(name().prop_map(Bytes::from), 0..3).prop_map(|set| MapEntry { set_value: set, ..MapEntry::default() });
    let register = proptest::option::of(name().prop_map(Bytes::from))
        .prop_map(|register| MapEntry { register_value: register, ..MapEntry::default() });
    let flag = any::<bool>().prop_map(|flag| MapEntry { flag_value: Some(flag), ..MapEntry::default() });
    let leaf = prop_oneof![
        (name(), counter).prop_map(entry(1)),
        (name(), set).prop_map(entry(2)),
        (name(), register).prop_map(entry(3)),
        (name(), flag).prop_map(entry(4)),
    ];
    if depth == 0 {
        return vec(leaf, 0..4).boxed();
    }
    let map = entries(depth - 1).prop_map(|map| MapEntry { map_value: map, ..MapEntry::default() });
    vec(prop_oneof![3 => leaf, 1 => (name(), map).prop_map(entry(5))], 0..4).boxed()
}

fn entry_pieces(entries: &[MapEntry], out: &mut Vec<ValuePiece>) {
    for entry in entries {
        let name = entry.field.clone().unwrap();
        let embedded = embedded_type(name.r#type.unwrap()).unwrap();
        out.push(ValuePiece::Field(FieldName { name: name.name.unwrap(), embedded }));
        out.extend(entry.counter_value.map(|count| ValuePiece::Counter(count.into())));
        out.extend(entry.set_value.iter().cloned().map(ValuePiece::Element));
        out.extend(entry.register_value.clone().map(ValuePiece::Register));
        out.extend(entry.flag_value.map(ValuePiece::Flag));
        entry_pieces(&entry.map_value, out);
        out.push(ValuePiece::EndField);
    }
}

proptest! {
    #[test]
    fn any_map_decodes_to_what_was_written(map_value in entries(3)) {
        let mut pieces = Vec::new();
        entry_pieces(&map_value, &mut pieces);
        let bytes = written(Datatype::Map, ValueMessage::Fetched, &pieces);
        prop_assert_eq!(DtValue::decode(bytes), Ok(DtValue { map_value, ..DtValue::default() }));
    }
}
