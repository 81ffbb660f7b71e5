//! Malformed requests: the server answers or closes the connection, and serves other clients.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::harness::{Home, HttpClient, HttpConnection, HttpRequest, KvAdmin, LarderNode, Scale, SplitMix64, figure};

const THREADS: usize = 4;

/// Well-formed requests, for [`mutate`].
fn valid() -> Vec<Vec<u8>> {
    let json = |method: &str, url: &str, body: &str| {
        HttpRequest::new(method, url).header("Content-Type", "application/json").body(body)
    };
    let requests = [
        HttpRequest::put("/buckets/b/keys/k?w=2&dw=1&returnbody=true&timeout=1000", "hello"),
        HttpRequest::put("/types/t/buckets/b%20c/keys/%FF?r=quorum", "v")
            .header("X-Riak-Meta-A", "1")
            .header("X-Riak-Index-n_int", "1, 2, 3")
            .header("X-Riak-Index-s_bin", "a, b")
            .header("Link", "</buckets/b/keys/k>; riaktag=\"x\""),
        HttpRequest::put("/buckets/b/keys/k", "v").header("X-Riak-Vclock", "AQIDBAUGBwgJCgsMDQ4PEBESExQ="),
        HttpRequest::get("/buckets/b/keys/k?r=1&pr=0&basic_quorum=false&notfound_ok=true")
            .header("Accept", "multipart/mixed"),
        HttpRequest::get("/buckets/b/keys/k?vtag=abc").header("If-None-Match", "\"x\", \"y\""),
        HttpRequest::get("/buckets/b/keys?keys=stream"),
        HttpRequest::get("/types/t/buckets?buckets=true"),
        HttpRequest::new("DELETE", "/buckets/b/keys/k?rw=1"),
        HttpRequest::new("HEAD", "/riak/b/k").header("Range", "bytes=0-1"),
        json("PUT", "/buckets/b/props", r#"{"props":{"n_val":3,"r":"quorum","precommit":[{"mod":"a","fun":"b"}]}}"#),
        json("PUT", "/types/t/props", r#"{"props":{"allow_mult":true,"old_vclock":86400}}"#),
        json("POST", "/buckets/b/keys", r#"{"a":[1,2,{"b":null}]}"#),
        json("POST", "/mapred", r#"{"inputs":"b","query":[]}"#),
        HttpRequest::get("/stats").header("Accept", "application/json"),
        HttpRequest::get("/").header("Accept", "text/html"),
    ];
    let chunked = "PUT /buckets/b/keys/c HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\
        Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n";
    let mut all: Vec<Vec<u8>> = requests.iter().map(HttpRequest::bytes).collect();
    all.push(chunked.as_bytes().to_vec());
    all
}

/// Damages `bytes` in one to four places.
fn mutate(bytes: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(out.len().max(1));
        let length = random.below(out.len().saturating_sub(at).min(40) + 1);
        match random.below(9) {
            0 if !out.is_empty() => out[at] ^= 1 << random.below(8),
            1 if !out.is_empty() => out[at] = random.number() as u8,
            2 => drop(out.drain(at..at + length)),
            3 => drop(out.splice(at..at, out[at..at + length].to_vec())),
            4 => drop(out.splice(at..at, random.bytes(length))),
            5 => out.truncate(at),
            6 => drop(out.splice(at..at, random.pick(&NASTY[..]).iter().copied())),
            7 => out.extend_from_slice(bytes),
            _ => replace_digits(&mut out, random),
        }
    }
    out
}

/// Bytes that often break parsers.
const NASTY: [&[u8]; 12] = [
    b"%",
    b"%zz",
    b"%00",
    b"\r\n\r\n",
    b"\0",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked, gzip\r\n",
    b"//////",
    b"{\"props\":{\"props\":{",
    b"99999999999999999999999999",
    b"; charset=\"",
    b"-1",
];

fn replace_digits(bytes: &mut [u8], random: &mut SplitMix64) {
    for byte in bytes.iter_mut().filter(|byte| byte.is_ascii_digit()) {
        if random.below(3) == 0 {
            *byte = b'0' + random.below(10) as u8;
        }
    }
}

/// Sends bytes on a new connection; when the machine has no free port, it waits for one.
fn send(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    for _ in 0..200 {
        match HttpClient::raw(server, bytes) {
            Ok(answer) => return answer,
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                thread::sleep(Duration::from_millis(500))
            }
            Err(error) => panic!("{error} for {:?}", String::from_utf8_lossy(bytes)),
        }
    }
    panic!("no free port")
}

#[test]
fn malformed_requests_leave_the_server_serving() {
    let count = Scale::current().pick(3_300, 100_000);
    let mut random = SplitMix64::from_environment("malformed");
    let node = LarderNode::buffered();
    node.admin().active_type("t", r#"{"props":{}}"#);
    let valid = valid();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (node, valid, mut random) = (&node, &valid, SplitMix64::new(random.number()));
            scope.spawn(move || {
                for number in 0..count / THREADS {
                    let whole: &Vec<u8> = random.pick(valid);
                    let request = mutate(whole, &mut random);
                    let answer = send(node.http(), &request);
                    let fine =
                        answer.is_empty() || answer.starts_with(b"HTTP/1.1 ") || answer.starts_with(b"HTTP/1.0 ");
                    assert!(fine, "{:?} to {:?}", String::from_utf8_lossy(&answer), String::from_utf8_lossy(&request));
                    if number % 250 == 0 {
                        assert_eq!(node.client().get("/ping").expect(200).text(), "OK");
                    }
                }
            });
        }
    });
    still_serves(&node);
    figure("malformed requests", &count.to_string());
}

