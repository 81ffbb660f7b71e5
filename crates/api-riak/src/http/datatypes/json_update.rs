//! Updates of data types as JSON (Riak KV HTTP reference §9.3). Members take effect in the order of the document; in a map the
//! removals come first.
//!
//! ```text
//! counter  5   "increment"   {"decrement":2}         set  {"add":"x","add_all":["y"],"remove":"z","context":"…"}
//! map      {"update":{"visits_counter":1,"tags_set":{"add":"x"}},"remove":["old_register"],"context":"…"}
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_core::rules::riak_json;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeUpdate, EmbeddedType, EmbeddedUpdate, FieldEdit, FieldName, MapEdits, SetEdit,
};
use larder_rows::limits::DATATYPE_EDITS_MAX;
use larder_rows::text::beginning;
use serde_json::{Map, Value as Json};

use crate::http::path::listed_bytes;

/// Most members and items of a document: an edit of a map is an object with two members at most.
const JSON_PARTS_MAX: usize = 5 * DATATYPE_EDITS_MAX;
/// Longest operation in the text of a refusal, in bytes.
const SHOWN_BYTES_MAX: usize = 2048;

/// The update in a document, and the context beside it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonUpdate {
    /// The edits.
    pub update: DatatypeUpdate,
    /// The context, decoded from base64.
    pub context: Option<Bytes>,
}

/// A document that is no update, in Riak's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonRefusal {
    /// The type has no such operation.
    #[error("Invalid operation on datatype '{datatype}': {operation}\n")]
    Operation {
        /// The type, also one of a field.
        datatype: &'static str,
        /// The operation as JSON.
        operation: String,
    },
    /// The name of a field does not end in a type.
    #[error("Invalid map field name '{0}'\n")]
    FieldName(String),
    /// The document, or the context in it, cannot be decoded.
    #[error("Couldn't decode JSON: {0}\n")]
    Undecodable(String),
    /// The bytes are not UTF-8.
    #[error("Malformed JSON submitted, invalid UTF-8")]
    NotUtf8,
    /// A member of an object comes twice: one of them would be lost.
    #[error("The update has a member twice\n")]
    RepeatedMember,
    /// The document has more parts than an update may have.
    #[error("The update has more than {JSON_PARTS_MAX} members and items\n")]
    TooManyParts,
}

/// Decodes the update of a value of this type.
///
/// # Errors
/// [`JsonRefusal`].
pub(super) fn decode(datatype: Datatype, document: &[u8]) -> Result<JsonUpdate, JsonRefusal> {
    let document = &*riak_json::standard(document);
    let text = std::str::from_utf8(document).map_err(|_| JsonRefusal::NotUtf8)?;
    // Riak's decoder fails like this for no document at all.
    if text.trim().is_empty() {
        return Err(JsonRefusal::Undecodable("{badmatch,any}".into()));
    }
    // Attack: two bytes of a document may become a hundred in memory, so its parts are counted first.
    let parts = JsonParts::split(document);
    if parts.all > JSON_PARTS_MAX {
        return Err(JsonRefusal::TooManyParts);
    }
    let mut json: Json = serde_json::from_str(text).map_err(|error| JsonRefusal::Undecodable(error.to_string()))?;
    // The parser keeps the last of equal members.
    if members(&json) < parts.members {
        return Err(JsonRefusal::RepeatedMember);
    }
    let context = match &mut json {
        Json::Object(members) => take_context(members)?,
        _ => None,
    };
    let update = match datatype {
        Datatype::Counter => DatatypeUpdate::Counter(amount(&json)?),
        Datatype::Set => DatatypeUpdate::Set(edits("set", &json)?),
        Datatype::Gset => DatatypeUpdate::Gset(adds("gset", &json)?),
        Datatype::Hll => DatatypeUpdate::Hll(adds("hll", &json)?),
        Datatype::Map => DatatypeUpdate::Map(map_edits(&json)?),
    };
    Ok(JsonUpdate { update, context })
}

/// The parts of a document.
struct JsonParts {
    /// The members of all objects: each has one colon.
    members: usize,
    /// The commas, colons and opening brackets: no fewer than members and items, less one.
    all: usize,
}

impl JsonParts {
    /// Counts outside of strings.
    fn split(document: &[u8]) -> Self {
        let (mut parts, mut in_string, mut escaped) = (Self { members: 0, all: 0 }, false, false);
        for byte in document {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b',' | b':' | b'[' | b'{' if !in_string => {
                    parts.all += 1;
                    parts.members += usize::from(*byte == b':');
                }
                _ => {}
            }
        }
        parts
    }
}

/// The members of all objects in a parsed document, which the parser keeps shallow.
fn members(json: &Json) -> usize {
    match json {
        Json::Object(inner) => inner.len() + inner.values().map(members).sum::<usize>(),
        Json::Array(items) => items.iter().map(members).sum(),
        _ => 0,
    }
}

fn take_context(members: &mut Map<String, Json>) -> Result<Option<Bytes>, JsonRefusal> {
    let undecodable = || JsonRefusal::Undecodable("function_clause".into());
    match members.shift_remove("context") {
        None => Ok(None),
        // Also an empty one: taken for none, a removal would take what its client never saw. The gateway refuses it.
        Some(Json::String(text)) => STANDARD.decode(text).map(|bytes| Some(bytes.into())).map_err(|_| undecodable()),
        Some(_) => Err(undecodable()),
    }
}

