//! A full disk: puts are refused with a clear status, deletes succeed, no acknowledged write is lost, and puts succeed again
//! when there is room.
//!
//! `LARDER_TEST_SCALE=soak` tries five sizes of disk instead of two. All errors on one disk are printed together.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking and runs in real time"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{
    Home, HttpClient, HttpRequest, HttpResponse, LarderNode, S3_KEY, S3_SECRET, S3Client, Scale, SplitMix64,
    TestEngine, Tmpfs, figure,
};

/// The size of the disk while the first objects are written.
const PRELOAD_MIB: u64 = 1024;
/// The growth of the disk at the end, so that there is room again.
const ROOM_MIB: u64 = 400;
/// The longest time until a server notices that there is room again; generous for a busy machine.
const HEAL: Duration = Duration::from_secs(60);
/// The longest time until the space of a refused body is free.
const GIVE_BACK: Duration = Duration::from_secs(10);
/// Bytes that a server may write for itself while it refuses puts.
const SLACK: u64 = 3 << 20;
const BUCKET: &str = "disk";
/// Bodies of each kind of storage: in a row, in a larger row, beside the rows, in a file.
const SIZES: [usize; 4] = [300, 20_000, 100_000, 2 << 20];
const LARGE: usize = SIZES[3];

/// One of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DiskApi {
    Kv,
    S3,
}

/// An object by its interface and its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DiskKey(DiskApi, String);

impl fmt::Display for DiskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.0, self.1)
    }
}

/// A body by its seed and its size.
type DiskBody = (u64, usize);

/// The bodies that a key may hold: the acknowledged one, and those that were answered 503 or not at all.
#[derive(Debug, Clone, Default)]
struct PossibleBodies {
    acknowledged: Option<DiskBody>,
    in_doubt: Vec<Option<DiskBody>>,
}

/// Clients of both interfaces, and the objects that they wrote.
struct DiskLedger {
    kv: HttpClient,
    s3: S3Client,
    random: SplitMix64,
    name: String,
    number: u64,
    keys: BTreeMap<DiskKey, PossibleBodies>,
    /// The last refusal.
    refusal: String,
    /// The errors that they found.
    wrong: Vec<String>,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeOutcome {
    Done,
    Refused,
    None,
}

impl DiskLedger {
    fn new(node: &LarderNode, name: &str, seed: u64) -> Self {
        let (kv, s3) = (node.client(), node.s3_admin());
        Self {
            kv,
            s3,
            random: SplitMix64::new(seed),
            name: name.into(),
            number: 0,
            keys: BTreeMap::new(),
            refusal: String::new(),
            wrong: vec![],
        }
    }

    fn reconnect(&mut self, http: SocketAddr, s3: SocketAddr) {
        (self.kv, self.s3) = (HttpClient::new(http), S3Client::new(s3, S3_KEY, S3_SECRET));
    }

    /// Sends a request, and once more when the server has closed the connection: the same change twice has one effect.
    fn call(&mut self, key: &DiskKey, method: &str, body: Vec<u8>) -> std::io::Result<HttpResponse> {
        self.call_once(key, method, body.clone()).or_else(|_| self.call_once(key, method, body))
    }

    fn call_once(&mut self, key: &DiskKey, method: &str, body: Vec<u8>) -> std::io::Result<HttpResponse> {
        match key.0 {
            DiskApi::Kv => {
                let target = format!("/buckets/{BUCKET}/keys/{}", key.1);
                let request =
                    if method == "PUT" { HttpRequest::put(&target, body) } else { HttpRequest::new(method, &target) };
                self.kv.try_send(&request)
            }
            DiskApi::S3 => self.s3.try_call(method, &format!("/{BUCKET}/{}", key.1), body),
        }
    }

    /// Puts a new object.
    fn put(&mut self, api: DiskApi, length: usize) -> ChangeOutcome {
        self.number += 1;
        let key = DiskKey(api, format!("{}-{}", self.name, self.number));
        let made = (self.random.number(), length);
        self.change(&key, Some(made))
    }

