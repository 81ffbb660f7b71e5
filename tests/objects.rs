//! Objects: every verb, every header of an object, conditions, refusals.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::thread;

use crate::harness::{HttpClient, HttpRequest, LarderNode, TestEngine};

const K: &str = "/buckets/b/keys/k";

#[track_caller]
fn body(client: &mut HttpClient, url: &str) -> String {
    client.get(url).expect(200).text()
}

#[test]
fn an_object_is_put_read_and_deleted() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    assert_eq!(client.get(K).expect(404).text(), "not found\n");
    client.put(K, "hello").expect(204);
    let got = client.get(K).expect(200);
    assert_eq!((got.text().as_str(), got.header("Content-Type")), ("hello", Some("text/plain")));
    assert!(got.header("ETag").is_some_and(|etag| etag.starts_with('"') && etag.len() > 10));
    assert!(got.header("Last-Modified").is_some_and(|date| date.ends_with(" GMT")));
    assert_eq!(got.header("Link"), Some("</buckets/b>; rel=\"up\""));
    let head = client.send(&HttpRequest::new("HEAD", K)).expect(200);
    assert_eq!((head.context(), head.header("ETag"), head.body.len()), (got.context(), got.header("ETag"), 0));
    client.delete(K).expect(204);
    let gone = client.get(K).expect(404);
    assert_eq!((gone.text().as_str(), gone.header("X-Riak-Deleted")), ("not found\n", Some("true")));
    let context = gone.context().to_owned();
    client.delete(K).expect(404);
    client.send(&HttpRequest::put(K, "reborn").header("X-Riak-Vclock", &context)).expect(204);
    assert_eq!(body(&mut client, K), "reborn");
}

