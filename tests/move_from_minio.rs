//! A move from a MinIO, live: 10,000 objects with versions, delete markers, tags, metadata, entity tags of uploads in parts, and
//! users. Clients write at the MinIO, change their endpoint in the middle and write on here, with the same keys, while the server
//! that copies is killed. At the end both show the same, but for what clients wrote here.
//!
//! ```text
//! MinIO   fill ── writers ──┐ switch
//! here          seed, kills └─ writers, kills ── verify ── compare ── finish
//! ```
//! It belongs to `cargo xtask soak`, which builds MinIO.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_testkit::http::HttpResponse;
use sha2::{Digest as _, Sha256};

use crate::harness::{
    HttpClient, LarderNode, Process, S3Client, Scale, SplitMix64, client_place, element, figure, stored_zip, wait_for,
};
use crate::live_move::{await_status, await_status_within, verify};

const ROOT: (&str, &str) = ("minio-root", "minio-root-secret");
/// Who writes, at both.
const APP: (&str, &str) = ("app", "the-secret-of-app");
/// Who may read objects and no more.
const READER: (&str, &str) = ("reader", "the-secret-of-reader");
/// A bucket without versioning, and one with.
const PLAIN: &str = "plain";
const KEPT: &str = "kept";
/// Objects of each of them; some of the second have several versions.
const OBJECTS: usize = 5000;
const UPLOADS: usize = 20;
const PART: usize = 5 << 20;
const FILLERS: usize = 4;
const WRITERS: usize = 3;
/// Keys of each writer in each bucket, beside those of the others and before the ones that nobody changes.
const KEYS_OF_WRITER: usize = 100;
const START: Duration = Duration::from_secs(60);
/// The longest time until it follows.
const SEED: Duration = Duration::from_secs(600);
/// The files of a MinIO's export that have something.
const IAM: &[(&str, &str)] = &[
    (
        "iam-assets/policies.json",
        r#"{"tea-reader":{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::plain/*"]}]}}"#,
    ),
    (
        "iam-assets/users.json",
        r#"{"app":{"secretKey":"the-secret-of-app","status":"enabled"},"reader":{"secretKey":"the-secret-of-reader","status":"enabled"}}"#,
    ),
    (
        "iam-assets/user_mappings.json",
        r#"{"app":{"version":0,"policy":"readwrite"},"reader":{"version":0,"policy":"tea-reader"}}"#,
    ),
];

/// A MinIO in a folder of its own.
struct MinioServer {
    process: Process,
    at: SocketAddr,
    _dir: tempfile::TempDir,
}

impl MinioServer {
    fn start(program: &std::path::Path) -> Self {
        let dir = tempfile::Builder::new().prefix("minio-").tempdir().unwrap();
        let [at, console] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let mut command = Command::new(program);
        command.args(["server", "--quiet", "--address", &at.to_string(), "--console-address", &console.to_string()]);
        command.arg(dir.path().join("data")).env("HOME", dir.path());
        command.env("MINIO_ROOT_USER", ROOT.0).env("MINIO_ROOT_PASSWORD", ROOT.1).env("MINIO_UPDATE", "off");
        let process = Process::start(&mut command);
        let minio = Self { process, at, _dir: dir };
        wait_for("MinIO is ready", START, || {
            let ready = std::net::TcpStream::connect(at).map_err(|error| error.to_string()).and_then(|_| {
                let answer = HttpClient::new(at).get("/minio/health/ready");
                if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
            });
            ready.map_err(|why| format!("{why}: {}{}", minio.process.stdout(), minio.process.stderr()))
        });
        minio
    }

    fn client(&self, (key, secret): (&str, &str)) -> S3Client {
        S3Client::new(self.at, key, secret)
    }

    /// An order to its administration.
    fn order(&self, method: &str, path: &str, body: &[u8]) -> HttpResponse {
        let hash: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        let send = || self.client(ROOT).send(|signer| signer.v4(method, path, &hash, &[]).body(body));
        // It refuses orders for a moment after it is ready.
        wait_for("an order to MinIO", START, || Some(send()).filter(|answer| answer.status != 503).ok_or("503"))
            .expect(200)
    }
}