#[test]
fn endless_heads_and_idle_connections_are_closed() {
    let node = LarderNode::buffered();
    let mut endless = b"GET /ping HTTP/1.1\r\n".to_vec();
    for number in 0..200_000 {
        endless.extend_from_slice(format!("X-{number}: aaaaaaaaaaaaaaaaaaaaaaaa\r\n").as_bytes());
    }
    let answer = send(node.http(), &endless);
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "a head of 8 MB was taken");
    let long =
        format!("GET /buckets/b/keys/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "k".repeat(1 << 20));
    let answer = send(node.http(), long.as_bytes());
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "a path of 1 MiB was taken");
    let idle: Vec<_> = (0..200).map(|_| HttpConnection::open(node.http())).collect();
    still_serves(&node);
    drop(idle);
}

#[test]
fn malformed_admin_frames_leave_the_socket_answering() {
    let node = LarderNode::buffered();
    let mut random = SplitMix64::from_environment("admin frames");
    let frame = admin_frame();
    for _ in 0..Scale::current().pick(330, 20_000) {
        let bytes = match random.below(4) {
            0 => {
                let length = random.below(200);
                random.bytes(length)
            }
            _ => mutate(&frame, &mut random),
        };
        send_admin(&node.home().socket(), &bytes);
    }
    send_admin(&node.home().socket(), &vec![b'a'; 4 << 20]);
    send_admin(&node.home().socket(), "[".repeat(100_000).as_bytes());
    node.admin().check(&["ping"], "pong\n");
    still_serves(&node);
}

/// A frame of `kv-admin`, received on a socket of the test.
fn admin_frame() -> Vec<u8> {
    let home = Home::new();
    let socket = home.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut frame = Vec::new();
        let _ = stream.read_to_end(&mut frame);
        frame
    });
    let _ = KvAdmin::new(&socket).run(&["bucket-type", "create", "t", r#"{"props":{"n_val":2}}"#]);
    let frame = server.join().unwrap();
    assert!(!frame.is_empty(), "kv-admin sent nothing");
    frame
}

/// Sends bytes and reads until the server closes the connection, which it must do.
fn send_admin(socket: &Path, bytes: &[u8]) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    if let Err(error) = stream.read_to_end(&mut Vec::new()) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no end after {:?}", String::from_utf8_lossy(bytes));
    }
}

#[track_caller]
fn still_serves(node: &LarderNode) {
    let mut client = node.client();
    assert_eq!(client.get("/ping").expect(200).text(), "OK");
    client.put("/buckets/after/keys/k", "fine").expect(204);
    assert_eq!(client.get("/buckets/after/keys/k").expect(200).text(), "fine");
    assert!(!node.log().contains("panicked"), "{}", node.log());
}
