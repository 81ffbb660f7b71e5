//! Compare-and-set through two gateways is linearizable while nodes and gateways fail: for objects of `consistent` types, and
//! for S3 objects under `If-Match`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{HttpClient, HttpRequest, HttpResponse, LarderNode, Scale, SplitMix64, TestCluster, figure};
use larder_testkit::{RegisterAction, RegisterOperation, RegisterValue, is_linearizable};

/// Clients of each key.
const CLIENTS: usize = 5;
/// Operations on a key before the clients take the next key: the length of one checked history.
const KEY_OPERATIONS: u64 = 250;
/// The longest wait for one answer; a paused cluster continues earlier.
const TIMEOUT_MS: u64 = 8_000;

const BUCKET: &str = "/types/cas/buckets/linear/keys";
const S3_BUCKET: &str = "/linear";

struct RegisterRun {
    begun: Instant,
    gateways: RwLock<[LarderNode; 2]>,
    ended: AtomicBool,
    /// Histories, key by key.
    histories: Mutex<Vec<(String, Vec<RegisterOperation>)>>,
    done: AtomicU64,
}

/// Compare-and-set is linearizable while nodes of this cluster and its gateways fail.
pub(crate) fn compare_and_set_is_linearizable(cluster: &TestCluster, gateways: [LarderNode; 2]) {
    gateways[0].admin().active_type("cas", r#"{"props":{"consistent":true}}"#);
    gateways[0].s3_admin().put(S3_BUCKET, "").expect(200);
    let world = RegisterRun {
        begun: Instant::now(),
        gateways: RwLock::new(gateways),
        ended: AtomicBool::new(false),
        histories: Mutex::default(),
        done: AtomicU64::new(0),
    };
    let wanted = Scale::current().pick(5_000, 100_000);
    thread::scope(|scope| {
        let world = &world;
        scope.spawn(|| inject_faults(world, cluster));
        let groups: Vec<_> =
            (0..Scale::current().pick(2, 12)).map(|number| scope.spawn(move || group(world, number, wanted))).collect();
        groups.into_iter().for_each(|group| group.join().unwrap());
        world.ended.store(true, Ordering::Relaxed);
    });
    let histories = world.histories.into_inner().unwrap();
    let operations: usize = histories.iter().map(|(_, history)| history.len()).sum();
    let swaps = |history: &Vec<RegisterOperation>| {
        history.iter().filter(|op| matches!(op.act, RegisterAction::Swap { .. })).count()
    };
    let swapped: usize = histories.iter().map(|(_, history)| swaps(history)).sum();
    let unsure = |history: &Vec<RegisterOperation>| history.iter().filter(|op| op.returned.is_none()).count();
    let lost: usize = histories.iter().map(|(_, history)| unsure(history)).sum();
    figure("linearizability: operations, swaps, without an answer", &format!("{operations}, {swapped}, {lost}"));
    assert!(operations as u64 >= wanted && swapped > operations / 20);
    for (key, history) in &histories {
        assert!(is_linearizable(history), "{key}: {history:#?}");
    }
}

/// Works on one key after another, each with its own clients. Even groups use a `consistent` type, odd ones S3.
fn group(world: &RegisterRun, number: usize, wanted: u64) {
    let mut round = 0;
    while world.done.load(Ordering::Relaxed) < wanted {
        let key = format!("g{number}r{round}");
        let (left, next) = (AtomicU64::new(KEY_OPERATIONS), AtomicU64::new(1));
        let history = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (left, next, history, key) = (&left, &next, &history, &key);
                scope.spawn(move || {
                    let mut client =
                        RegisterClient { world, key, s3: number % 2 == 1, at: client % 2, seed: client as u64 };
                    let done = client.run(left, next);
                    history.lock().unwrap().extend(done);
                });
            }
        });
        let history = history.into_inner().unwrap();
        world.done.fetch_add(history.len() as u64, Ordering::Relaxed);
        world.histories.lock().unwrap().push((key, history));
        round += 1;
    }
}

/// One client of one key.
struct RegisterClient<'a> {
    world: &'a RegisterRun,
    key: &'a str,
    s3: bool,
    at: usize,
    seed: u64,
}

/// The value of a read, and its context or entity tag for the next write.
struct ObservedValue {
    value: RegisterValue,
    token: Option<String>,
}