/// The writers write at the MinIO.
const AT_SOURCE: u8 = 0;
/// They write here, while most objects are still there.
const HERE: u8 = 1;
const STOPPED: u8 = 2;

/// What the threads of a test share.
struct SharedWriters {
    stage: AtomicU8,
    source: SocketAddr,
    here: Mutex<SocketAddr>,
}

/// What a writer did with a key at last, and whether it did so here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LastWrite {
    /// The values that the key may have; `None`: it may be deleted. Several after a request without an answer, and none after
    /// one for a key that its writer had not written before.
    values: Vec<Option<Vec<u8>>>,
    is_here: bool,
}

#[test]
fn ten_thousand_objects_of_a_minio_move_while_its_clients_change_the_endpoint() {
    if Scale::current() == Scale::Test {
        return;
    }
    let Some(program) = client_place("LARDER_MINIO", "MinIO") else { return };
    let minio = MinioServer::start(&program);
    minio.order("PUT", "/minio/admin/v3/import-iam", &stored_zip(IAM));
    let begun = Instant::now();
    let written = fill(&minio);
    figure("a MinIO is filled", &format!("{written} writes in {} s", begun.elapsed().as_secs()));
    let mut larder = LarderNode::s3(&["--durability", "buffered"]);
    bring_users(&minio, &larder);
    let begun = Instant::now();
    start(&larder, &minio);
    let shared = SharedWriters { stage: AtomicU8::new(AT_SOURCE), source: minio.at, here: Mutex::new(larder.s3_at()) };
    let mut random = SplitMix64::new(11);
    let mut kill = |larder: &mut LarderNode, times: usize| {
        for _ in 0..times {
            thread::sleep(Duration::from_millis(300 + random.below(1500) as u64));
            larder.kill();
            larder.restart();
            *shared.here.lock().unwrap() = larder.s3_at();
        }
    };
    let written: Vec<BTreeMap<String, LastWrite>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                scope.spawn({
                    let shared = &shared;
                    move || write(number, shared)
                })
            })
            .collect();
        kill(&mut larder, 2);
        await_status(&larder, "the buckets are here", |status| status["phase"] == "seed");
        shared.stage.store(HERE, Ordering::SeqCst);
        kill(&mut larder, 3);
        let status = await_status_within(SEED, &larder, "it follows", |status| {
            status["phase"] == "follow" && status["sweeps"].as_u64() >= Some(1)
        });
        let brought = &status["counts"]["brought"];
        figure(
            "a move from a MinIO follows after",
            &format!("{} s, {brought} keys brought", begun.elapsed().as_secs()),
        );
        kill(&mut larder, 3);
        thread::sleep(Duration::from_secs(2));
        shared.stage.store(STOPPED, Ordering::SeqCst);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let written: BTreeMap<String, LastWrite> = written.into_iter().flatten().collect();
    let here = written.values().filter(|last| last.is_here).count() as u64;
    assert!(here > 100 && here < written.len() as u64, "{here} of {} keys were last written here", written.len());
    let verified = verify(&larder);
    let verified = if verified["changed_there"] == 0 { verified } else { verify(&larder) };
    assert_eq!((verified["differs"].as_u64(), verified["changed_there"].as_u64()), (Some(0), Some(0)), "{verified}");
    assert!(verified["changed_here"].as_u64() <= Some(here), "{here} {verified}");
    figure("a move from a MinIO is verified", &verified.to_string());
    let begun = Instant::now();
    let compared = compare(&minio, &larder, &written);
    figure("compared with a MinIO", &format!("{compared} versions in {} s", begun.elapsed().as_secs()));
    users_may_do_the_same(&minio, &larder);
    larder.admin().output(&["move", "finish"]);
    await_status(&larder, "it is finished", |status| status["phase"] == "done");
}

