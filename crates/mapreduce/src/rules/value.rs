//! The values between phases.

use bytes::Bytes;
use larder_core::rules::riak_json::values_in;
use larder_rows::address::Address;
use larder_rows::text::beginning;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Bytes of memory that a value takes besides its texts.
const VALUE_BYTES: usize = 96;

/// A key as an input of a phase.
#[derive(Debug, Clone, PartialEq)]
pub struct JobInput {
    /// The object.
    pub address: Address,
    /// The datum that came with the key.
    pub key_data: Option<Value>,
}

/// A value between two phases, and of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum JobValue {
    /// A key that no phase has read.
    Key(JobInput),
    /// A key whose object does not exist.
    NotFound(JobInput),
    /// A value of a function.
    Json(Value),
    /// The value of an object that is no text: terms have its bytes, JSON has replacement characters.
    Binary(Bytes),
}

/// A function that failed on its input: the job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseFailure {
    /// The reason.
    pub error: String,
    /// The input, as text.
    pub input: Option<String>,
}

/// Longest text of an input in a failure, in bytes.
const SHOWN_BYTES: usize = 500;

impl PhaseFailure {
    /// A failure for `error` on `input`.
    pub fn new(error: impl Into<String>, input: &Value) -> Self {
        let mut text = input.to_string();
        if text.len() > SHOWN_BYTES {
            text.truncate(beginning(&text, SHOWN_BYTES).len());
            text.push_str("...");
        }
        Self { error: error.into(), input: Some(text) }
    }
}

impl JobInput {
    /// A key without a datum.
    #[must_use]
    pub fn from_address(address: Address) -> Self {
        Self { address, key_data: None }
    }

    /// Bytes of memory that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let data = self.key_data.as_ref().map_or(0, json_bytes);
        2 * VALUE_BYTES + self.address.bucket.bucket.len() + self.address.key.len() + data
    }

    /// The datum as functions see it.
    #[must_use]
    pub fn shown_data(&self) -> Value {
        self.key_data.clone().unwrap_or_else(|| "undefined".into())
    }

    fn json(&self) -> Value {
        let Address { bucket, key } = &self.address;
        let (bucket_name, key) = (text(&bucket.bucket), text(key));
        match (bucket.is_default_type(), &self.key_data) {
            (true, None) => json!([bucket_name, key]),
            (true, Some(data)) => json!([bucket_name, key, data]),
            (false, data) => json!([bucket_name, key, data, text(&bucket.bucket_type)]),
        }
    }

    fn not_found(&self) -> Value {
        let Address { bucket, key } = &self.address;
        let mut inner = serde_json::Map::new();
        if !bucket.is_default_type() {
            inner.insert("bucket_type".into(), text(&bucket.bucket_type).into());
        }
        inner.insert("bucket".into(), text(&bucket.bucket).into());
        inner.insert("key".into(), text(key).into());
        inner.insert("keydata".into(), self.shown_data());
        json!({ "not_found": inner })
    }
}

impl Serialize for JobValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(value) => value.serialize(to),
            Self::Key(input) => input.json().serialize(to),
            Self::NotFound(input) => input.not_found().serialize(to),
            Self::Binary(bytes) => String::from_utf8_lossy(bytes).serialize(to),
        }
    }
}

