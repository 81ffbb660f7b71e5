//! `kv-admin`: its output, its exit codes, and its error without a server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

use crate::harness::{Home, HttpRequest, KvAdmin, LarderNode, ProcessEnd, TestEngine};

#[track_caller]
fn usage(ended: &ProcessEnd, text: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
    assert!(!ended.stderr.contains("riak-admin"), "{}", ended.stderr);
}

#[test]
fn without_a_server_there_is_one_clear_line() {
    let home = Home::new();
    let ended = KvAdmin::new(&home.socket()).run(&["bucket-type", "list"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("admin.sock"), "{}", ended.stderr);
}

#[test]
fn the_socket_may_be_named_in_the_environment() {
    let node = LarderNode::buffered();
    let mut command = Command::new(KvAdmin::binary());
    command.args(["bucket-type", "list"]).env("LARDER_ADMIN_SOCKET", node.home().socket());
    let ended = KvAdmin::run_command(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "default (active)\n"), "{}", ended.stderr);
}

#[test]
fn ping_version_and_help_answer() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    admin.check(&["ping"], "pong\n");
    assert!(admin.output(&["version"]).contains(env!("CARGO_PKG_VERSION")));
    let help = admin.output(&["help"]);
    for word in ["bucket-type", "create", "activate", "status", "ping", "kv-admin"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("riak-admin"), "{help}");
}

#[test]
fn status_prints_riaks_statistics() {
    let node = LarderNode::buffered();
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    let status = node.admin().output(&["status"]);
    assert!(status.starts_with("1-minute stats for 'larder@127.0.0.1'\n-----"), "{status}");
    for name in ["node_puts_total : 1", "node_gets : ", "riak_kv_version : ", "nodename : 'larder@127.0.0.1'"] {
        assert!(status.lines().any(|line| line.starts_with(name)), "{name}: {status}");
    }
}

#[test]
fn wrong_arguments_print_usage_and_fail() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    let none: [&str; 0] = [];
    usage(&admin.run(&none), "kv-admin");
    usage(&admin.run(&["no-such-command"]), "kv-admin");
    usage(&admin.run(&["bucket-type"]), "bucket-type");
    usage(&admin.run(&["bucket-type", "explode"]), "bucket-type");
    usage(&admin.run(&["bucket-type", "status"]), "bucket-type status <type>");
    usage(&admin.run(&["bucket-type", "activate"]), "bucket-type activate <type>");
    usage(&admin.run(&["bucket-type", "create"]), "bucket-type create <type>");
    usage(&admin.run(&["bucket-type", "update", "t"]), "bucket-type update <type>");
}

#[test]
fn json_is_printed_where_an_answer_has_structure() {
    let node = LarderNode::buffered();
    let admin = node.admin();
    admin.active_type("t", &TestEngine::with_n_val(r#"{"props":{"n_val":2}}"#));
    let list: serde_json::Value = serde_json::from_str(&admin.output(&["--json", "bucket-type", "list"])).unwrap();
    let text = list.to_string();
    assert!(text.contains("\"default\"") && text.contains("\"t\"") && text.contains("true"), "{text}");
    let status: serde_json::Value =
        serde_json::from_str(&admin.output(&["--json", "bucket-type", "status", "t"])).unwrap();
    assert!(status.to_string().contains(&TestEngine::with_n_val("\"n_val\":2")), "{status}");
    let stats: serde_json::Value = serde_json::from_str(&admin.output(&["--json", "status"])).unwrap();
    assert!(stats.to_string().contains("node_puts_total"), "{stats}");
}

#[test]
fn commands_that_are_not_supported_are_named() {
    let node = LarderNode::buffered();
    for (words, name) in [(["cluster", "join"], "cluster"), (["cluster", "plan"], "cluster")] {
        let ended = node.admin().run(&words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{words:?}");
        assert!(ended.stderr.contains(name), "{}", ended.stderr);
    }
}

#[test]
fn indexes_are_checked_and_repaired() {
    let node = LarderNode::buffered();
    for (key, terms) in [("a", "1, 2"), ("b", "2"), ("a", "3")] {
        let put = HttpRequest::put(&format!("/buckets/b/keys/{key}"), "v").header("X-Riak-Index-n_int", terms);
        node.client().send(&put).expect(204);
    }
    let sound = "2 keys with 2 terms, 2 index rows: 0 terms without an index row, 0 index rows without their term, \
                 0 keys that no list shows, 0 entries of lists without their key\n";
    node.admin().check(&["index", "check"], sound);
    node.admin().check(&["index", "repair"], sound);
    node.admin().check(&["index", "status"], "Every bucket has one epoch of 4 shards\n");
    usage(&node.admin().run(&["index"]), "Usage: kv-admin index check");
    usage(&node.admin().run(&["index", "check", "b"]), "Usage: kv-admin index check");
}
