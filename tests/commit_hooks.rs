//! Commit hooks: the examples of their page, both protocols, and the server beside hostile scripts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and runs in real time"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{FreshAccount, HttpClient, HttpRequest, LarderNode, Process, WebhookReceiver, wait};
use larder_testkit::pb::{PbClient, PbField, message};
use serde_json::json;

const SET_BUCKET: u8 = 21;
const PUT: u8 = 11;
const DELETE: u8 = 13;

/// A server with these modules. Their folder lives as long as the value.
struct HookedNode {
    node: LarderNode,
    modules: tempfile::TempDir,
}

impl HookedNode {
    fn start(modules: &[(&str, &str)], args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, source) in modules {
            fs::write(dir.path().join(name), source).unwrap();
        }
        let path = dir.path().to_str().unwrap().to_owned();
        let common = ["--durability", "buffered", "--pb", "127.0.0.1:0", "--js-dir", &path];
        Self { node: LarderNode::start(&[&common[..], args].concat()), modules: dir }
    }

    fn client(&self) -> HttpClient {
        self.node.client()
    }

    fn set(&self, bucket: &str, props: &serde_json::Value) {
        let body = json!({ "props": props }).to_string();
        self.client().put_json(&format!("/buckets/{bucket}/props"), &body).expect(204);
    }

    /// A counter of `/metrics`.
    fn metric(&self, name: &str) -> u64 {
        let text = self.client().get("/metrics").expect(200).text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }

    /// The ids of the server's workers.
    fn workers(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.node.id())).unwrap().flatten();
        let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
        children.flat_map(|ids| ids.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()).collect()
    }
}

/// The blocks of a document in this language.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    document.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_examples_of_the_page_print_what_it_says() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/hooks.md")).unwrap();
    let [module] = blocks(&page, "js")[..] else { panic!("the page has one module") };
    let receiver = WebhookReceiver::start(204);
    let host = receiver.address.to_string();
    let hooked = HookedNode::start(&[("shop.js", module)], &["--webhook-hosts", &host]);
    let mut count = 0;
    for block in blocks(&page, "console") {
        let mut lines = block.lines().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("not a command: {line}"));
            let mut prints = String::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                prints.push_str(line);
                prints.push('\n');
            }
            let script = command.replace("127.0.0.1:8098", &hooked.node.http().to_string());
            let script = script.replace("127.0.0.1:9000", &host);
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir("/");
            if let Some(account) = FreshAccount::new() {
                account.runs(&mut shell);
            }
            let ended = Process::start(&mut shell).wait_for_end(Duration::from_secs(60));
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), prints.as_str()), "{command}\n{}", ended.stderr);
            count += 1;
        }
    }
    assert!(count >= 12, "{count} examples");
    let [notice] = blocks(&page, "http")[..] else { panic!("the page has one notice") };
    check_notice(&receiver, notice);
}

/// The receiver got the notice of the page, but for its id and its time.
fn check_notice(receiver: &WebhookReceiver, notice: &str) {
    let (head, body) = notice.split_once("\n\n").unwrap();
    wait("the notice of the page", Duration::from_secs(30), || !receiver.received().is_empty());
    let [got] = &receiver.received()[..] else { panic!("one notice") };
    let mut shown: serde_json::Value = serde_json::from_str(body).unwrap();
    let shown_id = shown["id"].as_str().unwrap().to_owned();
    for member in ["id", "time"] {
        assert_eq!(got.body[member].as_str().unwrap().len(), shown[member].as_str().unwrap().len(), "{member}");
        shown[member] = got.body[member].clone();
    }
    assert_eq!(got.body.to_string(), shown.to_string());
    let head = head.replace("127.0.0.1:9000", &receiver.address.to_string());
    let head = head.replace(&shown_id, got.body["id"].as_str().unwrap());
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(lines(&got.head), lines(&head));
}

const MODULE: &str = r#"
    var H = {
        first: function (o) { o.values[0].data += "1"; return o; },
        second: function (o) { o.values[0].data += "2"; o.values[0].metadata["X-Riak-Meta"]["X-Riak-Meta-Seen"] = o.values[0].data; return o; },
        refuse: function (o) { return { fail: "no " + o.key }; },
        plain: function (o) { return "fail"; },
        odd: function (o) { return 7; },
        other: function (o) { o.key = "x"; return o; },
        thrower: function (o) { throw new Error("broken"); },
        loop: function (o) { for (;;) {} },
        deletes: function (o) { return o.values[0].metadata["X-Riak-Deleted"] ? { fail: "kept" } : o; },
        after: function (o) { ejsLog("after", o.bucket + "/" + o.key + "=" + o.values[0].data); },
        afterFail: function (o) { return { fail: "too late" }; }
    };
