//! Clients that read, write and delete until the test ends, and record the acknowledged values.
//!
//! Each key has one client, so its possible values are known: the last acknowledged one, and later ones without an answer. A
//! client moves to the other gateway when its gateway does not answer, as a load balancer does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::harness::{
    HttpClient, HttpRequest, HttpResponse, LarderNode, S3_KEY, S3_SECRET, S3Client, Scale, SplitMix64,
};

/// Keys of one client.
const KEYS: usize = 20;
/// Clients of each interface.
const CLIENTS: usize = 4;
/// The bucket of the key-value clients: its type is made by [`Load::start`].
pub(crate) const BUCKET: &str = "/types/kept/buckets/load/keys";
/// The bucket of the S3 clients.
const S3_BUCKET: &str = "/load";
/// The largest body; bodies of this size are blobs.
const BODY_MAX: usize = 40_000;
/// A shorter body is never a blob.
const INLINE: usize = 16_000;
/// How long hints may take after the last node is back.
const HINTS_MAX: Duration = Duration::from_secs(40);
/// Requests of a key that the report of a wrong answer shows.
const SHOWN_REQUESTS: usize = 12;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoadOperation {
    Read,
    /// A small body, or a deletion with a context.
    Write,
    /// A body that is a blob, or a deletion that reads first: these need a majority.
    Heavy,
    S3Read,
    S3Write,
}

/// A request and its outcome.
#[derive(Debug, Clone)]
pub(crate) struct LoadSample {
    pub(crate) operation: LoadOperation,
    /// Its begin, since the load began.
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    /// The status or the error of a failure.
    pub(crate) failed: Option<String>,
}

/// The values that a key must hold, and those that it may hold.
#[derive(Debug, Clone, Default)]
struct AllowedNumbers {
    /// Acknowledged values that no later write has named.
    must: BTreeSet<u64>,
    /// Those of `must`, values without an answer, and values that a write without an answer may have replaced.
    may: BTreeSet<u64>,
    /// The last requests, for the report of a wrong answer.
    requests: VecDeque<String>,
}

/// The state that all clients share.
struct LoadState {
    begun: Instant,
    stop: AtomicBool,
    /// The addresses of the gateways: HTTP and S3.
    gateways: Mutex<[(SocketAddr, SocketAddr); 2]>,
    samples: Mutex<Vec<LoadSample>>,
    /// Wrong answers.
    wrong: Mutex<Vec<String>>,
}

/// Running clients.
pub(crate) struct Load {
    shared: Arc<LoadState>,
    clients: Vec<JoinHandle<ClientKeys>>,
}

/// The allowed values of one client's keys at the end.
struct ClientKeys {
    s3: bool,
    keys: BTreeMap<String, AllowedNumbers>,
}

