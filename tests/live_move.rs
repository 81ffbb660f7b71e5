//! A move between two servers, live: clients write at the source throughout, and the server that copies is killed again and again.
//! At the end every key is the same on both, as a client sees them, and what clients wrote at the new place stays. Data types that
//! clients change on both sides end at the exact sums, and at the sets of both.
//!
//! `LARDER_TEST_SCALE=soak` kills it 20 times instead of 3.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{HttpClient, HttpRequest, LarderNode, Scale, SplitMix64, wait_for};

const WRITERS: u64 = 4;
/// Keys of each bucket.
const KEYS: usize = 60;
/// The longest time of a phase.
const PHASE: Duration = Duration::from_secs(120);
/// A path of each policy, and one with names that a path has to escape.
const BUCKETS: [&str; 4] = [
    "/types/siblings/buckets/teas",
    "/buckets/newest",
    "/types/last/buckets/b",
    "/types/siblings/buckets/b%20%2F%C3%BC",
];

/// The keys of data types.
const COUNTER: &str = "/types/counters/buckets/b/datatypes/visits";
const SET: &str = "/types/sets/buckets/b/datatypes/tags";
const MAP: &str = "/types/maps/buckets/b/datatypes/user";
const HLL: &str = "/types/hlls/buckets/b/datatypes/visitors";

