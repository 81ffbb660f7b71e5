//! Large bodies are streamed, damaged ones are never sent, interrupted ones leave no blob.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use md5::{Digest as _, Md5};

use crate::harness::{HttpClient, HttpConnection, LarderNode, S3Client, Scale, SplitMix64, TestEngine, figure};

const MIB: u64 = 1024 * 1024;

/// The numbered pieces of a body.
fn pieces(piece: &[u8], count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| [&number.to_be_bytes(), &piece[8..]].concat())
}

/// The head of a put.
fn head(s3: &S3Client, target: &str, length: u64) -> String {
    s3.signer.v2("PUT", target, &[("Content-Length", &length.to_string())]).head()
}

fn hex(digest: Md5) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_large_object_is_put_and_read_in_bounded_memory() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.put("/large", "").expect(200);
    let total = Scale::current().pick(TestEngine::scaled(320, 128), TestEngine::scaled(50 * 1024, 4 * 1024)) * MIB;
    // The largest put has 5 GiB; larger objects need parts.
    let part = total.min(1024 * MIB);
    let piece = SplitMix64::new(1).bytes(usize::try_from(MIB).unwrap());
    let before = node.resident_bytes();
    let upload = s3.begin("/large/object");
    let mut parts = Vec::new();
    for number in 1..=u32::try_from(total / part).unwrap() {
        let mut digest = Md5::new();
        let target = format!("/large/object?partNumber={number}&uploadId={upload}");
        let mut connection = HttpConnection::open(node.s3_at());
        connection.write(head(&s3, &target, part)).expect("the head is taken");
        for piece in pieces(&piece, part / MIB) {
            digest.update(&piece);
            connection.write(&piece).expect("the body is taken");
        }
        let answer = connection.receive().expect("it answers").expect(200);
        let etag = format!("\"{}\"", hex(digest));
        assert_eq!(answer.header("ETag"), Some(etag.as_str()));
        parts.push((number, etag));
    }
    s3.complete("/large/object", &upload, &parts).expect(200);
    let mut digest = Md5::new();
    let request = s3.signed("GET", "/large/object", &[], "").bytes();
    let answer = HttpConnection::open(node.s3_at()).exchange_to(request, &mut digest).expect("it answers").expect(200);
    let grown = node.resident_bytes().saturating_sub(before) / MIB;
    figure(
        "S3: MiB of memory more after streaming a large object in and out",
        &format!("{grown} for {} MiB", total / MIB),
    );
    // A body that ends before its length is an error of the client.
    assert_eq!(answer.header("Content-Length"), Some(total.to_string().as_str()));
    if parts.len() == 1 {
        assert_eq!(format!("\"{}\"", hex(digest)), parts[0].1);
    }
    assert!(grown < 200, "a body is held in memory: {grown} MiB");
}

/// The largest file below a directory.
fn largest(dir: &Path) -> Option<(u64, PathBuf)> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    let found = entries.filter_map(|entry| match entry.file_type().ok()?.is_dir() {
        true => largest(&entry.path()),
        false => Some((entry.metadata().ok()?.len(), entry.path())),
    });
    found.max()
}

#[test]
fn bytes_of_a_damaged_block_are_never_sent() {
    if !TestEngine::is_local_for("a file that is damaged") {
        return;
    }
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.put("/damaged", "").expect(200);
    let body = SplitMix64::new(3).bytes(4 * 1024 * 1024);
    s3.put("/damaged/key", body.clone()).expect(200);
    let (_, file) = largest(&node.home().data().join("blobs")).expect("a large body is a file");
    let mut file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    file.seek(SeekFrom::Start(2 * 1024 * 1024)).unwrap();
    let mut byte = [0];
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(2 * 1024 * 1024)).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
    // The bytes before the damage may have been sent: then the connection closes early, and no wrong byte follows.
    let request = s3.signed("GET", "/damaged/key", &[("Connection", "close")], "");
    let answer = HttpClient::raw(node.s3_at(), &request.bytes()).unwrap();
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let text = String::from_utf8_lossy(&answer[..at]).into_owned();
    if text.starts_with("HTTP/1.1 200 ") {
        let got = &answer[at..];
        assert!(got.len() < body.len() && body.starts_with(got), "{} bytes", got.len());
    } else {
        assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
    }
    let range = s3.call("GET", "/damaged/key", &[("Range", "bytes=0-99")], "").expect(206);
    assert_eq!(range.body, &body[..100]);
    let metrics = node.client().get("/metrics").expect(200).text();
    let damaged =
        metrics.lines().any(|line| line.contains("damaged") && !line.starts_with('#') && !line.ends_with(" 0"));
    assert!(damaged, "no metric counts damage:\n{metrics}");
}

#[test]
fn an_interrupted_put_leaves_no_blob() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.put("/broken", "").expect(200);
    let piece = SplitMix64::new(4).bytes(usize::try_from(MIB).unwrap());
    let mut connection = HttpConnection::open(node.s3_at());
    connection.write(head(&s3, "/broken/key", 8 * MIB)).unwrap();
    connection.write([&piece[..], &piece].concat()).unwrap();
    drop(connection);
    let wrong = s3.call("PUT", "/broken/key", &[("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")], piece).expect(400);
    assert_eq!(wrong.element("Code"), Some("BadDigest"));
    s3.get("/broken/key").expect(404);
    if !TestEngine::is_local_for("its blob files") {
        return;
    }
    let gone = || largest(&node.home().data().join("blobs")).is_none_or(|(length, _)| length < MIB);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !gone() {
        assert!(std::time::Instant::now() < deadline, "an incomplete body stays on disk");
        std::thread::sleep(Duration::from_millis(50));
    }
}