    /// Puts or deletes. An answer that is neither success nor refusal is an error.
    fn change(&mut self, key: &DiskKey, to: Option<DiskBody>) -> ChangeOutcome {
        let (method, body) = match to {
            Some((seed, length)) => ("PUT", SplitMix64::new(seed).bytes(length)),
            None => ("DELETE", Vec::new()),
        };
        let begun = Instant::now();
        let answer = self.call(key, method, body);
        let may = self.keys.entry(key.clone()).or_default();
        match answer {
            Ok(HttpResponse { status: 200 | 204, .. }) => {
                *may = PossibleBodies { acknowledged: to, in_doubt: Vec::new() };
                ChangeOutcome::Done
            }
            // A 507 wrote nothing; a 503 is in doubt.
            Ok(HttpResponse { status: 507, .. }) => {
                self.refusal = "507".into();
                ChangeOutcome::Refused
            }
            Ok(answer) if answer.status == 503 => {
                may.in_doubt.push(to);
                self.refusal = format!("503 {}", answer.text());
                ChangeOutcome::Refused
            }
            answer => {
                may.in_doubt.push(to);
                let answer = answer.map(|answer| format!("{} {}", answer.status, answer.text()));
                self.wrong.push(format!("{method} {key}: no clear answer within {:.1?}: {answer:?}", begun.elapsed()));
                ChangeOutcome::None
            }
        }
    }

    /// Deletes some objects of every size and of both interfaces. Each delete must succeed.
    fn delete_some(&mut self, when: &str) {
        for (api, length) in [DiskApi::Kv, DiskApi::S3].into_iter().flat_map(|api| SIZES.map(|length| (api, length))) {
            let is_wanted =
                |may: &PossibleBodies| may.in_doubt.is_empty() && may.acknowledged.is_some_and(|made| made.1 == length);
            let found = self.keys.iter().filter(|(key, may)| key.0 == api && is_wanted(may));
            let found: Vec<DiskKey> = found.map(|(key, _)| key.clone()).take(2).collect();
            assert!(!found.is_empty(), "{api:?}: there is nothing of {length} bytes to delete");
            for key in found {
                if self.change(&key, None) != ChangeOutcome::Done {
                    self.wrong.push(format!("{when}: DELETE {key} of {length} bytes is refused"));
                }
            }
        }
    }

    /// Reads every `step`-th object and compares its body.
    fn verify(&mut self, when: &str, step: usize) {
        let keys: Vec<DiskKey> = self.keys.keys().cloned().collect();
        for key in keys.iter().skip(self.random.below(step)).step_by(step) {
            let may = self.keys[key].clone();
            let found = match self.call(key, "GET", Vec::new()) {
                Ok(HttpResponse { status: 404, .. }) => None,
                Ok(answer) if answer.status == 200 => Some(answer.body),
                answer => {
                    let answer = answer.map(|answer| format!("{} {}", answer.status, answer.text()));
                    self.wrong.push(format!("{when}: GET {key}: {answer:?}"));
                    continue;
                }
            };
            let candidates = std::iter::once(&may.acknowledged).chain(&may.in_doubt);
            let is = |made: &Option<DiskBody>| made.map(|(seed, length)| SplitMix64::new(seed).bytes(length)) == found;
            if !candidates.into_iter().any(is) {
                let length = found.map(|bytes| bytes.len());
                self.wrong.push(format!("{when}: {key} is {length:?} bytes, {may:?}"));
            }
        }
    }