#[test]
fn every_key_moves_while_clients_write_and_the_mover_is_killed() {
    let rounds = Scale::current().pick(3, 20);
    let source = LarderNode::buffered();
    source.admin().active_type("siblings", r#"{"props":{"allow_mult":true}}"#);
    source.admin().active_type("last", r#"{"props":{"last_write_wins":true,"allow_mult":false,"dvv_enabled":false}}"#);
    for datatype in ["counter", "set", "map", "hll"] {
        source.admin().active_type(&format!("{datatype}s"), &format!(r#"{{"props":{{"datatype":"{datatype}"}}}}"#));
    }
    fill(&source);
    let mut destination = LarderNode::buffered();
    let address = format!("riak://{}", source.http());
    let start =
        ["move", "start", &address, "--types", "default,siblings,last,counters,sets,maps,hlls", "--rate", "400"];
    destination.admin().output(&start);
    destination.admin().refused(&start, &format!("a move from {address} is under way: finish or cancel it first\n"));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (stop, address) = (&stop, source.http());
            scope.spawn(move || update_datatypes(&mut HttpClient::new(address), number, stop));
            scope.spawn(move || write(&mut HttpClient::new(address), &mut SplitMix64::new(number), stop));
        }
        for _ in 0..rounds {
            thread::sleep(Duration::from_millis(400));
            destination.kill();
            destination.restart();
        }
        await_status(&destination, "it follows", |status| {
            status["phase"] == "follow" && status["sweeps"].as_u64() >= Some(2)
        });
        write_at_destination(&mut destination.client());
        update_datatypes_at_destination(&mut destination.client());
        stop.store(true, Ordering::Relaxed);
    });
    let verified = verify(&destination);
    assert_eq!((verified["differs"].as_u64(), verified["changed_here"].as_u64()), (Some(0), Some(6)), "{verified}");
    assert!(verified["keys"].as_u64() > Some(KEYS as u64), "{verified}");
    compare(&source, &destination);
    compare_datatypes(&mut source.client(), &mut destination.client());
    // Nothing changed since, so the next one has nothing to object to.
    let verified = verify(&destination);
    assert_eq!(verified["changed_there"].as_u64(), Some(0), "{verified}");
    destination.admin().output(&["move", "finish"]);
    await_status(&destination, "it is finished", |status| status["phase"] == "done");
    let mut client = destination.client();
    assert_eq!(client.get("/buckets/newest/keys/mine").text(), "mine");
    assert_eq!(client.get("/buckets/newest/keys/k0").text(), "mine");
    destination.admin().refused(&["move", "pause"], "no move is under way\n");
    client.put("/buckets/newest/keys/k0", "later").expect(204);
    assert_eq!(client.get("/buckets/newest/keys/k0").text(), "later");
}

#[test]
fn a_source_that_refuses_and_breaks_off_is_waited_for_and_named() {
    let destination = LarderNode::buffered();
    // Nothing listens there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = format!("riak://{closed}");
    destination.admin().output(&["move", "start", &address]);
    await_status(&destination, "it says why it waits", |status| {
        status["error"].as_str().is_some_and(|error| error.contains(&closed.to_string()))
    });
    destination.admin().refused(
        &["move", "finish"],
        "the move was not verified: `kv-admin move verify` compares all keys; --force finishes it anyway\n",
    );
    destination.admin().output(&["move", "cancel"]);
    await_status(&destination, "it is cancelled", |status| status["phase"] == "done");
    for (args, why) in [
        (["move", "start", "s3://h"], "the source has no access key id: it is s3://KEY@HOST:PORT\n"),
        (
            ["move", "start", "s3s://k:secret@h"],
            "an address has no secret: name a file that holds it with --secret-file FILE\n",
        ),
        (["move", "start", "h:1"], "the source is an address like riak://HOST:8098\n"),
    ] {
        destination.admin().refused(&args, why);
    }
}

/// Keys that are there before the move, some with metadata.
fn fill(source: &LarderNode) {
    let mut client = source.client();
    for bucket in BUCKETS {
        // No writer changes the last one.
        for key in (0..KEYS).map(|key| format!("k{key}")).chain(["still".to_owned()]) {
            let put = HttpRequest::put(&format!("{bucket}/keys/{key}"), format!("first {key}"))
                .headers(&[("Content-Type", "text/plain; charset=utf-8"), ("X-Riak-Meta-Farm", "uji")])
                .headers(&[("x-riak-index-year_int", "2026"), ("x-riak-index-origin_bin", "jp")])
                .header("Link", r#"</buckets/teas/keys/matcha>; riaktag="kin""#);
            client.send(&put).expect(204);
        }
    }
    client.put("/types/siblings/buckets/teas/keys/large", vec![b'x'; 3 << 20]).expect(204);
    client.send(&HttpRequest::post_json(SET, r#"{"add":"still"}"#)).expect(204);
}

/// Writes at the source: blind puts, puts with a context, and deletes.
fn write(client: &mut HttpClient, random: &mut SplitMix64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let bucket = random.pick(&BUCKETS);
        // The keys of the other writers at the destination stay as they are.
        let path = format!("{bucket}/keys/k{}", 1 + random.below(KEYS + 20));
        match random.below(8) {
            0 => drop(client.delete(&path)),
            1..4 => {
                let found = client.send(&HttpRequest::get(&path).header("Accept", "multipart/mixed, */*;q=0.9"));
                let mut put = HttpRequest::put(&path, random.number().to_string()).header("Content-Type", "text/plain");
                if let Some(context) = found.header("X-Riak-Vclock") {
                    put = put.header("X-Riak-Vclock", context);
                }
                drop(client.send(&put));
            }
            _ => drop(client.put(&path, random.number().to_string())),
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Changes one value of each type, all writers the same.
fn update_datatypes(client: &mut HttpClient, number: u64, stop: &AtomicBool) {
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        at += 1;
        let element = format!("{number}-{}", at % 20);
        client.send(&HttpRequest::post_json(COUNTER, r#"{"increment":1}"#)).expect(204);
        // So few elements are counted exactly.
        client.send(&HttpRequest::post_json(HLL, &format!(r#"{{"add":"{number}-{}"}}"#, at % 3))).expect(204);
        client.send(&HttpRequest::post_json(SET, &format!(r#"{{"add":"{element}"}}"#))).expect(204);
        let update =
            format!(r#"{{"update":{{"n_counter":-1,"r_register":"{element}","s_set":{{"add":"{element}"}}}}}}"#);
        client.send(&HttpRequest::post_json(MAP, &update)).expect(204);
        if at % 3 == 0 {
            let removed = format!("{number}-{}", (at + 10) % 20);
            let context = client.get(SET).expect(200).json()["context"].clone();
            let removal = serde_json::json!({ "remove": removed, "context": context });
            client.send(&HttpRequest::post_json(SET, &removal.to_string())).expect(204);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// One of the elements that a client removes here is of no writer, so that it does not come back.
fn update_datatypes_at_destination(client: &mut HttpClient) {
    for _ in 0..10 {
        client.send(&HttpRequest::post_json(COUNTER, r#"{"increment":1000}"#)).expect(204);
    }
    client.send(&HttpRequest::post_json(HLL, r#"{"add":"mine"}"#)).expect(204);
    client.send(&HttpRequest::post_json(SET, r#"{"add":"mine"}"#)).expect(204);
    client.send(&HttpRequest::post_json(SET, r#"{"remove":"still"}"#)).expect(204);
    client.send(&HttpRequest::post_json(MAP, r#"{"update":{"n_counter":1000,"s_set":{"add":"mine"}}}"#)).expect(204);
}

fn compare_datatypes(source: &mut HttpClient, destination: &mut HttpClient) {
    let mut both =
        |path: &str| [source.get(path), destination.get(path)].map(|found| found.expect(200).json()["value"].clone());
    let [there, here] = both(COUNTER);
    assert_eq!(there.as_i64().map(|value| value + 10_000), here.as_i64());
    let [there, here] = both(HLL);
    assert_eq!((there.as_i64().map(|value| value + 1), there.as_i64() > Some(3)), (here.as_i64(), true));
    let elements = |set: &Value| set.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect();
    let [mut there, here]: [BTreeSet<String>; 2] = both(SET).each_ref().map(elements);
    assert!(there.remove("still"));
    there.insert("mine".to_owned());
    assert_eq!(there, here);
    let [there, here] = both(MAP);
    assert_eq!(there["n_counter"].as_i64().map(|value| value + 1000), here["n_counter"].as_i64());
    assert_eq!(there["r_register"], here["r_register"]);
    let [mut there, here]: [BTreeSet<String>; 2] = [&there, &here].map(|map| elements(&map["s_set"]));
    there.insert("mine".to_owned());
    assert_eq!(there, here);
}

/// Two keys that moved get another value here, and one is new.
fn write_at_destination(client: &mut HttpClient) {
    client.put("/buckets/newest/keys/k0", "mine").expect(204);
    client.put("/buckets/newest/keys/mine", "mine").expect(204);
    let path = "/types/siblings/buckets/teas/keys/k0";
    let found = client.get(path).expect(200);
    let put = HttpRequest::put(path, "mine").header("X-Riak-Vclock", found.context());
    client.send(&put).expect(204);
}

#[track_caller]
pub(crate) fn await_status(node: &LarderNode, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    await_status_within(PHASE, node, what, holds)
}

#[track_caller]
pub(crate) fn await_status_within(
    max: Duration,
    node: &LarderNode,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    wait_for(what, max, || {
        let status: Value = serde_json::from_str(&node.admin().output(&["move", "status", "--json"])).unwrap();
        if holds(&status) { Ok(status) } else { Err(status.to_string()) }
    })
}

#[track_caller]
pub(crate) fn verify(node: &LarderNode) -> Value {
    let before = await_status(node, "it follows", |status| status["phase"] == "follow")["verified"]["ended"].as_u64();
    node.admin().output(&["move", "verify"]);
    let is_new = |status: &Value| status["verified"]["ended"].as_u64() > before && status["phase"] == "follow";
    await_status(node, "it is verified", is_new)["verified"].clone()
}

/// Compares both as a client sees them.
fn compare(source: &LarderNode, destination: &LarderNode) {
    for bucket in BUCKETS {
        let (there, here) = (keys(source.http(), bucket), keys(destination.http(), bucket));
        let mine = |key: &String| key == "mine";
        assert_eq!(there, here.into_iter().filter(|key| !mine(key)).collect::<Vec<_>>(), "{bucket}");
        for key in there.iter().filter(|key| *key != "k0") {
            let path = format!("{bucket}/keys/{key}");
            assert_eq!(values(source.http(), &path), values(destination.http(), &path), "{path}");
        }
    }
    let query = "/types/siblings/buckets/teas/index/origin_bin/jp";
    let found = |at| {
        let mut found: Vec<String> =
            serde_json::from_value(HttpClient::new(at).get(query).json()["keys"].clone()).unwrap();
        found.retain(|key| key != "k0");
        found.sort();
        found
    };
    assert_eq!(found(source.http()), found(destination.http()));
    assert!(!found(source.http()).is_empty());
}

fn keys(at: SocketAddr, bucket: &str) -> Vec<String> {
    let listed = HttpClient::new(at).get(&format!("{bucket}/keys?keys=true")).json();
    let mut keys: Vec<String> = serde_json::from_value(listed["keys"].clone()).unwrap();
    keys.sort();
    keys
}

/// The values of a key with their metadata, sorted. Contexts, tags and boundaries differ between servers.
fn values(at: SocketAddr, path: &str) -> Vec<String> {
    let found = HttpClient::new(at).send(&HttpRequest::get(path).header("Accept", "multipart/mixed, */*;q=0.9"));
    let kept = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.starts_with("x-riak-meta")
            || name.starts_with("x-riak-index")
            || ["content-type", "link"].contains(&&*name)
    };
    if found.status != 300 {
        let mut lines: Vec<_> = found
            .headers
            .iter()
            .filter(|(name, _)| kept(name))
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        lines.sort();
        return vec![format!("{} {} {}", found.status, lines.join(" "), found.text())];
    }
    let boundary = found.header("Content-Type").unwrap().split_once("boundary=").unwrap().1.to_owned();
    let text = found.text();
    let delimiter = format!("\r\n--{boundary}");
    let parts = text.split(&delimiter).filter(|part| !part.is_empty() && !part.starts_with("--"));
    let part = |part: &str| {
        let (head, body) = part.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<_> = head.lines().filter(|line| kept(line.split(':').next().unwrap())).collect();
        lines.sort_unstable();
        format!("{} {body}", lines.join(" "))
    };
    let mut parts: Vec<_> = parts.map(part).collect();
    parts.sort();
    parts
}
