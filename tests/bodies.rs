//! Bodies from empty to the limit: each is read back byte for byte, and memory stays bounded.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{HttpClient, HttpRequest, LarderNode, SplitMix64, TestEngine, figure};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

#[track_caller]
fn round_trip(client: &mut HttpClient, url: &str, body: &[u8]) {
    client
        .send(&HttpRequest::new("PUT", url).header("Content-Type", "application/octet-stream").body(body))
        .expect(204);
    let got = client.get(url).expect(200);
    assert!(got.body == body, "{url}: {} bytes were read of {}, or other bytes", got.body.len(), body.len());
    let length = body.len().to_string();
    assert_eq!(client.send(&HttpRequest::new("HEAD", url)).expect(200).header("Content-Length"), Some(length.as_str()));
}

#[test]
fn bodies_of_every_size_read_back_byte_for_byte() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let mut random = SplitMix64::new(7);
    let edges = [0, 1, KIB, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 100 * KIB, MIB - 1, MIB, MIB + 1, 3 * MIB, 50 * MIB];
    for size in edges {
        round_trip(&mut client, &format!("/buckets/sizes/keys/{size}"), &random.bytes(size));
    }
}

#[test]
fn acknowledged_large_bodies_survive_a_kill() {
    let mut node = LarderNode::start(&[]);
    let mut random = SplitMix64::new(8);
    let bodies: Vec<_> = [10, 100 * KIB, 3 * MIB].into_iter().map(|size| random.bytes(size)).collect();
    for (number, body) in bodies.iter().enumerate() {
        round_trip(&mut node.client(), &format!("/buckets/b/keys/{number}"), body);
    }
    node.kill();
    node.restart();
    for (number, body) in bodies.iter().enumerate() {
        let got = node.client().get(&format!("/buckets/b/keys/{number}")).expect(200).body;
        assert!(got == *body, "body {number}");
    }
}

#[test]
fn a_body_over_the_limit_is_413_with_riaks_text() {
    let node = LarderNode::buffered();
    let mut client = node.client();
    let url = "/buckets/b/keys/k";
    let refused = client.put(url, vec![b'x'; 51 * MIB]).expect(413);
    assert!(refused.text().starts_with("Error:\n{too_large,"), "{}", refused.text());
    client.get(url).expect(404);
    client.put(url, "small").expect(204);
}

#[test]
fn a_chunked_body_over_the_limit_is_refused_too() {
    let node = LarderNode::buffered();
    let mut request = b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\
        Transfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    let chunk = vec![b'y'; MIB];
    for _ in 0..51 {
        request.extend_from_slice(b"100000\r\n");
        request.extend_from_slice(&chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let answer = HttpClient::raw(node.http(), &request).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
    node.client().get("/buckets/b/keys/k").expect(404);
}

#[test]
fn a_chunked_body_is_stored_and_a_truncated_one_is_not() {
    let node = LarderNode::buffered();
    let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: text/plain\r\n";
    let whole =
        format!("PUT /buckets/b/keys/k {head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    let answer = HttpClient::raw(node.http(), whole.as_bytes()).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 204 "), "{}", String::from_utf8_lossy(&answer));
    for broken in [
        format!("PUT /buckets/b/keys/half {head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n wo"),
        format!("PUT /buckets/b/keys/half {head}Content-Length: 100\r\n\r\nhello"),
        format!("PUT /buckets/b/keys/half {head}Content-Length: 3000000\r\n\r\n{}", "z".repeat(2_000_000)),
    ] {
        let _ = HttpClient::raw(node.http(), broken.as_bytes()).unwrap();
    }
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).text(), "hello world");
    assert_eq!(node.client().get("/buckets/b/keys/half").expect(404).text(), "not found\n");
}

#[test]
fn memory_stays_bounded_while_eight_large_bodies_come_in_at_once() {
    let node = LarderNode::buffered();
    node.client().put("/buckets/b/keys/warm", "up").expect(204);
    let before = node.resident_bytes();
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let mib = TestEngine::scaled(50, 24);
    let body = SplitMix64::new(9).bytes(mib * MIB);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(node.resident_bytes(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let uploads: Vec<_> = (0..8)
            .map(|number| {
                let (node, body) = (&node, &body);
                scope.spawn(move || {
                    node.client().put(&format!("/buckets/big/keys/{number}"), body.clone()).expect(204);
                })
            })
            .collect();
        let failed = uploads.into_iter().filter_map(|upload| upload.join().err()).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "uploads failed");
    });
    let grown = peak.load(Ordering::Relaxed).saturating_sub(before) / MIB as u64;
    figure(&format!("memory grown during 8 uploads of {mib} MiB, MiB"), &grown.to_string());
    // Over a cluster each upload also holds blocks in flight and the driver's copies of them.
    assert!(grown < TestEngine::scaled(160, 300), "{grown} MiB more for {} MiB in flight", 8 * mib);
    let got = node.client().get("/buckets/big/keys/7").expect(200).body;
    assert!(got == body);
}
