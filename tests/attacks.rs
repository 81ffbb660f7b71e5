//! Clients that take others' share: each attack by name, with a well-behaved guest beside it. The attackers have one address
//! and may spend its share; the guest has another one, and is served as if they were not there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_tests::{Client, Engine, Node, Request, S3, Scale, connect, figure, raise_own_limit, wait};

/// Little enough that attackers of one address meet its end.
const MEMORY: &str = "256MiB";
const MEMORY_BYTES: u64 = 256 << 20;
/// Memory of a server beside what it is given: its code, its threads, what the allocator keeps.
const BESIDE_BYTES: u64 = 150 << 20;
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const GUEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Longest wait for the server to let go of slow clients: time for a start, a look every few seconds, and a slow machine.
const LET_GO: Duration = Duration::from_secs(90);
const LARGE: usize = 3 << 20;

/// One attack at a time: a guest never waits because of another attack.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `guest` again and again while the attack lasts: `attack` answers the attackers' connections. Every guest's request
/// has to succeed, and memory has to stay in its bounds. Answers the connections.
fn beside(
    name: &str,
    node: &Node,
    guest: impl Fn(&mut Client) + Sync,
    attack: impl FnOnce() -> Vec<TcpStream>,
) -> Vec<TcpStream> {
    let at_work = Duration::from_secs(Scale::current().of(3, 60));
    let over = AtomicBool::new(false);
    let mut client = Client::from(GUEST, node.http());
    guest(&mut client);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                peak = node.resident_bytes().max(peak);
                thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let served = scope.spawn(|| {
            let mut waits = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                guest(&mut client);
                waits.push(begun.elapsed());
            }
            waits
        });
        let attackers = attack();
        thread::sleep(at_work);
        over.store(true, Ordering::Relaxed);
        let (peak, mut waits) = (watch.join().unwrap(), served.join().unwrap());
        waits.sort_unstable();
        let p99 = waits[waits.len() * 99 / 100];
        figure(&format!("{name}: guest's p99 of {}, peak memory", waits.len()), &format!("{p99:?}, {} MB", peak >> 20));
        assert!(peak < MEMORY_BYTES + BESIDE_BYTES, "{name}: {} MB", peak >> 20);
        attackers
    })
}

/// Connections of attackers that have each sent these bytes; those that are turned away count as well.
fn attackers(server: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let open = || {
        let mut stream = connect(server, Some(ATTACKER)).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Bytes that do not fit into the sockets any more are stuck there: that is the attack.
        let _ = stream.write_all(bytes);
        Some(stream)
    };
    (0..count).filter_map(|_| open()).collect()
}

/// Waits until the server has closed all of these, without a byte more from here. Bytes that it sent before are read.
fn all_are_let_go(mut streams: Vec<TcpStream>) {
    streams.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let mut space = vec![0; 64 << 10];
    wait("slow clients are let go", LET_GO, || {
        streams.retain_mut(|stream| match stream.read(&mut space) {
            Ok(0) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
            Ok(_) => true,
        });
        streams.is_empty()
    });
}

fn start() -> Node {
    Node::s3(&["--durability", "buffered", "--memory", MEMORY])
}

/// Takes the turn; `None` where the engine is not in the server's process: these tests are about its memory.
fn turn() -> Option<std::sync::MutexGuard<'static, ()>> {
    let guard = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The other ends of the connections are here.
    raise_own_limit();
    Engine::is_local_for("memory of an engine in the same process").then_some(guard)
}

fn put_small(client: &mut Client) {
    client.put("/buckets/guest/keys/small", "x").expect(204);
}

