//! Clients that exhaust a server's memory or connections. The attackers share one address and may use its share. A guest at
//! another address must be served as if there were no attack.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{HttpClient, HttpRequest, LarderNode, Scale, TestEngine, connect, figure, raise_own_limit, wait};

/// So little memory that the attackers of one address reach its limit.
const MEMORY: &str = "256MiB";
const MEMORY_BYTES: u64 = 256 << 20;
/// Memory of a server besides `--memory`: its code, its threads, free memory of the allocator.
const BESIDE_BYTES: u64 = 150 << 20;
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const GUEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// The longest wait until the server closes slow clients: their time to start, a check every few seconds, a slow machine.
const CLOSED_WITHIN: Duration = Duration::from_secs(90);
const LARGE: usize = 3 << 20;

/// The lock of the running attack: a guest never waits because of another attack.
static RUNNING_ATTACK: Mutex<()> = Mutex::new(());

/// Runs `guest` in a loop during an attack; `attack` opens the attackers' connections, which this returns. Every request of
/// the guest must succeed, and memory must stay below its bound.
fn with_guest(
    name: &str,
    node: &LarderNode,
    guest: impl Fn(&mut HttpClient) + Sync,
    attack: impl FnOnce() -> Vec<TcpStream>,
) -> Vec<TcpStream> {
    let at_work = Duration::from_secs(Scale::current().pick(3, 60));
    let over = AtomicBool::new(false);
    let mut client = HttpClient::from(GUEST, node.http());
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
        let at_end = SetAtEnd(&over);
        let attackers = attack();
        thread::sleep(at_work);
        drop(at_end);
        let (peak, mut waits) = (watch.join().unwrap(), served.join().unwrap());
        waits.sort_unstable();
        let p99 = waits[waits.len() * 99 / 100];
        figure(&format!("{name}: guest's p99 of {}, peak memory", waits.len()), &format!("{p99:?}, {} MB", peak >> 20));
        assert!(peak < MEMORY_BYTES + BESIDE_BYTES, "{name}: {} MB", peak >> 20);
        attackers
    })
}

/// Sets a flag when it is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connections of attackers that have each sent these bytes; refused connections count as well.
fn attackers(server: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let open = || {
        let mut stream = connect(server, Some(ATTACKER)).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Bytes that do not fit into the socket buffers block the write: that is the attack.
        let _ = stream.write_all(bytes);
        Some(stream)
    };
    (0..count).filter_map(|_| open()).collect()
}

/// Waits until the server has closed all these connections while they send nothing more. Bytes that it sent before are read.
fn wait_until_closed(mut streams: Vec<TcpStream>) {
    streams.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let mut space = vec![0; 64 << 10];
    wait("slow clients are closed", CLOSED_WITHIN, || {
        streams.retain_mut(|stream| match stream.read(&mut space) {
            Ok(0) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
            Ok(_) => true,
        });
        streams.is_empty()
    });
}

fn start() -> LarderNode {
    LarderNode::s3(&["--durability", "buffered", "--memory", MEMORY])
}

/// Takes the lock of the attack. `None` over a cluster: these tests are about the memory of the server's process.
fn begin_attack() -> Option<std::sync::MutexGuard<'static, ()>> {
    let guard = RUNNING_ATTACK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The client ends of the connections are in this process.
    raise_own_limit();
    TestEngine::is_local_for("memory of an engine in the same process").then_some(guard)
}

fn put_small(client: &mut HttpClient) {
    client.put("/buckets/guest/keys/small", "x").expect(204);
}

