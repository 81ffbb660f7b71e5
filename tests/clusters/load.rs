//! Clients that read, write and delete until they are told to stop, and remember what was acknowledged.
//!
//! Each key has one client, so what it may hold is known without guessing: what was acknowledged last, and writes since then
//! whose answers never came. A client goes to the other gateway when the one it talks to does not answer, as behind a load
//! balancer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use larder_tests::{Client, Node, Random, Request, Response, S3};

/// Keys of one client.
const KEYS: usize = 20;
/// Clients of each interface.
const CLIENTS: usize = 4;
/// The bucket of the key-value clients: its type is made by [`Load::start`].
pub(crate) const BUCKET: &str = "/types/kept/buckets/load/keys";
/// The bucket of the S3 clients.
const S3_BUCKET: &str = "/load";
/// Bodies are up to so many bytes: some are blobs.
const BODY_MAX: usize = 40_000;
/// Shorter ones never are.
const INLINE: usize = 16_000;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Read,
    /// A small body, or a deletion with a context.
    Write,
    /// A body that is a blob, or a deletion that has to look first: these need a majority.
    Heavy,
    S3Read,
    S3Write,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) deed: Deed,
    /// Since the load began.
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    /// What was answered instead.
    pub(crate) failed: Option<String>,
}

/// What a key has to hold, and what it may hold besides.
#[derive(Debug, Clone, Default)]
struct May {
    /// Acknowledged, and named by no write since.
    must: BTreeSet<u64>,
    /// These, those whose answer never came, and those that a write whose answer never came may have replaced.
    may: BTreeSet<u64>,
}

/// What is shared.
struct Shared {
    begun: Instant,
    stop: AtomicBool,
    /// Where the gateways answer: HTTP and S3.
    gateways: Mutex<[(SocketAddr, SocketAddr); 2]>,
    samples: Mutex<Vec<Sample>>,
    /// Answers that must not be.
    wrong: Mutex<Vec<String>>,
}

/// Clients at work.
pub(crate) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Kept>>,
}

/// What one client's keys may hold in the end.
struct Kept {
    s3: bool,
    keys: BTreeMap<String, May>,
}

