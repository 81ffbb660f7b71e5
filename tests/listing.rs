//! Listings of keys and buckets, plain and streamed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::harness::{HttpClient, HttpResponse, LarderNode};
use serde_json::Value;

/// The names under `field` in a plain or a streamed answer.
fn names(response: &HttpResponse, field: &str) -> Vec<String> {
    let mut names = Vec::new();
    for piece in serde_json::Deserializer::from_slice(&response.body).into_iter::<Value>() {
        let piece = piece.expect("objects, one after the other");
        for name in piece[field].as_array().unwrap_or_else(|| panic!("no {field} in {piece}")) {
            names.push(name.as_str().expect("a name").to_owned());
        }
    }
    names
}

#[track_caller]
fn check(client: &mut HttpClient, url: &str, field: &str, expected: &[&str]) {
    for how in ["true", "stream"] {
        let answer = client.get(&format!("{url}?{field}={how}")).expect(200);
        assert_eq!(answer.header("Content-Type"), Some("application/json"), "{url} {how}");
        let mut got = names(&answer, field);
        got.sort();
        assert_eq!(got, expected, "{url} {how}");
    }
}

#[test]
fn keys_are_listed_once_and_deleted_ones_never() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    check(&mut client, "/buckets/b/keys", "keys", &[]);
    for key in ["a", "b", "c"] {
        client.put(&format!("/buckets/b/keys/{key}"), "1").expect(204);
        client.put(&format!("/buckets/b/keys/{key}"), "2").expect(204);
    }
    check(&mut client, "/buckets/b/keys", "keys", &["a", "b", "c"]);
    client.delete("/buckets/b/keys/b").expect(204);
    check(&mut client, "/buckets/b/keys", "keys", &["a", "c"]);
    client.put("/buckets/b/keys/b", "again").expect(204);
    check(&mut client, "/buckets/b/keys", "keys", &["a", "b", "c"]);
    assert_eq!(client.get("/buckets/b/keys").expect(200).text(), "{}");
    let old = client.get("/riak/b?keys=true&props=false").expect(200);
    assert_eq!(names(&old, "keys").len(), 3);
}

#[test]
fn a_stream_ends_with_an_empty_list() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    client.put("/buckets/b/keys/k", "v").expect(204);
    for (url, end) in
        [("/buckets/b/keys?keys=stream", r#"{"keys":[]}"#), ("/buckets?buckets=stream", r#"{"buckets":[]}"#)]
    {
        let answer = client.get(url).expect(200);
        assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"), "{url}");
        assert!(answer.text().ends_with(end), "{}", answer.text());
    }
}

#[test]
fn a_bucket_is_listed_while_it_holds_a_key() {
    let node = LarderNode::buffered();
    node.admin().active_type("t", r#"{"props":{}}"#);
    let mut client = node.client();
    client.get("/buckets/only-read/keys/k").expect(404);
    client.put_json("/buckets/only-props/props", r#"{"props":{"n_val":1}}"#).expect(204);
    check(&mut client, "/buckets", "buckets", &[]);
    client.put("/buckets/b/keys/k", "v").expect(204);
    client.put("/buckets/c/keys/k", "v").expect(204);
    client.put("/types/t/buckets/typed/keys/k", "v").expect(204);
    check(&mut client, "/buckets", "buckets", &["b", "c"]);
    check(&mut client, "/types/t/buckets", "buckets", &["typed"]);
    client.delete("/buckets/b/keys/k").expect(204);
    check(&mut client, "/buckets", "buckets", &["c"]);
    assert_eq!(client.get("/riak?buckets=true").expect(200).json()["buckets"], serde_json::json!(["c"]));
}

#[test]
fn siblings_count_as_one_key() {
    let node = LarderNode::buffered();
    node.admin().active_type("t", r#"{"props":{}}"#);
    let mut client = node.client();
    client.put("/types/t/buckets/b/keys/k", "one").expect(204);
    client.put("/types/t/buckets/b/keys/k", "two").expect(204);
    check(&mut client, "/types/t/buckets/b/keys", "keys", &["k"]);
}

#[test]
fn many_keys_are_listed_over_many_pages() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let expected: BTreeSet<String> = (0..3500).map(|number| format!("key-{number:05}")).collect();
    for key in &expected {
        client.put(&format!("/buckets/many/keys/{key}?dw=0"), "v").expect(204);
    }
    for how in ["true", "stream"] {
        let listed = names(&client.get(&format!("/buckets/many/keys?keys={how}")).expect(200), "keys");
        assert_eq!(listed.len(), expected.len(), "{how}: each key once");
        assert!(listed.into_iter().collect::<BTreeSet<_>>() == expected, "{how}");
    }
}

#[test]
fn names_that_are_not_utf8_are_listed_and_read_back() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    client.put("/buckets/b/keys/%FF%00k", "odd").expect(204);
    client.put("/buckets/b/keys/%25FF%2500k", "text").expect(204);
    let listed = names(&client.get("/buckets/b/keys?keys=true").expect(200), "keys");
    assert_eq!(listed, ["%FF%00k", "\u{FFFD}%FF%00k"]);
    let quoted = |name: &str| name.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    assert_eq!(client.get(&format!("/buckets/b/keys/{}", quoted(&listed[0]))).expect(200).text(), "text");
    assert_eq!(client.get(&format!("/buckets/b/keys/{}", quoted(&listed[1]))).expect(200).text(), "odd");
    assert_eq!(client.get(&format!("/buckets/b/keys/{}", listed[1])).expect(200).text(), "odd");
}

#[test]
fn a_bad_timeout_is_refused_and_a_listing_survives_a_restart() {
    let mut node = LarderNode::start(&[]);
    let mut client = node.client();
    assert_eq!(client.get("/buckets?buckets=true&timeout=x").expect(400).text(), "Bad timeout value \"x\"\n");
    client.put("/buckets/b/keys/k", "v").expect(204);
    client.put("/buckets/b/keys/gone", "v").expect(204);
    client.delete("/buckets/b/keys/gone").expect(204);
    node.kill();
    node.restart();
    check(&mut node.client(), "/buckets/b/keys", "keys", &["k"]);
    check(&mut node.client(), "/buckets", "buckets", &["b"]);
}
