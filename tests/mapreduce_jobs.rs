//! MapReduce jobs whose clients read slowly, leave, or are cancelled by an operator, and their JavaScript functions.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{HttpRequest, LarderNode, wait};

const WITHIN: Duration = Duration::from_secs(20);
/// Values that fill the buffers of every socket.
const VALUES: usize = 40;

fn fill(node: &LarderNode) {
    let mut client = node.client();
    for number in 0..VALUES {
        let put = HttpRequest::put(&format!("/buckets/large/keys/{number}"), "x".repeat(1024 * 1024));
        client.send(&put.header("Content-Type", "text/plain")).expect(204);
    }
}

/// A client that asks for all values in parts, and does not read yet.
fn ask(node: &LarderNode) -> TcpStream {
    let document = r#"{"inputs":"large","query":[{"map":{"language":"javascript","name":"Riak.mapValues"}}]}"#;
    let mut socket = TcpStream::connect(node.http()).unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    let length = document.len();
    let request = format!(
        "POST /mapred?chunked=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{document}"
    );
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

/// The number of the job that runs, as an operator sees it.
fn job(node: &LarderNode) -> Option<String> {
    let listed: serde_json::Value =
        serde_json::from_str(&node.admin().output(&["mapreduce", "list", "--json"])).unwrap();
    listed["jobs"].get(0).map(|job| job["id"].to_string())
}

#[test]
fn a_client_that_does_not_read_stops_its_job_and_ends_it_when_it_leaves() {
    let node = LarderNode::buffered();
    fill(&node);
    let socket = ask(&node);
    wait("the job runs", WITHIN, || job(&node).is_some());
    std::thread::sleep(Duration::from_millis(300));
    assert!(job(&node).is_some(), "it waits for its client");
    drop(socket);
    wait("the job has ended", WITHIN, || job(&node).is_none());
    let text = node.admin().output(&["mapreduce", "list"]);
    assert_eq!(text.trim_end(), "No MapReduce jobs run");
}

#[test]
fn a_cancelled_job_shows_its_client_the_error() {
    let node = LarderNode::buffered();
    fill(&node);
    let mut socket = ask(&node);
    wait("the job runs", WITHIN, || job(&node).is_some());
    let id = job(&node).unwrap();
    let cancelled = node.admin().output(&["mapreduce", "cancel", &id]);
    assert!(cancelled.contains("is cancelled"), "{cancelled}");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let end = String::from_utf8_lossy(&answer[answer.len().saturating_sub(200)..]).into_owned();
    assert!(end.contains(r#"{"error":"cancelled by an operator"}"#), "{end}");
    assert!(answer.len() < VALUES * 1024 * 1024, "it ended before its last value");
    assert_eq!(job(&node), None);
}

#[test]
fn documents_of_any_kind_leave_the_server_as_it_was() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let deep = format!("{{\"inputs\":{}1{},\"query\":[]}}", "[".repeat(5000), "]".repeat(5000));
    let wide = format!("{{\"inputs\":[{}],\"query\":[]}}", vec!["0"; 400_000].join(","));
    let long = format!("{{\"inputs\":\"{}\",\"query\":[]}}", "b".repeat(3 * 1024 * 1024));
    for (document, status) in [(deep, 400), (wide, 400), (long, 413), ("\u{0}".into(), 400), (String::new(), 400)] {
        let request = HttpRequest::new("POST", "/mapred").header("Content-Type", "application/json").body(document);
        assert_eq!(client.send(&request).status, status);
    }
    client.get("/ping").expect(200);
}

/// A server with modules of JavaScript, and three objects: 1, 2 and 3.
fn scripted() -> (LarderNode, tempfile::TempDir) {
    let modules = tempfile::tempdir().unwrap();
    let source =
        "var Shop = { price: function(object, keydata, arg) { return [JSON.parse(object.values[0].data).n * arg]; } };";
    std::fs::write(modules.path().join("shop.js"), source).unwrap();
    let path = modules.path().to_str().unwrap().to_owned();
    let node = LarderNode::start(&["--durability", "buffered", "--js-dir", &path, "--js-timeout", "1s"]);
    let mut client = node.client();
    for number in 1..=3 {
        client.put_json(&format!("/buckets/numbers/keys/{number}"), &format!("{{\"n\":{number}}}")).expect(204);
    }
    let stored = HttpRequest::put(
        "/buckets/functions/keys/sum",
        "function(values) { return [values.reduce((a, b) => a + b, 0)]; }",
    );
    client.send(&stored.header("Content-Type", "application/javascript")).expect(204);
    (node, modules)
}

/// The answer to a job over the numbers with these phases.
fn run_phases(node: &LarderNode, phases: &str) -> (u16, String) {
    let document = format!("{{\"inputs\":\"numbers\",\"query\":[{phases}]}}");
    let request = HttpRequest::new("POST", "/mapred").header("Content-Type", "application/json").body(document);
    let answer = node.client().send(&request);
    (answer.status, answer.text())
}

const STORED_SUM: &str = r#"{"reduce":{"language":"javascript","bucket":"functions","key":"sum"}}"#;

#[test]
fn functions_by_source_by_name_and_from_an_object_run() {
    let (node, _modules) = scripted();
    let source = r#"{"map":{"language":"javascript","source":"function(object) { return [JSON.parse(object.values[0].data).n]; }"}}"#;
    let named = r#"{"map":{"language":"javascript","name":"Shop.price","arg":10}}"#;
    for (map, sum) in [(source, "[6]"), (named, "[60]")] {
        assert_eq!(run_phases(&node, &format!("{map},{STORED_SUM}")), (200, sum.into()));
    }
    let nothing = r#"{"map":{"language":"javascript","source":"function() { return []; }"}}"#;
    assert_eq!(run_phases(&node, &format!("{nothing},{STORED_SUM}")), (200, "[0]".into()));
}

/// As the tutorial has it: line ends inside of strings, and `\w` with one backslash, which JSON has neither.
#[test]
fn a_word_count_pasted_from_the_tutorial_was_refused_as_json() {
    let (node, _modules) = scripted();
    let mut client = node.client();
    for (key, text) in [("p1", "Sour plums and sweet plums"), ("p2", "plums")] {
        client.send(&HttpRequest::put(&format!("/buckets/lines/keys/{key}"), text)).expect(204);
    }
    let job = r#"{"inputs":[["lines","p1"],["lines","p2"]],"query":[{"map":{"language":"javascript","source":"
function(v) {
  var words = v.values[0].data.toLowerCase().match(/\w*/g), found = [];
  for (var i in words)
    if (words[i] != '') {
      var one = {};
      one[words[i]] = 1;
      found.push(one);
    }
  return found;
}"}},{"reduce":{"language":"javascript","source":"
function(v) {
  var counts = {};
  for (var i in v)
    for (var w in v[i])
      counts[w] = (counts[w] || 0) + v[i][w];
  return [counts];
}"}}]}"#;
    let request = HttpRequest::new("POST", "/mapred").header("Content-Type", "application/json").body(job);
    let answer: serde_json::Value = serde_json::from_str(&client.send(&request).expect(200).text()).unwrap();
    assert_eq!(answer, serde_json::json!([{ "sour": 1, "plums": 3, "and": 1, "sweet": 1 }]));
}

/// A function that loops, allocates, throws, recurses or returns no list ends its own job, with the reason.
#[test]
fn a_hostile_function_ends_its_own_job_alone() {
    let (node, _modules) = scripted();
    for (body, reason) in [
        ("while (true) {}", "the script ran too long"),
        ("var a = []; while (true) { a.push(new Array(1000).join('x')); }", "script"),
        ("throw new Error('broken');", "broken"),
        ("var f = function(n) { return f(n + 1) + 1; }; return f(0);", "stack"),
        ("return [process.env];", "process is not defined"),
        ("return 1;", "list"),
    ] {
        let map = format!(r#"{{"map":{{"language":"javascript","source":"function() {{ {body} }}"}}}}"#);
        let (status, text) = run_phases(&node, &map);
        assert!(status == 500 && text.contains(reason), "{body}: {status} {text}");
    }
    let well = r#"{"map":{"language":"javascript","name":"Shop.price","arg":1}}"#;
    assert_eq!(run_phases(&node, &format!("{well},{STORED_SUM}")), (200, "[6]".into()));
}