impl Load {
    /// Makes the buckets and begins.
    pub(crate) fn start(gateways: [&Node; 2]) -> Self {
        gateways[0].admin().active_type("kept", r#"{"props":{"allow_mult":true}}"#);
        S3::admin(gateways[0]).put(S3_BUCKET, "").expect(200);
        let at = gateways.map(|gateway| (gateway.http(), gateway.s3_at()));
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            stop: AtomicBool::new(false),
            gateways: Mutex::new(at),
            samples: Mutex::default(),
            wrong: Mutex::default(),
        });
        let clients = (0..CLIENTS * 2).map(|number| {
            let shared = shared.clone();
            thread::spawn(move || One::new(shared, number, number % 2 == 1).run())
        });
        let clients = clients.collect();
        Self { shared, clients }
    }

    /// Time since it began.
    pub(crate) fn now(&self) -> Duration {
        self.shared.begun.elapsed()
    }

    /// A gateway came back elsewhere.
    pub(crate) fn moved(&self, which: usize, gateway: &Node) {
        self.shared.gateways.lock().unwrap()[which] = (gateway.http(), gateway.s3_at());
    }

    /// Ends it, and looks through `gateway` whether everything that was acknowledged is there: answers all requests made.
    pub(crate) fn end(self, gateway: &Node) -> Vec<Sample> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let kept: Vec<Kept> = self.clients.into_iter().map(|client| client.join().unwrap()).collect();
        let mut wrong = std::mem::take(&mut *self.shared.wrong.lock().unwrap());
        let listed = S3::admin(gateway).get(&format!("{S3_BUCKET}?max-keys=1000")).expect(200).text();
        for kept in &kept {
            for (key, may) in &kept.keys {
                let shown = if kept.s3 {
                    shown(&S3::admin(gateway).get(&format!("{S3_BUCKET}/{key}")))
                } else {
                    shown(&gateway.client().send(&read(key)))
                };
                wrong.extend(may.refuses(key, &shown));
                let is_listed = listed.contains(&format!("<Key>{key}</Key>"));
                if kept.s3 && is_listed == shown.is_empty() {
                    wrong.push(format!("{key} reads as {shown:?}, and listed is {is_listed}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} answers were wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
        std::mem::take(&mut *self.shared.samples.lock().unwrap())
    }
}

impl May {
    /// A write of `number`, or a deletion, in place of what was `seen`.
    fn written(&mut self, number: Option<u64>, seen: &BTreeSet<u64>, done: bool) {
        self.must = &self.must - seen;
        if done {
            self.may = &self.may - seen;
            self.must.extend(number);
        }
        self.may.extend(number);
    }

    /// Why a key must not hold this.
    fn refuses(&self, key: &str, shown: &BTreeSet<u64>) -> Option<String> {
        let good = self.must.is_subset(shown) && shown.is_subset(&self.may);
        (!good).then(|| format!("{key} is {self:?} and holds {shown:?}"))
    }
}

/// One client.
struct One {
    shared: Arc<Shared>,
    number: usize,
    s3: bool,
    which: usize,
    /// To the gateway's interface of this client.
    connection: Client,
    /// Who signs.
    admin: S3,
    random: Random,
    keys: BTreeMap<String, May>,
    next: u64,
}

impl One {
    fn new(shared: Arc<Shared>, number: usize, s3: bool) -> Self {
        let which = number / 2 % 2;
        let (http, at) = shared.gateways.lock().unwrap()[which];
        let random = Random::seeded(number as u64);
        let (connection, admin) = (Client::new(if s3 { at } else { http }), S3::at(at));
        Self { shared, number, s3, which, connection, admin, random, keys: BTreeMap::new(), next: 0 }
    }

    fn run(mut self) -> Kept {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let key = format!("c{}k{}", self.number, self.random.below(KEYS));
            if self.s3 {
                self.s3_turn(key);
            } else {
                self.turn(key);
            }
        }
        Kept { s3: self.s3, keys: self.keys }
    }

    /// Reads a key, and writes or deletes it with the context that was read. A read at fewer replicas than a majority may
    /// show less than there is: what it did not show stays beside what is written.
    fn turn(&mut self, key: String) {
        let Some(answer) = self.ask(Deed::Read, &read(&key)) else { return };
        let context = answer.header("X-Riak-Vclock").map(str::to_owned);
        let mut seen = shown(&answer);
        let (number, body) = self.body();
        if body.is_none() && context.is_none() {
            // Such a deletion takes whatever it finds itself.
            seen.extend(self.keys.get(&key).map(|may| may.must.clone()).unwrap_or_default());
        }
        let request = match &body {
            Some(body) => Request::put(&format!("{BUCKET}/{key}"), body.clone()).header("Content-Type", "text/plain"),
            None => Request::new("DELETE", &format!("{BUCKET}/{key}")),
        };
        let request = context.iter().fold(request, |request, context| request.header("X-Riak-Vclock", context));
        let small = body.as_ref().map_or(context.is_some(), |body| body.len() < INLINE);
        let done = self.ask(if small { Deed::Write } else { Deed::Heavy }, &request).is_some();
        // What such a deletion did not find may still be there.
        let done = done && (body.is_some() || context.is_some());
        self.keys.entry(key).or_default().written(body.is_some().then_some(number), &seen, done);
    }

    /// Reads a key, which must show its last write, and writes or deletes it.
    fn s3_turn(&mut self, key: String) {
        let target = format!("{S3_BUCKET}/{key}");
        let get = self.admin.signed("GET", &target, &[], "");
        let Some(answer) = self.ask(Deed::S3Read, &get) else { return };
        let may = self.keys.entry(key.clone()).or_default();
        let wrong = may.refuses(&key, &shown(&answer));
        let seen = may.may.clone();
        self.shared.wrong.lock().unwrap().extend(wrong);
        let (number, body) = self.body();
        let written = body.is_some().then_some(number);
        let request = match body {
            Some(body) => self.admin.signed("PUT", &target, &[], body),
            None => self.admin.signed("DELETE", &target, &[], ""),
        };
        let done = self.ask(Deed::S3Write, &request).is_some();
        self.keys.entry(key).or_default().written(written, &seen, done);
    }

    /// The next value, or a deletion.
    fn body(&mut self) -> (u64, Option<Vec<u8>>) {
        self.next += 1;
        let number = self.next;
        if self.random.below(6) == 0 {
            return (number, None);
        }
        let length = if self.random.below(8) == 0 { self.random.below(BODY_MAX) } else { 100 };
        (number, Some([format!("<{number}>").into_bytes(), vec![b'.'; length]].concat()))
    }

    /// An answer that is one: 2xx, 300, 404.
    fn ask(&mut self, deed: Deed, request: &Request) -> Option<Response> {
        let at = self.shared.begun.elapsed();
        let answer = self.connection.try_send(request);
        let took = self.shared.begun.elapsed() - at;
        let (answer, failed) = match answer {
            Ok(answer) if matches!(answer.status, 200..=300 | 404) => (Some(answer), None),
            Ok(answer) => (None, Some(format!("{} {}", answer.status, answer.text().trim_end()))),
            Err(error) => (None, Some(error.to_string())),
        };
        if failed.is_some() {
            self.go_elsewhere();
            thread::sleep(Duration::from_millis(50));
        }
        self.shared.samples.lock().unwrap().push(Sample { deed, at, took, failed });
        answer
    }

    fn go_elsewhere(&mut self) {
        self.which = 1 - self.which;
        let (http, s3) = self.shared.gateways.lock().unwrap()[self.which];
        self.connection = Client::new(if self.s3 { s3 } else { http });
    }
}

fn read(key: &str) -> Request {
    Request::get(&format!("{BUCKET}/{key}")).header("Accept", "multipart/mixed, */*;q=0.5")
}

/// The numbers of the values in an answer.
fn shown(answer: &Response) -> BTreeSet<u64> {
    if answer.status == 404 {
        return BTreeSet::new();
    }
    let text = answer.text();
    let numbers = text.split('<').skip(1).filter_map(|rest| rest.split_once('>')?.0.parse().ok());
    numbers.collect()
}