#[test]
fn a_post_without_a_key_makes_one() {
    let node = LarderNode::buffered();
    node.admin().active_type("t", r#"{"props":{}}"#);
    let mut client = node.client();
    for (bucket, prefix) in [
        ("/buckets/b/keys", "/buckets/b/keys/"),
        ("/types/t/buckets/b/keys", "/types/t/buckets/b/keys/"),
        ("/riak/b", "/riak/b/"),
    ] {
        let post = HttpRequest::new("POST", bucket).header("Content-Type", "text/plain").body("posted");
        let location = client.send(&post).expect(201).header("Location").expect("a location").to_owned();
        let key = location.strip_prefix(prefix).expect("in its bucket");
        assert!(key.len() >= 20 && key.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{key}");
        assert_eq!(body(&mut client, &location), "posted");
    }
    let post = HttpRequest::new("POST", K).header("Content-Type", "text/plain").body("with key");
    client.send(&post).expect(204);
    assert_eq!(body(&mut client, K), "with key");
}

#[test]
fn a_read_returns_every_header_of_an_object() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let link = r#"</buckets/b/keys/k1>; riaktag="friend", </buckets/b/keys/k2>; riaktag="new style""#;
    let put = HttpRequest::new("PUT", K)
        .header("Content-Type", "text/plain; charset=utf-8")
        .header("Content-Encoding", "gzip")
        .header("X-Riak-Meta-Foo", "Bar")
        .header("x-riak-meta-two", "2")
        .header("Link", link)
        .header("X-Riak-Index-Age_int", "42")
        .header("x-riak-index-name_bin", "a, b")
        .body("zzz");
    client.send(&put).expect(204);
    let got = client.get(K).expect(200);
    for (name, value) in [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Encoding", "gzip"),
        ("X-Riak-Meta-Foo", "Bar"),
        ("X-Riak-Meta-Two", "2"),
        ("x-riak-index-age_int", "42"),
        ("x-riak-index-name_bin", "a, b"),
    ] {
        assert_eq!(got.header(name), Some(value), "{name}");
    }
    let links = got.header("Link").expect("links");
    for part in [
        r#"</buckets/b/keys/k1>; riaktag="friend""#,
        r#"</buckets/b/keys/k2>; riaktag="new+style""#,
        r#"</buckets/b>; rel="up""#,
    ] {
        assert!(links.contains(part), "{links}");
    }
    let old = client.get("/riak/b/k").expect(200);
    assert!(old.header("Link").expect("links").contains(r#"</riak/b/k1>; riaktag="friend""#));
}

#[test]
fn the_old_path_and_type_default_name_the_same_object() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    client.put("/riak/b/k", "same").expect(204);
    for url in ["/riak/b/k", K, "/types/default/buckets/b/keys/k"] {
        assert_eq!(body(&mut client, url), "same");
    }
}

#[test]
fn the_same_bucket_and_key_under_two_types_are_two_objects() {
    let node = LarderNode::buffered();
    node.admin().active_type("one", r#"{"props":{}}"#);
    node.admin().active_type("two", r#"{"props":{}}"#);
    let mut client = node.client();
    client.put(K, "untyped").expect(204);
    client.put("/types/one/buckets/b/keys/k", "first").expect(204);
    assert_eq!(client.get("/types/two/buckets/b/keys/k").expect(404).text(), "not found\n");
    client.put("/types/two/buckets/b/keys/k", "second").expect(204);
    client.delete("/types/one/buckets/b/keys/k").expect(204);
    assert_eq!(body(&mut client, K), "untyped");
    assert_eq!(body(&mut client, "/types/two/buckets/b/keys/k"), "second");
}

#[test]
fn keys_and_buckets_are_any_bytes() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    for (number, name) in ["%00", "%FF%FE", "a%2Fb%20c%3F", "%D0%BF%D1%80", "%25", "..", "%2E%2E%2F"].iter().enumerate()
    {
        let url = format!("/buckets/x{name}/keys/{name}");
        client.put(&url, number.to_string()).expect(204);
        assert_eq!(body(&mut client, &url), number.to_string(), "{name}");
    }
    client.put("/buckets/b/keys/a%20b", "space").expect(204);
    assert_eq!(body(&mut client, "/buckets/b/keys/a+b"), "space");
}

#[test]
fn conditional_requests_hold() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    client.put(K, "v1").expect(204);
    let etag = client.get(K).expect(200).header("ETag").unwrap().to_owned();
    let get = |name: &str, value: &str| HttpRequest::get(K).header(name, value);
    let put = |url: &str, name: &str, value: &str| HttpRequest::put(url, "v2").header(name, value);
    for (request, status) in [
        (get("If-None-Match", &etag), 304),
        (get("If-None-Match", "*"), 304),
        (get("If-None-Match", "\"other\""), 200),
        (get("If-Match", "\"other\""), 412),
        (get("If-Match", &etag), 200),
        (get("If-Modified-Since", "Thu, 01 Jan 2015 00:00:00 GMT"), 200),
        (get("If-Modified-Since", "garbage"), 200),
        (get("If-Unmodified-Since", "Thu, 01 Jan 2015 00:00:00 GMT"), 412),
        (put(K, "If-None-Match", "*"), 412),
        (put(K, "If-None-Match", &etag), 412),
        (put(K, "If-Match", "\"other\""), 412),
        (put("/buckets/b/keys/new", "If-None-Match", "*"), 204),
        (put("/buckets/b/keys/missing", "If-Match", "*"), 412),
        (HttpRequest::new("DELETE", K).header("If-Match", "\"other\""), 412),
        (put(K, "If-Match", &etag), 204),
        (put(K, "If-Match", &etag), 412),
    ] {
        let response = client.send(&request);
        assert_eq!(response.status, status, "{request:?}: {}", response.text());
    }
}

#[test]
fn returnbody_shows_the_stored_object() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let url = format!("{K}?returnbody=true");
    let first = client.put(&url, "one").expect(200);
    assert_eq!(first.text(), "one");
    let second = client.send(&HttpRequest::put(&url, "two").header("X-Riak-Vclock", first.context())).expect(200);
    assert_eq!(second.text(), "two");
    assert_eq!(second.header("ETag"), client.get(K).expect(200).header("ETag"));
}

#[test]
fn bad_parameters_get_riaks_texts() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    client.put(K, "v").expect(204);
    let word = "query parameter must be an integer or one of the following words: 'one', 'quorum' or 'all'\n";
    for (query, text) in [
        ("r=foo", format!("r {word}")),
        ("r=", format!("r {word}")),
        ("pr=foo", format!("pr {word}")),
        ("w=foo", format!("w {word}")),
        ("r=4", "Specified w/dw/pw/node_confirms values invalid for bucket n value of 3\n".into()),
        ("timeout=abc", "Bad timeout value \"abc\"\n".into()),
        ("basic_quorum=maybe", "basic_quorum query parameter must be true or false\n".into()),
    ] {
        assert_eq!(client.get(&format!("{K}?{query}")).expect(400).text(), text, "{query}");
    }
    let typeless = HttpRequest::new("PUT", K).body("v");
    assert_eq!(client.send(&typeless).expect(400).text(), "Missing Content-Type request header");
    let link = HttpRequest::put(K, "v").header("Link", "</buckets/x/keys/y>");
    let text = "Invalid Link header. Links must be of the form\n</buckets/BUCKET/keys/KEY>; riaktag=\"TAG\"\n";
    assert_eq!(client.send(&link).expect(400).text(), text);
    let index = HttpRequest::put(K, "v").header("X-Riak-Index-age", "1");
    assert_eq!(client.send(&index).expect(400).text(), "Unknown field type for field: 'age'.\n");
    let context = client.send(&HttpRequest::put(K, "v").header("X-Riak-Vclock", "!!!"));
    assert_eq!(context.status, 400, "{}", context.text());
    assert_eq!(body(&mut client, K), "v");
}

