//! Large bodies are streamed, damaged ones are never sent, interrupted ones leave no blob.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use md5::{Digest as _, Md5};

use larder_tests::{LarderNode, Random, S3Client, Scale, TestEngine, element, figure};

const MIB: u64 = 1024 * 1024;

/// Sends a head and a body in pieces; returns the answer.
fn stream(node: &LarderNode, head: &[u8], pieces: u64, piece: &[u8], digest: &mut Md5) -> String {
    let mut socket = TcpStream::connect(node.s3_at()).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    socket.write_all(head).expect("the head is taken");
    for number in 0..pieces {
        let mut piece = piece.to_vec();
        piece[..8].copy_from_slice(&number.to_be_bytes());
        digest.update(&piece);
        socket.write_all(&piece).expect("the body is taken");
    }
    let mut answer = vec![0; 4096];
    let length = socket.read(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// The head of a put.
fn head(s3: &S3Client, target: &str, length: u64) -> Vec<u8> {
    let bare = s3.signed("GET", target, &[], "");
    let text = String::from_utf8(bare.head()).unwrap();
    let date = text.lines().find_map(|line| line.strip_prefix("Date: ")).unwrap().to_owned();
    let signature = s3.signature("PUT", target, &date, &[]);
    format!(
        "PUT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nDate: {date}\r\nAuthorization: AWS {}:{signature}\r\n\
         Content-Length: {length}\r\n\r\n",
        larder_tests::S3_KEY
    )
    .into_bytes()
}

#[test]
fn a_gibibyte_is_put_and_read_in_bounded_memory() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = S3Client::admin(&node);
    s3.put("/large", "").expect(200);
    let total = Scale::current().of(TestEngine::scaled(1024, 128), TestEngine::scaled(50 * 1024, 4 * 1024)) * MIB;
    // The largest put has 5 GiB; larger objects need parts.
    let part = total.min(1024 * MIB);
    let piece = Random::seeded(1).bytes(usize::try_from(MIB).unwrap());
    let before = node.resident_bytes();
    let upload = s3.begin("/large/object");
    let mut parts = Vec::new();
    for number in 1..=u32::try_from(total / part).unwrap() {
        let mut digest = Md5::new();
        let target = format!("/large/object?partNumber={number}&uploadId={upload}");
        let answer = stream(&node, &head(&s3, &target, part), part / MIB, &piece, &mut digest);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let md5: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(answer.contains(&md5), "{answer} should say {md5}");
        parts.push((number, format!("\"{md5}\"")));
    }
    s3.complete("/large/object", &upload, &parts).expect(200);
    let mut socket = TcpStream::connect(node.s3_at()).unwrap();
    socket.write_all(&s3.signed("GET", "/large/object", &[("Connection", "close")], "").bytes()).unwrap();
    let (mut digest, mut buffer, mut length) = (Md5::new(), vec![0; 256 * 1024], 0_u64);
    let mut start: Vec<u8> = Vec::new();
    let body = loop {
        let read = socket.read(&mut buffer).unwrap();
        start.extend_from_slice(&buffer[..read]);
        if let Some(at) = start.windows(4).position(|four| four == b"\r\n\r\n") {
            break start.split_off(at + 4);
        }
    };
    digest.update(&body);
    length += body.len() as u64;
    loop {
        let read = socket.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
        length += read as u64;
    }
    let grown = node.resident_bytes().saturating_sub(before) / MIB;
    figure(
        "S3: MiB of memory more after streaming a large object in and out",
        &format!("{grown} for {} MiB", total / MIB),
    );
    assert_eq!(length, total);
    if parts.len() == 1 {
        let md5: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(format!("\"{md5}\""), parts[0].1);
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
    let mut s3 = S3Client::admin(&node);
    s3.put("/damaged", "").expect(200);
    let body = Random::seeded(3).bytes(4 * 1024 * 1024);
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
    let answer = larder_tests::HttpClient::raw(node.s3_at(), &request.bytes()).unwrap();
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
    let mut s3 = S3Client::admin(&node);
    s3.put("/broken", "").expect(200);
    let piece = Random::seeded(4).bytes(usize::try_from(MIB).unwrap());
    let mut socket = TcpStream::connect(node.s3_at()).unwrap();
    socket.write_all(&head(&s3, "/broken/key", 8 * MIB)).unwrap();
    socket.write_all(&piece).unwrap();
    socket.write_all(&piece).unwrap();
    drop(socket);
    let wrong = s3.call("PUT", "/broken/key", &[("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")], piece).expect(400);
    assert_eq!(element(&wrong.text(), "Code").as_deref(), Some("BadDigest"));
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
