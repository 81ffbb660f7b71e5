//! Bucket types from creation to use, through both programs, with every text that scripts may match.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::Command;

use crate::harness::{Home, KvAdmin, LarderNode, TestEngine};
use serde_json::Value;

/// The output of `status` for a type without properties of its own, after its first line and the blank one.
const FRESH_PROPS: &str = "young_vclock: 20
w: quorum
sync_on_write: backend
small_vclock: 50
rw: quorum
r: quorum
pw: 0
precommit: []
pr: 0
postcommit: []
old_vclock: 86400
notfound_ok: true
node_confirms: 0
n_val: 3
linkfun: {modfun,riak_kv_wm_link_walker,mapreduce_linkfun}
last_write_wins: false
dw: quorum
dvv_enabled: true
chash_keyfun: {riak_core_util,chash_std_keyfun}
big_vclock: 50
basic_quorum: false
allow_mult: true
active: false
claimant: 'larder@127.0.0.1'
";

/// The output of `status default`.
const DEFAULT_STATUS: &str = "default is active

allow_mult: false
basic_quorum: false
big_vclock: 50
chash_keyfun: {riak_core_util,chash_std_keyfun}
dvv_enabled: false
dw: quorum
last_write_wins: false
linkfun: {modfun,riak_kv_wm_link_walker,mapreduce_linkfun}
n_val: 3
node_confirms: 0
notfound_ok: true
old_vclock: 86400
postcommit: []
pr: 0
precommit: []
pw: 0
r: quorum
repl: true
rw: quorum
small_vclock: 50
sync_on_write: backend
w: quorum
write_once: false
young_vclock: 20
";

/// The output of `status` over a cluster of one node, which is fewer than the copies of the type.
fn with_copies(status: &str) -> String {
    format!("{status}{}", TestEngine::scaled("", "copies: 1\n"))
}

/// The lines of `status` after the blank one.
fn status_props(admin: &KvAdmin, name: &str) -> Vec<String> {
    let text = admin.output(&["bucket-type", "status", name]);
    let (_, props) = text.split_once("\n\n").expect("a blank line after the first");
    props.lines().map(str::to_owned).collect()
}

#[track_caller]
fn shows(admin: &KvAdmin, name: &str, line: &str) {
    let props = status_props(admin, name);
    assert!(props.iter().any(|prop| prop == line), "{name} does not show {line}: {props:?}");
}

#[test]
fn a_type_is_created_activated_and_used() {
    let node = LarderNode::buffered();
    let (admin, mut client) = (node.admin(), node.client());
    admin.check(&["bucket-type", "list"], "default (active)\n");
    admin.check(
        &["bucket-type", "create", "fruit", &TestEngine::with_n_val(r#"{"props":{"n_val":2}}"#)],
        "fruit created\n",
    );
    admin.check(&["bucket-type", "list"], "default (active)\nfruit (not active)\n");
    admin.check(&["bucket-type", "activate", "fruit"], "fruit has been activated\n");
    admin.check(&["bucket-type", "list"], "default (active)\nfruit (active)\n");
    client.put("/types/fruit/buckets/b/keys/k", "apple").expect(204);
    assert_eq!(client.get("/types/fruit/buckets/b/keys/k").expect(200).text(), "apple");
}

#[test]
fn status_prints_the_state_of_a_type_a_blank_line_and_its_properties() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    admin.check(&["bucket-type", "create", "plain"], "plain created\n");
    let ready = with_copies(&format!("plain has been created and may be activated\n\n{FRESH_PROPS}"));
    admin.check(&["bucket-type", "status", "plain"], &ready);
    admin.check(&["bucket-type", "activate", "plain"], "plain has been activated\n");
    let active = FRESH_PROPS.replace("active: false", "active: true");
    let active = with_copies(&format!("plain is active\n\n{active}"));
    admin.check(&["bucket-type", "status", "plain"], &active);
    shows(&admin, "plain", "active: true");
}

#[test]
fn type_default_is_always_there_with_its_own_defaults() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    admin.check(&["bucket-type", "list"], "default (active)\n");
    admin.check(&["bucket-type", "status", "default"], &with_copies(DEFAULT_STATUS));
    let props = node.client().get("/buckets/any/props").expect(200).json()["props"].clone();
    for (name, value) in [
        ("allow_mult", Value::from(false)),
        ("last_write_wins", Value::from(false)),
        ("notfound_ok", Value::from(true)),
        ("n_val", Value::from(3)),
        ("pr", Value::from(0)),
        ("r", Value::from("quorum")),
        ("rw", Value::from("quorum")),
        ("young_vclock", Value::from(20)),
        ("old_vclock", Value::from(86_400)),
        ("precommit", Value::Array(vec![])),
    ] {
        assert_eq!(props[name], value, "{name}");
    }
    assert_eq!(props["chash_keyfun"]["fun"], "chash_std_keyfun");
    assert_eq!(props["linkfun"]["fun"], "mapreduce_linkfun");
}