/// Fills the buckets; returns the number of writes.
fn fill(minio: &MinioServer) -> usize {
    let mut client = minio.client(APP);
    for bucket in [PLAIN, KEPT] {
        client.put(&format!("/{bucket}"), "").expect(200);
    }
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    client.put(&format!("/{KEPT}?versioning"), enabled).expect(200);
    let written: usize = thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILLERS)
            .map(|number| {
                scope.spawn(move || {
                    let (mut client, mut random) = (minio.client(APP), SplitMix64::new(number as u64));
                    let keys = (number..OBJECTS).step_by(FILLERS);
                    keys.map(|key| fill_key(&mut client, &mut random, key)).sum::<usize>()
                })
            })
            .collect();
        fillers.into_iter().map(|filler| filler.join().unwrap()).sum()
    });
    let uploads = (0..UPLOADS).map(|number| upload(&mut client, &format!("/{KEPT}/parts/{}", number % 15), number));
    written + uploads.count()
}

/// One key of each bucket.
fn fill_key(client: &mut S3Client, random: &mut SplitMix64, number: usize) -> usize {
    let mut put = |bucket: &str, name: &str| {
        let text = number.to_string();
        let tags = format!("number={text}&kin=a%20b");
        let all = [
            ("Content-Type", "text/x"),
            ("Cache-Control", "max-age=5"),
            ("x-amz-meta-number", text.as_str()),
            ("x-amz-tagging", tags.as_str()),
        ];
        let headers = &all[..[0, 1, 3, 4][number % 4]];
        let length = if number.is_multiple_of(100) { 200_000 } else { random.below(3000) };
        client.call("PUT", &format!("/{bucket}/{name}"), headers, random.bytes(length)).expect(200);
    };
    let (first, second) = (filled_name(number, PLAIN), filled_name(number, KEPT));
    put(PLAIN, &first);
    let versions = [1, 1, 1, 2, 3][number % 5];
    (0..versions).for_each(|_| put(KEPT, &second));
    let is_deleted = number % 10 == 3;
    if is_deleted {
        client.delete(&format!("/{KEPT}/{second}")).expect(204);
    }
    1 + versions + usize::from(is_deleted)
}

/// The name of a key that is there before the move, as a path has it. The first ones are those of the writers.
fn filled_name(number: usize, bucket: &str) -> String {
    match number {
        _ if number < WRITERS * KEYS_OF_WRITER => {
            written_name(number / KEYS_OF_WRITER, number % KEYS_OF_WRITER, bucket)
        }
        _ if number.is_multiple_of(7) => format!("folder/{}/k{number}", number % 13),
        _ if number.is_multiple_of(50) => format!("odd/a%20%2B%3F%25%26/%C3%BC~{number}"),
        _ => format!("k{number}"),
    }
}

fn written_name(writer: usize, key: usize, bucket: &str) -> String {
    format!("writer{writer}/{bucket}-{key}")
}

/// An object in two parts, or in one.
fn upload(client: &mut S3Client, path: &str, number: usize) {
    let id = client.begin(path);
    let mut parts = vec![(1, client.part(path, &id, 1, vec![number as u8; PART]))];
    if !number.is_multiple_of(3) {
        parts.push((2, client.part(path, &id, 2, b"end".to_vec())));
    }
    client.complete(path, &id, &parts).expect(200);
}

/// Brings the users by the export of the MinIO.
fn bring_users(minio: &MinioServer, larder: &LarderNode) {
    let export = larder.home().path().join("export.zip");
    fs::write(&export, minio.order("GET", "/minio/admin/v3/export-iam", b"").body).unwrap();
    larder.admin().output(&["s3", "user", "import", &format!("@{}", export.display())]);
}