"#;

#[test]
fn hooks_run_in_order_and_the_first_refusal_ends_the_write() {
    let hooked = HookedNode::start(&[("h.js", MODULE)], &["--js-timeout", "1s"]);
    let mut client = hooked.client();
    hooked.set("b", &json!({"precommit": ["H.first", {"name": "H.second"}]}));
    client.put("/buckets/b/keys/k", "0").expect(204);
    let stored = client.get("/buckets/b/keys/k").expect(200);
    assert_eq!((stored.text().as_str(), stored.header("x-riak-meta-seen")), ("012", Some("012")));
    for (hooks, text) in [
        (json!(["H.first", "H.refuse", "H.loop"]), "no k"),
        (json!(["H.plain"]), "PUT aborted by pre-commit hook."),
        (json!(["H.thrower"]), "PUT aborted by pre-commit hook."),
        (json!(["H.missing"]), "PUT aborted by pre-commit hook."),
        (json!(["H.loop"]), "PUT aborted by pre-commit hook."),
        (json!(["H.odd"]), "{invalid_return,{<<\"H.odd\">>,<<\"bucket is another one\">>}}"),
        (json!(["H.other"]), "{invalid_return,{<<\"H.other\">>,<<\"key is another one\">>}}"),
    ] {
        hooked.set("b", &json!({ "precommit": hooks }));
        let refused = client.put("/buckets/b/keys/k", "new").expect(403);
        assert_eq!(refused.text(), text, "{hooks}");
        assert_eq!(client.get("/buckets/b/keys/k").expect(200).text(), "012", "{hooks}");
    }
    assert_eq!(hooked.metric("larder_precommit_failed_total"), 7);
    assert_eq!(client.get("/stats").expect(200).json()["precommit_fail"], 7);
    // Bytes that JSON cannot hold, and a value that is too large for a script.
    hooked.set("b", &json!({"precommit": ["H.first"]}));
    client.put("/buckets/b/keys/k", b"\xff".to_vec()).expect(403);
    client.put("/buckets/b/keys/k", vec![b'x'; (8 << 20) + 1]).expect(413);
    hooked.set("b", &json!({"precommit": "none"}));
    client.put("/buckets/b/keys/k", b"\xff".to_vec()).expect(204);
}

#[test]
fn a_hook_that_changes_another_part_rounds_no_integer_term() {
    let module = "function same(o) { return o; }
        function tag(o) { o.values[0].metadata.index.a_bin = 'new'; return o; }";
    let hooked = HookedNode::start(&[("h.js", module)], &[]);
    let mut client = hooked.client();
    let terms = "9007199254740993, -9223372036854775807, 1234567890123456789012, 7";
    for hook in ["same", "tag"] {
        hooked.set("b", &json!({ "precommit": [hook] }));
        let put = HttpRequest::put("/buckets/b/keys/k", "v").header("x-riak-index-n_int", terms);
        client.send(&put).expect(204);
        let stored = client.get("/buckets/b/keys/k").expect(200);
        let mut kept: Vec<_> = stored.header("x-riak-index-n_int").unwrap().split(", ").collect();
        let mut given: Vec<_> = terms.split(", ").collect();
        kept.sort_unstable();
        given.sort_unstable();
        assert_eq!(kept, given, "{hook}");
    }
}

#[test]
fn a_clients_short_timeout_is_answered_as_one_and_counts_no_refusal() {
    let module = "function slow(o) { for (var i = 0, n = 0; i < 2e6; i++) n += i; return o; }";
    let hooked = HookedNode::start(&[("h.js", module)], &["--js-timeout", "30s"]);
    let mut client = hooked.client();
    hooked.set("b", &json!({"precommit": ["slow"]}));
    client.put("/buckets/b/keys/warm", "v").expect(204);
    let workers = hooked.workers();
    let refused = client.put("/buckets/b/keys/k?timeout=1", "v").expect(503);
    assert_eq!(refused.text(), "request timed out\n");
    client.get("/buckets/b/keys/k").expect(404);
    client.put("/buckets/b/keys/k", "v").expect(204);
    assert_eq!(hooked.workers(), workers, "no worker was killed");
    assert_eq!(hooked.metric("larder_precommit_failed_total"), 0);
}

