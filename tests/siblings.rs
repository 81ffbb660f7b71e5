//! Siblings: their causes, their answers, their resolution.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::harness::{HttpClient, HttpRequest, HttpResponse, LarderNode};

const K: &str = "/types/t/buckets/b/keys/k";

/// A server with a type that keeps siblings, and a key that has these.
fn with_siblings(values: &[&str]) -> (LarderNode, HttpClient) {
    let node = LarderNode::buffered();
    node.admin().active_type("t", r#"{"props":{"n_val":1}}"#);
    let mut client = node.client();
    for value in values {
        client.put(K, *value).expect(204);
    }
    (node, client)
}

fn multipart() -> HttpRequest {
    HttpRequest::get(K).header("Accept", "multipart/mixed")
}

/// The parts of a multipart answer: the headers and the body of each.
fn parts(response: &HttpResponse) -> Vec<(String, String)> {
    let kind = response.header("Content-Type").expect("a content type");
    let boundary = kind.strip_prefix("multipart/mixed; boundary=").expect("multipart").to_owned();
    let text = response.text();
    let end = format!("\r\n--{boundary}--\r\n");
    let inner = text.strip_suffix(&end).expect("a closing boundary");
    let open = format!("\r\n--{boundary}\r\n");
    let split = |part: &str| part.split_once("\r\n\r\n").map(|(head, body)| (head.to_owned(), body.to_owned()));
    inner.split(&open).skip(1).map(|part| split(part).expect("headers and a body")).collect()
}

fn vtags(response: &HttpResponse) -> Vec<String> {
    let text = response.text();
    let list = text.strip_prefix("Siblings:\n").expect("a list of siblings");
    list.lines().map(str::to_owned).collect()
}

#[test]
fn two_writers_who_saw_nothing_leave_two_siblings() {
    let (_node, mut client) = with_siblings(&["tea", "milk"]);
    let list = client.get(K).expect(300);
    assert_eq!(list.header("Content-Type"), Some("text/plain"));
    let tags = vtags(&list);
    assert_eq!(tags.len(), 2);
    let mut values: Vec<_> = tags
        .iter()
        .map(|tag| {
            let one = client.get(&format!("{K}?vtag={tag}")).expect(200);
            assert_eq!(one.context(), list.context());
            one.text()
        })
        .collect();
    values.sort();
    assert_eq!(values, ["milk", "tea"]);
    client.get(&format!("{K}?vtag=nosuch")).expect(404);
    client.send(&HttpRequest::new("HEAD", K)).expect(300);
}

#[test]
fn multipart_shows_every_sibling_with_its_headers() {
    let (_node, mut client) = with_siblings(&["tea"]);
    let put = HttpRequest::put(K, "milk").header("X-Riak-Meta-From", "cow").header("x-riak-index-n_int", "1, 2");
    client.send(&put).expect(204);
    let answer = client.send(&multipart()).expect(300);
    let parts = parts(&answer);
    assert_eq!(parts.len(), 2);
    let (head, _) = parts.iter().find(|(_, body)| body == "milk").expect("the second");
    let head = head.to_lowercase();
    for line in
        ["content-type: text/plain", "x-riak-meta-from: cow", "x-riak-index-n_int: 1", "etag: ", "last-modified: "]
    {
        assert!(head.lines().any(|header| header.starts_with(line)), "{line}: {head}");
    }
    let both = client.send(&HttpRequest::get(K).header("Accept", "multipart/mixed, application/json, */*;q=0.5"));
    assert!(both.expect(300).header("Content-Type").is_some_and(|kind| kind.starts_with("multipart/mixed")));
    client.send(&HttpRequest::get(K).header("Accept", "application/json")).expect(406);
}

#[test]
fn a_put_with_the_context_of_a_read_resolves() {
    let (_node, mut client) = with_siblings(&["tea", "milk", "salt"]);
    let context = client.get(K).expect(300).context().to_owned();
    client.send(&HttpRequest::put(K, "tea with milk").header("X-Riak-Vclock", &context)).expect(204);
    assert_eq!(client.get(K).expect(200).text(), "tea with milk");
    client.send(&HttpRequest::put(K, "late").header("X-Riak-Vclock", &context)).expect(204);
    assert_eq!(vtags(&client.get(K).expect(300)).len(), 2, "a value that the context does not name stays");
}

#[test]
fn returnbody_shows_the_siblings_the_put_made() {
    let (_node, mut client) = with_siblings(&["one"]);
    let put = HttpRequest::put(&format!("{K}?returnbody=true"), "two").header("Accept", "multipart/mixed");
    assert_eq!(parts(&client.send(&put).expect(300)).len(), 2);
}

#[test]
fn a_put_concurrent_with_a_delete_survives_it() {
    let (_node, mut client) = with_siblings(&["old"]);
    let context = client.get(K).expect(200).context().to_owned();
    client.put(K, "concurrent").expect(204);
    client.send(&HttpRequest::new("DELETE", K).header("X-Riak-Vclock", &context)).expect(204);
    assert_eq!(client.get(K).expect(200).text(), "concurrent");
}

#[test]
fn the_hundred_and_first_sibling_is_refused() {
    let (_node, mut client) = with_siblings(&[]);
    for number in 0..100 {
        client.put(K, number.to_string()).expect(204);
    }
    let refused = client.put(K, "one too many").expect(409);
    assert!(refused.text().contains("too_many_siblings"), "{}", refused.text());
    let list = client.get(K).expect(300);
    assert_eq!(vtags(&list).len(), 100);
    let context = list.context().to_owned();
    client.send(&HttpRequest::put(K, "resolved").header("X-Riak-Vclock", &context)).expect(204);
    assert_eq!(client.get(K).expect(200).text(), "resolved");
    client.put(K, "room again").expect(204);
}

#[test]
fn without_allow_mult_the_newest_is_shown_and_no_rows_pile_up() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    for number in 0..150 {
        client.put("/buckets/b/keys/k", number.to_string()).expect(204);
    }
    assert_eq!(client.get("/buckets/b/keys/k").expect(200).text(), "149");
}

#[test]
fn siblings_survive_a_restart_and_resolve_after_it() {
    let mut node = LarderNode::start(&[]);
    node.admin().active_type("t", r#"{"props":{}}"#);
    let mut client = node.client();
    client.put(K, "one").expect(204);
    client.put(K, "two").expect(204);
    let context = client.get(K).expect(300).context().to_owned();
    node.kill();
    node.restart();
    let mut client = node.client();
    assert_eq!(vtags(&client.get(K).expect(300)).len(), 2);
    client.send(&HttpRequest::put(K, "done").header("X-Riak-Vclock", &context)).expect(204);
    assert_eq!(client.get(K).expect(200).text(), "done");
}