fn invalid(datatype: &'static str, operation: &Json) -> JsonRefusal {
    JsonRefusal::Operation { datatype, operation: shortened(operation.to_string()) }
}

/// The text, or the begin of a long one.
fn shortened(mut text: String) -> String {
    if text.len() > SHOWN_BYTES_MAX {
        text.truncate(beginning(&text, SHOWN_BYTES_MAX).len());
        text.push('…');
    }
    text
}

/// The amount that a counter changes by.
fn amount(operation: &Json) -> Result<i64, JsonRefusal> {
    let amount = match operation {
        Json::Number(number) => number.as_i64(),
        Json::String(word) if word == "increment" => Some(1),
        Json::String(word) if word == "decrement" => Some(-1),
        Json::Object(members) if members.len() == 1 => {
            let by = |name: &str| members.get(name).and_then(Json::as_i64);
            by("increment").or_else(|| by("decrement").and_then(i64::checked_neg))
        }
        _ => None,
    };
    amount.ok_or_else(|| invalid("counter", operation))
}

/// The additions to a type that only grows.
fn adds(datatype: &'static str, operation: &Json) -> Result<Vec<Bytes>, JsonRefusal> {
    let added = |edit| match edit {
        SetEdit::Add(element) => Ok(element),
        SetEdit::Remove(_) => Err(invalid(datatype, operation)),
    };
    edits(datatype, operation)?.into_iter().map(added).collect()
}

/// The edits of a set.
fn edits(datatype: &'static str, operation: &Json) -> Result<Vec<SetEdit>, JsonRefusal> {
    let mut edits = Vec::new();
    add_edits(operation, &mut edits).ok_or_else(|| invalid(datatype, operation))?;
    Ok(edits)
}

/// Appends the edits of an operation; `None`: it is none of a set.
fn add_edits(operation: &Json, edits: &mut Vec<SetEdit>) -> Option<()> {
    for (member, value) in operation.as_object()? {
        match member.as_str() {
            "add" => edits.push(SetEdit::Add(text(value)?)),
            "remove" => edits.push(SetEdit::Remove(text(value)?)),
            "add_all" => extend(edits, value, SetEdit::Add)?,
            "remove_all" => extend(edits, value, SetEdit::Remove)?,
            "update" => match value {
                Json::Array(operations) => operations.iter().try_for_each(|inner| add_edits(inner, edits))?,
                inner => add_edits(inner, edits)?,
            },
            _ => return None,
        }
    }
    Some(())
}

fn extend(edits: &mut Vec<SetEdit>, list: &Json, edit: fn(Bytes) -> SetEdit) -> Option<()> {
    for element in list.as_array()? {
        edits.push(edit(text(element)?));
    }
    Some(())
}

fn text(value: &Json) -> Option<Bytes> {
    value.as_str().map(|text| listed_bytes(text.as_bytes()))
}

fn map_edits(operation: &Json) -> Result<MapEdits, JsonRefusal> {
    let refused = || invalid("map", operation);
    let mut edits = MapEdits::default();
    for (member, value) in operation.as_object().ok_or_else(refused)? {
        match (member.as_str(), value) {
            ("update", Json::Object(fields)) => {
                for (name, operation) in fields {
                    edits.updates.push(field_edit(field_name(name)?, operation)?);
                }
            }
            ("remove", Json::String(name)) => edits.removes.push(field_name(name)?),
            ("remove", Json::Array(names)) => {
                for name in names {
                    edits.removes.push(field_name(name.as_str().ok_or_else(refused)?)?);
                }
            }
            ("update" | "remove", _) => return Err(refused()),
            // Riak names the member alone.
            (other, _) => return Err(invalid("map", &Json::from(other))),
        }
    }
    Ok(edits)
}

/// A field as JSON names it: `NAME_TYPE`. The name may be empty, and have underscores.
///
/// # Errors
/// The text does not end in the type of a field.
pub(super) fn field_name(text: &str) -> Result<FieldName, JsonRefusal> {
    let (name, suffix) = text.rsplit_once('_').unwrap_or_default();
    let embedded = EmbeddedType::ALL.into_iter().find(|embedded| embedded.name() == suffix);
    let embedded = embedded.ok_or_else(|| JsonRefusal::FieldName(shortened(text.into())))?;
    Ok(FieldName { name: listed_bytes(name.as_bytes()), embedded })
}

fn field_edit(field: FieldName, operation: &Json) -> Result<FieldEdit, JsonRefusal> {
    let update = match field.embedded {
        EmbeddedType::Counter => EmbeddedUpdate::Counter(amount(operation)?),
        EmbeddedType::Set => EmbeddedUpdate::Set(edits("set", operation)?),
        EmbeddedType::Register => EmbeddedUpdate::Register(assigned(operation)?),
        EmbeddedType::Flag => EmbeddedUpdate::Flag(match operation.as_str() {
            Some("enable") => true,
            Some("disable") => false,
            _ => return Err(invalid("flag", operation)),
        }),
        EmbeddedType::Map => EmbeddedUpdate::Map(map_edits(operation)?),
    };
    Ok(FieldEdit { name: field.name, update })
}

/// The bytes that a register gets.
fn assigned(operation: &Json) -> Result<Bytes, JsonRefusal> {
    let value = match operation {
        Json::Object(members) if members.len() == 1 => members.get("assign"),
        other => Some(other),
    };
    value.and_then(text).ok_or_else(|| invalid("register", operation))
}

#[cfg(test)]
mod tests;
