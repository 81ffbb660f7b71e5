//! The object as commit hooks see it: the [JSON](crate::rules::object_json) that Riak gave to its JavaScript hooks, with
//! `"X-Riak-Deleted": "true"` among the metadata of a delete.

use bytes::Bytes;
use larder_core::{ScriptArguments, ScriptCall, ScriptFunction};
use larder_rows::Timestamp;
use larder_rows::address::Address;
use larder_rows::content::{KvBody, KvContent, Link, Term};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::HOOKED_BYTES_MAX;
use crate::rules::object_json::{ObjectDocument, ObjectJson, ValueDocument};
use crate::rules::terms;

/// An object on its way into the store, or a delete.
#[derive(Debug, Clone)]
pub(crate) struct HookedObject {
    pub(crate) address: Address,
    /// The client's context.
    pub(crate) context: Bytes,
    /// Metadata and an inline body; empty for a delete.
    pub(crate) content: KvContent,
    pub(crate) is_delete: bool,
    /// The time of the request.
    pub(crate) modified: Timestamp,
}

impl HookedObject {
    /// The bytes of the value.
    pub(crate) fn body(&self) -> &Bytes {
        static EMPTY: Bytes = Bytes::new();
        match &self.content.body {
            KvBody::Inline(bytes) => bytes,
            KvBody::Blob(_) => &EMPTY,
        }
    }

    /// The call of a function of the modules for this object: its bucket is the client.
    pub(super) fn script(&self, name: &str, arguments: &[Value], deadline: Instant) -> ScriptCall {
        let client = self.address.bucket.to_string().into();
        let function = ScriptFunction::Named(name.to_owned());
        ScriptCall { client, function, arguments: ScriptArguments::new(arguments), deadline }
    }

    /// The JSON for a hook.
    ///
    /// # Errors
    /// The part that is not UTF-8, which JSON cannot hold.
    pub(crate) fn to_json(&self) -> Result<Value, String> {
        let Self { address, context, content, is_delete, modified } = self;
        let value =
            ValueDocument { vtag: None, content, modified: *modified, is_delete: *is_delete, data: self.body() };
        // A hook hands the object back.
        let document = ObjectDocument { form: ObjectJson::Exact, address, context, values: vec![value] };
        serde_json::to_value(document).map_err(|error| error.to_string())
    }

    /// Takes over the value that a hook returned. Parts that it left as they were `sent` keep their bytes.
    ///
    /// # Errors
    /// The part that does not have its form.
    pub(crate) fn take_over(&mut self, returned: &Value, sent: &Value) -> Result<(), String> {
        if returned == sent {
            return Ok(());
        }
        for name in ["bucket_type", "bucket", "key"] {
            if returned.get(name) != sent.get(name) {
                return Err(format!("{name} is another one"));
            }
        }
        let [value] = returned.get("values").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) else {
            return Err("values is not a list of one value".into());
        };
        // A delete has nothing to change.
        if self.is_delete {
            return Ok(());
        }
        let sent = &sent["values"][0];
        let metadata = value.get("metadata").and_then(Value::as_object).ok_or("metadata is not an object")?;
        let data = value.get("data").and_then(Value::as_str).ok_or("data is not text")?;
        if data.len() as u64 > HOOKED_BYTES_MAX {
            return Err(format!("data has {} bytes, more than {HOOKED_BYTES_MAX}", data.len()));
        }
        if sent["data"] != data {
            self.content.body = KvBody::Inline(Bytes::copy_from_slice(data.as_bytes()));
        }
        self.take_over_metadata(metadata, &sent["metadata"])
    }

    fn take_over_metadata(&mut self, metadata: &Map<String, Value>, sent: &Value) -> Result<(), String> {
        let changed = |name: &str| metadata.get(name) != sent.get(name);
        let content = &mut self.content;
        for (name, header) in [
            ("content-type", &mut content.content_type),
            ("charset", &mut content.charset),
            ("content-encoding", &mut content.encoding),
        ] {
            if changed(name) {
                *header = metadata.get(name).map(|value| decode_header(name, value)).transpose()?;
            }
        }
        if changed("Links") {
            content.links = items(metadata.get("Links"))?.iter().map(decode_link).collect::<Result<_, _>>()?;
        }
        if changed("index") {
            content.terms = decode_terms(members(metadata.get("index"), "index")?)?;
        }
        if changed("X-Riak-Meta") {
            let meta = members(metadata.get("X-Riak-Meta"), "X-Riak-Meta")?;
            let pair = |(name, value): (&String, &Value)| {
                Ok::<_, String>((decode_header("X-Riak-Meta", &json!(name))?, decode_header(name, value)?))
            };
            content.meta = meta.iter().flat_map(|meta| meta.iter()).map(pair).collect::<Result<_, _>>()?;
        }
        Ok(())
    }
}

