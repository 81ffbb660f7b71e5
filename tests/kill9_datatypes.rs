//! The server is killed under updates of data types many times: totals are exact, sets have what was added and not removed, and a
//! batch is there whole or not at all.
//!
//! A writer owns a key, an element or a field, which then has at most two possible values: the last acknowledged one, and the one
//! whose answer the kill cut off. The writers share a set, a map and a counter, so that batches hold requests of several. Increments
//! with an id are sent again after the restart, so the total of all writers has one value.
//! `LARDER_TEST_SCALE=soak` runs 200 rounds instead of 3.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{HttpClient, HttpRequest, LarderNode, Scale, SplitMix64, TestEngine, figure};
use serde_json::Value;

const WRITERS: usize = 4;
/// Elements that a writer adds and removes.
const ELEMENTS: usize = 40;
/// The set and the map of all writers.
const SHARED: &str = "shared";
/// The counter of all writers, with ids.
const ONCE: &str = "once";
const TYPES: &[(&str, &str)] = &[
    ("counters", r#"{"props":{"datatype":"counter"}}"#),
    ("sets", r#"{"props":{"datatype":"set"}}"#),
    ("maps", r#"{"props":{"datatype":"map"}}"#),
];

/// The value of a key as its writer knows it.
#[derive(Debug, Clone, Default)]
struct KnownValue<T> {
    acknowledged: T,
    /// The value after a request without an answer.
    in_flight: Option<T>,
}

impl<T: Clone + PartialEq + Debug> KnownValue<T> {
    /// Notes the end of a change to this value; `false` when there was no answer.
    fn ended(&mut self, to: T, is_answered: bool) -> bool {
        match is_answered {
            true => *self = Self { acknowledged: to, in_flight: None },
            false => self.in_flight = Some(to),
        }
        is_answered
    }

    /// Takes the value that was found for the known one.
    #[track_caller]
    fn settle(&mut self, found: T) {
        let is_known = found == self.acknowledged || self.in_flight.as_ref() == Some(&found);
        assert!(is_known, "found {found:?}, known {self:?}");
        *self = Self { acknowledged: found, in_flight: None };
    }
}

/// One writer's part: a counter without ids, one that is deleted again and again, and a map whose counter and register agree; of the
/// keys that all share, its increments with ids, its elements of a set, and its field of a map.
#[derive(Debug, Default)]
struct DatatypeLedger {
    name: String,
    plain: KnownValue<i64>,
    deleted: KnownValue<i64>,
    map: KnownValue<i64>,
    once: i64,
    /// The increment with an id that was not answered, and its number.
    unanswered: Option<(HttpRequest, i64)>,
    set: KnownValue<BTreeSet<String>>,
    field: KnownValue<i64>,
    updates: u64,
}

impl DatatypeLedger {
    /// The path of a key of its own.
    fn path(&self, bucket_type: &str, key: &str) -> String {
        shared(bucket_type, &format!("{}-{key}", self.name))
    }

    /// Updates until the server does not answer.
    fn write(&mut self, client: &mut HttpClient, random: &mut SplitMix64, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let is_answered = match random.below(12) {
                0 => self.increment(client, random),
                1 | 2 => self.increment_once(client, random),
                3 | 4 => self.update_map(client, random),
                5 | 6 => self.edit_field(client, random),
                7 => self.count_or_delete(client, random),
                _ => self.edit_set(client, random),
            };
            if !is_answered {
                return;
            }
            self.updates += 1;
        }
    }

    fn increment(&mut self, client: &mut HttpClient, random: &mut SplitMix64) -> bool {
        let by = random.below(9) as i64 - 2;
        let answered = sent(client, &HttpRequest::post_json(&self.path("counters", "plain"), &by.to_string()));
        self.plain.ended(self.plain.acknowledged + by, answered)
    }

    /// Increments the counter that it deletes now and then.
    fn count_or_delete(&mut self, client: &mut HttpClient, random: &mut SplitMix64) -> bool {
        let (path, by) = (self.path("counters", "deleted"), 1 + random.below(9) as i64);
        if self.deleted.acknowledged > 0 && random.below(3) == 0 {
            let answered = sent(client, &HttpRequest::new("DELETE", &path.replace("/datatypes/", "/keys/")));
            return self.deleted.ended(0, answered);
        }
        let answered = sent(client, &HttpRequest::post_json(&path, &by.to_string()));
        self.deleted.ended(self.deleted.acknowledged + by, answered)
    }

    fn increment_once(&mut self, client: &mut HttpClient, random: &mut SplitMix64) -> bool {
        let by = 1 + random.below(9) as i64;
        let request = HttpRequest::post_json(&shared("counters", ONCE), &by.to_string())
            .header("X-Larder-Request-Id", &format!("{:x}", random.number()));
        let answered = sent(client, &request);
        // A second time at random, as a client does whose answer was lost.
        let answered = answered && (random.below(3) > 0 || sent(client, &request));
        match answered {
            true => self.once += by,
            false => self.unanswered = Some((request, by)),
        }
        answered
    }

    /// Increments its field of the shared map, or removes it with the context of a read.
    fn edit_field(&mut self, client: &mut HttpClient, random: &mut SplitMix64) -> bool {
        let (path, name, by) = (shared("maps", SHARED), &self.name, 1 + random.below(9) as i64);
        let (to, body) = if self.field.acknowledged > 0 && random.below(3) == 0 {
            let Ok(seen) = client.try_send(&HttpRequest::get(&path)) else { return false };
            let context = seen.expect(200).json()["context"].clone();
            (0, format!(r#"{{"remove":"{name}_counter","context":{context}}}"#))
        } else {
            (self.field.acknowledged + by, format!(r#"{{"update":{{"{name}_counter":{by}}}}}"#))
        };
        let answered = sent(client, &HttpRequest::post_json(&path, &body));
        self.field.ended(to, answered)
    }

    fn update_map(&mut self, client: &mut HttpClient, random: &mut SplitMix64) -> bool {
        let by = 1 + random.below(9) as i64;
        let total = self.map.acknowledged + by;
        let body = format!(r#"{{"update":{{"n_counter":{by},"in_map":{{"update":{{"n_register":"{total}"}}}}}}}}"#);
        let answered = sent(client, &HttpRequest::post_json(&self.path("maps", "map"), &body));
        self.map.ended(total, answered)
    }

    /// Adds an element to the shared set, or removes one with the context of a read.
    fn edit_set(&mut self, client: &mut HttpClient, random: &mut SplitMix64) -> bool {
        let path = shared("sets", SHARED);
        let element = format!("{}-{}", self.name, random.below(ELEMENTS));
        let mut to = self.set.acknowledged.clone();
        let body = if to.insert(element.clone()) {
            format!(r#"{{"add":"{element}"}}"#)
        } else {
            let Ok(seen) = client.try_send(&HttpRequest::get(&path)) else { return false };
            let context = seen.expect(200).json()["context"].clone();
            to.remove(&element);
            format!(r#"{{"remove":"{element}","context":{context}}}"#)
        };
        let answered = sent(client, &HttpRequest::post_json(&path, &body));
        self.set.ended(to, answered)
    }

    /// Sends the increment again whose answer the kill cut off.
    fn send_again(&mut self, client: &mut HttpClient) {
        if let Some((again, by)) = self.unanswered.take() {
            client.send(&again).expect(204);
            self.once += by;
        }
    }

    /// Reads its part after a restart.
    fn verify(&mut self, client: &mut HttpClient) {
        self.plain.settle(total(&read(client, &self.path("counters", "plain"))));
        self.deleted.settle(total(&read(client, &self.path("counters", "deleted"))));
        let map = read(client, &self.path("maps", "map"));
        let register = map["in_map"]["n_register"].as_str().map_or(0, |text| text.parse().expect("a total"));
        assert_eq!(total(&map["n_counter"]), register, "half a batch: {map}");
        self.map.settle(register);
        self.field.settle(total(&read(client, &shared("maps", SHARED))[format!("{}_counter", self.name)]));
        let elements = read(client, &shared("sets", SHARED));
        let elements = elements.as_array().into_iter().flatten().map(|element| element.as_str().expect("text"));
        let own = elements.filter(|element| element.starts_with(&format!("{}-", self.name)));
        self.set.settle(own.map(str::to_owned).collect());
    }
}

/// The path of a key of all writers.
fn shared(bucket_type: &str, key: &str) -> String {
    format!("/types/{bucket_type}/buckets/kill/datatypes/{key}")
}

/// The value of a key; null if there is none.
fn read(client: &mut HttpClient, path: &str) -> Value {
    let answer = client.get(path);
    match answer.status {
        404 => Value::Null,
        _ => answer.expect(200).json()["value"].clone(),
    }
}

/// A total; that of no counter is zero.
fn total(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Whether the update was acknowledged; `false` without an answer.
fn sent(client: &mut HttpClient, request: &HttpRequest) -> bool {
    client.try_send(request).map(|answer| answer.expect(204)).is_ok()
}

#[test]
fn data_types_are_exact_after_every_kill() {
    if !TestEngine::is_local_for("data types") {
        return;
    }
    let rounds = Scale::current().pick(3, 200);
    let mut random = SplitMix64::from_environment("kill9-datatypes");
    let mut node = LarderNode::start(&[]);
    for (name, props) in TYPES {
        node.admin().active_type(name, props);
    }
    let ledger = |writer| DatatypeLedger { name: format!("w{writer}"), ..DatatypeLedger::default() };
    let mut ledgers: Vec<DatatypeLedger> = (0..WRITERS).map(ledger).collect();
    for _ in 0..rounds {
        let pause = Duration::from_millis(150 + random.below(700) as u64);
        node.kill_under(pause, &mut random, &mut ledgers, |_, ledger, client, random, stop| {
            ledger.write(client, random, stop);
        });
        node.restart();
        ledgers.iter_mut().for_each(|ledger| ledger.send_again(&mut node.client()));
        ledgers.iter_mut().for_each(|ledger| ledger.verify(&mut node.client()));
        let once: i64 = ledgers.iter().map(|ledger| ledger.once).sum();
        assert_eq!(total(&read(&mut node.client(), &shared("counters", ONCE))), once, "each id once");
    }
    let updates: u64 = ledgers.iter().map(|ledger| ledger.updates).sum();
    figure("kill -9 updates of data types, all exact", &updates.to_string());
    assert!(updates > rounds * 20, "only {updates} updates: too few to test anything");
}