impl RegisterClient<'_> {
    fn run(&mut self, left: &AtomicU64, next: &AtomicU64) -> Vec<RegisterOperation> {
        let mut random = SplitMix64::new(self.seed);
        let mut history = Vec::new();
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let called = self.micros();
            let Some(seen) = self.read() else { continue };
            history.push(RegisterOperation {
                act: RegisterAction::Read(seen.value),
                called,
                returned: Some(self.micros()),
            });
            if random.below(3) == 0 {
                continue;
            }
            let (called, expected, new) = (self.micros(), seen.value, next.fetch_add(1, Ordering::Relaxed));
            let status = self.write(&seen, new);
            let returned = Some(self.micros());
            history.push(match status {
                Some(200..=299) => RegisterOperation { act: RegisterAction::Swap { expected, new }, called, returned },
                Some(412) => RegisterOperation { act: RegisterAction::Refused(expected), called, returned },
                _ => RegisterOperation { act: RegisterAction::Swap { expected, new }, called, returned: None },
            });
        }
        history
    }

    fn micros(&self) -> u64 {
        self.world.begun.elapsed().as_micros() as u64
    }

    fn read(&mut self) -> Option<ObservedValue> {
        let answer = self.send("GET", &[], Vec::new())?;
        let token = if self.s3 { answer.header("ETag") } else { answer.header("X-Riak-Vclock") };
        match answer.status {
            200 => {
                Some(ObservedValue { value: answer.text().parse().expect("a number"), token: token.map(str::to_owned) })
            }
            404 => Some(ObservedValue { value: 0, token: token.map(str::to_owned) }),
            _ => None,
        }
    }

    fn write(&mut self, seen: &ObservedValue, new: RegisterValue) -> Option<u16> {
        let header = match (&seen.token, self.s3) {
            (Some(token), true) => vec![("If-Match", token.as_str())],
            (None, true) => vec![("If-None-Match", "*")],
            (Some(token), false) => vec![("X-Riak-Vclock", token.as_str())],
            (None, false) => Vec::new(),
        };
        self.send("PUT", &header, new.to_string().into_bytes()).map(|answer| answer.status)
    }

    /// Sends to the client's gateway; a failure moves the client to the other one. `None` when there is no answer.
    fn send(&mut self, method: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Option<HttpResponse> {
        let gateways = self.world.gateways.read().unwrap();
        let gateway = &gateways[self.at];
        let answer = if self.s3 {
            let s3 = gateway.s3_admin();
            let request = s3.signed(method, &format!("{S3_BUCKET}/{}", self.key), headers, body);
            let at = gateway.s3_at();
            drop(gateways);
            HttpClient::new(at).try_send(&request)
        } else {
            let target = format!("{BUCKET}/{}?timeout={TIMEOUT_MS}", self.key);
            let request = HttpRequest::new(method, &target).header("Content-Type", "text/plain").body(body);
            let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
            let at = gateway.http();
            drop(gateways);
            HttpClient::new(at).try_send(&request)
        };
        if !answer.as_ref().is_ok_and(|answer| answer.status < 500) {
            self.at = 1 - self.at;
            thread::sleep(Duration::from_millis(20));
        }
        answer.ok()
    }
}

/// Injects faults into nodes and gateways, and counts them.
struct ClusterFaults<'a> {
    world: &'a RegisterRun,
    cluster: &'a TestCluster,
    random: SplitMix64,
    injected: usize,
}

/// Pauses, kills and restarts nodes and gateways until the clients have done their operations.
fn inject_faults(world: &RegisterRun, cluster: &TestCluster) {
    let mut faults = ClusterFaults { world, cluster, random: SplitMix64::from_environment("faults"), injected: 0 };
    for fault in ClusterFaults::ROUND.iter().cycle() {
        if !faults.is_due() {
            break;
        }
        fault(&mut faults);
    }
    figure("linearizability: faults injected", &faults.injected.to_string());
}

impl ClusterFaults<'_> {
    /// The faults in their order.
    const ROUND: [fn(&mut Self); 5] =
        [Self::pause_node, Self::fail_gateway, Self::pause_node, Self::fail_gateway, Self::kill_node];

    /// Waits a second without a fault; returns whether the clients still work.
    fn is_due(&self) -> bool {
        self.rest(1_000);
        !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.world.ended.load(Ordering::Relaxed)
    }

    fn rest(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until && !self.is_over() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets a fault last for a random time between `least` and `most` milliseconds.
    fn keep_fault(&mut self, least: u64, most: u64) {
        self.injected += 1;
        let more = self.random.below((most - least) as usize) as u64;
        self.rest(least + more);
    }

    fn pause_node(&mut self) {
        let node = self.cluster.node(1 + self.random.below(3));
        node.stop().unwrap();
        self.keep_fault(1_500, 3_500);
        node.cont().unwrap();
    }

    /// Kills a node; while it restarts, which takes long, gateways fail too.
    fn kill_node(&mut self) {
        let node = self.cluster.node(1 + self.random.below(3));
        node.kill().unwrap();
        self.keep_fault(3_000, 4_000);
        thread::scope(|scope| {
            let starting = scope.spawn(|| node.start().unwrap());
            while !starting.is_finished() && self.is_due() {
                self.fail_gateway();
            }
        });
    }

    fn fail_gateway(&mut self) {
        if self.random.below(3) > 0 {
            let held = self.random.below(2);
            self.world.gateways.read().unwrap()[held].stop();
            self.keep_fault(1_000, 4_000);
            self.world.gateways.read().unwrap()[held].cont();
        } else {
            let mut gateways = self.world.gateways.write().unwrap();
            gateways[1].kill();
            self.injected += 1;
            gateways[1].restart();
        }
    }
}