#[test]
fn deletes_run_hooks_and_a_delete_of_nothing_runs_none() {
    let hooked = HookedNode::start(&[("h.js", MODULE)], &[]);
    let mut client = hooked.client();
    hooked.set("b", &json!({"precommit": ["H.deletes"], "postcommit": ["H.after"]}));
    client.put("/buckets/b/keys/k", "v").expect(204);
    assert_eq!(client.delete("/buckets/b/keys/k").expect(403).text(), "kept");
    client.delete("/buckets/b/keys/none").expect(404);
    hooked.set("b", &json!({"precommit": []}));
    client.delete("/buckets/b/keys/k").expect(204);
    client.get("/buckets/b/keys/k").expect(404);
}

#[test]
fn a_postcommit_hook_runs_after_the_write_and_its_failure_changes_nothing() {
    let hooked = HookedNode::start(&[("h.js", MODULE)], &[]);
    let mut client = hooked.client();
    hooked.set("b", &json!({"postcommit": ["H.afterFail", "H.missing", "H.after"]}));
    client.put("/buckets/b/keys/k", "v").expect(204);
    wait("two failures are counted", Duration::from_secs(20), || hooked.metric("larder_postcommit_failed_total") == 2);
    assert_eq!(client.get("/buckets/b/keys/k").expect(200).text(), "v");
}

#[test]
fn protocol_buffers_run_the_same_hooks_with_riaks_texts() {
    let hooked = HookedNode::start(&[("h.js", MODULE)], &[]);
    let mut pb = PbClient::connect(hooked.node.pb());
    let put = |pb: &mut PbClient| {
        let content = message(&[PbField::Bytes(1, b"v")]);
        pb.refused(PUT, &[PbField::Bytes(1, b"b"), PbField::Bytes(2, b"k"), PbField::Bytes(4, &content)])
    };
    for (hook, text) in [
        ("H.refuse", "{precommit_fail,<<\"no k\">>}"),
        ("H.plain", "precommit_fail"),
        ("H.missing", "precommit_fail"),
        ("H.odd", "{precommit_fail,{invalid_return,{<<\"H.odd\">>,<<\"bucket is another one\">>}}}"),
    ] {
        let hook = message(&[PbField::Bytes(2, hook.as_bytes())]);
        let props = message(&[PbField::Bytes(4, &hook), PbField::Number(5, 1)]);
        pb.ask(SET_BUCKET, &[PbField::Bytes(1, b"b"), PbField::Bytes(2, &props)]);
        assert_eq!(put(&mut pb), text);
    }
    hooked.set("b", &json!({"precommit": ["H.deletes"]}));
    hooked.client().put("/buckets/b/keys/k", "v").expect(204);
    let refused = pb.refused(DELETE, &[PbField::Bytes(1, b"b"), PbField::Bytes(2, b"k")]);
    assert_eq!(refused, "{precommit_fail,<<\"kept\">>}");
}

