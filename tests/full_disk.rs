//! A disk that is full: refusals are clear, deletes pass, nothing acknowledged is lost, and writing goes on once there is room.
//!
//! `LARDER_TEST_SCALE=soak` tries five sizes of disk instead of two. Everything that fails on one disk is listed together.

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

use larder_tests::{Client, Engine, Home, Node, Random, Request, Response, S3, Scale, Tmpfs, figure};

/// Room for what is there before the disk becomes small.
const PRELOAD_MIB: u64 = 1024;
/// What a disk grows by at the end, so that there is room again.
const ROOM_MIB: u64 = 400;
/// How long a server may take to notice that there is room again: generous, a machine may be busy.
const HEAL: Duration = Duration::from_secs(60);
/// How long what a refused body took may stay.
const GIVE_BACK: Duration = Duration::from_secs(10);
/// What a server may write for itself while puts are refused.
const SLACK: u64 = 3 << 20;
const BUCKET: &str = "disk";
/// Bodies by where they are kept: in a row, in a larger row, beside the rows, in a file.
const SIZES: [usize; 4] = [300, 20_000, 100_000, 2 << 20];
const LARGE: usize = SIZES[3];

/// One of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Api {
    Kv,
    S3,
}

/// An object by its interface and its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key(Api, String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.0, self.1)
    }
}

/// A value by what it is made from.
type Made = (u64, usize);

/// What a key may hold: what was acknowledged, and what was sent and answered 503, or not at all.
#[derive(Debug, Clone, Default)]
struct May {
    acknowledged: Option<Made>,
    in_doubt: Vec<Option<Made>>,
}

/// Clients of both interfaces, and what they know.
struct Ledger {
    kv: Client,
    s3: S3,
    random: Random,
    name: String,
    number: u64,
    keys: BTreeMap<Key, May>,
    /// What was not as it should be.
    wrong: Vec<String>,
}

/// How a change was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Refused,
    None,
}

impl Ledger {
    fn new(node: &Node, name: &str, seed: u64) -> Self {
        let (kv, s3) = (node.client(), S3::admin(node));
        Self {
            kv,
            s3,
            random: Random::seeded(seed),
            name: name.into(),
            number: 0,
            keys: BTreeMap::new(),
            wrong: vec![],
        }
    }

    fn reconnect(&mut self, http: SocketAddr, s3: SocketAddr) {
        (self.kv, self.s3) = (Client::new(http), S3::at(s3));
    }

    /// Sends once more where a connection that was used before has been closed: the same change twice is one.
    fn call(&mut self, key: &Key, method: &str, body: Vec<u8>) -> std::io::Result<Response> {
        self.call_once(key, method, body.clone()).or_else(|_| self.call_once(key, method, body))
    }

    fn call_once(&mut self, key: &Key, method: &str, body: Vec<u8>) -> std::io::Result<Response> {
        match key.0 {
            Api::Kv => {
                let target = format!("/buckets/{BUCKET}/keys/{}", key.1);
                let request = if method == "PUT" { Request::put(&target, body) } else { Request::new(method, &target) };
                self.kv.try_send(&request)
            }
            Api::S3 => self.s3.try_call(method, &format!("/{BUCKET}/{}", key.1), body),
        }
    }

    /// Puts a new object.
    fn put(&mut self, api: Api, length: usize) -> Answer {
        self.number += 1;
        let key = Key(api, format!("{}-{}", self.name, self.number));
        let made = (self.random.number(), length);
        self.change(&key, Some(made))
    }

    /// Puts or deletes; a refusal has to be one.
    fn change(&mut self, key: &Key, to: Option<Made>) -> Answer {
        let (method, body) = match to {
            Some((seed, length)) => ("PUT", Random::seeded(seed).bytes(length)),
            None => ("DELETE", Vec::new()),
        };
        let begun = Instant::now();
        let answer = self.call(key, method, body);
        let may = self.keys.entry(key.clone()).or_default();
        match answer {
            Ok(Response { status: 200 | 204, .. }) => {
                *may = May { acknowledged: to, in_doubt: Vec::new() };
                Answer::Done
            }
            // Nothing was written.
            Ok(Response { status: 507, .. }) => Answer::Refused,
            Ok(Response { status: 503, .. }) => {
                may.in_doubt.push(to);
                Answer::Refused
            }
            answer => {
                may.in_doubt.push(to);
                let answer = answer.map(|answer| format!("{} {}", answer.status, answer.text()));
                self.wrong.push(format!("{method} {key}: no clear answer within {:.1?}: {answer:?}", begun.elapsed()));
                Answer::None
            }
        }
    }

