//! Bucket and type properties over HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::harness::{HttpClient, HttpRequest, LarderNode, TestEngine};
use serde_json::{Value, json};

const FORM: &str = "PUT must be a JSON object of the form:\n{\"props\":{...bucket properties...}}";

#[track_caller]
fn prop(client: &mut HttpClient, url: &str, name: &str) -> Value {
    client.get(url).expect(200).json()["props"][name].clone()
}

/// A text reason as Riak writes it: an array of its bytes.
fn bytes(text: &str) -> Value {
    json!(text.as_bytes())
}

#[test]
fn a_put_changes_only_the_properties_it_names_and_a_delete_resets_all() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let url = "/buckets/b/props";
    assert_eq!(prop(&mut client, url, "name"), "b");
    let props = r#"{"props":{"n_val":2,"allow_mult":true,"r":1,"w":"all","dw":"one"}}"#;
    client.put_json(url, props).expect(204);
    client.put_json(url, r#"{"props":{"r":"quorum"}}"#).expect(204);
    for (name, value) in [
        ("n_val", json!(2)),
        ("allow_mult", json!(true)),
        ("r", json!("quorum")),
        ("w", json!("all")),
        ("rw", json!("quorum")),
    ] {
        assert_eq!(prop(&mut client, url, name), value, "{name}");
    }
    client.put("/buckets/b/keys/k", "one").expect(204);
    client.put("/buckets/b/keys/k", "two").expect(204);
    client.get("/buckets/b/keys/k").expect(300);
    client.get("/buckets/b/keys/k?r=3").expect(400);
    client.delete(url).expect(204);
    for (name, value) in [("n_val", json!(3)), ("allow_mult", json!(false)), ("w", json!("quorum"))] {
        assert_eq!(prop(&mut client, url, name), value, "{name}");
    }
    client.get("/buckets/b/keys/k").expect(200);
}

#[test]
fn bad_values_are_named_with_riaks_reasons() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    for (props, reasons) in [
        (r#"{"n_val":0}"#, json!({"n_val": "not_integer"})),
        (r#"{"n_val":2.5}"#, json!({"n_val": "not_integer"})),
        (r#"{"r":0}"#, json!({"r": "not_valid_quorum"})),
        (r#"{"last_write_wins":"x"}"#, json!({"last_write_wins": "not_boolean"})),
        (r#"{"n_val":0,"r":"x"}"#, json!({"r": "not_valid_quorum", "n_val": "not_integer"})),
        (r#"{"consistent":true}"#, json!({"consistent": bytes("cannot update consistent property")})),
        (r#"{"write_once":true}"#, json!({"write_once": bytes("cannot update write_once property")})),
    ] {
        let refused = client.put_json("/buckets/b/props", &format!("{{\"props\":{props}}}")).expect(400);
        assert_eq!(refused.json(), reasons, "{props}");
    }
    let unknown = client.put_json("/buckets/b/props", r#"{"props":{"n_vall":1,"n_val":1}}"#).expect(400);
    assert!(unknown.text().contains("n_vall"), "{}", unknown.text());
    assert_eq!(prop(&mut client, "/buckets/b/props", "n_val"), 3, "a refused request stored a property");
    for good in [r#"{"allow_mult":"true"}"#, r#"{"allow_mult":1}"#, r#"{"r":99}"#, r#"{"name":"other"}"#] {
        client.put_json("/buckets/b/props", &format!("{{\"props\":{good}}}")).expect(204);
    }
}

#[test]
fn a_body_without_an_object_of_props_is_refused() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    node.admin().active_type("t", r#"{"props":{}}"#);
    for body in [r#"{"props":[]}"#, r#"{"props":null}"#, r#"{"propz":{}}"#, "[]", "", r#"{"props":"#, "not json"] {
        let text = client.put_json("/buckets/b/props", body).expect(400).text();
        assert_eq!(text, format!("bucket {FORM}"), "{body}");
    }
    assert_eq!(client.put_json("/types/t/props", "{}").expect(400).text(), format!("bucket type {FORM}"));
    client.send(&HttpRequest::new("PUT", "/buckets/b/props").body(r#"{"props":{}}"#)).expect(415);
    client.put("/types/t/props", r#"{"props":{"r":1}}"#).expect(415);
    client.delete("/types/t/props").expect(405);
}

#[test]
fn a_type_update_reaches_a_bucket_that_has_overrides_of_its_own() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let admin = node.admin();
    admin.active_type("t", TestEngine::scaled(r#"{"props":{"n_val":3}}"#, r#"{"props":{"r":3}}"#));
    let url = "/types/t/buckets/b/props";
    client.put_json(url, r#"{"props":{"r":1}}"#).expect(204);
    let update = TestEngine::with_n_val(r#"{"props":{"n_val":2,"r":2,"w":1}}"#);
    admin.check(&["bucket-type", "update", "t", &update], "t updated\n");
    for (name, value) in [("n_val", TestEngine::scaled(2, 1)), ("r", 1), ("w", 1)] {
        assert_eq!(prop(&mut client, url, name), value, "{name}");
    }
    client.delete(url).expect(204);
    assert_eq!(prop(&mut client, url, "r"), 2);
}

#[test]
fn type_properties_are_read_and_changed_over_http() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    node.admin().active_type("t", r#"{"props":{}}"#);
    client.put_json("/types/t/props", r#"{"props":{"r":1}}"#).expect(204);
    let props = client.get("/types/t/props").expect(200).json()["props"].clone();
    assert_eq!((&props["r"], &props["active"]), (&json!(1), &json!(true)));
    assert_eq!((&props["claimant"], props.get("name")), (&json!("larder@127.0.0.1"), None));
    let refused = client.put_json("/types/t/props", r#"{"props":{"datatype":"map"}}"#).expect(400);
    assert_eq!(refused.json(), json!({"datatype": bytes("`datatype` must not be defined.")}));
    let refused = client.put_json("/types/default/props", r#"{"props":{"r":1}}"#).expect(400);
    assert_eq!(refused.text(), "\"no_default_update\"");
    client.get("/types/default/props").expect(200);
}

#[test]
fn the_old_path_reads_and_sets_them_too() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    client.put_json("/riak/b", r#"{"props":{"n_val":2}}"#).expect(204);
    assert_eq!(prop(&mut client, "/riak/b", "n_val"), 2);
    assert_eq!(prop(&mut client, "/buckets/b/props", "n_val"), 2);
}

#[test]
fn hooks_are_kept_in_order_and_shown_as_given() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let hooks = json!(["first", {"mod": "larder", "fun": "max_size", "arg": {"bytes": 9}}, {"name": "Js.hook"}]);
    let body = json!({"props": {"precommit": hooks}}).to_string();
    client.put_json("/buckets/b/props", &body).expect(204);
    assert_eq!(prop(&mut client, "/buckets/b/props", "precommit"), hooks);
}

#[test]
fn properties_survive_a_restart() {
    let mut node = LarderNode::start(&[]);
    node.client().put_json("/buckets/b/props", r#"{"props":{"n_val":2,"allow_mult":true}}"#).expect(204);
    let before = node.client().get("/buckets/b/props").expect(200).text();
    node.kill();
    node.restart();
    assert_eq!(node.client().get("/buckets/b/props").expect(200).text(), before);
}