fn decode_link(json: &Value) -> Result<Link, String> {
    let parts: Option<Vec<_>> = json.as_array().map(|parts| parts.iter().filter_map(Value::as_str).collect());
    match parts.as_deref() {
        Some([bucket, key, tag]) => {
            let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
            Ok(Link { bucket: bytes(bucket), key: bytes(key), tag: bytes(tag) })
        }
        _ => Err("a link is not [BUCKET, KEY, TAG]".into()),
    }
}

fn decode_terms(index: Option<&Map<String, Value>>) -> Result<Vec<Term>, String> {
    let mut terms = Vec::new();
    for (field, values) in index.into_iter().flatten() {
        let single_value = std::slice::from_ref(values);
        for value in values.as_array().map_or(single_value, Vec::as_slice) {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(format!("index {field} is neither text nor a number")),
            };
            let term = terms::parse(&Bytes::from(field.clone()), &Bytes::from(text));
            terms.push(term.map_err(|error| error.erlang())?);
        }
    }
    Ok(terms)
}

fn items(json: Option<&Value>) -> Result<&[Value], String> {
    match json {
        None => Ok(&[]),
        Some(json) => json.as_array().map(Vec::as_slice).ok_or_else(|| "Links is not a list".to_owned()),
    }
}

/// An object, or an empty list, which is how Riak wrote an empty one.
fn members<'a>(json: Option<&'a Value>, name: &str) -> Result<Option<&'a Map<String, Value>>, String> {
    match json {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(Value::Array(list)) if list.is_empty() => Ok(None),
        Some(_) => Err(format!("{name} is not an object")),
    }
}