#[test]
fn slow_readers_of_large_bodies_once_blocked_every_other_large_read() {
    let Some(_turn) = turn() else { return };
    let node = start();
    node.client().put("/buckets/b/keys/large", vec![7; LARGE]).expect(204);
    let guest = |client: &mut Client| assert_eq!(client.get("/buckets/b/keys/large").expect(200).body.len(), LARGE);
    let request = Request::get("/buckets/b/keys/large").bytes();
    let slow = beside("600 slow readers", &node, guest, || attackers(node.http(), 600, &request));
    // They read nothing, and are connected still: the server lets them go by itself.
    wait("their memory is free", LET_GO, || held(&node) < 4.0 * 1024.0 * 1024.0);
    drop(slow);
    let log = node.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn slow_uploads_once_blocked_all_large_puts_of_both_faces() {
    let Some(_turn) = turn() else { return };
    let node = start();
    let s3 = Mutex::new(S3::admin_from(GUEST, &node));
    s3.lock().unwrap().put("/guest", "").expect(200);
    let guest = |client: &mut Client| {
        client.put("/buckets/guest/keys/large", vec![1; LARGE]).expect(204);
        s3.lock().unwrap().put("/guest/large", vec![1; LARGE]).expect(200);
    };
    let mut upload = Request::put("/buckets/b/keys/k", vec![1; 64 << 10]).bytes();
    let announced =
        String::from_utf8_lossy(&upload).into_owned().replace("Content-Length: 65536", "Content-Length: 9000000");
    upload = announced.into_bytes();
    // An upload that nobody signed: it is refused, and its body never comes.
    let unsigned = String::from_utf8_lossy(&upload).replace("/buckets/b/keys/k", "/guest/other").into_bytes();
    let slow = beside("300 slow uploads", &node, guest, || {
        let mut slow = attackers(node.http(), 150, &upload);
        slow.extend(attackers(node.s3_at(), 150, &unsigned));
        slow
    });
    all_are_let_go(slow);
}

#[test]
fn puts_that_stall_before_their_last_byte_once_took_all_memory() {
    let Some(_turn) = turn() else { return };
    let node = start();
    let mut stalled = Request::put("/buckets/b/keys/k", vec![1; 1_000_000]).bytes();
    stalled.pop();
    let slow = beside("1,000 stalled puts of 1 MB", &node, put_small, || attackers(node.http(), 1000, &stalled));
    drop(slow);
}

#[test]
fn half_heads_once_took_all_memory() {
    let Some(_turn) = turn() else { return };
    let node = start();
    let mut half = b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Long: ".to_vec();
    half.resize(190_000, b'x');
    let slow = beside("2,000 half heads of 190 KB", &node, put_small, || attackers(node.http(), 2000, &half));
    drop(slow);
}

#[test]
fn small_bodies_that_never_end_once_had_no_pace() {
    let Some(_turn) = turn() else { return };
    let node = start();
    let begun =
        b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nx";
    let slow = beside("200 small bodies without an end", &node, put_small, || attackers(node.http(), 200, begun));
    all_are_let_go(slow);
}

#[test]
fn writes_of_a_byte_to_keys_of_many_siblings_once_kept_all_others_waiting() {
    const SIBLING_BYTES: usize = 60 << 10;
    let Some(_turn) = turn() else { return };
    let (keys, siblings) = Scale::current().of((6, 40), (24, 90));
    let node = start();
    node.client().put_json("/buckets/heavy/props", r#"{"props":{"allow_mult":true}}"#).expect(204);
    thread::scope(|scope| {
        for key in 0..keys {
            let mut client = node.client();
            scope.spawn(move || {
                for _ in 0..siblings {
                    client.put(&format!("/buckets/heavy/keys/{key}"), vec![1; SIBLING_BYTES]).expect(204);
                }
            });
        }
    });
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for key in 0..keys {
            let (mut client, over) = (Client::from(ATTACKER, node.http()), &over);
            scope.spawn(move || {
                // The last ones may be refused: a key has a hundred siblings at most.
                while !over.load(Ordering::Relaxed) {
                    let _ = client.put(&format!("/buckets/heavy/keys/{key}"), "x");
                }
            });
        }
        beside("writers of a byte to keys of many siblings", &node, put_small, Vec::new);
        over.store(true, Ordering::Relaxed);
    });
}

/// Bytes that large draws hold.
fn held(node: &Node) -> f64 {
    let text = Client::from(GUEST, node.http()).get("/metrics").expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix("larder_memory_held_bytes{draws=\"large\"} "));
    line.expect("the metric is there").parse().expect("a number")
}