#[test]
fn hooks_of_a_type_and_of_its_buckets_see_the_type_and_data_types_refuse_hooks() {
    let module = "function where(o) { return { fail: o.bucket_type + '/' + o.bucket }; }";
    let hooked = HookedNode::start(&[("w.js", module)], &[]);
    let admin = hooked.node.admin();
    admin.active_type("t", r#"{"props":{"precommit":["where"]}}"#);
    let mut client = hooked.client();
    let refused = client.put("/types/t/buckets/b/keys/k", "v").expect(403);
    assert_eq!(refused.text(), "t/b");
    client.put_json("/types/t/buckets/b/props", r#"{"props":{"precommit":[]}}"#).expect(204);
    client.put("/types/t/buckets/b/keys/k", "v").expect(204);
    admin.active_type("counters", r#"{"props":{"datatype":"counter","precommit":["where"]}}"#);
    let update = HttpRequest::post_json("/types/counters/buckets/b/datatypes/k", "1");
    let refused = "Not available yet: commit hooks of data types\n";
    assert_eq!(client.send(&update).expect(501).text(), refused);
}

#[test]
fn js_reload_loads_changed_modules_and_names_a_broken_one() {
    let hooked = HookedNode::start(&[("h.js", "function f(o) { return { fail: 'one' }; }")], &[]);
    let mut client = hooked.client();
    hooked.set("b", &json!({"precommit": ["f"]}));
    assert_eq!(client.put("/buckets/b/keys/k", "v").expect(403).text(), "one");
    let admin = hooked.node.admin();
    fs::write(hooked.modules.path().join("h.js"), "function f(o) { return { fail: 'two' }; }").unwrap();
    admin.check(&["js-reload"], "");
    assert_eq!(client.put("/buckets/b/keys/k", "v").expect(403).text(), "two");
    fs::write(hooked.modules.path().join("h.js"), "function f(o) {").unwrap();
    let refused = admin.run(&["js-reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("the old ones stay in use: h.js: SyntaxError"), "{refused:?}");
    assert_eq!(client.put("/buckets/b/keys/k", "v").expect(403).text(), "two");
}

/// Hooks that attack, one for each way to stop a worker.
const HOSTILE: &str = r#"
    var Evil = {
        loop: function () { for (;;) {} },
        sparse: function () { return (new Array(1e9) + "").length; },
        copy: function () { var a = []; a.length = 4e9; a.copyWithin(1, 0); },
        find: function () { var s = "a".repeat(2e7); return s.indexOf("a".repeat(1e7) + "b"); },
        regex: function () { return /^(a+)+$/.test("a".repeat(40) + "b"); },
        recurse: function f() { return f() + 1; },
        allocate: function () { var a = []; for (;;) a.push(new ArrayBuffer(1e6)); },
        text: function () { var s = "x"; for (;;) s += s; },
        huge: function () { return "x".repeat(17e6); },
        deep: function () { var a = []; for (var i = 0; i < 1e5; i++) a = [a]; return a; },
        getter: function () { return { get values() { for (;;) {} } }; },
        forever: async function () { for (;;) await null; }
    };
    function fine(o) { return o; }
"#;

#[test]
fn hostile_hooks_end_in_time_while_every_other_request_is_answered() {
    let mut hooked = HookedNode::start(&[("evil.js", HOSTILE)], &["--js-timeout", "500ms", "--js-workers", "4"]);
    hooked.set("good", &json!({"precommit": ["fine"]}));
    let names =
        ["loop", "sparse", "copy", "find", "regex", "recurse", "allocate", "text", "huge", "deep", "getter", "forever"];
    for name in names {
        hooked.set(name, &json!({"precommit": [format!("Evil.{name}")]}));
    }
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", hooked.node.id())).unwrap().count();
    hooked.client().put("/buckets/good/keys/k", "v").expect(204);
    let (done, others) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for bucket in ["plain", "good"] {
            let (hooked, done, others) = (&hooked, &done, &others);
            scope.spawn(move || {
                let mut client = hooked.client();
                while !done.load(Ordering::Relaxed) {
                    client.put(&format!("/buckets/{bucket}/keys/k"), "v").expect(204);
                    client.get(&format!("/buckets/{bucket}/keys/k")).expect(200);
                    others.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let attacks: Vec<_> = names
            .chunks(6)
            .map(|names| {
                let hooked = &hooked;
                scope.spawn(move || {
                    for name in names {
                        let began = Instant::now();
                        hooked.client().put(&format!("/buckets/{name}/keys/k"), "v").expect(403);
                        assert!(began.elapsed() < Duration::from_secs(20), "{name} took {:?}", began.elapsed());
                    }
                })
            })
            .collect();
        let ended: Vec<_> = attacks.into_iter().map(|attack| attack.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "an attack was not refused");
    });
    assert!(others.load(Ordering::Relaxed) > 50, "{others:?}");
    wait("the killed workers are gone", Duration::from_secs(20), || hooked.workers().len() <= 4);
    // Two pipes and a watch of the process for each of four workers, and connections that are still closing.
    wait("no descriptor is left", Duration::from_secs(20), || descriptors() < 100);
    let workers = hooked.workers();
    assert!(!workers.is_empty());
    let ended = hooked.node.terminate();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    wait("no worker outlives its server", Duration::from_secs(20), || have_ended(&workers));
}

#[test]
fn a_killed_server_leaves_no_worker_that_loops() {
    let mut hooked = HookedNode::start(&[("evil.js", HOSTILE)], &["--js-timeout", "60s"]);
    hooked.set("b", &json!({"precommit": ["Evil.loop"]}));
    let mut request = std::net::TcpStream::connect(hooked.node.http()).unwrap();
    let put =
        b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nv";
    std::io::Write::write_all(&mut request, put).unwrap();
    wait("a worker runs", Duration::from_secs(20), || !hooked.workers().is_empty());
    std::thread::sleep(Duration::from_millis(300));
    let workers = hooked.workers();
    hooked.node.kill();
    wait("the workers are gone", Duration::from_secs(20), || have_ended(&workers));
}

fn have_ended(workers: &[u32]) -> bool {
    workers.iter().all(|worker| !Path::new(&format!("/proc/{worker}")).exists() || is_zombie(*worker))
}

/// A process that ended and that its new parent has not collected yet.
fn is_zombie(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}
