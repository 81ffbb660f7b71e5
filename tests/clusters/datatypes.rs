//! Data types through two gateways while nodes and gateways fail: what was acknowledged is there, what was removed stays away, and
//! increments with ids count exactly once.
//!
//! ```text
//! plain   a counter of each client, no ids      acknowledged ≤ value ≤ acknowledged + without an answer
//! once    one counter of all, each with an id   sent again until it is answered, so the value is exact
//! set     a set of all, own elements            an acknowledged one is there until a removal that saw it is sent
//! map     a map of all, a set of each client    the same below a field, beside a counter
//! ```
//! A client moves to the other gateway when its own does not answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clusters::load::{LoadOperation, LoadSample};
use crate::clusters::plot::{self, PlotEvent, quantile_of};
use crate::harness::{HttpClient, HttpRequest, HttpResponse, LarderNode, Scale, SplitMix64, TestCluster, figure};

const CLIENTS: usize = 6;
/// Elements of one client that are in use at a time.
const ELEMENTS: usize = 30;
/// The longest wait for one answer.
const TIMEOUT_MS: u64 = 8_000;
/// The longest time in which an increment with an id gets its answer.
const ANSWERED: Duration = Duration::from_secs(180);

/// What a client knows of an element of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementState {
    Present,
    Absent,
    /// Its last change has no answer.
    Unknown,
}

/// The state that all clients share.
struct DatatypeRun {
    begun: Instant,
    gateways: Mutex<[SocketAddr; 2]>,
    stop: AtomicBool,
    samples: Mutex<Vec<LoadSample>>,
    wrong: Mutex<Vec<String>>,
}

/// One client, and what it was told.
struct DatatypeClient {
    run: Arc<DatatypeRun>,
    name: String,
    which: usize,
    connection: HttpClient,
    random: SplitMix64,
    acknowledged: i64,
    without_answer: i64,
    once: i64,
    /// By place: the elements of the set, and those of the map's field.
    elements: [BTreeMap<String, ElementState>; 2],
    next: usize,
}