#[test]
fn a_method_that_is_not_allowed_gets_the_allowed_ones() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    for (method, url) in [("PUT", "/buckets/b/keys"), ("DELETE", "/buckets"), ("POST", "/ping"), ("OPTIONS", K)] {
        let response = client.send(&HttpRequest::new(method, url)).expect(405);
        assert!(response.header("Allow").is_some_and(|allow| allow.contains("GET")), "{method} {url}");
    }
}

#[test]
fn write_once_keeps_one_value() {
    let node = LarderNode::buffered();
    node.admin().active_type("once", r#"{"props":{"write_once":true}}"#);
    let mut client = node.client();
    let url = "/types/once/buckets/b/keys/k";
    client.put(url, "v").expect(204);
    client.put(url, "v").expect(204);
    assert_eq!(body(&mut client, url), "v");
    client.put(url, "other").expect(204);
    let kept = body(&mut client, url);
    assert!(kept == "v" || kept == "other");
    client.put(url, "v").expect(204);
    assert_eq!(body(&mut client, url), kept, "which value is read does not depend on the order of writes");
}

#[test]
fn last_write_wins_replaces_without_a_context() {
    let node = LarderNode::buffered();
    node.admin().active_type("lww", r#"{"props":{"last_write_wins":true,"dvv_enabled":false}}"#);
    let mut client = node.client();
    let url = "/types/lww/buckets/b/keys/k";
    for value in ["one", "two", "three"] {
        client.put(url, value).expect(204);
        assert_eq!(body(&mut client, url), value);
    }
}

#[test]
fn a_consistent_object_changes_only_with_its_current_context() {
    let node = LarderNode::buffered();
    node.admin().active_type("strong", r#"{"props":{"consistent":true}}"#);
    let mut client = node.client();
    let url = "/types/strong/buckets/b/keys/k";
    client.put(url, "one").expect(204);
    let first = client.get(url).expect(200);
    client.put(url, "blind").expect(412);
    client.send(&HttpRequest::put(url, "two").header("X-Riak-Vclock", first.context())).expect(204);
    client.send(&HttpRequest::put(url, "stale").header("X-Riak-Vclock", first.context())).expect(412);
    assert_eq!(body(&mut client, url), "two");
}

#[test]
fn of_racing_puts_with_if_none_match_one_succeeds() {
    if !TestEngine::is_local_for("conditions that are checked with the write") {
        return;
    }
    let node = LarderNode::buffered();
    node.client().put_json("/buckets/race/props", r#"{"props":{"allow_mult":true}}"#).expect(204);
    for (round, length) in [(0, 10), (1, 10), (2, 2_000_000)] {
        let key = format!("/buckets/race/keys/{round}");
        let statuses: Vec<u16> = thread::scope(|scope| {
            let racers: Vec<_> = (0..50)
                .map(|_| {
                    let request = HttpRequest::put(&key, vec![b'x'; length]).header("If-None-Match", "*");
                    let mut client = node.client();
                    scope.spawn(move || client.send(&request).status)
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        let won = statuses.iter().filter(|status| **status == 204).count();
        assert_eq!((won, statuses.iter().filter(|status| **status == 412).count()), (1, 49), "{statuses:?}");
        node.client().get(&key).expect(200);
    }
}

#[test]
fn a_hook_that_no_module_has_fails_its_put_before_the_write_and_not_after() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    for (hook, status, stored) in [("precommit", 403, 404), ("postcommit", 204, 200)] {
        let props = format!("/buckets/{hook}/props");
        client.put_json(&props, &format!(r#"{{"props":{{"{hook}":["check"]}}}}"#)).expect(204);
        assert_eq!(client.get(&props).expect(200).json()["props"][hook], serde_json::json!(["check"]));
        let key = format!("/buckets/{hook}/keys/k");
        client.put(&key, "v").expect(status);
        client.get(&key).expect(stored);
        client.put_json(&props, &format!(r#"{{"props":{{"{hook}":[]}}}}"#)).expect(204);
        client.put(&key, "v").expect(204);
    }
}

#[test]
fn unsupported_features_answer_501_with_their_name() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let response = client.get("/search/query/i?q=*").expect(501);
    assert!(response.text().contains("search"), "{}", response.text());
}

#[test]
fn the_server_names_itself() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    assert_eq!(body(&mut client, "/ping"), "OK");
    let resources = client.send(&HttpRequest::get("/").header("Accept", "application/json")).expect(200).json();
    assert_eq!((&resources["riak_kv_wm_ping"], &resources["riak_kv_wm_stats"]), (&"/ping".into(), &"/stats".into()));
    client.put(K, "v").expect(204);
    client.get(K).expect(200);
    let stats = client.get("/stats").expect(200).json();
    assert_eq!((&stats["node_puts_total"], &stats["node_gets_total"]), (&1.into(), &1.into()));
    assert_eq!(stats["nodename"], "larder@127.0.0.1");
    assert!(stats["riak_kv_version"].as_str().is_some_and(|version| version >= "2.1.0"), "{stats}");
    let metrics = body(&mut client, "/metrics");
    assert!(metrics.contains("# TYPE "), "{metrics}");
}