impl JobValue {
    /// The value of an object: text if it is one.
    #[must_use]
    pub fn from_bytes(bytes: &Bytes) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Json(text.into()),
            Err(_) => Self::Binary(bytes.clone()),
        }
    }

    /// The value as JSON.
    #[must_use]
    pub fn into_json(self) -> Value {
        match self {
            Self::Json(value) => value,
            Self::Key(input) => input.json(),
            Self::NotFound(input) => input.not_found(),
            Self::Binary(bytes) => text(&bytes).into(),
        }
    }

    /// The key that the value names, for a phase that reads objects.
    ///
    /// # Errors
    /// It names none.
    pub fn into_input(self) -> Result<JobInput, PhaseFailure> {
        let refused = |value: &Value| PhaseFailure::new("badarg: the input names no object", value);
        match self {
            Self::Key(input) => Ok(input),
            Self::NotFound(input) => Err(refused(&input.not_found())),
            Self::Binary(bytes) => Err(refused(&text(&bytes).into())),
            Self::Json(value) => match JobInput::from_json(&value) {
                Some(Ok(input)) => Ok(input),
                Some(Err(_)) | None => Err(refused(&value)),
            },
        }
    }

    /// Whether it says that an object does not exist, also after a script passed it on.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Key(_) | Self::Binary(_) => false,
            Self::NotFound(_) => true,
            Self::Json(value) => value.get("not_found").is_some(),
        }
    }

    /// Bytes of memory that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Json(value) => json_bytes(value),
            Self::Binary(bytes) => VALUE_BYTES + bytes.len(),
            Self::Key(input) | Self::NotFound(input) => input.bytes(),
        }
    }
}

/// Bytes of memory that a document takes, about.
#[must_use]
pub fn json_bytes(value: &Value) -> usize {
    let inner = match value {
        Value::Null | Value::Bool(_) => 0,
        Value::Number(_) => 16,
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(json_bytes).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| 32 + name.len() + json_bytes(value)).sum(),
    };
    VALUE_BYTES + inner
}

/// Bytes of memory that a JSON text takes at most once it is parsed, about.
#[must_use]
pub fn parsed_bytes(json: &[u8]) -> usize {
    json.len().saturating_add(values_in(json).saturating_mul(VALUE_BYTES))
}

/// Bytes as the text of a document: JSON holds text only.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_rows::address::BucketAddress;

    fn input(of_type: &'static str, key_data: Option<Value>) -> JobInput {
        let bucket = BucketAddress::new(of_type.into(), "b".into()).unwrap();
        JobInput { address: Address::new(bucket, "k".into()).unwrap(), key_data }
    }

    #[test]
    fn keys_are_lists_that_name_them_again() {
        for (input, shown) in [
            (input("default", None), r#"["b","k"]"#),
            (input("default", Some(json!({"a":1}))), r#"["b","k",{"a":1}]"#),
            (input("t", None), r#"["b","k",null,"t"]"#),
            (input("t", Some(json!("d"))), r#"["b","k","d","t"]"#),
        ] {
            let json = JobValue::Key(input.clone()).into_json();
            assert_eq!(json.to_string(), shown);
            assert_eq!(JobValue::Json(json).into_input().unwrap(), input);
        }
    }

    #[test]
    fn a_missing_object_is_shown_with_its_key() {
        let shown = |input| JobValue::NotFound(input).into_json().to_string();
        assert_eq!(shown(input("default", None)), r#"{"not_found":{"bucket":"b","key":"k","keydata":"undefined"}}"#);
        assert_eq!(
            shown(input("t", Some(json!(5)))),
            r#"{"not_found":{"bucket_type":"t","bucket":"b","key":"k","keydata":5}}"#
        );
        assert!(JobValue::Json(JobValue::NotFound(input("t", None)).into_json()).is_not_found());
    }

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, count) in
            [("1", 1), ("[1,2,3]", 4), (r#"{"a":{"b":[]}}"#, 6), (r#"",[{:\\\",""#, 1), (r#"["\\",1]"#, 3)]
        {
            assert_eq!(values_in(json.as_bytes()), count, "{json}");
        }
    }

    #[test]
    fn other_values_name_no_object() {
        for value in [json!("b"), json!(["b"]), json!(["b", 1]), json!({}), json!(["b", ""])] {
            assert!(JobValue::Json(value.clone()).into_input().is_err(), "{value}");
        }
        let long = Value::from("x".repeat(600));
        assert_eq!(PhaseFailure::new("e", &long).input.unwrap().len(), SHOWN_BYTES + 3);
    }
}
