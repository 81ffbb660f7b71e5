//! The disk under encrypted objects: no file of the server has a plaintext or a customer's key, and a changed bit is an error.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

use crate::harness::{HttpResponse, LarderNode, S3Client, SplitMix64, TestEngine, complete_body};

/// Bytes that a search looks for: no other data has them.
const SAMPLE_BYTES: usize = 24;
/// Bodies in rows, in bulk rows and in files of their own, and across the edges of chunks.
const LENGTHS: &[usize] = &[SAMPLE_BYTES, 700, 5_000, 65_536, 200_000, 1_500_000];
const PART: usize = 5 << 20;
const CUSTOMER_KEY: [u8; 32] = *b"a customer's key of thirty-two b";

fn server_key() -> Vec<(&'static str, String)> {
    vec![("x-amz-server-side-encryption", "AES256".to_owned())]
}

fn customer_key(prefix: &str) -> Vec<(&'static str, String)> {
    let names: [&'static str; 3] = match prefix {
        "" => [
            "x-amz-server-side-encryption-customer-algorithm",
            "x-amz-server-side-encryption-customer-key",
            "x-amz-server-side-encryption-customer-key-md5",
        ],
        _ => [
            "x-amz-copy-source-server-side-encryption-customer-algorithm",
            "x-amz-copy-source-server-side-encryption-customer-key",
            "x-amz-copy-source-server-side-encryption-customer-key-md5",
        ],
    };
    let values = ["AES256".to_owned(), STANDARD.encode(CUSTOMER_KEY), STANDARD.encode(Md5::digest(CUSTOMER_KEY))];
    names.into_iter().zip(values).collect()
}

/// A client whose bodies all have a sample.
struct SealingClient {
    s3: S3Client,
    random: SplitMix64,
    samples: Vec<Vec<u8>>,
}

impl SealingClient {
    /// A body with samples that no compression hides: its begin, its middle and its end.
    fn body(&mut self, length: usize) -> Vec<u8> {
        let body = self.random.bytes(length);
        for at in [0, (length - SAMPLE_BYTES) / 2, length - SAMPLE_BYTES] {
            self.samples.push(body[at..at + SAMPLE_BYTES].to_vec());
        }
        body
    }

    fn ask(&mut self, method: &str, target: &str, headers: &[(&str, String)], body: Vec<u8>) -> HttpResponse {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.s3.call(method, target, &headers, body)
    }

    fn put(&mut self, target: &str, headers: &[(&str, String)], length: usize) -> Vec<u8> {
        let body = self.body(length);
        self.ask("PUT", target, headers, body.clone()).expect(200);
        body
    }

    /// An upload of two parts.
    fn upload(&mut self, target: &str, begin: &[(&str, String)], each: &[(&str, String)]) {
        let begun = self.ask("POST", &format!("{target}?uploads"), begin, Vec::new()).expect(200);
        let upload = begun.element("UploadId").expect("an upload has an id").to_owned();
        let mut parts = Vec::new();
        for (number, length) in [(1, PART), (2, 90_000)] {
            let body = self.body(length);
            let part = format!("{target}?partNumber={number}&uploadId={upload}");
            let stored = self.ask("PUT", &part, each, body).expect(200);
            parts.push((number, stored.header("ETag").expect("a part has an entity tag").to_owned()));
        }
        let complete = format!("{target}?uploadId={upload}");
        self.ask("POST", &complete, &[], complete_body(&parts).into_bytes()).expect(200);
        // Parts of an upload that stays open, and of one that is aborted.
        let begun = self.ask("POST", &format!("{target}?uploads"), begin, Vec::new()).expect(200);
        let upload = begun.element("UploadId").expect("an upload has an id").to_owned();
        let body = self.body(150_000);
        self.ask("PUT", &format!("{target}?partNumber=1&uploadId={upload}"), each, body).expect(200);
    }
}

/// All files below a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let below = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => vec![entry.path()],
    });
    below.collect()
}

/// The files that have one of the samples.
fn found(dir: &Path, samples: &[Vec<u8>]) -> Vec<PathBuf> {
    // One pass for all samples: those that begin with a pair of bytes are compared in full.
    let mut by_begin: Vec<Vec<&[u8]>> = vec![Vec::new(); 1 << 16];
    for sample in samples {
        by_begin[usize::from(u16::from_be_bytes([sample[0], sample[1]]))].push(sample);
    }
    let has = |bytes: &[u8]| {
        bytes.windows(2).enumerate().any(|(at, pair)| {
            let begin = &by_begin[usize::from(u16::from_be_bytes([pair[0], pair[1]]))];
            begin.iter().any(|sample| bytes[at..].starts_with(sample))
        })
    };
    files(dir).into_iter().filter(|file| fs::read(file).is_ok_and(|bytes| has(&bytes))).collect()
}