#[test]
fn type_default_is_neither_created_nor_updated_and_is_active() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    let create = ["bucket-type", "create", "default", r#"{"props":{}}"#];
    admin.refused(&create, "Error creating bucket type default:\ndefault_type\n");
    let update = ["bucket-type", "update", "default", r#"{"props":{"n_val":2}}"#];
    admin.refused(&update, "Error updating bucket type default:\nno_default_update\n");
    admin.check(&["bucket-type", "activate", "default"], "default is active\n");
    admin.check(&["bucket-type", "status", "default"], &with_copies(DEFAULT_STATUS));
}

#[test]
fn a_new_type_keeps_siblings_unless_its_json_says_otherwise() {
    let node = LarderNode::buffered();
    let (admin, mut client) = (node.admin(), node.client());
    admin.active_type("many", &TestEngine::with_n_val(r#"{"props":{"n_val":2}}"#));
    admin.active_type("single", r#"{"props":{"allow_mult":false}}"#);
    shows(&admin, "many", "allow_mult: true");
    shows(&admin, "many", &TestEngine::with_n_val("n_val: 2"));
    shows(&admin, "single", "allow_mult: false");
    for (name, status) in [("many", 300), ("single", 200)] {
        let url = format!("/types/{name}/buckets/b/keys/k");
        client.put(&url, "one").expect(204);
        client.put(&url, "two").expect(204);
        client.get(&url).expect(status);
    }
}

#[test]
fn creating_again_before_activation_keeps_only_the_last_call() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    let first = TestEngine::with_n_val(r#"{"props":{"n_val":2,"allow_mult":false}}"#);
    admin.check(&["bucket-type", "create", "t", &first], "t created\n");
    admin.check(&["bucket-type", "create", "t", r#"{"props":{"r":1}}"#], "t created\n");
    let props = status_props(&admin, "t");
    for line in ["r: 1", "n_val: 3", "allow_mult: true"] {
        assert!(props.contains(&line.to_owned()), "{line}: {props:?}");
    }
    admin.check(&["bucket-type", "activate", "t"], "t has been activated\n");
    let again = ["bucket-type", "create", "t", &TestEngine::with_n_val(r#"{"props":{"n_val":2}}"#)];
    admin.refused(&again, "Error creating bucket type t:\nalready_active\n");
}

#[test]
fn create_and_activate_work_in_one_script() {
    let node = LarderNode::buffered();
    let home = Home::new();
    let file = home.path().join("f.json");
    fs::write(&file, TestEngine::with_n_val("{\"props\":\n  {\"n_val\":2, \"allow_mult\": false}}\n")).unwrap();
    let script = r#"set -e
        "$A" --socket "$S" bucket-type create t "$(cat "$F")"
        "$A" --socket "$S" bucket-type activate t
        "$A" --socket "$S" bucket-type status t | head -1"#;
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).env("A", KvAdmin::binary()).env("S", node.home().socket()).env("F", &file);
    let ended = KvAdmin::run_command(&mut command);
    assert_eq!(ended.stdout, "t created\nt has been activated\nt is active\n", "{}", ended.stderr);
    assert_eq!(ended.code, Some(0));
    shows(&node.admin(), "t", &TestEngine::with_n_val("n_val: 2"));
    shows(&node.admin(), "t", "allow_mult: false");
}

#[test]
fn the_json_may_come_from_a_file_by_its_name() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    let file = node.home().path().join("f.json");
    fs::write(&file, r#"{"props":{"n_val":1}}"#).unwrap();
    let at = format!("@{}", file.display());
    admin.check(&["bucket-type", "create", "t", &at], "t created\n");
    shows(&admin, "t", "n_val: 1");
    let ended = admin.run(&["bucket-type", "create", "t", "@/no/such/file.json"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains("/no/such/file.json"), "{}", ended.stderr);
}

#[test]
fn a_type_that_is_not_active_serves_no_request() {
    let node = LarderNode::buffered();
    let (admin, mut client) = (node.admin(), node.client());
    admin.check(&["bucket-type", "create", "waiting"], "waiting created\n");
    for name in ["waiting", "nosuch"] {
        let object = format!("/types/{name}/buckets/b/keys/k");
        let text = format!("Unknown bucket type: {name}");
        assert_eq!(client.get(&object).expect(404).text(), text);
        assert_eq!(client.put(&object, "v").expect(404).text(), text);
        assert_eq!(client.delete(&object).expect(404).text(), text);
        client.get(&format!("/types/{name}/buckets/b/keys?keys=true")).expect(404);
        client.get(&format!("/types/{name}/buckets?buckets=true")).expect(404);
        client.get(&format!("/types/{name}/buckets/b/props")).expect(404);
        client.get(&format!("/types/{name}/props")).expect(404);
        let put = client.put_json(&format!("/types/{name}/buckets/b/props"), r#"{"props":{"n_val":2}}"#);
        assert_eq!(put.expect(400).text(), "\"no_type\"");
        let put = client.put_json(&format!("/types/{name}/props"), r#"{"props":{"n_val":2}}"#);
        assert_eq!(put.expect(400).text(), "\"not_active\"");
    }
    admin.check(&["bucket-type", "activate", "waiting"], "waiting has been activated\n");
    assert_eq!(client.get("/types/waiting/buckets/b/keys/k").expect(404).text(), "not found\n");
}

#[test]
fn activating_twice_is_fine_and_an_unknown_type_is_named() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    let unknown = "nosuch is not an existing bucket type\n";
    admin.refused(&["bucket-type", "activate", "nosuch"], unknown);
    admin.refused(&["bucket-type", "status", "nosuch"], unknown);
    admin.active_type("t", "{\"props\":{}}");
    admin.check(&["bucket-type", "activate", "t"], "t has been activated\n");
}

#[test]
fn an_update_is_seen_by_the_buckets_of_the_type() {
    let node = LarderNode::buffered();
    let (admin, mut client) = (node.admin(), node.client());
    admin.active_type("t", &TestEngine::with_n_val(r#"{"props":{"n_val":2}}"#));
    client.put("/types/t/buckets/b/keys/k", "v").expect(204);
    let update = ["bucket-type", "update", "t", r#"{"props":{"allow_mult":false,"r":1}}"#];
    admin.check(&update, "t updated\n");
    shows(&admin, "t", "allow_mult: false");
    shows(&admin, "t", "r: 1");
    shows(&admin, "t", &TestEngine::with_n_val("n_val: 2"));
    let props = client.get("/types/t/buckets/b/props").expect(200).json()["props"].clone();
    assert_eq!(
        (&props["allow_mult"], &props["r"], &props["n_val"]),
        (&false.into(), &1.into(), &TestEngine::scaled(2, 1).into())
    );
    client.put("/types/t/buckets/b/keys/k", "w").expect(204);
    assert_eq!(client.get("/types/t/buckets/b/keys/k").expect(200).text(), "w");
    let refusals = [
        ("nosuch", "nosuch is not an existing bucket type\n"),
        ("waiting", "Error updating bucket type waiting:\nnot_active\n"),
    ];
    for (name, refusal) in refusals {
        let update = ["bucket-type", "update", name, &TestEngine::with_n_val(r#"{"props":{"n_val":2}}"#)];
        admin.refused(&update, refusal);
        admin.check(&["bucket-type", "create", "waiting"], "waiting created\n");
    }
}

#[test]
fn consistent_datatype_and_write_once_never_change_but_may_be_repeated() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    admin.active_type("plain", r#"{"props":{}}"#);
    admin.active_type("strong", r#"{"props":{"consistent":true}}"#);
    admin.active_type("maps", r#"{"props":{"datatype":"map"}}"#);
    admin.active_type("once", r#"{"props":{"write_once":true}}"#);
    for (name, props, reason) in [
        ("maps", r#""datatype":"set""#, "set not supported for bucket datatype property"),
        ("maps", r#""allow_mult":false"#, "Data Type buckets must be allow_mult=true"),
        ("plain", r#""datatype":"set""#, "`datatype` must not be defined."),
        ("plain", r#""consistent":true"#, "Write once buckets must not be consistent=true"),
        ("plain", r#""write_once":true"#, "Cannot set existing bucket type to `write_once`"),
        ("once", r#""write_once":false"#, "Cannot modify write_once property once set to true"),
        ("strong", r#""consistent":false"#, "cannot update consistent property"),
        ("strong", r#""n_val":5"#, "n_val cannot be modified for existing consistent type"),
        ("plain", r#""active":false"#, "Cannot modify active property"),
        ("plain", r#""claimant":"x@y""#, "Cannot update claimant property"),
    ] {
        let json = format!("{{\"props\":{{{props}}}}}");
        admin.refused(
            &["bucket-type", "update", name, &json],
            &format!("Error updating bucket type {name}:\n{reason}\n"),
        );
    }
    for (name, props) in [
        ("maps", r#""datatype":"map""#),
        ("strong", r#""consistent":true,"n_val":3"#),
        ("once", r#""write_once":true"#),
        ("plain", r#""active":true,"claimant":"larder@127.0.0.1""#),
    ] {
        let json = format!("{{\"props\":{{{props}}}}}");
        admin.check(&["bucket-type", "update", name, &json], &format!("{name} updated\n"));
    }
    shows(&admin, "maps", "datatype: map");
    shows(&admin, "strong", "consistent: true");
    shows(&admin, "once", "write_once: true");
}

#[test]
fn the_properties_of_a_get_can_be_put_back() {
    let node = LarderNode::buffered();
    let (admin, mut client) = (node.admin(), node.client());
    admin.active_type("once", &TestEngine::with_n_val(r#"{"props":{"write_once":true,"n_val":2}}"#));
    admin.active_type("strong", r#"{"props":{"consistent":true}}"#);
    admin.active_type("maps", r#"{"props":{"datatype":"map"}}"#);
    for name in ["once", "strong", "maps"] {
        for url in [format!("/types/{name}/props"), format!("/types/{name}/buckets/b/props")] {
            let got = client.get(&url).expect(200).text();
            client.put_json(&url, &got).expect(204);
        }
    }
}

#[test]
fn bad_json_and_bad_values_are_refused_with_riaks_texts() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    for (json, text) in [
        (r#"{"props":"#, "Cannot create bucket type bad: invalid json\n"),
        ("[]", "Cannot create bucket type bad: invalid json\n"),
        (r#"{"n_val":3}"#, "Cannot create bucket type bad: no props field found in json\n"),
        (r#"{"props":[1]}"#, "Cannot create bucket type bad: no props field found in json\n"),
        (r#"{"props":{"n_val":0}}"#, "Error creating bucket type bad:\nn_val must be an integer\n"),
        (r#"{"props":{"n_val":"three"}}"#, "Error creating bucket type bad:\nn_val must be an integer\n"),
        (
            r#"{"props":{"allow_mult":"maybe"}}"#,
            "Error creating bucket type bad:\nallow_mult should be \"true\" or \"false\"\n",
        ),
        (
            r#"{"props":{"r":9,"w":"foo"}}"#,
            "Error creating bucket type bad:\nw must be an integer or (one|quorum|all)\n",
        ),
        (
            r#"{"props":{"last_write_wins":true}}"#,
            "Error creating bucket type bad:\nIf last_write_wins is true, dvv_enabled must be false\n",
        ),
        (
            r#"{"props":{"write_once":true,"datatype":"map"}}"#,
            "Error creating bucket type bad:\nWrite once buckets must not have datatype defined\n",
        ),
        (
            r#"{"props":{"datatype":"map","allow_mult":false}}"#,
            "Error creating bucket type bad:\nData Type buckets must be allow_mult=true\n",
        ),
    ] {
        admin.refused(&["bucket-type", "create", "bad", json], text);
    }
    admin.refused(&["bucket-type", "status", "bad"], "bad is not an existing bucket type\n");
    let any = ["bucket-type", "create", "any", r#"{"props":{}}"#];
    admin.refused(&any, "Error creating bucket type any:\nThe name 'any' may not be used for bucket types\n");
    admin.active_type("t", r#"{"props":{}}"#);
    admin.refused(&["bucket-type", "update", "t", r#"{"props":"#], "Cannot update bucket type: t: invalid json\n");
    let bare = ["bucket-type", "update", "t", r#"{"n_val":2}"#];
    admin.refused(&bare, "Cannot create bucket type t: no props field found in json\n");
}

#[test]
fn an_unknown_property_is_refused_by_name() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    let ended = admin.run(&["bucket-type", "create", "t", r#"{"props":{"n_vall":2}}"#]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.starts_with("Error creating bucket type t:\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("n_vall"), "{}", ended.stderr);
    admin.refused(&["bucket-type", "status", "t"], "t is not an existing bucket type\n");
    admin.active_type("u", r#"{"props":{}}"#);
    let ended = admin.run(&["bucket-type", "update", "u", r#"{"props":{"colour":"red"}}"#]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("colour"), "{}", ended.stderr);
}

#[test]
fn bucket_properties_hold_no_type_parameter() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    node.admin().active_type("t", r#"{"props":{}}"#);
    for url in ["/types/t/buckets/b/props", "/buckets/b/props"] {
        let props = client.get(url).expect(200).json()["props"].clone();
        assert!(props.get("type").is_none() && props.get("bucket_type").is_none(), "{props}");
    }
}

#[test]
fn types_survive_a_restart() {
    let mut node = LarderNode::start(&[]);
    let before = {
        let admin = node.admin();
        admin.active_type("t", &TestEngine::with_n_val(r#"{"props":{"n_val":2}}"#));
        admin.check(&["bucket-type", "update", "t", r#"{"props":{"r":1}}"#], "t updated\n");
        admin.check(&["bucket-type", "create", "waiting", r#"{"props":{"w":1}}"#], "waiting created\n");
        node.client().put("/types/t/buckets/b/keys/k", "v").expect(204);
        (admin.output(&["bucket-type", "status", "t"]), admin.output(&["bucket-type", "status", "waiting"]))
    };
    node.kill();
    node.restart();
    let admin = node.admin();
    let after = (admin.output(&["bucket-type", "status", "t"]), admin.output(&["bucket-type", "status", "waiting"]));
    assert_eq!(after, before);
    assert_eq!(node.client().get("/types/t/buckets/b/keys/k").expect(200).text(), "v");
    admin.check(&["bucket-type", "activate", "waiting"], "waiting has been activated\n");
}

#[test]
fn names_may_be_any_bytes_that_a_path_can_carry() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    node.admin().active_type("s p/ace", r#"{"props":{}}"#);
    client.put("/types/s%20p%2Face/buckets/b/keys/k", "v").expect(204);
    assert_eq!(client.get("/types/s+p%2Face/buckets/b/keys/k").expect(200).text(), "v");
}
