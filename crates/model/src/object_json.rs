//! The parts of an object in the JSON that Riak gives to JavaScript: hooks and MapReduce put them together.
//!
//! ```text
//! {"bucket":B,"key":K,"vclock":BASE64,"values":[{"metadata":{...},"data":TEXT}]}   and "bucket_type" beside other types than default
//! metadata: "content-type", "charset", "content-encoding", "Links": [[B,K,TAG]], "index": {FIELD: VALUE or [VALUES]},
//!           "X-Riak-Meta": {NAME: VALUE}, "X-Riak-Last-Modified"
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::Timestamp;
use crate::address::Address;
use crate::content::{KvContent, Link, Term};

/// The greatest integer that JavaScript holds exactly.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// The form for the bytes that JSON or JavaScript cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectJson {
    /// For an object that comes back: text that is not UTF-8 is an error, and integers that JavaScript would round are text.
    Exact,
    /// For one that is only read: text that is not UTF-8 has replacement characters.
    Shown,
}

impl ObjectJson {
    /// Text; `part` names it in the error.
    ///
    /// # Errors
    /// `part` is not UTF-8.
    pub fn text(self, part: &str, bytes: &[u8]) -> Result<String, String> {
        match self {
            Self::Shown => Ok(String::from_utf8_lossy(bytes).into_owned()),
            Self::Exact => {
                std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| format!("the {part} is not UTF-8"))
            }
        }
    }

    /// The object with its address and context, and these `values`.
    ///
    /// # Errors
    /// The part that is not UTF-8.
    pub fn object(self, address: &Address, context: &[u8], values: Vec<Value>) -> Result<Value, String> {
        let bucket = &address.bucket;
        let mut object = Map::new();
        if !bucket.is_default_type() {
            object.insert("bucket_type".into(), self.text("bucket type", &bucket.bucket_type)?.into());
        }
        object.insert("bucket".into(), self.text("bucket", &bucket.bucket)?.into());
        object.insert("key".into(), self.text("key", &address.key)?.into());
        object.insert("vclock".into(), STANDARD.encode(context).into());
        object.insert("values".into(), values.into());
        Ok(object.into())
    }

    /// Adds the content type, charset and encoding that the content has.
    ///
    /// # Errors
    /// The part that is not UTF-8.
    pub fn add_headers(self, content: &KvContent, metadata: &mut Map<String, Value>) -> Result<(), String> {
        let KvContent { content_type, charset, encoding, .. } = content;
        for (name, value) in [("content-type", content_type), ("charset", charset), ("content-encoding", encoding)] {
            if let Some(value) = value {
                metadata.insert(name.into(), self.text(name, value)?.into());
            }
        }
        Ok(())
    }

    /// The links, each as `[BUCKET, KEY, TAG]`.
    ///
    /// # Errors
    /// The part that is not UTF-8.
    pub fn links(self, links: &[Link]) -> Result<Value, String> {
        let text = |bytes: &[u8]| self.text("link", bytes);
        links.iter().map(|link| Ok(json!([text(&link.bucket)?, text(&link.key)?, text(&link.tag)?]))).collect()
    }

    /// The index fields, each with its term or the list of its terms. Integers are numbers, as Riak shows them.
    ///
    /// # Errors
    /// The part that is not UTF-8.
    pub fn index(self, terms: &[Term]) -> Result<Value, String> {
        let mut fields = Map::new();
        for Term { field, value } in terms {
            let (field, value) = (self.text("index", field)?, self.text("index", value)?);
            let number = value.parse::<i64>().ok().filter(|number| self.is_held(*number) && field.ends_with("_int"));
            let term = number.map_or_else(|| value.into(), Value::from);
            match fields.get_mut(&field) {
                None => drop(fields.insert(field, term)),
                Some(Value::Array(terms)) => terms.push(term),
                Some(first) => *first = json!([first.take(), term]),
            }
        }
        Ok(fields.into())
    }

    fn is_held(self, number: i64) -> bool {
        self == Self::Shown || number.unsigned_abs() <= EXACT_MAX
    }

    /// The user's metadata.
    ///
    /// # Errors
    /// The part that is not UTF-8.
    pub fn user_metadata(self, content: &KvContent) -> Result<Value, String> {
        let text = |bytes: &[u8]| self.text("metadata", bytes);
        let meta = content.meta.iter().map(|(name, value)| Ok((text(name)?, text(value)?.into())));
        meta.collect::<Result<Map<_, _>, String>>().map(Value::Object)
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
        let index = |form: ObjectJson| form.index(&terms).unwrap().to_string();
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
