//! The parts of an object in the JSON that Riak gives to JavaScript: hooks and MapReduce put them together.
//!
//! ```text
//! {"bucket":B,"key":K,"vclock":BASE64,"values":[{"metadata":{...},"data":TEXT}]}   and "bucket_type" beside other types than default
//! metadata: "content-type", "charset", "content-encoding", "Links": [[B,K,TAG]], "index": {FIELD: VALUE or [VALUES]},
//!           "X-Riak-Meta": {NAME: VALUE}, "X-Riak-Last-Modified"
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::address::Address;
use larder_rows::content::{KvContent, Link, Term};
use serde::ser::{Error as _, SerializeMap as _};
use serde::{Serialize, Serializer};

use crate::rules::causality::Vtag;

/// The greatest integer that JavaScript holds exactly.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// The form for the bytes that JSON or JavaScript cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectJson {
    /// For an object that comes back from a hook: text that is not UTF-8 is an error, and integers that JavaScript would round
    /// are text.
    Exact,
    /// For one that a job only reads: text that is not UTF-8 has replacement characters.
    Shown,
}

/// An object as JSON. Serialization writes its text, or makes its tree where a reader needs one.
///
/// Its only error is the part that is not UTF-8, in the form [`ObjectJson::Exact`].
#[derive(Debug)]
pub struct ObjectDocument<'a> {
    /// The form of its texts.
    pub form: ObjectJson,
    /// Its address.
    pub address: &'a Address,
    /// The context of its key.
    pub context: &'a [u8],
    /// Its values.
    pub values: Vec<ValueDocument<'a>>,
}

/// A value of an [`ObjectDocument`].
#[derive(Debug)]
pub struct ValueDocument<'a> {
    /// Its entity tag, if it has one.
    pub vtag: Option<Vtag>,
    /// Its metadata.
    pub content: &'a KvContent,
    /// Its last modification.
    pub modified: Timestamp,
    /// Whether it is the end of the object: it then has no metadata but this.
    pub is_delete: bool,
    /// The bytes of the value.
    pub data: &'a [u8],
}

/// A part of an object with the form of its texts.
struct InForm<'a, T: ?Sized>(ObjectJson, &'a T);

/// Bytes as text; the name of their part is for the error.
struct PartText<'a>(ObjectJson, &'static str, &'a [u8]);

impl ObjectJson {
    fn text<'a>(self, part: &str, bytes: &'a [u8]) -> Result<Cow<'a, str>, String> {
        match self {
            Self::Shown => Ok(String::from_utf8_lossy(bytes)),
            Self::Exact => {
                std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| format!("the {part} is not UTF-8"))
            }
        }
    }

    /// A term: integers are numbers, as Riak shows them.
    fn term<'a>(self, field: &str, value: &'a Bytes) -> Result<TermJson<'a>, String> {
        let value = self.text("index", value)?;
        let number = value.parse::<i64>().ok().filter(|number| self.is_held(*number) && field.ends_with("_int"));
        Ok(number.map_or_else(|| TermJson::Text(value), TermJson::Number))
    }

    fn is_held(self, number: i64) -> bool {
        self == Self::Shown || number.unsigned_abs() <= EXACT_MAX
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum TermJson<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

impl Serialize for PartText<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(form, part, bytes) = self;
        to.serialize_str(&form.text(part, bytes).map_err(S::Error::custom)?)
    }
}

impl Serialize for ObjectDocument<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { form, address, context, values } = self;
        let (bucket, text) = (&address.bucket, |part, bytes| PartText(*form, part, bytes));
        let mut object = to.serialize_map(None)?;
        if !bucket.is_default_type() {
            object.serialize_entry("bucket_type", &text("bucket type", &bucket.bucket_type))?;
        }
        object.serialize_entry("bucket", &text("bucket", &bucket.bucket))?;
        object.serialize_entry("key", &text("key", &address.key))?;
        object.serialize_entry("vclock", &STANDARD.encode(context))?;
        object.serialize_entry("values", &InForm(*form, &**values))?;
        object.end()
    }
}

impl Serialize for InForm<'_, [ValueDocument<'_>]> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.1.iter().map(|value| InForm(self.0, value)))
    }
}

impl Serialize for InForm<'_, ValueDocument<'_>> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut value = to.serialize_map(Some(2))?;
        value.serialize_entry("metadata", &ValueMetadata(self.0, self.1))?;
        value.serialize_entry("data", &PartText(self.0, "value", self.1.data))?;
        value.end()
    }
}

