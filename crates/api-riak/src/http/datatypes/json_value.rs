//! Values of data types as JSON, piece by piece (Riak KV HTTP reference §9.2). The context comes last: only the end of a read
//! knows it.
//!
//! ```text
//! {"type":"map","value":{"visits_counter":1,"tags_set":["x","y"]},"continuation":"…","context":"…"}
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_kv::rules::datatypes::{Datatype, EmbeddedType, ValuePiece};

use crate::http::path::listed_name;

/// The JSON of a value under way.
#[derive(Debug)]
pub(super) struct JsonValueWriter {
    datatype: Datatype,
    /// The open values, outermost first; the first one is the whole value.
    open: Vec<OpenJson>,
}

/// A value whose end has not come.
#[derive(Debug)]
struct OpenJson {
    shape: JsonShape,
    /// Whether something was written in it.
    has_content: bool,
}

#[derive(Debug, Clone, Copy)]
enum JsonShape {
    List,
    Object,
    /// One scalar, and the one that stands for none.
    Scalar(&'static [u8]),
}

impl JsonValueWriter {
    /// A value of this type without pieces.
    #[must_use]
    pub(super) fn new(datatype: Datatype) -> Self {
        Self { datatype, open: Vec::new() }
    }

    /// Writes what stands before the first piece.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{{\"type\":\"{}\",\"value\":", self.datatype.name()).as_bytes());
        let shape = match self.datatype {
            Datatype::Counter | Datatype::Hll => JsonShape::Scalar(b"0"),
            Datatype::Set | Datatype::Gset => JsonShape::List,
            Datatype::Map => JsonShape::Object,
        };
        self.open(shape, out);
    }

    /// Writes the next piece.
    pub(super) fn add(&mut self, piece: &ValuePiece, out: &mut Vec<u8>) {
        if let ValuePiece::EndField = piece {
            return self.close(out);
        }
        if let Some(open) = self.open.last_mut() {
            if open.has_content {
                out.push(b',');
            }
            open.has_content = true;
        }
        match piece {
            ValuePiece::Counter(total) => out.extend_from_slice(total.to_string().as_bytes()),
            ValuePiece::Estimate(estimate) => out.extend_from_slice(estimate.to_string().as_bytes()),
            ValuePiece::Flag(enabled) => out.extend_from_slice(if *enabled { b"true" } else { b"false" }),
            ValuePiece::Element(bytes) | ValuePiece::Register(bytes) => write_string(&listed_name(bytes), out),
            ValuePiece::Field(field) => {
                write_string(&format!("{}_{}", listed_name(&field.name), field.embedded.name()), out);
                out.push(b':');
                self.open(json_shape(field.embedded), out);
            }
            ValuePiece::EndField => {}
        }
    }

    /// Writes what stands after the last piece.
    pub(super) fn finish(&mut self, continuation: Option<&str>, context: Option<&Bytes>, out: &mut Vec<u8>) {
        while !self.open.is_empty() {
            self.close(out);
        }
        // Both are letters of base64, which JSON does not escape.
        for (name, text) in
            [("continuation", continuation), ("context", context.map(|bytes| STANDARD.encode(bytes)).as_deref())]
        {
            if let Some(text) = text {
                out.extend_from_slice(format!(",\"{name}\":\"{text}\"").as_bytes());
            }
        }
        out.push(b'}');
    }

    fn open(&mut self, shape: JsonShape, out: &mut Vec<u8>) {
        match shape {
            JsonShape::List => out.push(b'['),
            JsonShape::Object => out.push(b'{'),
            JsonShape::Scalar(_) => {}
        }
        self.open.push(OpenJson { shape, has_content: false });
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(ended) = self.open.pop() else { return };
        match ended.shape {
            JsonShape::List => out.push(b']'),
            JsonShape::Object => out.push(b'}'),
            JsonShape::Scalar(none) if !ended.has_content => out.extend_from_slice(none),
            JsonShape::Scalar(_) => {}
        }
    }
}