fn start(larder: &LarderNode, minio: &MinioServer) {
    let secret = larder.home().path().join("source-secret");
    fs::write(&secret, ROOT.1).unwrap();
    let address = format!("s3://{}@{}", ROOT.0, minio.at);
    let owner = format!("{}@minio", APP.0);
    let secret = secret.to_str().unwrap();
    let args = ["move", "start", &address, "--secret-file", secret, "--owner", &owner, "--rate", "2000"];
    larder.admin().output(&args);
}

/// Puts and deletes with one key, at the MinIO and then here, and notes the last write of each object.
fn write(number: usize, shared: &SharedWriters) -> BTreeMap<String, LastWrite> {
    let mut random = SplitMix64::new(100 + number as u64);
    let mut written: BTreeMap<String, LastWrite> = BTreeMap::new();
    loop {
        let stage = shared.stage.load(Ordering::SeqCst);
        let at = match stage {
            STOPPED => return written,
            AT_SOURCE => shared.source,
            _ => *shared.here.lock().unwrap(),
        };
        let is_here = stage != AT_SOURCE;
        // Half of what they wrote at the MinIO stays as it is.
        let (bucket, key) = (random.pick(&[PLAIN, KEPT]), random.below(KEYS_OF_WRITER));
        let key = if is_here { key / 2 * 2 } else { key };
        let path = format!("/{bucket}/{}", written_name(number, key, bucket));
        let length = 1 + random.below(2000);
        let value = (random.below(4) > 0).then(|| random.bytes(length));
        let mut client = S3Client::new(at, APP.0, APP.1);
        let answer = match &value {
            Some(value) => client.try_call("PUT", &path, value.clone()),
            None => client.try_call("DELETE", &path, ""),
        };
        match answer {
            Ok(answer) if answer.status < 300 => {
                written.insert(path, LastWrite { values: vec![value], is_here });
            }
            Ok(answer) if answer.status < 500 => panic!("{path}: {} {}", answer.status, answer.text()),
            // It may be done.
            _ => {
                let last = written.entry(path).or_insert(LastWrite { values: Vec::new(), is_here });
                last.is_here |= is_here;
                if !last.values.is_empty() {
                    last.values.push(value);
                }
            }
        }
        thread::sleep(Duration::from_millis(4));
    }
}

/// A version in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ComparedVersion {
    /// All that clients see but its id.
    shown: String,
    key: String,
    id: String,
    is_marker: bool,
}

/// Compares both as a client sees them; returns the number of versions.
fn compare(minio: &MinioServer, larder: &LarderNode, written: &BTreeMap<String, LastWrite>) -> usize {
    let (mut there, mut here) = (minio.client(APP), S3Client::new(larder.s3_at(), APP.0, APP.1));
    for (path, last) in written.iter().filter(|(_, last)| last.is_here) {
        let found = here.get(path);
        let value = (found.status == 200).then_some(found.body);
        assert!(
            last.values.is_empty() || last.values.contains(&value),
            "{path}: a value that its writer did not write last"
        );
    }
    let is_compared = |bucket: &str, version: &ComparedVersion| {
        written.get(&format!("/{bucket}/{}", version.key)).is_none_or(|last| !last.is_here)
    };
    let mut compared = 0;
    for bucket in [PLAIN, KEPT] {
        let [first, second] = [&mut there, &mut here].map(|client| {
            let all = listed_versions(client, bucket).into_iter();
            all.filter(|version| is_compared(bucket, version)).collect::<Vec<_>>()
        });
        for (first, second) in first.iter().zip(&second) {
            assert_eq!((&first.shown, first.is_marker), (&second.shown, second.is_marker), "{bucket}");
        }
        assert_eq!(first.len(), second.len(), "{bucket}");
        for (first, second) in first.iter().zip(&second).filter(|(version, _)| !version.is_marker) {
            let path = |version: &ComparedVersion, about: &str| {
                format!("/{bucket}/{}?{about}versionId={}", encoded(&version.key), version.id)
            };
            let (one, other) = (there.get(&path(first, "")).expect(200), here.get(&path(second, "")).expect(200));
            assert_eq!(headers(&one), headers(&other), "{}", first.key);
            assert!(one.body == other.body, "{}: other bytes", first.key);
            if one.header("x-amz-tagging-count").is_some() {
                let tags = [there.get(&path(first, "tagging&")), here.get(&path(second, "tagging&"))];
                let [one, other] = tags.map(|answer| tag_set(&answer.expect(200).text()));
                assert_eq!(one, other, "{}", first.key);
            }
        }
        compared += first.len();
    }
    compared
}