    /// Deletes some objects that are there, of every size and of both interfaces. All have to be deleted.
    fn delete_some(&mut self, when: &str) {
        for (api, length) in [Api::Kv, Api::S3].into_iter().flat_map(|api| SIZES.map(|length| (api, length))) {
            let is_wanted =
                |may: &May| may.in_doubt.is_empty() && may.acknowledged.is_some_and(|made| made.1 == length);
            let found = self.keys.iter().filter(|(key, may)| key.0 == api && is_wanted(may));
            let found: Vec<Key> = found.map(|(key, _)| key.clone()).take(2).collect();
            assert!(!found.is_empty(), "{api:?}: there is nothing of {length} bytes to delete");
            for key in found {
                if self.change(&key, None) != Answer::Done {
                    self.wrong.push(format!("{when}: DELETE {key} of {length} bytes is refused"));
                }
            }
        }
    }

    /// Reads everything, or each of every `step` objects.
    fn verify(&mut self, when: &str, step: usize) {
        let keys: Vec<Key> = self.keys.keys().cloned().collect();
        for key in keys.iter().skip(self.random.below(step)).step_by(step) {
            let may = self.keys[key].clone();
            let found = match self.call(key, "GET", Vec::new()) {
                Ok(Response { status: 404, .. }) => None,
                Ok(answer) if answer.status == 200 => Some(answer.body),
                answer => {
                    let answer = answer.map(|answer| format!("{} {}", answer.status, answer.text()));
                    self.wrong.push(format!("{when}: GET {key}: {answer:?}"));
                    continue;
                }
            };
            let candidates = std::iter::once(&may.acknowledged).chain(&may.in_doubt);
            let is = |made: &Option<Made>| made.map(|(seed, length)| Random::seeded(seed).bytes(length)) == found;
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

/// A server on a disk of its own. Fields are dropped in this order: a disk is let go after the server has ended.
struct Bench {
    node: Node,
    ledger: Ledger,
    uploads: Vec<(String, String)>,
    disk: Tmpfs,
}

impl Bench {
    /// A disk of this size, on which everything is that is to be deleted later.
    fn new(mib: u64, seed: u64) -> Self {
        let disk = Tmpfs::new(PRELOAD_MIB);
        let home: Home = disk.home();
        let node = Node::start_in(home, &["--s3", "127.0.0.1:0"]);
        let mut s3 = S3::admin(&node);
        s3.put(&format!("/{BUCKET}"), "").expect(200);
        let mut ledger = Ledger::new(&node, "before", seed);
        for (length, count) in SIZES.into_iter().zip([60, 20, 8, 4]) {
            for _ in 0..count {
                assert_eq!(ledger.put(Api::Kv, length), Answer::Done, "there is room");
                assert_eq!(ledger.put(Api::S3, length), Answer::Done, "there is room");
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
            let answers = [Api::Kv, Api::S3].map(|api| self.ledger.put(api, length));
            refused = if answers.contains(&Answer::Done) { 0 } else { refused + 1 };
            for api in [Api::Kv, Api::S3].repeat(30) {
                if refused == 0 && self.ledger.put(api, SIZES[1]) != Answer::Done {
                    break;
                }
            }
        }
    }

    /// What was refused takes no room.
    fn refused_bodies_leave_nothing(&mut self) {
        let before = self.disk.used();
        for api in [Api::Kv, Api::S3].repeat(5) {
            if self.ledger.put(api, LARGE) == Answer::Done {
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

    /// The outside takes half of what is left again and again, until small puts are refused too.
    fn squeeze(&mut self) {
        for _ in 0..24 {
            self.disk.fill_until_free(self.disk.free() / 2);
            let mut done = 0;
            for (api, length) in [Api::Kv, Api::S3].into_iter().flat_map(|api| SIZES.map(|length| (api, length))) {
                done += usize::from(self.ledger.put(api, length) == Answer::Done);
            }
            if done == 0 {
                return;
            }
        }
        self.wrong(format!("puts are taken with {} bytes free", self.disk.free()));
    }

    /// What makes room is not refused.
    fn room_can_be_made(&mut self, when: &str) {
        self.ledger.delete_some(when);
        for (object, upload) in self.uploads.split_off(self.uploads.len() - 2) {
            let target = format!("{object}?uploadId={upload}");
            let s3 = &mut self.ledger.s3;
            match s3.try_call("DELETE", &target, "").or_else(|_| s3.try_call("DELETE", &target, "")) {
                Ok(Response { status: 204, .. }) => {}
                answer => {
                    let answer = answer.map(|answer| format!("{} {}", answer.status, answer.text()));
                    self.wrong(format!("{when}: aborting {object} is refused: {answer:?}"));
                }
            }
        }
    }

    /// The outside takes everything and gives it back, while clients write.
    fn bursts(&mut self, seed: u64) {
        let stop = AtomicBool::new(false);
        let (node, disk) = (&self.node, &self.disk);
        let done: Vec<Ledger> = thread::scope(|scope| {
            let writers = [0, 1, 2].map(|writer| {
                let mut ledger = Ledger::new(node, &format!("burst-{writer}"), seed + writer);
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let (api, length) = if ledger.random.below(2) == 0 { (Api::Kv, 0) } else { (Api::S3, 1) };
                        let length = SIZES[(ledger.random.below(9) / 3 + length) % SIZES.len()];
                        if ledger.put(api, length) != Answer::Done {
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

    /// Puts of every size pass again, in the same process.
    fn heals(&mut self, when: &str) {
        let begun = Instant::now();
        for (api, length) in [Api::Kv, Api::S3].into_iter().flat_map(|api| SIZES.map(|length| (api, length))) {
            while self.ledger.put(api, length) != Answer::Done {
                if begun.elapsed() > HEAL {
                    let free = self.disk.free();
                    self.wrong(format!("{when}: {api:?} takes no {length} bytes after {HEAL:?} with {free} free"));
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
        }
        eprintln!("{when}: puts are taken after {:.1?}", begun.elapsed());
    }

    /// Ends the server at once and starts it again, on a disk that is full if it was; answers what was wrong if it does not.
    fn kill_and_start(mut self, when: &str) -> Result<Self, Vec<String>> {
        let was_full = self.disk.is_filled();
        self.node.kill();
        if was_full {
            self.disk.fill_until_free(0);
        }
        let Self { node, mut ledger, uploads, disk } = self;
        match Node::try_start(node.into_home(), &["--s3", "127.0.0.1:0"]) {
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

/// Everything on one disk; answers what was wrong.
fn on_a_disk_of(mib: u64, seed: u64) -> Vec<String> {
    let mut bench = Bench::new(mib, seed);
    [LARGE, SIZES[2]].into_iter().for_each(|length| bench.fill(length));
    let taken = bench.ledger.acknowledged_bytes();
    figure(&format!("full disk: bytes in a disk of {mib} MiB"), &format!("{taken}, {} free", bench.disk.free()));
    bench.refused_bodies_leave_nothing();
    bench.room_can_be_made("large bodies are refused");
    bench.squeeze();
    bench.room_can_be_made("all puts are refused");
    bench.ledger.verify("all puts are refused", 10);

    bench.disk.release();
    bench.disk.resize(mib + ROOM_MIB);
    bench.heals("after the disk was full");
    bench.bursts(seed);
    bench.heals("after bursts");
    bench.ledger.verify("after bursts", 10);

    bench.disk.fill_until_free(0);
    bench.ledger.verify("on a disk without a free byte", 10);
    let mut bench = match bench.kill_and_start("on a disk without a free byte") {
        Ok(bench) => bench,
        Err(wrong) => return wrong,
    };
    bench.ledger.verify("started on a disk without a free byte", 4);
    for (api, length) in [(Api::Kv, SIZES[0]), (Api::S3, SIZES[0]), (Api::Kv, LARGE), (Api::S3, LARGE)] {
        bench.ledger.put(api, length);
    }
    bench.disk.release();
    bench.heals("after a start on a full disk");
    bench.ledger.delete_some("there is room");
    let mut bench = match bench.kill_and_start("at the end") {
        Ok(bench) => bench,
        Err(wrong) => return wrong,
    };
    bench.ledger.verify("at the end", 1);
    figure(&format!("full disk: objects on a disk of {mib} MiB, all there"), &bench.ledger.keys.len().to_string());
    bench.ledger.wrong
}

#[test]
fn a_full_disk_loses_nothing_takes_deletes_and_heals_in_place() {
    let is_local = Engine::is_local_for("its disk");
    if !is_local || !Tmpfs::is_possible_here("a_full_disk_loses_nothing_takes_deletes_and_heals_in_place") {
        return;
    }
    let sizes: &[u64] = Scale::current().of(&[64, 186], &[64, 116, 186, 300, 700]);
    let seed = Random::from_environment("full disk").number();
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
