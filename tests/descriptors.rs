//! File descriptors: idle connections cannot take those that other clients and the engine need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking")]

use std::thread;
use std::time::Duration;

use crate::harness::{
    Home, HttpClient, HttpConnection, HttpRequest, LarderNode, SplitMix64, TestEngine, figure, raise_own_limit,
    wait_for,
};

/// More than the descriptors of a usual limit, 1024.
const IDLE: usize = 1030;
/// Connections that are opened first, and write and read during the attack.
const BUSY: usize = 8;
/// Bodies that are stored in rows: more than a journal holds before its rotation.
const ROWS: usize = 5000;
const ROW_BYTES: usize = 16 << 10;
/// Bodies that are stored as blob files.
const BLOBS: usize = 16;
const BLOB_BYTES: usize = 2 << 20;
/// The most warnings of the attack in the log.
const WARNINGS_MAX: usize = 20;
/// The longest wait of any step.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most connections of the server, from its banner; one address has half of them at most.
fn connections_max(node: &LarderNode) -> usize {
    let banner = node.banner();
    let number = |text: &str| text.split_once(' ').and_then(|(number, _)| number.parse().ok());
    banner.split_once("at most ").map_or(10_000, |(_, rest)| number(rest).expect("the note has a number"))
}

/// The answer of a server that closes a connection before any request.
fn refusal(mut connection: HttpConnection) -> String {
    connection.read_to_close().expect("the server answers and closes")
}

/// The body of this number; the same number has the same body.
fn body(number: usize) -> Vec<u8> {
    SplitMix64::new(number as u64).bytes(if number < ROWS { ROW_BYTES } else { BLOB_BYTES })
}

fn address(number: usize) -> String {
    format!("/buckets/b/keys/{number}")
}

/// Each client does `work` with its share of all numbers.
fn shared_out(clients: &mut [HttpClient], work: impl Fn(&mut HttpClient, usize) + Sync) {
    let (count, work) = (clients.len(), &work);
    thread::scope(|scope| {
        for (first, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || (first..ROWS + BLOBS).step_by(count).for_each(|number| work(client, number)));
        }
    });
}

/// Puts without a second connection: a client that connects again would hide that the server closed the first.
fn put(client: &mut HttpClient, number: usize) {
    let request = HttpRequest::put(&address(number), body(number));
    client.try_send(&request).expect("an open connection stays").expect(204);
}

fn get(client: &mut HttpClient, number: usize) {
    let found = client.try_send(&HttpRequest::get(&address(number))).expect("an open connection stays").expect(200);
    assert!(found.body == body(number), "body {number} differs");
}

/// The attack on a server that starts below this limit. Returns the number of idle connections that the server kept.
fn attack(limit: &str) -> usize {
    let mut node = LarderNode::start_in(Home::limited(limit), &["--s3", "127.0.0.1:0"]);
    let mut busy: Vec<_> = (0..BUSY).map(|_| node.client()).collect();
    busy.iter_mut().for_each(|client| drop(client.get("/ping").expect(200)));
    let mut idle: Vec<_> = (0..IDLE).map(|_| HttpConnection::open(node.http())).collect();
    let places = connections_max(&node).div_ceil(2) - BUSY;
    // The server answers every connection above its limit and closes it: no client waits in vain.
    for refused in idle.drain(places.min(IDLE)..) {
        let refusal = refusal(refused);
        assert!(refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("Retry-After: 1"), "{refusal}");
    }
    if places < IDLE {
        let refusal = refusal(HttpConnection::open(node.s3_at()));
        assert!(
            refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("SlowDown"),
            "S3 accepts more connections than the limit: {refusal}"
        );
        let mut other = HttpClient::from([127, 0, 0, 2].into(), node.http());
        other.get("/ping").expect(200);
    }
    node.admin().check(&["ping"], "pong\n");

    shared_out(&mut busy, put);
    shared_out(&mut busy, get);
    for connection in &mut idle {
        let answer =
            connection.exchange(HttpRequest::get("/ping").bytes()).expect("the server closed an idle connection");
        answer.expect(200);
    }

    let taken = idle.len();
    drop(idle);
    wait_for("a new connection after the idle ones", PATIENCE, || {
        match node.client().try_send(&HttpRequest::get("/ping")) {
            Ok(answer) if answer.status == 200 => Ok(()),
            Ok(answer) => Err(answer.status.to_string()),
            Err(error) => Err(error.to_string()),
        }
    });
    let log = node.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    figure(&format!("warnings below ulimit {limit}"), &warnings.len().to_string());
    assert!(warnings.len() < WARNINGS_MAX, "{log}");
    assert_eq!(taken < IDLE, log.contains("connection refused"), "{log}");

    node.kill();
    node.restart();
    let mut again: Vec<_> = (0..BUSY).map(|_| node.client()).collect();
    shared_out(&mut again, get);
    assert_eq!(node.terminate().code, Some(0));
    taken
}

#[test]
fn idle_connections_leave_the_engine_its_descriptors() {
    if TestEngine::is_local_for("descriptors of an engine in the same process") {
        raise_own_limit();
        let taken = attack("-n 1024");
        assert!(taken > 0 && taken < IDLE, "{taken} connections of {IDLE} were taken");
    }
}

#[test]
fn a_soft_limit_of_1024_refuses_no_connection_when_the_hard_limit_is_higher() {
    if !TestEngine::is_local_for("descriptors of an engine in the same process") {
        return;
    }
    let hard = raise_own_limit();
    if hard < 4096 {
        eprintln!("does not apply to this machine: its hard limit of open files is {hard}");
        return;
    }
    assert_eq!(attack("-Sn 1024"), IDLE);
}