/// All versions of a bucket, in the order of their listing.
fn listed_versions(client: &mut S3Client, bucket: &str) -> Vec<ComparedVersion> {
    let mut versions = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/{bucket}?versions&encoding-type=url{after}")).expect(200).text();
        let entries = page.split("<Version>").flat_map(|text| {
            let mut parts = text.split("<DeleteMarker>");
            let first = parts.next().map(|entry| (entry, false));
            first.into_iter().chain(parts.map(|entry| (entry, true)))
        });
        versions.extend(entries.skip(1).map(|(entry, is_marker)| {
            let part = |name| element(entry, name).unwrap_or_default();
            let unquoted = |name| part(name).replace("&#34;", "\"").replace("&quot;", "\"");
            let key = decoded(part("Key"));
            // A MinIO lists delete markers with a size.
            let size = if is_marker { String::new() } else { unquoted("Size") };
            let shown = format!("{key} {} {size}", ["IsLatest", "LastModified", "ETag"].map(unquoted).join(" "));
            ComparedVersion { shown, key, id: part("VersionId").to_owned(), is_marker }
        }));
        if element(&page, "IsTruncated") != Some("true") {
            return versions;
        }
        let marker = |name| element(&page, name).unwrap_or_default().to_owned();
        after = format!("&key-marker={}&version-id-marker={}", marker("NextKeyMarker"), marker("NextVersionIdMarker"));
    }
}

/// The headers of an object that clients see.
fn headers(found: &HttpResponse) -> Vec<String> {
    let is_kept = |name: &str| {
        name.starts_with("x-amz-meta")
            || ["etag", "last-modified", "content-type", "content-length", "cache-control", "x-amz-tagging-count"]
                .contains(&name)
    };
    let lines = found.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let mut lines: Vec<_> =
        lines.filter(|(name, _)| is_kept(name)).map(|(name, value)| format!("{name}: {value}")).collect();
    lines.sort();
    lines
}

fn tag_set(document: &str) -> BTreeSet<(String, String)> {
    let tags = document.split("<Tag>").skip(1);
    let part = |tag: &str, name| element(tag, name).unwrap_or_default().to_owned();
    tags.map(|tag| (part(tag, "Key"), part(tag, "Value"))).collect()
}

/// A key as a path has it.
fn encoded(key: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' | b'/' => (byte as char).to_string(),
        _ if byte.is_ascii_alphanumeric() => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    key.bytes().map(byte).collect()
}

/// A key of a listing with `encoding-type=url`.
fn decoded(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        let hex: Option<String> = (byte == b'%').then(|| rest.by_ref().take(2).map(char::from).collect());
        bytes.push(match hex {
            Some(hex) => u8::from_str_radix(&hex, 16).unwrap(),
            None if byte == b'+' => b' ',
            None => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

/// The users have their keys, secrets and rights here, too.
fn users_may_do_the_same(minio: &MinioServer, larder: &LarderNode) {
    for at in [minio.at, larder.s3_at()] {
        let mut reader = S3Client::new(at, READER.0, READER.1);
        let object = format!("/{PLAIN}/k302");
        reader.get(&object).expect(200);
        reader.get(&format!("/{KEPT}/k302")).expect(403);
        reader.get(&format!("/{PLAIN}")).expect(403);
        reader.put(&object, "mine").expect(403);
        S3Client::new(at, READER.0, "another-secret").get(&object).expect(403);
        S3Client::new(at, APP.0, APP.1).put(&format!("/{PLAIN}/at-the-end"), "mine").expect(200);
    }
}
