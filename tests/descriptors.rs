//! Descriptors: who is idle cannot take those that others need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use larder_tests::{Client, Engine, Home, Node, Random, Request, figure, raise_own_limit, wait_for};

/// More than the descriptors of a usual limit, 1024.
const IDLE: usize = 1030;
/// Connections that write and read meanwhile, opened before.
const BUSY: usize = 8;
/// Bodies that are rows: more than a journal holds before it is rotated.
const ROWS: usize = 5000;
const ROW_BYTES: usize = 16 << 10;
/// Bodies that are blob files.
const BLOBS: usize = 16;
const BLOB_BYTES: usize = 2 << 20;
/// Warnings that all of it may leave in the log.
const WARNINGS_MAX: usize = 20;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many connections the server says that it takes; one address has half of them at most.
fn connections_max(node: &Node) -> usize {
    let banner = node.banner();
    let number = |text: &str| text.split_once(' ').and_then(|(number, _)| number.parse().ok());
    banner.split_once("at most ").map_or(10_000, |(_, said)| number(said).expect("the note has a number"))
}

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&server, PATIENCE).expect("the listener takes connections");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What comes on a connection until the server closes it, nothing having been asked.
fn told(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the server answers and closes");
    text
}

fn is_served(stream: &mut TcpStream) -> bool {
    let mut status = [0; 12];
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut status).unwrap();
    status == *b"HTTP/1.1 200"
}

/// Body number `number`, which can be made again.
fn body(number: usize) -> Vec<u8> {
    Random::seeded(number as u64).bytes(if number < ROWS { ROW_BYTES } else { BLOB_BYTES })
}

fn address(number: usize) -> String {
    format!("/buckets/b/keys/{number}")
}

/// Each client does this with its share of all numbers.
fn shared_out(clients: &mut [Client], work: impl Fn(&mut Client, usize) + Sync) {
    let (count, work) = (clients.len(), &work);
    thread::scope(|scope| {
        for (first, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || (first..ROWS + BLOBS).step_by(count).for_each(|number| work(client, number)));
        }
    });
}

/// Once, on the connection that is open: a client that connects again would hide that it was closed.
fn put(client: &mut Client, number: usize) {
    let request = Request::put(&address(number), body(number));
    client.try_send(&request).expect("an open connection stays").expect(204);
}

fn get(client: &mut Client, number: usize) {
    let found = client.try_send(&Request::get(&address(number))).expect("an open connection stays").expect(200);
    assert!(found.body == body(number), "body {number} is another one");
}

/// The attack, on a server that starts below this limit; answers how many of the idle connections it took.
fn attack(limit: &str) -> usize {
    let mut node = Node::start_in(Home::limited(limit), &["--s3", "127.0.0.1:0"]);
    let mut busy: Vec<_> = (0..BUSY).map(|_| node.client()).collect();
    busy.iter_mut().for_each(|client| drop(client.get("/ping").expect(200)));
    let mut idle: Vec<_> = (0..IDLE).map(|_| connect(node.http())).collect();
    let places = connections_max(&node).div_ceil(2) - BUSY;
    // Each that is too much is told so and closed: none is left waiting.
    for refused in idle.drain(places.min(IDLE)..) {
        let told = told(refused);
        assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("Retry-After: 1"), "{told}");
    }
    if places < IDLE {
        let told = told(connect(node.s3_at()));
        assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("SlowDown"), "it has more places at S3: {told}");
        let mut other = Client::from([127, 0, 0, 2].into(), node.http());
        other.get("/ping").expect(200);
    }
    node.admin().check(&["ping"], "pong\n");

    shared_out(&mut busy, put);
    shared_out(&mut busy, get);
    for stream in &mut idle {
        assert!(is_served(stream), "an idle connection was not kept");
    }

    let taken = idle.len();
    drop(idle);
    wait_for("a new connection after the idle ones", PATIENCE, || {
        match node.client().try_send(&Request::get("/ping")) {
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
    if Engine::is_local_for("descriptors of an engine in the same process") {
        raise_own_limit();
        let taken = attack("-n 1024");
        assert!(taken > 0 && taken < IDLE, "{taken} connections of {IDLE} were taken");
    }
}

#[test]
fn a_soft_limit_of_1024_turns_nobody_away_where_the_hard_one_is_higher() {
    if !Engine::is_local_for("descriptors of an engine in the same process") {
        return;
    }
    let hard = raise_own_limit();
    if hard < 4096 {
        eprintln!("does not apply to this machine: its hard limit of open files is {hard}");
        return;
    }
    assert_eq!(attack("-Sn 1024"), IDLE);
}
