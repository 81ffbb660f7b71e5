//! The wire: pipelining, large bodies, malformed requests, limits and shutdown.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_api_riak::http::HttpSettings;
use larder_core::Config;
use larder_kv::ReplicationQueue;
use larder_net::{ConnectionLimit, ConnectionSettings};
use larder_testkit::http::{HttpClient, HttpRequest, connect};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, RngSeed, TestRunner};

use crate::support::RiakServer;

/// Length of a value that must be streamed and stored as a blob.
const LARGE: usize = 3 * 1024 * 1024 + 17;

fn put(path: &str, body: &[u8], more: &str) -> Vec<u8> {
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{more}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn get(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n").into_bytes()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

/// A queue with one element.
struct OneElement;

#[async_trait]
impl ReplicationQueue for OneElement {
    async fn next(&self, name: &[u8]) -> larder_core::Result<Option<Bytes>> {
        Ok((name == b"back").then_some(Bytes::from_static(b"\x01element")))
    }
}

#[test]
fn a_riak_fetches_from_a_queue_that_there_is_and_in_the_form_that_there_is() {
    let server = RiakServer::start();
    let mut client = server.connect();
    let mut status = |request: Vec<u8>| {
        client.write(&request).unwrap();
        let answer = client.receive().unwrap();
        (answer.status, String::from_utf8(answer.body).unwrap())
    };
    let fetch = "/queuename/back?object_format=internal";
    assert_eq!(status(get(fetch, "")).0, 501, "no move goes back");
    let queue: Arc<dyn ReplicationQueue> = Arc::new(OneElement);
    server.gateway().kv.serve_queue(Arc::downgrade(&queue));
    assert_eq!(status(get(fetch, "")), (200, "\x01element".to_owned()));
    assert_eq!(status(get("/queuename/back", "")).0, 200);
    assert_eq!(status(get("/queuename/other", "")).0, 501);
    let refused = (400, "Format [102,111,111,49] not defined".to_owned());
    assert_eq!(status(get("/queuename/back?object_format=foo1", "")), refused);
    assert_eq!(status(put("/queuename/back", b"x", "")).0, 405);
    drop(queue);
    assert_eq!(status(get(fetch, "")).0, 501, "the move has ended");
    server.stop();
}

#[test]
fn requests_may_come_in_one_packet() {
    let server = RiakServer::start();
    let mut client = server.connect();
    let both = [put("/buckets/b/keys/k", b"x", ""), get("/buckets/b/keys/k", ""), get("/ping", "")].concat();
    client.write(&both).unwrap();
    assert_eq!(client.receive().unwrap().status, 204);
    assert_eq!(client.receive().unwrap().body, b"x");
    assert_eq!(client.receive().unwrap().body, b"OK");
    server.stop();
}

#[test]
fn a_refused_body_does_not_spoil_the_next_request() {
    let server = RiakServer::start();
    let mut client = server.connect();
    let refused = b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx";
    client.write([&refused[..], &get("/ping", "")].concat()).unwrap();
    assert_eq!(client.receive().unwrap().status, 400);
    assert_eq!(client.receive().unwrap().body, b"OK");
    server.stop();
}

#[test]
fn a_client_may_close_its_half() {
    let server = RiakServer::start();
    let mut client = server.connect();
    client.write(get("/ping", "")).unwrap();
    client.close_writing().unwrap();
    assert_eq!(client.receive().unwrap().body, b"OK");
    assert!(client.is_closed());
    server.stop();
}

#[test]
fn old_clients_without_host_are_served() {
    let server = RiakServer::start();
    let mut client = server.connect();
    client.write(b"GET /ping HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(client.receive().unwrap().body, b"OK");
    assert!(client.is_closed());
    server.stop();
}

#[test]
fn a_client_may_wait_for_100_continue() {
    let server = RiakServer::start();
    let mut client = server.connect();
    let request = put("/buckets/b/keys/k", b"x", "Expect: 100-continue\r\n");
    client.write(&request[..request.len() - 1]).unwrap();
    assert_eq!(client.receive().unwrap().status, 100);
    client.write(b"x").unwrap();
    assert_eq!(client.receive().unwrap().status, 204);
    server.stop();
}

#[test]
fn large_values_stream_in_and_out() {
    let server = RiakServer::start();
    let mut client = server.client();
    let value = pattern(LARGE);
    let request = put("/buckets/b/keys/large", &value, "");
    assert_eq!(client.exchange(&request).unwrap().status, 204);
    let found = client.exchange(get("/buckets/b/keys/large", "")).unwrap();
    assert_eq!(found.header("content-length"), Some(LARGE.to_string().as_str()));
    assert!(found.body == value);
    let part = client.exchange(get("/buckets/b/keys/large", "Range: bytes=1000000-2000000\r\n")).unwrap();
    assert_eq!(part.status, 206);
    assert!(part.body == value[1_000_000..=2_000_000]);
    let head = b"HEAD /buckets/b/keys/large HTTP/1.1\r\nHost: x\r\n\r\n";
    let head = client.exchange(head).unwrap();
    assert_eq!((head.header("content-length"), head.body.len()), (Some(LARGE.to_string().as_str()), 0));
    server.stop();
}

#[test]
fn large_siblings_stream_too() {
    let server = RiakServer::start();
    server.make_type("kept", "{}", true);
    let mut client = server.client();
    let path = "/types/kept/buckets/b/keys/k";
    let value = pattern(300_000);
    for body in [&value[..], b"small"] {
        assert_eq!(client.exchange(put(path, body, "")).unwrap().status, 204);
    }
    let request = get(path, "Accept: multipart/mixed\r\n");
    let found = client.exchange(&request).unwrap();
    assert_eq!(found.status, 300);
    assert!(found.body.windows(value.len()).any(|part| part == value));
    let head = client.exchange([b"HEAD", &request[3..]].concat()).unwrap();
    assert_eq!(head.header("content-length"), found.header("content-length"));
    server.stop();
}

#[test]
fn a_large_body_that_does_not_match_its_hash_is_not_stored() {
    let server = RiakServer::start();
    let mut client = server.client();
    let request = put("/buckets/b/keys/k", &pattern(LARGE), "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n");
    let refused = client.exchange(&request).unwrap();
    assert_eq!((refused.status, refused.body), (400, b"The body does not match its Content-MD5 header\n".to_vec()));
    assert_eq!(client.exchange(get("/buckets/b/keys/k", "")).unwrap().status, 404);
    server.stop();
}

#[test]
fn too_large_a_body_is_refused_unread() {
    let config = Config { object_bytes_max: 1_000_000, ..Config::default() };
    let server = RiakServer::start_with(config, HttpSettings::default());
    let mut client = server.connect();
    let refused = client.exchange(put("/buckets/b/keys/k", &pattern(LARGE), "")).unwrap();
    assert_eq!((refused.status, refused.body), (413, format!("Error:\n{{too_large,{LARGE}}}\n").into_bytes()));
    let mut client = server.connect();
    let head = "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n", &pattern(0x10000)[..], b"\r\n"].concat();
    for _ in 0..20 {
        // The server may answer and stop reading at any time.
        let _ = client.write(&chunk);
    }
    assert_eq!(client.receive().unwrap().status, 413);
    server.stop();
}

#[test]
fn a_broken_body_stores_nothing() {
    let server = RiakServer::start();
    let mut client = server.connect();
    let request = put("/buckets/b/keys/k", &pattern(LARGE), "");
    client.write(&request[..request.len() / 2]).unwrap();
    client.close_writing().unwrap();
    let answer = client.receive();
    assert!(answer.as_ref().map_or_else(|_| client.is_closed(), |answer| answer.status == 400), "{answer:?}");
    let mut client = server.connect();
    assert_eq!(client.exchange(get("/buckets/b/keys/k", "")).unwrap().status, 404);
    server.stop();
}

#[test]
fn long_listings_come_in_pages() {
    let server = RiakServer::start();
    let mut client = server.client();
    for number in 0..1200 {
        let request = put(&format!("/buckets/many/keys/{number:04}?dw=0"), b"x", "");
        assert_eq!(client.exchange(&request).unwrap().status, 204);
    }
    let whole = client.exchange(get("/buckets/many/keys?keys=true", "")).unwrap();
    let whole: serde_json::Value = serde_json::from_slice(&whole.body).unwrap();
    let mut keys: Vec<_> = whole["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!((keys.len(), keys[0], keys[1199]), (1200, "0000", "1199"));
    let stream = client.exchange(get("/buckets/many/keys?keys=stream", "")).unwrap();
    let objects: Vec<serde_json::Value> =
        serde_json::Deserializer::from_slice(&stream.body).into_iter().map(Result::unwrap).collect();
    let counts: Vec<_> = objects.iter().map(|object| object["keys"].as_array().unwrap().len()).collect();
    assert_eq!((counts.iter().sum::<usize>(), counts.last()), (1200, Some(&0)));
    server.stop();
}

#[test]
fn a_listing_of_exactly_one_page_is_json() {
    let server = RiakServer::start();
    let mut client = server.client();
    for number in 0..1000 {
        let request = put(&format!("/buckets/page/keys/{number:04}?dw=0"), b"x", "");
        assert_eq!(client.exchange(&request).unwrap().status, 204);
    }
    let whole = client.exchange(get("/buckets/page/keys?keys=true", "")).unwrap();
    let whole: serde_json::Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(whole["keys"].as_array().map(Vec::len), Some(1000));
    server.stop();
}

#[test]
fn too_many_headers_are_refused_by_name() {
    let server = RiakServer::start();
    let mut client = server.connect();
    let fine = "X-Riak-Meta-A: ".to_owned() + &"a".repeat(60_000) + "\r\n";
    assert_eq!(client.exchange(put("/buckets/b/keys/k", b"x", &fine)).unwrap().status, 204);
    let many: String = (0..200).map(|number| format!("x-riak-index-f{number}_int: {number}\r\n")).collect();
    assert_eq!(client.exchange(put("/buckets/b/keys/k", b"x", &many)).unwrap().status, 204);
    let much = "X-Riak-Meta-A: ".to_owned() + &"a".repeat(100_000) + "\r\n";
    let refused = client.exchange(put("/buckets/b/keys/k", b"x", &much)).unwrap();
    assert_eq!(refused.status, 431, "{refused:?}");
    let mut client = server.connect();
    let endless = "X-Riak-Meta-A: ".to_owned() + &"a".repeat(500_000) + "\r\n";
    client.write(put("/buckets/b/keys/k", b"x", &endless)).unwrap();
    assert_eq!(client.receive().unwrap().status, 431);
    server.stop();
}

#[test]
fn names_above_their_limit_are_refused() {
    let server = RiakServer::start();
    let mut client = server.client();
    let refused = client.exchange(get(&format!("/buckets/b/keys/{}", "k".repeat(20_000)), "")).unwrap();
    assert_eq!((refused.status, refused.body), (400, b"The key is longer than 12288 bytes\n".to_vec()));
    server.stop();
}

#[test]
fn a_connection_above_the_limit_gets_503() {
    let settings = ConnectionSettings { connections: ConnectionLimit::new(1), ..ConnectionSettings::default() };
    let server = RiakServer::start_with(Config::default(), settings.into());
    let mut first = server.connect();
    assert_eq!(first.exchange(get("/ping", "")).unwrap().status, 200);
    let mut second = server.connect();
    let turned = second.receive().unwrap();
    assert_eq!((turned.status, turned.header("retry-after")), (503, Some("1")));
    assert_eq!(first.exchange(get("/ping", "")).unwrap().status, 200);
    server.stop();
}

#[test]
fn headers_that_stop_end_the_connection() {
    let settings = ConnectionSettings {
        header_timeout: Duration::from_millis(50),
        idle_timeout: Duration::from_secs(3600),
        ..ConnectionSettings::default()
    };
    let server = RiakServer::start_with(Config::default(), settings.into());
    let mut slow = server.connect();
    slow.write(b"GET /ping HT").unwrap();
    assert!(slow.is_closed());
    let mut idle = server.connect();
    assert_eq!(idle.exchange(get("/ping", "")).unwrap().status, 200);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(idle.exchange(get("/ping", "")).unwrap().status, 200);
    server.stop();
}

#[test]
fn idle_connections_are_closed() {
    let settings = ConnectionSettings {
        header_timeout: Duration::from_millis(20),
        idle_timeout: Duration::from_millis(60),
        ..ConnectionSettings::default()
    };
    let server = RiakServer::start_with(Config::default(), settings.into());
    let mut client = server.connect();
    assert_eq!(client.exchange(get("/ping", "")).unwrap().status, 200);
    assert!(client.is_closed());
    server.stop();
}

#[test]
fn shutdown_finishes_the_request_under_way() {
    let server = RiakServer::start();
    let mut client = server.connect();
    let request = put("/buckets/b/keys/k", b"xy", "");
    let (most, rest) = request.split_at(request.len() - 1);
    client.write(most).unwrap();
    thread::sleep(Duration::from_millis(100));
    let address = server.background.address;
    let stop = thread::spawn(move || server.stop());
    thread::sleep(Duration::from_millis(100));
    assert!(connect(address, None).is_err());
    client.write(rest).unwrap();
    assert_eq!(client.receive().unwrap().status, 204);
    stop.join().unwrap();
}

#[test]
fn malformed_requests_leave_the_server_serving() {
    let server = RiakServer::start();
    for bytes in malformed(2000) {
        let answer = HttpClient::raw(server.background.address, &bytes).expect("the server hangs");
        assert!(!answer.starts_with(b"HTTP/1.1 500"), "{}", String::from_utf8_lossy(&bytes));
    }
    let mut client = server.connect();
    assert_eq!(client.exchange(get("/ping", "")).unwrap().body, b"OK");
    server.stop();
}

/// Requests with one odd or wrong part, and some of arbitrary bytes.
fn malformed(count: usize) -> Vec<Vec<u8>> {
    let odd = "[ -~]{0,20}";
    let line =
        ("(GET|PUT|POST|DELETE|HEAD|FOO|)", "/(buckets|types/default/buckets|riak)/[a-z%+/?=&;\\x80-\\xff]{0,12}", odd);
    let header = prop_oneof![
        "(Content-Type|Link|X-Riak-Vclock|x-riak-index-a_int|If-Match|Accept|Range|Content-Length|Transfer-Encoding): [ -~]{0,20}",
        "[ -~]{0,30}",
    ];
    let request = (line, proptest::collection::vec(header, 0..5), proptest::collection::vec(any::<u8>(), 0..40));
    let request = request.prop_map(|((method, path, odd), headers, body)| {
        let version = if odd.len() % 3 == 0 { odd } else { "HTTP/1.1".to_owned() };
        let head = format!("{method} {path} {version}\r\nHost: x\r\n{}\r\n\r\n", headers.join("\r\n"));
        [head.as_bytes(), &body].concat()
    });
    let requests = proptest::collection::vec(
        prop_oneof![9 => request, 1 => proptest::collection::vec(any::<u8>(), 0..200)],
        count,
    );
    let mut runner = TestRunner::new(Runs { rng_seed: RngSeed::Fixed(3), ..Runs::default() });
    proptest::strategy::ValueTree::current(&requests.new_tree(&mut runner).unwrap())
}

#[test]
fn an_empty_context_of_a_condition_is_refused() {
    let server = RiakServer::start();
    let mut client = server.client();
    client.put("/buckets/b/keys/k", "one").expect(204);
    let put = HttpRequest::put("/buckets/b/keys/k", "two").header("X-Riak-If-Not-Modified", "");
    let refused = client.send(&put).expect(400);
    assert_eq!(refused.text(), "The vclock was not issued by this server or is damaged\n");
    server.stop();
}

#[test]
fn a_request_with_two_hosts_was_served_by_the_first() {
    let server = RiakServer::start();
    let mut client = server.connect();
    client.write(get("/ping", "Host: y\r\n")).unwrap();
    let refused = client.receive().unwrap();
    assert_eq!((refused.status, refused.body.as_slice()), (400, &b"The request has two Host headers.\n"[..]));
    client.write(get("/ping", "")).unwrap();
    assert_eq!(client.receive().unwrap().status, 200);
    server.stop();
}

#[test]
fn several_documents_once_came_in_one_chunk_and_old_clients_saw_none() {
    let server = RiakServer::start();
    let mut client = server.client();
    let put = HttpRequest::put("/buckets/b/keys/k", "1").header("X-Riak-Index-a_int", "1");
    client.send(&put).expect(204);
    let chunks = |request: Vec<u8>| {
        let mut connection = server.connect();
        connection.write(request).unwrap();
        let answer = connection.read_to_close().unwrap();
        let (_, mut body) = answer.split_once("\r\n\r\n").unwrap();
        let mut chunks = Vec::new();
        while let Some((length, rest)) = body.split_once("\r\n") {
            let (chunk, rest) = rest.split_at(usize::from_str_radix(length, 16).unwrap());
            chunks.push(chunk.to_owned());
            body = rest.strip_prefix("\r\n").unwrap();
        }
        assert_eq!(chunks.pop().as_deref(), Some(""));
        chunks
    };
    const CLOSE: &str = "Connection: close\r\n";
    assert_eq!(chunks(get("/buckets/b/keys?keys=stream", CLOSE)), [r#"{"keys":["k"]}"#, r#"{"keys":[]}"#]);
    assert_eq!(chunks(get("/buckets?buckets=stream", CLOSE)), [r#"{"buckets":["b"]}"#, r#"{"buckets":[]}"#]);
    let old = chunks(get("/riak/b?keys=stream", CLOSE));
    assert!(old[0].starts_with(r#"{"props":{"#) && old[0].ends_with("}}"), "{old:?}");
    assert_eq!(old[1..], [r#"{"keys":["k"]}"#, r#"{"keys":[]}"#]);
    let index = chunks(get("/buckets/b/index/a_int/1?stream=true", CLOSE));
    assert!(index.len() == 2 && index[0].ends_with(r#"{"keys":["k"]}"#) && index[1].ends_with("--\r\n"), "{index:?}");
    let reduce =
        r#"{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_count_inputs","keep":true}}"#;
    let job = format!(r#"{{"inputs":"b","query":[{reduce},{reduce}]}}"#);
    let post = format!(
        "POST /mapred?chunked=true HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{CLOSE}\r\n{job}",
        job.len()
    );
    let parts = chunks(post.into_bytes());
    assert_eq!(parts.iter().filter(|part| part.contains("\"phase\":")).count(), 2, "{parts:?}");
    assert_eq!(parts.len(), 3, "{parts:?}");
    server.stop();
}