/// Text that a header can carry.
fn decode_header(name: &str, json: &Value) -> Result<Bytes, String> {
    let text = json.as_str().filter(|text| !text.chars().any(char::is_control));
    text.map(|text| Bytes::copy_from_slice(text.as_bytes())).ok_or_else(|| format!("{name} is no text for a header"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_rows::address::BucketAddress;

    fn object() -> HookedObject {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let bucket = BucketAddress::new(bytes("t"), bytes("b")).unwrap();
        let term = |field, value| Term { field: bytes(field), value: bytes(value) };
        HookedObject {
            address: Address::new(bucket, bytes("k")).unwrap(),
            context: bytes("context"),
            content: KvContent {
                content_type: Some(bytes("text/plain")),
                links: vec![Link { bucket: bytes("b"), key: bytes("other"), tag: bytes("next") }],
                terms: vec![term("a_bin", "x"), term("a_bin", "y"), term("n_int", "123456789012345678901")],
                meta: vec![(bytes("X-Riak-Meta-Color"), bytes("red"))],
                body: KvBody::Inline(bytes("value")),
                ..KvContent::default()
            },
            is_delete: false,
            modified: Timestamp(0),
        }
    }

    #[test]
    fn an_object_has_the_form_that_riaks_hooks_saw() {
        let expected = r#"{"bucket_type":"t","bucket":"b","key":"k","vclock":"Y29udGV4dA==","values":[{"metadata":{"content-type":"text/plain","X-Riak-Last-Modified":"Thu, 01 Jan 1970 00:00:00 GMT","Links":[["b","other","next"]],"index":{"a_bin":["x","y"],"n_int":"123456789012345678901"},"X-Riak-Meta":{"X-Riak-Meta-Color":"red"}},"data":"value"}]}"#;
        assert_eq!(object().to_json().unwrap().to_string(), expected);
        let delete = HookedObject { content: KvContent::default(), is_delete: true, ..object() };
        let json = delete.to_json().unwrap();
        assert_eq!(json["values"][0]["metadata"]["X-Riak-Deleted"], "true");
        assert_eq!(json["values"][0]["data"], "");
    }

    #[test]
    fn each_part_that_a_hook_changes_is_taken_over_and_no_other() {
        let (mut taken, sent) = (object(), object().to_json().unwrap());
        taken.take_over(&sent, &sent).unwrap();
        assert_eq!(taken.content, object().content);
        let mut changed = sent.clone();
        let value = &mut changed["values"][0];
        value["data"] = json!("new");
        value["metadata"]["index"] = json!({"a_bin": "z", "n_int": [1, "2"]});
        value["metadata"]["X-Riak-Meta"] = json!({"X-Riak-Meta-Size": "9"});
        value["metadata"]["Links"] = json!([]);
        value["metadata"]["content-type"] = json!("application/json");
        taken.take_over(&changed, &sent).unwrap();
        let shown = taken.to_json().unwrap();
        assert_eq!(shown["values"][0]["metadata"]["index"], json!({"a_bin": "z", "n_int": [1, 2]}));
        assert_eq!(shown["values"][0]["metadata"]["X-Riak-Meta"], json!({"X-Riak-Meta-Size": "9"}));
        assert_eq!((taken.body(), taken.content.links.len()), (&Bytes::from_static(b"new"), 0));
        assert_eq!(taken.content.content_type.as_deref(), Some(&b"application/json"[..]));
    }

    #[test]
    fn javascript_rounds_no_integer_term_of_an_object() {
        let term = |value: &'static str| Term { field: "n_int".into(), value: value.into() };
        let values = [
            "9007199254740991",
            "-9007199254740991",
            "9007199254740992",
            "-9223372036854775808",
            "1234567890123456789012",
        ];
        let content = KvContent { terms: values.map(term).into(), ..object().content };
        let mut hooked = HookedObject { content, ..object() };
        let sent = hooked.to_json().unwrap();
        let shown = &sent["values"][0]["metadata"]["index"]["n_int"];
        let expected = json!([9007199254740991_i64, -9007199254740991_i64, values[2], values[3], values[4]]);
        assert_eq!(*shown, expected);
        // Another term is changed, so the hook's values of these are parsed.
        let mut changed = sent.clone();
        changed["values"][0]["metadata"]["index"]["a_bin"] = json!("new");
        hooked.take_over(&changed, &sent).unwrap();
        let kept: Vec<_> =
            hooked.content.terms.iter().filter(|term| term.field == "n_int").map(|term| &term.value).collect();
        assert_eq!(kept, values.map(Bytes::from).iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_hook_makes_no_value_larger_than_a_client_may_put() {
        let sent = object().to_json().unwrap();
        let with = |length: u64| {
            let mut returned = sent.clone();
            returned["values"][0]["data"] = "x".repeat(length as usize).into();
            object().take_over(&returned, &sent)
        };
        assert_eq!(with(HOOKED_BYTES_MAX), Ok(()));
        assert_eq!(with(HOOKED_BYTES_MAX + 1), Err("data has 8388609 bytes, more than 8388608".into()));
    }

    #[test]
    fn a_return_without_the_form_of_an_object_is_refused_with_the_part() {
        let sent = object().to_json().unwrap();
        let with = |change: fn(&mut Value)| {
            let mut returned = sent.clone();
            change(&mut returned);
            object().take_over(&returned, &sent).unwrap_err()
        };
        assert_eq!(with(|json| *json = json!(null)), "bucket_type is another one");
        assert_eq!(with(|json| json["key"] = json!("x")), "key is another one");
        assert_eq!(with(|json| json["values"] = json!([])), "values is not a list of one value");
        assert_eq!(with(|json| json["values"][0]["data"] = json!({})), "data is not text");
        assert_eq!(
            with(|json| json["values"][0]["metadata"]["Links"] = json!([["b"]])),
            "a link is not [BUCKET, KEY, TAG]"
        );
        let unparsable = with(|json| json["values"][0]["metadata"]["index"] = json!({"n_int": "x"}));
        assert_eq!(unparsable, "{field_parsing_failed,{<<\"n_int\">>,<<\"x\">>}}");
        let header = with(|json| json["values"][0]["metadata"]["charset"] = json!("a\r\nb"));
        assert_eq!(header, "charset is no text for a header");
    }

    #[test]
    fn bytes_that_are_no_text_have_no_json() {
        let binary = KvContent { body: KvBody::Inline(Bytes::from_static(b"\xff")), ..KvContent::default() };
        let object = HookedObject { content: binary, ..object() };
        assert_eq!(object.to_json(), Err("the value is not UTF-8".into()));
    }
}