impl Load {
    /// Makes the buckets and starts the clients.
    pub(crate) fn start(gateways: [&LarderNode; 2]) -> Self {
        gateways[0].admin().active_type("kept", r#"{"props":{"allow_mult":true}}"#);
        gateways[0].s3_admin().put(S3_BUCKET, "").expect(200);
        let at = gateways.map(|gateway| (gateway.http(), gateway.s3_at()));
        let shared = Arc::new(LoadState {
            begun: Instant::now(),
            stop: AtomicBool::new(false),
            gateways: Mutex::new(at),
            samples: Mutex::default(),
            wrong: Mutex::default(),
        });
        let clients = (0..CLIENTS * 2).map(|number| {
            let shared = shared.clone();
            thread::spawn(move || LoadClient::new(shared, number, number % 2 == 1).run())
        });
        let clients = clients.collect();
        Self { shared, clients }
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.shared.begun.elapsed()
    }

    /// Records the new addresses of a restarted gateway.
    pub(crate) fn set_gateway(&self, which: usize, gateway: &LarderNode) {
        self.shared.gateways.lock().unwrap()[which] = (gateway.http(), gateway.s3_at());
    }

    /// Stops the clients and checks through `gateway` that every acknowledged value is present. Returns all requests.
    pub(crate) fn end(self, gateway: &LarderNode) -> Vec<LoadSample> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let kept: Vec<ClientKeys> = self.clients.into_iter().map(|client| client.join().unwrap()).collect();
        let mut wrong = std::mem::take(&mut *self.shared.wrong.lock().unwrap());
        let hinted = Instant::now() + HINTS_MAX;
        let listed = gateway.s3_admin().get(&format!("{S3_BUCKET}?max-keys=1000")).expect(200).text();
        for kept in &kept {
            for (key, may) in &kept.keys {
                let read_key = || match kept.s3 {
                    true => shown(&gateway.s3_admin().get(&format!("{S3_BUCKET}/{key}"))),
                    false => shown(&gateway.client().send(&read(key))),
                };
                let mut shown = read_key();
                // What one replica took while the others were away is at a quorum once the hints have arrived.
                while !kept.s3 && may.violation(key, &shown).is_some() && Instant::now() < hinted {
                    thread::sleep(Duration::from_millis(500));
                    shown = read_key();
                }
                wrong.extend(may.violation(key, &shown));
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

impl AllowedNumbers {
    /// Records a write of `number`, or a deletion, that replaces the values of `seen`.
    fn written(&mut self, request: String, number: Option<u64>, seen: &BTreeSet<u64>, done: bool) {
        self.note(request);
        self.must = &self.must - seen;
        if done {
            self.may = &self.may - seen;
            self.must.extend(number);
        }
        self.may.extend(number);
    }

    /// The error when a key holds these values and must not.
    fn violation(&self, key: &str, shown: &BTreeSet<u64>) -> Option<String> {
        let good = self.must.is_subset(shown) && shown.is_subset(&self.may);
        (!good).then(|| {
            let (must, may) = (&self.must, &self.may);
            format!("{key} must hold {must:?}, may hold {may:?}, and holds {shown:?}: {:#?}", self.requests)
        })
    }

    /// Notes a request of the key.
    fn note(&mut self, request: String) {
        self.requests.push_back(request);
        if self.requests.len() > SHOWN_REQUESTS {
            self.requests.pop_front();
        }
    }
}

/// One client.
struct LoadClient {
    shared: Arc<LoadState>,
    number: usize,
    s3: bool,
    which: usize,
    /// The connection to this client's interface of its gateway.
    connection: HttpClient,
    /// The signer of its requests.
    admin: S3Client,
    random: SplitMix64,
    keys: BTreeMap<String, AllowedNumbers>,
    next: u64,
}

impl LoadClient {
    fn new(shared: Arc<LoadState>, number: usize, s3: bool) -> Self {
        let which = number / 2 % 2;
        let (http, at) = shared.gateways.lock().unwrap()[which];
        let random = SplitMix64::new(number as u64);
        let (connection, admin) = (HttpClient::new(if s3 { at } else { http }), S3Client::new(at, S3_KEY, S3_SECRET));
        Self { shared, number, s3, which, connection, admin, random, keys: BTreeMap::new(), next: 0 }
    }

    fn run(mut self) -> ClientKeys {
        // Clients without a pause leave returning nodes no processor: in a test run a node then takes a minute to start.
        let pause = Duration::from_millis(Scale::current().pick(20, 0));
        while !self.shared.stop.load(Ordering::Relaxed) {
            let key = format!("c{}k{}", self.number, self.random.below(KEYS));
            if self.s3 {
                self.change_s3(key);
            } else {
                self.change_kv(key);
            }
            thread::sleep(pause);
        }
        ClientKeys { s3: self.s3, keys: self.keys }
    }

    /// Reads a key, and writes or deletes it with the context of the read. A read of fewer replicas than a majority may miss
    /// values: those become siblings of the write.
    fn change_kv(&mut self, key: String) {
        let at = self.shared.begun.elapsed();
        let Some(answer) = self.send(LoadOperation::Read, &read(&key)) else { return };
        let which = self.which;
        let context = answer.header("X-Riak-Vclock").map(str::to_owned);
        let mut seen = shown(&answer);
        let note = format!("{at:?}: gateway {which} read {seen:?}");
        self.keys.entry(key.clone()).or_default().note(note);
        let (number, body) = self.body();
        if body.is_none() && context.is_none() {
            // A deletion without a context reads first and deletes the values that it finds.
            seen.extend(self.keys.get(&key).map(|may| may.must.clone()).unwrap_or_default());
        }
        let request = match &body {
            Some(body) => {
                HttpRequest::put(&format!("{BUCKET}/{key}"), body.clone()).header("Content-Type", "text/plain")
            }
            None => HttpRequest::new("DELETE", &format!("{BUCKET}/{key}")),
        };
        let request = context.iter().fold(request, |request, context| request.header("X-Riak-Vclock", context));
        let small = body.as_ref().map_or(context.is_some(), |body| body.len() < INLINE);
        let at = self.shared.begun.elapsed();
        let done = self.send(if small { LoadOperation::Write } else { LoadOperation::Heavy }, &request).is_some();
        // Values that such a deletion did not find may still be present.
        let done = done && (body.is_some() || context.is_some());
        let written = body.is_some().then_some(number);
        let took = self.shared.begun.elapsed() - at;
        let request = format!("{at:?}: gateway {which} wrote {written:?} in {took:?}, acknowledged: {done}");
        self.keys.entry(key).or_default().written(request, written, &seen, done);
    }

    /// Reads a key, which must show its last write, and writes or deletes it.
    fn change_s3(&mut self, key: String) {
        let target = format!("{S3_BUCKET}/{key}");
        let get = self.admin.signed("GET", &target, &[], "");
        let at = self.shared.begun.elapsed();
        let Some(answer) = self.send(LoadOperation::S3Read, &get) else { return };
        let which = self.which;
        let may = self.keys.entry(key.clone()).or_default();
        may.note(format!("{at:?}: gateway {which} read {:?}", shown(&answer)));
        let wrong = may.violation(&key, &shown(&answer));
        let seen = may.may.clone();
        self.shared.wrong.lock().unwrap().extend(wrong);
        let (number, body) = self.body();
        let written = body.is_some().then_some(number);
        let request = match body {
            Some(body) => self.admin.signed("PUT", &target, &[], body),
            None => self.admin.signed("DELETE", &target, &[], ""),
        };
        let at = self.shared.begun.elapsed();
        let done = self.send(LoadOperation::S3Write, &request).is_some();
        let took = self.shared.begun.elapsed() - at;
        let request = format!("{at:?}: gateway {which} wrote {written:?} in {took:?}, acknowledged: {done}");
        self.keys.entry(key).or_default().written(request, written, &seen, done);
    }

    /// The next value; `None` for a deletion.
    fn body(&mut self) -> (u64, Option<Vec<u8>>) {
        self.next += 1;
        let number = self.next;
        if self.random.below(6) == 0 {
            return (number, None);
        }
        let length = if self.random.below(8) == 0 { self.random.below(BODY_MAX) } else { 100 };
        (number, Some([format!("<{number}>").into_bytes(), vec![b'.'; length]].concat()))
    }

    /// Sends a request; returns its answer when that is 2xx, 300 or 404.
    fn send(&mut self, operation: LoadOperation, request: &HttpRequest) -> Option<HttpResponse> {
        let at = self.shared.begun.elapsed();
        let answer = self.connection.try_send(request);
        let took = self.shared.begun.elapsed() - at;
        let (answer, failed) = match answer {
            Ok(answer) if matches!(answer.status, 200..=300 | 404) => (Some(answer), None),
            Ok(answer) => (None, Some(format!("{} {}", answer.status, answer.text().trim_end()))),
            Err(error) => (None, Some(error.to_string())),
        };
        if failed.is_some() {
            self.change_gateway();
            thread::sleep(Duration::from_millis(50));
        }
        self.shared.samples.lock().unwrap().push(LoadSample { operation, at, took, failed });
        answer
    }

    fn change_gateway(&mut self) {
        self.which = 1 - self.which;
        let (http, s3) = self.shared.gateways.lock().unwrap()[self.which];
        self.connection = HttpClient::new(if self.s3 { s3 } else { http });
    }
}

fn read(key: &str) -> HttpRequest {
    HttpRequest::get(&format!("{BUCKET}/{key}")).header("Accept", "multipart/mixed, */*;q=0.5")
}

/// The numbers of the values in an answer.
fn shown(answer: &HttpResponse) -> BTreeSet<u64> {
    if answer.status == 404 {
        return BTreeSet::new();
    }
    let text = answer.text();
    let numbers = text.split('<').skip(1).filter_map(|rest| rest.split_once('>')?.0.parse().ok());
    numbers.collect()
}