    fn acknowledged_bytes(&self) -> usize {
        self.keys.values().filter_map(|may| may.acknowledged).map(|made| made.1).sum()
    }
}

/// How often a disk is filled until it rests.
const REST_TRIES_MAX: usize = 10;
/// Bytes of the objects of one writer during the bursts: all writers leave half of the room free.
const BURST_BYTES_MAX: u64 = (ROOM_MIB << 20) / 8;

/// A server on a disk of its own. Field order: the disk is unmounted after the server has ended.
struct SmallDisk {
    node: LarderNode,
    ledger: DiskLedger,
    uploads: Vec<(String, String)>,
    disk: Tmpfs,
}

impl SmallDisk {
    /// A disk of this size with the objects and uploads that are deleted later.
    fn new(mib: u64, seed: u64) -> Self {
        let disk = Tmpfs::new(PRELOAD_MIB);
        let home: Home = disk.home();
        let node = LarderNode::start_in(home, &["--s3", "127.0.0.1:0"]);
        let mut s3 = node.s3_admin();
        s3.put(&format!("/{BUCKET}"), "").expect(200);
        let mut ledger = DiskLedger::new(&node, "before", seed);
        for (length, count) in SIZES.into_iter().zip([60, 20, 8, 4]) {
            for _ in 0..count {
                assert_eq!(ledger.put(DiskApi::Kv, length), ChangeOutcome::Done, "there is room");
                assert_eq!(ledger.put(DiskApi::S3, length), ChangeOutcome::Done, "there is room");
            }
        }
        let begin = |number: usize| {
            let object = format!("/{BUCKET}/upload-{number}");
            let upload = s3.begin(&object);
            s3.part(&object, &upload, 1, vec![1; SIZES[2 + number % 2]]);
            (object, upload)
        };
        let uploads = (0..4).map(begin).collect();
        disk.resize(mib);
        Self { node, ledger, uploads, disk }
    }

    fn wrong(&mut self, what: String) {
        self.ledger.wrong.push(what);
    }

    /// Puts bodies of all sizes over both interfaces, most bytes in rows, until those of this size are refused.
    fn fill(&mut self, length: usize) {
        let mut refused = 0;
        while refused < 6 {
            let answers = [DiskApi::Kv, DiskApi::S3].map(|api| self.ledger.put(api, length));
            refused = if answers.contains(&ChangeOutcome::Done) { 0 } else { refused + 1 };
            for api in [DiskApi::Kv, DiskApi::S3].repeat(30) {
                if refused == 0 && self.ledger.put(api, SIZES[1]) != ChangeOutcome::Done {
                    break;
                }
            }
        }
    }

    /// Fills again until the disk is as full as a second before: a flush that ends after a refusal frees its journal.
    fn fill_to_rest(&mut self, length: usize) {
        for _ in 0..REST_TRIES_MAX {
            self.fill(length);
            let used = self.disk.used();
            thread::sleep(Duration::from_secs(1));
            if self.disk.used().abs_diff(used) <= SLACK {
                return;
            }
        }
    }

    /// Checks that refused bodies free their space.
    fn check_refused_bodies(&mut self) {
        let before = self.disk.used();
        for api in [DiskApi::Kv, DiskApi::S3].repeat(5) {
            if self.ledger.put(api, LARGE) == ChangeOutcome::Done {
                self.wrong("a large body is taken after six like it were refused".into());
            }
        }
        let begun = Instant::now();
        while self.disk.used() > before + SLACK && begun.elapsed() < GIVE_BACK {
            thread::sleep(Duration::from_millis(50));
        }
        let after = self.disk.used();
        if after > before + SLACK {
            self.wrong(format!("refused bodies leave {} bytes on the disk", after - before));
        }
    }

    /// Takes half of the free space from outside until small puts are refused too.
    fn squeeze(&mut self) {
        for _ in 0..24 {
            self.disk.fill_until_free(self.disk.free() / 2);
            let mut done = 0;
            for (api, length) in
                [DiskApi::Kv, DiskApi::S3].into_iter().flat_map(|api| SIZES.map(|length| (api, length)))
            {
                done += usize::from(self.ledger.put(api, length) == ChangeOutcome::Done);
            }
            if done == 0 {
                return;
            }
        }
        self.wrong(format!("puts are taken with {} bytes free", self.disk.free()));
    }