fn start() -> (LarderNode, SealingClient) {
    let node = LarderNode::s3(&["--s3-ssec-plain"]);
    let mut client = SealingClient { s3: node.s3_admin(), random: SplitMix64::new(39), samples: Vec::new() };
    client.ask("PUT", "/sealed", &[], Vec::new()).expect(200);
    (node, client)
}

#[test]
fn no_file_under_encrypted_objects_has_a_plaintext_or_a_customers_key() {
    if !TestEngine::is_local_for("files of a server") {
        return;
    }
    let (mut node, mut client) = start();
    for (number, length) in LENGTHS.iter().enumerate() {
        client.put(&format!("/sealed/server-{number}"), &server_key(), *length);
        client.put(&format!("/sealed/customer-{number}"), &customer_key(""), *length);
        let to_server = [customer_key("source"), server_key()].concat();
        let source = |name: &str| ("x-amz-copy-source", format!("/sealed/{name}-{number}"));
        let copy = [to_server, vec![source("customer")]].concat();
        client.ask("PUT", &format!("/sealed/copied-{number}"), &copy, Vec::new()).expect(200);
        let copy = [customer_key(""), vec![source("server")]].concat();
        client.ask("PUT", &format!("/sealed/again-{number}"), &copy, Vec::new()).expect(200);
        // A body that is refused at its end has been written before.
        let wrong = [server_key(), vec![("content-md5", STANDARD.encode([0; 16]))]].concat();
        let body = client.body(*length);
        client.ask("PUT", "/sealed/refused", &wrong, body).expect(400);
    }
    client.upload("/sealed/parts-server", &server_key(), &[]);
    client.upload("/sealed/parts-customer", &customer_key(""), &customer_key(""));
    let default = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256\
                   </SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
    let digest = vec![("content-md5", STANDARD.encode(Md5::digest(default)))];
    client.ask("PUT", "/sealed?encryption", &digest, default.as_bytes().to_vec()).expect(200);
    client.put("/sealed/default-small", &[], 900);
    client.put("/sealed/default-large", &[], 1_200_000);
    let mut samples = std::mem::take(&mut client.samples);
    samples.push(CUSTOMER_KEY[..SAMPLE_BYTES].to_vec());
    samples.push(STANDARD.encode(CUSTOMER_KEY).as_bytes()[..SAMPLE_BYTES].to_vec());
    let data = node.home().data();
    assert_eq!(found(&data, &samples), Vec::<PathBuf>::new(), "while the server runs");
    let log = node.log();
    assert!(!log.contains(&STANDARD.encode(CUSTOMER_KEY)), "{log}");
    node.kill();
    assert_eq!(found(&data, &samples), Vec::<PathBuf>::new(), "after a kill");
    node.restart();
    node.terminate();
    assert_eq!(found(&data, &samples), Vec::<PathBuf>::new(), "after an ordinary end, with the journal in tables");
    // The search finds what is there.
    node.restart();
    client.s3 = node.s3_admin();
    client.ask("PUT", "/plain", &[], Vec::new()).expect(200);
    for length in LENGTHS {
        client.samples.clear();
        client.put("/plain/object", &[], *length);
        assert_ne!(found(&data, &client.samples), Vec::<PathBuf>::new(), "{length} plain bytes are on the disk");
    }
}

#[test]
fn a_flipped_bit_under_an_encrypted_object_is_an_error_and_never_bytes() {
    if !TestEngine::is_local_for("files of a server") {
        return;
    }
    let (mut node, mut client) = start();
    let body = client.put("/sealed/large", &server_key(), 3_000_000);
    node.terminate();
    let mut random = SplitMix64::new(40);
    let blob = files(&node.home().data().join("blobs"));
    let blob =
        blob.iter().max_by_key(|file| fs::metadata(file).map_or(0, |found| found.len())).expect("a file of the body");
    let sound = fs::read(blob).expect("it can be read");
    for _ in 0..3 {
        let mut bytes = sound.clone();
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        fs::write(blob, &bytes).expect("it can be written");
        node.restart();
        client.s3 = node.s3_admin();
        let request = client.s3.signed("GET", "/sealed/large", &[], Vec::new());
        match larder_testkit::http::HttpClient::new(node.s3_at()).try_send(&request) {
            Err(_) => {}
            Ok(answer) => assert!(answer.status >= 500 || answer.body == body, "bit at {at}: {}", answer.status),
        }
        node.terminate();
    }
}