/// Nothing acknowledged is lost or comes back while nodes of this cluster and its gateways fail.
pub(crate) fn lose_no_acknowledged_update(cluster: &TestCluster, gateways: &mut [LarderNode; 2]) {
    for (name, datatype) in [("counters", "counter"), ("sets", "set"), ("maps", "map")] {
        gateways[0].admin().active_type(name, &format!(r#"{{"props":{{"datatype":"{datatype}"}}}}"#));
    }
    let run = Arc::new(DatatypeRun {
        begun: Instant::now(),
        gateways: Mutex::new([gateways[0].http(), gateways[1].http()]),
        stop: AtomicBool::new(false),
        samples: Mutex::default(),
        wrong: Mutex::default(),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let run = Arc::clone(&run);
            thread::spawn(move || DatatypeClient::new(run, number).work())
        })
        .collect();
    let events = fail(&run, cluster, gateways);
    run.stop.store(true, Ordering::Relaxed);
    let clients: Vec<DatatypeClient> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
    // What gateways keep of batches without an answer is sent again by now.
    thread::sleep(Duration::from_secs(Scale::current().pick(5, 60)));
    for gateway in gateways.iter() {
        verify(&mut gateway.client(), &clients, &run);
    }
    let wrong = std::mem::take(&mut *run.wrong.lock().unwrap());
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    report(&std::mem::take(&mut *run.samples.lock().unwrap()), &events);
}

/// Nodes are killed and held, a gateway is killed, and each side of a partition works alone.
fn fail(run: &DatatypeRun, cluster: &TestCluster, gateways: &mut [LarderNode; 2]) -> Vec<PlotEvent> {
    let mut events = Vec::new();
    let mut note = |what: String| {
        eprintln!("{:>6.1} s  {what}", run.begun.elapsed().as_secs_f64());
        events.push((run.begun.elapsed(), what));
    };
    let rest = |test, soak| thread::sleep(Duration::from_secs(Scale::current().pick(test, soak)));
    rest(3, 30);
    for round in 0..Scale::current().pick(1, 5) {
        let node = round % 3 + 1;
        cluster.node(node).stop().unwrap();
        note(format!("node {node} held"));
        rest(6, 45);
        cluster.node(node).cont().unwrap();
        note(format!("node {node} goes on"));
        rest(2, 30);
        gateways[1].kill();
        note("a gateway killed".into());
        rest(2, 20);
        gateways[1].restart();
        run.gateways.lock().unwrap()[1] = gateways[1].http();
        note("the gateway back".into());
        rest(3, 30);
        if Scale::current() == Scale::Soak {
            let killed = (round + 1) % 3 + 1;
            cluster.node(killed).kill().unwrap();
            note(format!("node {killed} killed"));
            rest(0, 60);
            cluster.node(killed).start().unwrap();
            note(format!("node {killed} back"));
            rest(0, 45);
            for side in [vec![1, 2], vec![3]] {
                side.iter().for_each(|node| cluster.node(*node).stop().unwrap());
                note(format!("nodes {side:?} cut off"));
                rest(0, 40);
                side.iter().for_each(|node| cluster.node(*node).cont().unwrap());
                note("the cut heals".into());
                rest(0, 30);
            }
        }
    }
    events
}

impl DatatypeClient {
    fn new(run: Arc<DatatypeRun>, number: usize) -> Self {
        let which = number % 2;
        let connection = HttpClient::new(run.gateways.lock().unwrap()[which]);
        Self {
            run,
            name: format!("c{number}"),
            which,
            connection,
            random: SplitMix64::new(number as u64),
            acknowledged: 0,
            without_answer: 0,
            once: 0,
            elements: Default::default(),
            next: 0,
        }
    }

    fn work(mut self) -> Self {
        let pause = Duration::from_millis(Scale::current().pick(10, 2));
        while !self.run.stop.load(Ordering::Relaxed) {
            match self.random.below(8) {
                0 => self.increment(),
                1 => self.increment_once(),
                at => self.change_elements(at % 2),
            }
            thread::sleep(pause);
        }
        self
    }

    fn increment(&mut self) {
        let by = 1 + self.random.below(9) as i64;
        let answered = self.update(&format!("counters/{}", self.name), &json!(by), None);
        *if answered { &mut self.acknowledged } else { &mut self.without_answer } += by;
    }

    /// Sends one increment until it is answered, through whichever gateway.
    fn increment_once(&mut self) {
        let by = 1 + self.random.below(9) as i64;
        let id = format!("{}-{:x}", self.name, self.random.number());
        let begun = Instant::now();
        while !self.update("counters/once", &json!(by), Some(&id)) {
            assert!(begun.elapsed() < ANSWERED, "no answer for an increment with an id");
        }
        // A client that is not sure that it was heard sends it again.
        if self.random.below(3) == 0 {
            self.update("counters/once", &json!(by), Some(&id));
        }
        self.once += by;
    }

    /// Reads its elements of a set, which must be those that it knows, and adds or removes one.
    fn change_elements(&mut self, place: usize) {
        let target = key_of(place);
        let Some(read) = self.send(LoadOperation::Read, &HttpRequest::get(&path(target))) else { return };
        let document = if read.status == 404 { Value::Null } else { read.json() };
        let shown = own_elements(&document["value"], &self.name, place);
        if let Some(wrong) = violation(&self.elements[place], &shown) {
            let wrong = format!("{} in {target}: {wrong}", self.name);
            self.run.wrong.lock().unwrap().push(wrong);
        }
        let present: Vec<&String> = self.elements[place]
            .iter()
            .filter(|known| *known.1 == ElementState::Present)
            .map(|known| known.0)
            .collect();
        let is_removal = present.len() >= ELEMENTS || !present.is_empty() && self.random.below(3) == 0;
        let (element, edit, ended) = if is_removal {
            let element = (*self.random.pick(&present)).clone();
            (element.clone(), json!({ "remove": element, "context": document["context"] }), ElementState::Absent)
        } else {
            // A name of its own each time, so that an add without an answer is told from a later one.
            self.next += 1;
            let element = format!("{}-{}", self.name, self.next);
            (element.clone(), json!({ "add": element }), ElementState::Present)
        };
        let edit = match place {
            0 => edit,
            _ => in_map(&self.name, edit),
        };
        let answered = self.update(target, &edit, None);
        self.elements[place].insert(element, if answered { ended } else { ElementState::Unknown });
    }

    fn update(&mut self, target: &str, document: &Value, id: Option<&str>) -> bool {
        let request = HttpRequest::post_json(&format!("{}?timeout={TIMEOUT_MS}", path(target)), &document.to_string());
        let request = id.iter().fold(request, |request, id| request.header("X-Larder-Request-Id", id));
        self.send(LoadOperation::Write, &request).is_some()
    }

    /// Sends a request; its answer when that is 2xx or 404.
    fn send(&mut self, operation: LoadOperation, request: &HttpRequest) -> Option<HttpResponse> {
        let at = self.run.begun.elapsed();
        let answer = self.connection.try_send(request);
        let took = self.run.begun.elapsed() - at;
        let (answer, failed) = match answer {
            Ok(answer) if matches!(answer.status, 200 | 204 | 404) => (Some(answer), None),
            Ok(answer) => (None, Some(format!("{} {}", answer.status, answer.text().trim_end()))),
            Err(error) => (None, Some(error.to_string())),
        };
        if failed.is_some() {
            self.which = 1 - self.which;
            self.connection = HttpClient::new(self.run.gateways.lock().unwrap()[self.which]);
            thread::sleep(Duration::from_millis(50));
        }
        self.run.samples.lock().unwrap().push(LoadSample { operation, at, took, failed });
        answer
    }
}

/// The key of the elements at a place.
fn key_of(place: usize) -> &'static str {
    ["sets/shared", "maps/shared"][place]
}

fn path(target: &str) -> String {
    let (bucket_type, key) = target.split_once('/').expect("a type and a key");
    format!("/types/{bucket_type}/buckets/fail/datatypes/{key}")
}

/// The edit of a client's set in the map, beside a counter that grows with it.
fn in_map(name: &str, mut edit: Value) -> Value {
    let context = edit.as_object_mut().expect("an edit").remove("context");
    let mut document = json!({ "update": { (format!("{name}_set")): edit, "all_counter": 1 } });
    if let Some(context) = context {
        document["context"] = context;
    }
    document
}

/// The elements of a client at a place.
fn own_elements(value: &Value, name: &str, place: usize) -> Vec<String> {
    let set = if place == 0 { value } else { &value[format!("{name}_set")] };
    let all = set.as_array().into_iter().flatten().filter_map(Value::as_str);
    all.filter(|element| element.starts_with(&format!("{name}-"))).map(str::to_owned).collect()
}

/// What is lost or back.
fn violation(known: &BTreeMap<String, ElementState>, shown: &[String]) -> Option<String> {
    let of = |state| known.iter().filter(move |known| *known.1 == state).map(|known| known.0);
    let lost = of(ElementState::Present).find(|element| !shown.contains(element));
    let back = shown
        .iter()
        .find(|element| !matches!(known.get(*element), Some(ElementState::Present | ElementState::Unknown)));
    lost.map(|element| format!("{element} is lost")).or_else(|| back.map(|element| format!("{element} is back")))
}

/// Checks every value through one gateway.
fn verify(client: &mut HttpClient, clients: &[DatatypeClient], run: &DatatypeRun) {
    let mut value = |target: &str| {
        let answer = client.get(&path(target));
        if answer.status == 404 { Value::Null } else { answer.expect(200).json()["value"].clone() }
    };
    let mut wrong = Vec::new();
    for client in clients {
        let found = value(&format!("counters/{}", client.name)).as_i64().unwrap_or_default();
        if !(client.acknowledged..=client.acknowledged + client.without_answer).contains(&found) {
            wrong.push(format!(
                "{}: {found}, acknowledged {}, unknown {}",
                client.name, client.acknowledged, client.without_answer
            ));
        }
        for place in [0, 1] {
            let shown = own_elements(&value(key_of(place)), &client.name, place);
            wrong.extend(
                violation(&client.elements[place], &shown).map(|what| format!("{} at the end: {what}", client.name)),
            );
        }
    }
    let (once, found) = (clients.iter().map(|client| client.once).sum::<i64>(), value("counters/once").as_i64());
    if found != Some(once) {
        wrong.push(format!("increments with ids: {found:?}, sent {once}"));
    }
    run.wrong.lock().unwrap().extend(wrong);
}

fn report(samples: &[LoadSample], events: &[PlotEvent]) {
    plot::write("datatypes", samples, events);
    let failed = samples.iter().filter(|sample| sample.failed.is_some()).count();
    figure("data types while nodes and gateways fail: requests, failed", &format!("{}, {failed}", samples.len()));
    for operation in [LoadOperation::Read, LoadOperation::Write] {
        let of_kind = samples.iter().filter(|sample| sample.operation == operation && sample.failed.is_none());
        let mut took: Vec<_> = of_kind.map(|sample| sample.took).collect();
        took.sort_unstable();
        assert!(took.len() > 100, "{operation:?}: {} requests", took.len());
        let (p50, p99, most) = (quantile_of(&took, 0.5), quantile_of(&took, 0.99), quantile_of(&took, 1.0));
        figure(&format!("data types, {operation:?}: p50, p99, longest"), &format!("{p50:?}, {p99:?}, {most:?}"));
    }
}
