//! The server is killed during puts, parts, completions and deletes, many times. Acknowledged objects read back byte for byte,
//! others are absent or complete, and the sweeper frees the disk.
//!
//! Each writer owns its keys, so the possible objects of a key are known. `LARDER_TEST_SCALE=soak` runs 200 rounds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{HttpResponse, LarderNode, S3Client, Scale, SplitMix64, TestEngine, element, figure};

const WRITERS: u64 = 4;
const KEYS: usize = 6;
const PART: usize = 5 * 1024 * 1024;

/// An object by its seed and its length; `None` is no object.
type SeededObject = Option<(u64, usize)>;

fn bytes(made: (u64, usize)) -> Vec<u8> {
    SplitMix64::new(made.0).bytes(made.1)
}

/// The objects that a key may hold: the last acknowledged one, or one that was sent since.
#[derive(Debug, Clone, Default)]
struct PossibleObjects {
    acknowledged: SeededObject,
    sent: Vec<SeededObject>,
}

struct S3Writer {
    s3: S3Client,
    random: SplitMix64,
    number: u64,
    may: BTreeMap<String, PossibleObjects>,
    acknowledged: u64,
}

impl S3Writer {
    fn key(&mut self) -> String {
        format!("/kill/writer-{}-{}", self.number, self.random.below(KEYS))
    }

    /// Writes and deletes until the server does not answer.
    fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let key = self.key();
            let sent = match self.random.below(10) {
                0..=1 => None,
                2..=5 => Some((self.random.number(), self.random.below(3000))),
                6..=8 => Some((self.random.number(), self.random.below(2 * 1024 * 1024))),
                _ => Some((self.random.number(), PART + self.random.below(100_000))),
            };
            let parts = sent.is_some_and(|(_, length)| length >= PART);
            self.may.entry(key.clone()).or_default().sent.push(sent);
            let done = match sent {
                None => self.s3.try_call("DELETE", &key, "").is_ok_and(|answer| answer.status == 204),
                Some(made) if parts => self.upload(&key, made).is_some(),
                Some(made) => self.s3.try_call("PUT", &key, bytes(made)).is_ok_and(|answer| answer.status == 200),
            };
            if !done {
                return;
            }
            self.may.insert(key, PossibleObjects { acknowledged: sent, sent: Vec::new() });
            self.acknowledged += 1;
        }
    }

    /// Uploads an object of two parts, the first of them twice.
    fn upload(&mut self, key: &str, made: (u64, usize)) -> Option<()> {
        let ok = |answer: std::io::Result<HttpResponse>| answer.ok().filter(|answer| answer.status == 200);
        let begun = ok(self.s3.try_call("POST", &format!("{key}?uploads"), ""))?;
        let upload = begun.element("UploadId")?;
        let body = bytes(made);
        let (first, second) = body.split_at(PART);
        let mut parts = Vec::new();
        for (number, part) in [(1, &b"put again below"[..]), (2, second), (1, first)] {
            let target = format!("{key}?partNumber={number}&uploadId={upload}");
            let etag = ok(self.s3.try_call("PUT", &target, part))?.header("ETag")?.to_owned();
            parts.retain(|(other, _)| *other != number);
            parts.push((number, etag));
        }
        parts.sort();
        let target = format!("{key}?uploadId={upload}");
        ok(self.s3.try_call("POST", &target, crate::harness::complete_body(&parts))).map(drop)
    }

    /// Reads every key back and keeps the object that it holds.
    fn check(&mut self) {
        for (key, may) in &mut self.may {
            let answer = self.s3.get(key);
            let allowed = std::iter::once(may.acknowledged).chain(may.sent.iter().copied());
            let found = match answer.status {
                404 => None,
                200 => Some(answer.body),
                status => panic!("{key}: {status}"),
            };
            let holds = allowed.clone().find(|made| match (made, &found) {
                (None, None) => true,
                (Some(made), Some(found)) => made.1 == found.len() && bytes(*made) == *found,
                _ => false,
            });
            let length = found.as_ref().map(Vec::len);
            let held = holds.unwrap_or_else(|| panic!("{key}: found {length:?} bytes, may be {may:?}"));
            *may = PossibleObjects { acknowledged: held, sent: Vec::new() };
        }
    }
}

/// The bytes of all blob files below a directory.
fn blob_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.filter_map(|entry| match entry.file_type().ok()?.is_dir() {
        true => Some(blob_bytes(&entry.path())),
        false => entry.metadata().ok().map(|found| found.len()),
    });
    bytes.sum()
}

#[test]
fn no_acknowledged_object_is_lost_and_none_is_torn_by_a_kill() {
    let rounds = Scale::current().pick(4, 200);
    let mut node = LarderNode::s3(&["--sweep-interval", "2s"]);
    node.s3_admin().put("/kill", "").expect(200);
    let mut writers: Vec<S3Writer> = (0..WRITERS)
        .map(|number| S3Writer {
            s3: node.s3_admin(),
            random: SplitMix64::new(number + 1),
            number,
            may: BTreeMap::new(),
            acknowledged: 0,
        })
        .collect();
    let mut pause = SplitMix64::new(99);
    for _ in 0..rounds {
        let stop = AtomicBool::new(false);
        let time = Duration::from_millis(200 + pause.below(1200) as u64);
        thread::scope(|scope| {
            for writer in &mut writers {
                let stop = &stop;
                scope.spawn(move || writer.work(stop));
            }
            thread::sleep(time);
            node.kill();
            stop.store(true, Ordering::Relaxed);
        });
        node.restart();
        for writer in &mut writers {
            writer.s3 = node.s3_admin();
            writer.check();
        }
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    figure("S3: kill -9", &format!("{rounds} rounds, {acknowledged} acknowledged changes, all there"));
    assert!(acknowledged > rounds, "the writers hardly wrote");
    wait_for_empty_disk(&node, writers);
}

/// Deletes all objects and uploads, and waits until no blob file is left.
fn wait_for_empty_disk(node: &LarderNode, writers: Vec<S3Writer>) {
    // Over a cluster the bodies are rows, and the sweeper finishes what a dead gateway was completing.
    if !TestEngine::is_local_for("bodies that stay on disk") {
        return;
    }
    let mut s3 = node.s3_admin();
    for key in writers.iter().flat_map(|writer| writer.may.keys()) {
        s3.delete(key).expect(204);
    }
    loop {
        let listed = s3.get("/kill?uploads").expect(200).text();
        let Some(upload) = element(&listed, "Upload") else { break };
        let (key, id) = (element(upload, "Key").unwrap(), element(upload, "UploadId").unwrap());
        let answer = s3.delete(&format!("/kill/{key}?uploadId={id}"));
        assert!([204, 404].contains(&answer.status), "{}", answer.text());
    }
    let blobs = node.home().data().join("blobs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while blob_bytes(&blobs) > 0 {
        assert!(Instant::now() < deadline, "{} bytes of bodies stay on disk\n{}", blob_bytes(&blobs), node.log());
        thread::sleep(Duration::from_millis(200));
    }
    s3.delete("/kill").expect(204);
}
