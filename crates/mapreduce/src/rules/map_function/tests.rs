use larder_kv::rules::causality::{Dot, DotFlags, Slot};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::{KvContent, Link, Term};
use larder_rows::{ActorId, Timestamp};
use serde_json::json;

use super::*;

fn object(values: &[&str]) -> MapObject {
    let bucket = BucketAddress::new("default".into(), "b".into()).unwrap();
    let input = JobInput::from_address(Address::new(bucket, "k".into()).unwrap());
    let clock = Timestamp(1_795_261_395_000_000);
    let dot = Dot { slot: Slot { actor: ActorId(1), birth: clock }, clock, flags: DotFlags::default() };
    let content = KvContent {
        content_type: Some("text/plain".into()),
        meta: vec![("X-Riak-Meta-Color".into(), "red".into())],
        links: vec![Link { bucket: "l".into(), key: "m".into(), tag: "t".into() }],
        terms: [("n_int", "4"), ("n_int", "5"), ("w_bin", "x")]
            .map(|(field, value)| Term { field: field.into(), value: value.into() })
            .to_vec(),
        ..KvContent::default()
    };
    let value = |value: &&str| (Sibling::from_write(dot, content.clone()), Bytes::copy_from_slice(value.as_bytes()));
    MapObject { input, context: Bytes::from_static(b"c"), values: values.iter().map(value).collect() }
}

#[track_caller]
fn check(function: MapFunction, object: MapObject, arg: Value, expected: &str) {
    let shown = match function.map(object, Some(&arg).filter(|arg| !arg.is_null())) {
        Ok(values) => Value::Array(values.into_iter().map(JobValue::into_json).collect()).to_string(),
        Err(failure) => failure.error,
    };
    assert_eq!(shown, expected, "{function:?}");
}

#[test]
fn values_are_texts_and_lists() {
    use MapFunction as M;
    check(M::ObjectValue, object(&["v", "older"]), Value::Null, r#"["v"]"#);
    check(M::JsValues, object(&["[1]"]), Value::Null, r#"["[1]"]"#);
    check(M::ObjectValueList, object(&["[1,\"a\"]"]), Value::Null, r#"[1,"a"]"#);
    check(M::ObjectValueList, object(&["5"]), Value::Null, "non_list_result: the value is no list");
    check(M::JsValuesJson, object(&[r#"{"a":1}"#]), Value::Null, r#"[{"a":1}]"#);
    check(
        M::JsValuesJson,
        object(&["{"]),
        Value::Null,
        "SyntaxError: the value is not JSON: EOF while parsing an object at line 1 column 1",
    );
}

#[test]
fn json_that_would_fill_the_memory_is_not_parsed() {
    let zeros = format!("[{}0]", "0,".repeat(JOB_HELD_BYTES_MAX / 90));
    let failed = MapFunction::JsValuesJson.map(object(&[&zeros]), None).unwrap_err();
    assert_eq!(failed.error, "the JSON of the value takes more than 67108864 bytes of memory");
}

#[test]
fn fields_are_compared_loosely() {
    let check = |fields: Value, expected: &str| {
        check(MapFunction::JsByFields, object(&[r#"{"a":1,"b":"x"}"#]), fields, expected);
    };
    let values = r#"[{"a":1,"b":"x"}]"#;
    check(Value::Null, values);
    check(json!({"a": 1}), values);
    check(json!({"a": "1", "b": "x"}), values);
    check(json!({"c": null}), values);
    check(json!({"a": 2}), "[]");
    check(json!({"a": 1, "c": 3}), "[]");
}

#[test]
fn the_argument_chooses_the_values_of_a_missing_object() {
    let missing = || object(&[]);
    let shown = r#"[{"not_found":{"bucket":"b","key":"k","keydata":"undefined"}}]"#;
    let check = |arg: Value, expected: &str| check(MapFunction::ObjectValue, missing(), arg, expected);
    check(Value::Null, shown);
    check("include_notfound".into(), shown);
    check("filter_notfound".into(), "[]");
    check("include_keydata".into(), r#"["undefined"]"#);
    check(json!({"sub": [1, 2]}), "[1,2]");
    check(json!({"sub": 1}), "non_list_result: sub is no list");
    for function in [MapFunction::Identity, MapFunction::JsValues, MapFunction::JsValuesJson] {
        super::tests::check(function, missing(), "filter_notfound".into(), shown);
    }
    super::tests::check(MapFunction::JsByFields, missing(), Value::Null, "[]");
}

#[test]
fn an_object_has_riaks_form() {
    let json = object(&["v"]).json();
    let vtag = json["values"][0]["metadata"]["X-Riak-VTag"].as_str().unwrap().to_owned();
    let expected = format!(
        r#"{{"bucket":"b","key":"k","vclock":"Yw==","values":[{{"metadata":{{"X-Riak-VTag":"{vtag}","content-type":"text/plain","Links":[["l","m","t"]],"index":{{"n_int":[4,5],"w_bin":"x"}},"X-Riak-Last-Modified":"Sat, 21 Nov 2026 11:43:15 GMT","X-Riak-Meta":{{"X-Riak-Meta-Color":"red"}}}},"data":"v"}}]}}"#
    );
    assert_eq!(json.to_string(), expected);
    assert_eq!(object(&["v", "w"]).json()["values"].as_array().unwrap().len(), 2);
}