#[test]
fn slow_readers_of_large_bodies_block_no_other_large_read() {
    let Some(_guard) = begin_attack() else { return };
    let node = start();
    node.client().put("/buckets/b/keys/large", vec![7; LARGE]).expect(204);
    let guest = |client: &mut HttpClient| assert_eq!(client.get("/buckets/b/keys/large").expect(200).body.len(), LARGE);
    let request = HttpRequest::get("/buckets/b/keys/large").bytes();
    let slow = with_guest("600 slow readers", &node, guest, || attackers(node.http(), 600, &request));
    // The readers stay connected and read nothing: the server frees their memory by itself.
    wait("their memory is free", CLOSED_WITHIN, || held_bytes(&node) < 4.0 * 1024.0 * 1024.0);
    drop(slow);
    let log = node.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn slow_uploads_block_no_large_put_of_either_interface() {
    let Some(_guard) = begin_attack() else { return };
    let node = start();
    let s3 = Mutex::new(node.s3_admin().from(GUEST, node.s3_at()));
    s3.lock().unwrap().put("/guest", "").expect(200);
    let guest = |client: &mut HttpClient| {
        client.put("/buckets/guest/keys/large", vec![1; LARGE]).expect(204);
        s3.lock().unwrap().put("/guest/large", vec![1; LARGE]).expect(200);
    };
    let mut upload = HttpRequest::put("/buckets/b/keys/k", vec![1; 64 << 10]).bytes();
    let announced =
        String::from_utf8_lossy(&upload).into_owned().replace("Content-Length: 65536", "Content-Length: 9000000");
    upload = announced.into_bytes();
    // An upload without a signature: the server refuses it, and its body never comes.
    let unsigned = String::from_utf8_lossy(&upload).replace("/buckets/b/keys/k", "/guest/other").into_bytes();
    let slow = with_guest("300 slow uploads", &node, guest, || {
        let mut slow = attackers(node.http(), 150, &upload);
        slow.extend(attackers(node.s3_at(), 150, &unsigned));
        slow
    });
    wait_until_closed(slow);
}

#[test]
fn puts_that_stall_before_their_last_byte_take_bounded_memory() {
    let Some(_guard) = begin_attack() else { return };
    let node = start();
    let mut stalled = HttpRequest::put("/buckets/b/keys/k", vec![1; 1_000_000]).bytes();
    stalled.pop();
    let slow = with_guest("1,000 stalled puts of 1 MB", &node, put_small, || attackers(node.http(), 1000, &stalled));
    drop(slow);
}

#[test]
fn incomplete_request_heads_take_bounded_memory() {
    let Some(_guard) = begin_attack() else { return };
    let node = start();
    let mut half = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX-Long: ".to_vec();
    half.resize(190_000, b'x');
    let slow = with_guest("2,000 half heads of 190 KB", &node, put_small, || attackers(node.http(), 2000, &half));
    drop(slow);
}

#[test]
fn small_bodies_that_never_end_are_closed() {
    let Some(_guard) = begin_attack() else { return };
    let node = start();
    let begun =
        b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nx";
    let slow = with_guest("200 small bodies without an end", &node, put_small, || attackers(node.http(), 200, begun));
    wait_until_closed(slow);
}

#[test]
fn writes_to_keys_of_many_siblings_delay_no_other_client() {
    const SIBLING_BYTES: usize = 60 << 10;
    let Some(_guard) = begin_attack() else { return };
    let (keys, siblings) = Scale::current().pick((6, 40), (24, 90));
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
        // The writers end with a guest that fails, too.
        let _over = SetAtEnd(&over);
        for key in 0..keys {
            let (mut client, over) = (HttpClient::from(ATTACKER, node.http()), &over);
            scope.spawn(move || {
                // A key has at most a hundred siblings: the server may refuse the last writes.
                while !over.load(Ordering::Relaxed) {
                    let _ = client.put(&format!("/buckets/heavy/keys/{key}"), "x");
                }
            });
        }
        with_guest("writers of a byte to keys of many siblings", &node, put_small, Vec::new);
    });
}

/// The bytes of memory that large requests hold.
fn held_bytes(node: &LarderNode) -> f64 {
    let text = HttpClient::from(GUEST, node.http()).get("/metrics").expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix("larder_memory_held_bytes{draws=\"large\"} "));
    line.expect("the metric is there").parse().expect("a number")
}