fn json_shape(embedded: EmbeddedType) -> JsonShape {
    match embedded {
        EmbeddedType::Counter => JsonShape::Scalar(b"0"),
        EmbeddedType::Register => JsonShape::Scalar(b"\"\""),
        EmbeddedType::Flag => JsonShape::Scalar(b"false"),
        EmbeddedType::Set => JsonShape::List,
        EmbeddedType::Map => JsonShape::Object,
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    // Memory takes every text.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_kv::rules::datatypes::FieldName;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    fn written(datatype: Datatype, pieces: &[ValuePiece], context: Option<&'static str>) -> String {
        let (mut writer, mut out) = (JsonValueWriter::new(datatype), Vec::new());
        writer.begin(&mut out);
        pieces.iter().for_each(|piece| writer.add(piece, &mut out));
        writer.finish(None, context.map(Bytes::from).as_ref(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn field(name: &'static str, embedded: EmbeddedType) -> ValuePiece {
        ValuePiece::Field(FieldName::new(name, embedded))
    }

    #[test]
    fn each_type_has_riaks_form() {
        assert_eq!(written(Datatype::Counter, &[ValuePiece::Counter(-5)], None), r#"{"type":"counter","value":-5}"#);
        assert_eq!(written(Datatype::Counter, &[], None), r#"{"type":"counter","value":0}"#);
        let large = written(Datatype::Counter, &[ValuePiece::Counter(i128::MAX)], None);
        assert_eq!(large, format!(r#"{{"type":"counter","value":{}}}"#, i128::MAX));
        assert_eq!(written(Datatype::Hll, &[ValuePiece::Estimate(3)], None), r#"{"type":"hll","value":3}"#);
        let elements = [ValuePiece::Element("".into()), ValuePiece::Element("é\0\"".into())];
        assert_eq!(
            written(Datatype::Set, &elements, Some("hello")),
            r#"{"type":"set","value":["","é\u0000\""],"context":"aGVsbG8="}"#
        );
        assert_eq!(written(Datatype::Gset, &[], None), r#"{"type":"gset","value":[]}"#);
        assert_eq!(written(Datatype::Map, &[], Some("hello")), r#"{"type":"map","value":{},"context":"aGVsbG8="}"#);
    }

    #[test]
    fn a_map_shows_its_fields_and_those_without_content_too() {
        use EmbeddedType::{Counter, Flag, Map, Register, Set};
        let end = || ValuePiece::EndField;
        let pieces = [
            field("m", Map),
            field("s", Set),
            ValuePiece::Element("a".into()),
            ValuePiece::Element("b".into()),
            end(),
            field("n", Counter),
            ValuePiece::Counter(7),
            end(),
            end(),
            field("", Register),
            end(),
            field("r", Register),
            ValuePiece::Register("Ann".into()),
            end(),
            field("f", Flag),
            end(),
            field("g", Flag),
            ValuePiece::Flag(true),
            end(),
            field("e", Map),
            end(),
            field("c", Counter),
            end(),
        ];
        assert_eq!(
            written(Datatype::Map, &pieces, None),
            r#"{"type":"map","value":{"m_map":{"s_set":["a","b"],"n_counter":7},"_register":"","r_register":"Ann","f_flag":false,"g_flag":true,"e_map":{},"c_counter":0}}"#
        );
    }

    proptest! {
        #[test]
        fn elements_of_any_bytes_are_listed_as_json_that_names_them(elements in vec(vec(any::<u8>(), 0..9), 0..9)) {
            let pieces: Vec<_> = elements.iter().map(|element| ValuePiece::Element(element.clone().into())).collect();
            let json: Json = serde_json::from_str(&written(Datatype::Set, &pieces, None)).unwrap();
            let shown: Vec<_> = json["value"].as_array().unwrap().iter().map(|element| element.as_str().unwrap()).collect();
            let named: Vec<_> = shown.into_iter().map(|text| crate::http::path::listed_bytes(text.as_bytes())).collect();
            prop_assert_eq!(named, elements);
        }

        #[test]
        fn any_register_and_name_is_json(name: Vec<u8>, value: Vec<u8>) {
            let field = ValuePiece::Field(FieldName::new(name.clone(), EmbeddedType::Register));
            let text = written(Datatype::Map, &[field, ValuePiece::Register(value.clone().into()), ValuePiece::EndField], None);
            let json: Json = serde_json::from_str(&text).unwrap();
            let shown = format!("{}_register", listed_name(&name));
            prop_assert_eq!(&json["value"], &json!({ shown: listed_name(&value) }));
        }
    }
}