    /// Checks that deletes and aborts succeed on a full disk.
    fn check_deletes(&mut self, when: &str) {
        self.ledger.delete_some(when);
        for (object, upload) in self.uploads.split_off(self.uploads.len() - 2) {
            let target = format!("{object}?uploadId={upload}");
            let s3 = &mut self.ledger.s3;
            match s3.try_call("DELETE", &target, "").or_else(|_| s3.try_call("DELETE", &target, "")) {
                Ok(HttpResponse { status: 204, .. }) => {}
                answer => {
                    let answer = answer.map(|answer| format!("{} {}", answer.status, answer.text()));
                    self.wrong(format!("{when}: aborting {object} is refused: {answer:?}"));
                }
            }
        }
    }

    /// Takes all space from outside and frees it several times, while clients write.
    fn bursts(&mut self, seed: u64) {
        let stop = AtomicBool::new(false);
        let (node, disk) = (&self.node, &self.disk);
        let done: Vec<DiskLedger> = thread::scope(|scope| {
            let writers = [0, 1, 2].map(|writer| {
                let mut ledger = DiskLedger::new(node, &format!("burst-{writer}"), seed + writer);
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        // A fast machine would fill the disk itself, and puts after the bursts would be refused with reason.
                        if ledger.acknowledged_bytes() as u64 > BURST_BYTES_MAX {
                            thread::sleep(Duration::from_millis(5));
                            continue;
                        }
                        let (api, length) =
                            if ledger.random.below(2) == 0 { (DiskApi::Kv, 0) } else { (DiskApi::S3, 1) };
                        let length = SIZES[(ledger.random.below(9) / 3 + length) % SIZES.len()];
                        if ledger.put(api, length) != ChangeOutcome::Done {
                            thread::sleep(Duration::from_millis(5));
                        }
                    }
                    ledger
                })
            });
            for _ in 0..4 {
                disk.fill_until_free(0);
                thread::sleep(Duration::from_millis(300));
                disk.release();
                thread::sleep(Duration::from_millis(300));
            }
            stop.store(true, Ordering::Relaxed);
            writers.map(|writer| writer.join().unwrap()).into()
        });
        for one in done {
            self.ledger.keys.extend(one.keys);
            self.ledger.wrong.extend(one.wrong);
        }
    }

    /// Waits until the probe of readiness answers this status; the probe of life always succeeds.
    fn wait_for_probe(&mut self, when: &str, status: u16) {
        let (begun, mut client) = (Instant::now(), self.node.client());
        client.get("/health/live").expect(200);
        loop {
            let ready = client.get("/health/ready");
            match ready.status == status {
                true if status == 503 && !ready.text().contains("disk is full") => {
                    self.wrong(format!("{when}: {ready:?}"))
                }
                true => {}
                false if begun.elapsed() > HEAL => self.wrong(format!("{when}: {ready:?}")),
                false => {
                    thread::sleep(Duration::from_millis(50));
                    continue;
                }
            }
            return;
        }
    }

    /// Waits until puts of every size succeed again in the same process.
    fn wait_for_puts(&mut self, when: &str) {
        let begun = Instant::now();
        for (api, length) in [DiskApi::Kv, DiskApi::S3].into_iter().flat_map(|api| SIZES.map(|length| (api, length))) {
            while self.ledger.put(api, length) != ChangeOutcome::Done {
                if begun.elapsed() > HEAL {
                    let free = self.disk.free();
                    let (refusal, log) = (self.ledger.refusal.clone(), self.node.log());
                    self.wrong(format!(
                        "{when}: {api:?} takes no {length} bytes after {HEAL:?} with {free} free: {refusal}; the log: {log}"
                    ));
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
        }
        eprintln!("{when}: puts are taken after {:.1?}", begun.elapsed());
    }

    /// Kills the server and starts it again, on a full disk if the disk was full. Returns the errors when the start fails.
    fn kill_and_start(mut self, when: &str) -> Result<Self, Vec<String>> {
        let was_full = self.disk.is_filled();
        self.node.kill();
        if was_full {
            self.disk.fill_until_free(0);
        }
        let Self { node, mut ledger, uploads, disk } = self;
        match LarderNode::try_start(node.into_home(), &["--s3", "127.0.0.1:0"]) {
            Ok(node) => {
                ledger.reconnect(node.http(), node.s3_at());
                Ok(Self { node, ledger, uploads, disk })
            }
            Err(ended) => {
                ledger.wrong.push(format!("{when}: the start is refused: {}", ended.stderr.trim()));
                Err(ledger.wrong)
            }
        }
    }
}

/// Runs all steps on a disk of this size; returns the errors.
fn on_a_disk_of(mib: u64, seed: u64) -> Vec<String> {
    let mut disk_test = SmallDisk::new(mib, seed);
    [LARGE, SIZES[2]].into_iter().for_each(|length| disk_test.fill_to_rest(length));
    let taken = disk_test.ledger.acknowledged_bytes();
    figure(&format!("full disk: bytes in a disk of {mib} MiB"), &format!("{taken}, {} free", disk_test.disk.free()));
    disk_test.check_refused_bodies();
    disk_test.check_deletes("large bodies are refused");
    disk_test.squeeze();
    disk_test.check_deletes("all puts are refused");
    disk_test.ledger.verify("all puts are refused", 10);

    disk_test.disk.release();
    disk_test.disk.resize(mib + ROOM_MIB);
    disk_test.wait_for_puts("after the disk was full");
    disk_test.wait_for_probe("after the disk was full", 200);
    disk_test.bursts(seed);
    disk_test.wait_for_puts("after bursts");
    disk_test.ledger.verify("after bursts", 10);

    disk_test.disk.fill_until_free(0);
    disk_test.wait_for_probe("on a disk without a free byte", 503);
    disk_test.ledger.verify("on a disk without a free byte", 10);
    let mut disk_test = match disk_test.kill_and_start("on a disk without a free byte") {
        Ok(disk_test) => disk_test,
        Err(wrong) => return wrong,
    };
    disk_test.ledger.verify("started on a disk without a free byte", 4);
    for (api, length) in [(DiskApi::Kv, SIZES[0]), (DiskApi::S3, SIZES[0]), (DiskApi::Kv, LARGE), (DiskApi::S3, LARGE)]
    {
        disk_test.ledger.put(api, length);
    }
    disk_test.disk.release();
    disk_test.wait_for_puts("after a start on a full disk");
    disk_test.ledger.delete_some("there is room");
    let mut disk_test = match disk_test.kill_and_start("at the end") {
        Ok(disk_test) => disk_test,
        Err(wrong) => return wrong,
    };
    disk_test.ledger.verify("at the end", 1);
    figure(&format!("full disk: objects on a disk of {mib} MiB, all there"), &disk_test.ledger.keys.len().to_string());
    disk_test.ledger.wrong
}

#[test]
fn a_full_disk_loses_nothing_takes_deletes_and_heals_in_place() {
    let is_local = TestEngine::is_local_for("its disk");
    if !is_local || !Tmpfs::is_possible_here("filled_disk::a_full_disk_loses_nothing_takes_deletes_and_heals_in_place")
    {
        return;
    }
    let sizes: &[u64] = Scale::current().pick(&[64, 186], &[64, 116, 186, 300, 700]);
    let seed = SplitMix64::from_environment("full disk").number();
    let mut all = 0;
    for mib in sizes {
        let begun = Instant::now();
        let wrong = on_a_disk_of(*mib, seed);
        eprintln!("{mib} MiB: {} wrong, {:.1?}", wrong.len(), begun.elapsed());
        wrong.iter().take(100).for_each(|what| eprintln!("{mib} MiB: {what}"));
        all += wrong.len();
    }
    assert!(all == 0, "{all} wrong on disks of {sizes:?} MiB");
}