/// The metadata of a value.
struct ValueMetadata<'a>(ObjectJson, &'a ValueDocument<'a>);

impl Serialize for ValueMetadata<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(form, ValueDocument { vtag, content, modified, is_delete, .. }) = *self;
        let KvContent { content_type, charset, encoding, .. } = content;
        let mut metadata = to.serialize_map(None)?;
        if let Some(vtag) = vtag {
            metadata.serialize_entry("X-Riak-VTag", &**vtag)?;
        }
        for (name, value) in [("content-type", content_type), ("charset", charset), ("content-encoding", encoding)] {
            if let Some(value) = value {
                metadata.serialize_entry(name, &PartText(form, name, value))?;
            }
        }
        // The order of the members is that of Riak: hooks and jobs differ.
        if form == ObjectJson::Exact {
            metadata.serialize_entry("X-Riak-Last-Modified", &http_date(*modified))?;
        }
        if *is_delete {
            metadata.serialize_entry("X-Riak-Deleted", "true")?;
            return metadata.end();
        }
        metadata.serialize_entry("Links", &InForm(form, &*content.links))?;
        metadata.serialize_entry("index", &InForm(form, &*content.terms))?;
        if form == ObjectJson::Shown {
            metadata.serialize_entry("X-Riak-Last-Modified", &http_date(*modified))?;
        }
        metadata.serialize_entry("X-Riak-Meta", &InForm(form, &*content.meta))?;
        metadata.end()
    }
}

/// The links, each as `[BUCKET, KEY, TAG]`.
impl Serialize for InForm<'_, [Link]> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text = |bytes| PartText(self.0, "link", bytes);
        to.collect_seq(self.1.iter().map(|link| [text(&link.bucket), text(&link.key), text(&link.tag)]))
    }
}

/// The index fields, each with its term or the list of its terms, in the order of their first terms.
impl Serialize for InForm<'_, [Term]> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(form, terms) = *self;
        let mut fields: Vec<(Cow<'_, str>, Vec<TermJson<'_>>)> = Vec::new();
        let mut places = HashMap::new();
        for Term { field, value } in terms {
            let field = form.text("index", field).map_err(S::Error::custom)?;
            let term = form.term(&field, value).map_err(S::Error::custom)?;
            let place = *places.entry(field.clone()).or_insert_with(|| {
                fields.push((field, Vec::new()));
                fields.len() - 1
            });
            fields[place].1.push(term);
        }
        let mut index = to.serialize_map(Some(fields.len()))?;
        for (field, terms) in &fields {
            match terms.as_slice() {
                [term] => index.serialize_entry(field, term)?,
                several => index.serialize_entry(field, several)?,
            }
        }
        index.end()
    }
}

/// The user's metadata.
impl Serialize for InForm<'_, [(Bytes, Bytes)]> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text = |bytes| PartText(self.0, "metadata", bytes);
        to.collect_map(self.1.iter().map(|(name, value)| (text(name), text(value))))
    }
}

/// A time as `Sat, 21 Nov 2026 11:32:21 GMT`.
#[must_use]
pub fn http_date(at: Timestamp) -> String {
    let form = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let at =
        i64::try_from(at.as_secs()).ok().and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    at.and_then(|at| at.format(form).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_comes_back_is_exact_and_one_that_is_read_has_a_form_for_all_bytes() {
        let terms = [("n_int", "9007199254740993"), ("n_int", "1"), ("t_bin", "2")];
        let terms = terms.map(|(field, value)| Term { field: field.into(), value: value.into() });
        let index = |form: ObjectJson| serde_json::to_string(&InForm(form, &terms[..])).unwrap();
        assert_eq!(index(ObjectJson::Exact), r#"{"n_int":["9007199254740993",1],"t_bin":"2"}"#);
        assert_eq!(index(ObjectJson::Shown), r#"{"n_int":[9007199254740993,1],"t_bin":"2"}"#);
        assert_eq!(ObjectJson::Exact.text("value", b"\xff"), Err("the value is not UTF-8".into()));
        assert_eq!(ObjectJson::Shown.text("value", b"\xff"), Ok("\u{fffd}".into()));
    }

    #[test]
    fn a_time_beyond_all_dates_has_no_text() {
        assert_eq!(http_date(Timestamp::ZERO), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(Timestamp::MAX), "");
    }
}
