//! Reads at once answer as all others do: two servers over one store, of which one never reads at once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_api_riak::http::HttpSettings;
use larder_core::Config;
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use larder_testkit::SplitMix64;
use larder_testkit::at_once::ReadsAtOnce;
use larder_testkit::hooked::Hooked;
use larder_testkit::http::{HttpClient, HttpRequest, HttpResponse};
use larder_testkit::pb::{PbClient, PbField, PbMessage};

use crate::support::RiakServer;

/// A server over `memory`; with `reads` it reads at once, and counts that.
fn server(memory: &Arc<MemoryStore>, clock: &Arc<SystemClock>, reads: Option<Arc<AtomicUsize>>) -> RiakServer {
    let store = Arc::new(Hooked(Arc::new(ReadsAtOnce { inner: memory.clone(), reads })));
    RiakServer::start_over(store, memory.clone(), clock.clone(), Config::default(), HttpSettings::default())
}

/// Types with a policy each, and one whose reads take another way.
const TYPES: [(&str, &str); 5] = [
    ("default", ""),
    ("siblings", r#"{"allow_mult":true}"#),
    ("newest", r#"{"last_write_wins":true,"dvv_enabled":false}"#),
    ("once", r#"{"write_once":true}"#),
    ("strong", r#"{"consistent":true}"#),
];
const LENGTHS: [usize; 6] = [0, 1, 100, 1000, 1024, 3000];

/// Random writes of one key, with and without a context.
fn write(client: &mut HttpClient, path: &str, random: &mut SplitMix64) {
    for _ in 0..random.below(4) {
        let seen = client.get(path);
        let context = seen.header("X-Riak-Vclock").map(str::to_owned).filter(|_| random.chance(600));
        if random.chance(200) {
            let delete = HttpRequest::new("DELETE", path);
            client.send(&with_context(delete, context.as_deref()));
            continue;
        }
        let length = *random.pick(&LENGTHS);
        // Without a media type of its own: two are refused.
        let mut put = HttpRequest::new("PUT", path).body(random.bytes(length));
        let headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Encoding", "gzip"),
            ("X-Riak-Meta-Colour", "dark red"),
            ("X-Riak-Index-age_int", "7, 8"),
            ("Link", "</buckets/b/keys/other>; riaktag=\"next\""),
        ];
        for (place, (name, value)) in headers.into_iter().enumerate() {
            if random.chance(400) {
                put = put.header(name, value);
            } else if place == 0 {
                put = put.header(name, "application/json");
            }
        }
        client.send(&with_context(put, context.as_deref()));
    }
}

fn with_context(request: HttpRequest, context: Option<&str>) -> HttpRequest {
    match context {
        Some(context) => request.header("X-Riak-Vclock", context),
        None => request,
    }
}

/// Requests that a read can be part of, given an earlier answer.
fn requests(path: &str, seen: &HttpResponse) -> Vec<HttpRequest> {
    let get = |query: &str| HttpRequest::get(&format!("{path}{query}"));
    let tag = seen.header("ETag").unwrap_or("\"none\"");
    let modified = seen.header("Last-Modified").unwrap_or("Thu, 01 Jan 1970 00:00:00 GMT");
    let mut requests: Vec<_> =
        ["", "?r=all", "?r=9", "?pr=quorum&basic_quorum=true", "?node_confirms=2", "?timeout=60000"]
            .into_iter()
            .chain(["?notfound_ok=false", "?vtag=none", "?r=x"])
            .map(get)
            .collect();
    requests.push(get(&format!("?vtag={}", tag.trim_matches('"'))));
    requests.push(HttpRequest::new("HEAD", path));
    for (name, value) in [
        ("If-None-Match", tag),
        ("If-None-Match", "*"),
        ("If-Match", "\"other\""),
        ("If-Match", tag),
        ("If-Modified-Since", modified),
        ("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("Range", "bytes=1-2"),
        ("Accept", "application/json"),
        ("Accept", "multipart/mixed"),
        ("Accept-Encoding", "identity"),
        ("Accept-Charset", "x"),
    ] {
        requests.push(get("").header(name, value));
    }
    requests
}

/// All of an answer but its time of day.
fn answer(client: &mut HttpClient, request: &HttpRequest) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let HttpResponse { status, mut headers, body, .. } = client.send(request);
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("date"));
    (status, headers, body)
}

fn pb_requests<'a>(at: &[PbField<'a>], context: &'a [u8]) -> Vec<Vec<PbField<'a>>> {
    let more: [&[PbField<'a>]; 9] = [
        &[],
        &[PbField::Number(8, 1)],
        &[PbField::Bytes(7, context)],
        &[PbField::Bytes(7, b"other")],
        &[PbField::Number(9, 1)],
        &[PbField::Number(3, 9)],
        &[PbField::Number(3, 4_294_967_292), PbField::Number(4, 2), PbField::Number(5, 1), PbField::Number(6, 0)],
        &[PbField::Number(14, 2)],
        &[PbField::Number(10, 0)],
    ];
    more.into_iter().map(|more| [at, more].concat()).collect()
}

/// Writes random objects through `server`; returns their paths.
fn objects(server: &RiakServer, random: &mut SplitMix64) -> Vec<(&'static str, String)> {
    let mut client = server.client();
    let mut objects = Vec::new();
    for (name, props) in TYPES {
        if !props.is_empty() {
            server.make_type(name, props, true);
        }
        for key in 0..24 {
            let key = format!("key {key}");
            write(&mut client, &path(name, &key), random);
            objects.push((name, key));
        }
    }
    objects
}

fn path(bucket_type: &str, key: &str) -> String {
    format!("/types/{bucket_type}/buckets/b%2F1/keys/{}", key.replace(' ', "%20"))
}

#[test]
fn a_read_at_once_answers_as_any_other() {
    let clock = Arc::new(SystemClock::default());
    let memory = Arc::new(MemoryStore::new(clock.clone()));
    let reads = Arc::new(AtomicUsize::new(0));
    let at_once = server(&memory, &clock, Some(reads.clone()));
    let mut random = SplitMix64::from_environment("at_once");
    let objects = objects(&at_once, &mut random);
    let general = server(&memory, &clock, None);
    let (mut one, mut other) = (at_once.client(), general.client());
    let (mut one_pb, mut other_pb) = (at_once.pb(), general.pb());
    let (mut values, mut compared) = (0, 0);
    reads.store(0, Ordering::Relaxed);
    for (bucket_type, key) in &objects {
        let path = path(bucket_type, key);
        let seen = other.get(&path);
        let before = reads.load(Ordering::Relaxed);
        for request in requests(&path, &seen) {
            assert_eq!(answer(&mut one, &request), answer(&mut other, &request), "{}", request.head());
            compared += 1;
        }
        let at =
            [PbField::Bytes(1, b"b/1"), PbField::Bytes(2, key.as_bytes()), PbField::Bytes(13, bucket_type.as_bytes())];
        let context = pb_context(&mut other_pb, &at);
        for request in pb_requests(&at, &context) {
            assert_eq!(one_pb.ask(9, &request), other_pb.ask(9, &request), "{bucket_type} {key} {request:?}");
            compared += 1;
        }
        // Without reads at once the comparison would show nothing. Elsewhere a value may be in several rows: siblings, or what
        // a write-once type has not cleared away yet.
        let made = reads.load(Ordering::Relaxed) - before;
        match *bucket_type {
            "default" | "newest" if seen.status == 200 => {
                values += 1;
                assert!(made > 20, "{made} reads at once of {bucket_type} {key}");
            }
            "strong" => assert_eq!(made, 0, "{key}"),
            _ => {}
        }
    }
    assert!(values > 10, "{values} values, {compared} answers");
    at_once.stop();
    general.stop();
}

fn pb_context(client: &mut PbClient, at: &[PbField<'_>]) -> Vec<u8> {
    let (_, found): (u8, PbMessage) = client.ask(9, at);
    found.bytes(2).map(<[u8]>::to_vec).unwrap_or_default()
}

/// The counts of `/stats` that a read changes.
const COUNTS: [&str; 7] = [
    "node_gets",
    "node_gets_total",
    "node_get_fsm_siblings_mean",
    "node_get_fsm_siblings_100",
    "node_get_fsm_objsize_mean",
    "node_get_fsm_objsize_100",
    "node_get_fsm_active",
];

#[test]
fn a_read_at_once_is_counted_as_any_other() {
    let clock = Arc::new(SystemClock::default());
    let memory = Arc::new(MemoryStore::new(clock.clone()));
    let reads = Arc::new(AtomicUsize::new(0));
    let mut counts = Vec::new();
    for reads in [Some(reads.clone()), None] {
        let server = server(&memory, &clock, reads);
        let mut client = server.client();
        client.put("/buckets/b/keys/k", vec![b'x'; 500]).expect(204);
        for _ in 0..10 {
            client.get("/buckets/b/keys/k").expect(200);
        }
        let mut pb = server.pb();
        // A refused read does not count, neither way.
        pb.ask(9, &[PbField::Bytes(1, b"b"), PbField::Bytes(2, b"k"), PbField::Number(3, 9)]);
        pb.ask(9, &[PbField::Bytes(1, b"b"), PbField::Bytes(2, b"k")]);
        let stats = client.get("/stats").json();
        counts.push(COUNTS.map(|name| (name, stats[name].as_u64())));
        server.stop();
    }
    assert_eq!(counts[0], counts[1]);
    assert_eq!(counts[0][1], ("node_gets_total", Some(11)));
    assert_eq!(reads.load(Ordering::Relaxed), 11);
}
