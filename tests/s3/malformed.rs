//! Malformed S3 requests: the server answers or closes the connection, and serves other clients.

use std::thread;

use crate::harness::{HttpClient, HttpRequest, LarderNode, S3Client, Scale, SplitMix64, figure};

const THREADS: u64 = 4;

/// Well-formed requests, for [`damaged`].
fn valid(s3: &S3Client, upload: &str) -> Vec<Vec<u8>> {
    let xml = "<Delete><Object><Key>k</Key></Object><Quiet>true</Quiet></Delete>";
    let chunked =
        "5;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\nhello\r\n0\r\n\r\n";
    let requests = [
        s3.signed("PUT", "/bucket/key", &[("Content-Type", "text/plain"), ("x-amz-meta-a", "b")], "body"),
        s3.signed("GET", "/bucket/key", &[("Range", "bytes=1-2"), ("If-None-Match", "\"x\"")], ""),
        s3.signed("GET", "/bucket?list-type=2&prefix=a&delimiter=/&max-keys=3&continuation-token=x", &[], ""),
        s3.signed("GET", "/bucket?versions&key-marker=a&version-id-marker=b", &[], ""),
        s3.signed("POST", "/bucket?delete", &[("Content-Type", "application/xml")], xml),
        s3.signed("POST", &format!("/bucket/key?uploadId={upload}"), &[], crate::harness::complete_body(&[(1, "e".into())])),
        s3.signed("PUT", &format!("/bucket/key?partNumber=1&uploadId={upload}"), &[], "part"),
        s3.signed("GET", &format!("/bucket/key?uploadId={upload}&max-parts=1&part-number-marker=0"), &[], ""),
        s3.signed("PUT", "/bucket?lifecycle", &[], "<LifecycleConfiguration><Rule><Status>Enabled</Status></Rule></LifecycleConfiguration>"),
        s3.signed("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/key?versionId=null")], ""),
        HttpRequest::new("PUT", "/bucket/key")
            .header("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
            .header("x-amz-decoded-content-length", "5")
            .header("x-amz-trailer", "x-amz-checksum-crc32")
            .body(chunked),
        HttpRequest::get("/bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a/20260101/r/s3/aws4_request&X-Amz-Date=20260101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=00"),
        HttpRequest::get("/bucket/key?AWSAccessKeyId=a&Expires=1&Signature=b"),
        HttpRequest::get("/bucket/key").header("Authorization", "AWS4-HMAC-SHA256 Credential=a/20260101/r/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=00"),
        HttpRequest::new("POST", "/bucket")
            .header("Content-Type", "multipart/form-data; boundary=b")
            .body("--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n"),
        HttpRequest::get("/riak-cs/usage/key/abj/20260101T000000Z/20260102T000000Z"),
        HttpRequest::new("OPTIONS", "/bucket/key").header("Origin", "http://a").header("Access-Control-Request-Method", "PUT"),
    ];
    requests.iter().map(HttpRequest::bytes).collect()
}

/// A request with bytes changed, cut or repeated, or with a part of another request inside.
fn damaged(random: &mut SplitMix64, requests: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.pick(requests).clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len().max(1));
        match random.below(5) {
            0 if !bytes.is_empty() => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => bytes.truncate(at),
            2 => {
                let piece = random.pick(requests).clone();
                let (from, length) = (random.below(piece.len()), random.below(40));
                let to = (from + length).min(piece.len());
                bytes.splice(at..at, piece[from..to].iter().copied());
            }
            3 => {
                let to = (at + random.below(20)).min(bytes.len());
                bytes.drain(at..to);
            }
            _ => {
                let odd: [&[u8]; 6] = [b"%", b"%zz", b"\r\n", b"\xff\xfe", b"&&==", b"99999999999999999999"];
                bytes.splice(at..at, random.pick(&odd).iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn after_thousands_of_malformed_requests_the_server_still_serves() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.put("/bucket", "").expect(200);
    s3.put("/bucket/fine", "still here").expect(200);
    let upload = s3.begin("/bucket/key");
    let requests = valid(&s3, &upload);
    let count = Scale::current().pick(3_300, 100_000) / THREADS;
    let at = node.s3_at();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let requests = &requests;
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed + 100);
                for _ in 0..count {
                    let mut bytes = damaged(&mut random, requests);
                    // The client closes its side after the request, so the server does not wait for the rest of a cut one.
                    bytes.extend_from_slice(b"\r\n\r\n");
                    let answer = HttpClient::raw(at, &bytes).unwrap_or_default();
                    let text = String::from_utf8_lossy(&answer);
                    assert!(!text.starts_with("HTTP/1.1 500"), "{}\n{text}", String::from_utf8_lossy(&bytes));
                }
            });
        }
    });
    assert_eq!(s3.get("/bucket/fine").expect(200).text(), "still here");
    assert!(!node.log().contains("panicked"), "{}", node.log());
    figure("S3: malformed requests", &format!("{}, serving afterwards", count * THREADS));
}
