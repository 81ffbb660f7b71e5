//! Writers of data types: each has its own counters and maps, and they share the sets, in which each has its own elements. So a batch
//! of a set may hold requests of both.
//!
//! Its changes are in the ledger as those of objects are: a counter as its total, a set as one key for each element, a map as the
//! number that a counter and a register in it have to share.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::harness::{HttpClient, HttpRequest, SplitMix64};
use serde_json::Value;

use crate::powercut::ledger::{CutApi, CutBody, CutKey, SentChange};
use crate::powercut::workload::{PAUSE_MAX, WorkloadPlan, now};

/// Keys of each type.
const KEYS: usize = 3;
/// Elements of a set that one writer adds and removes.
const ELEMENTS: usize = 6;

/// Sends changes of data types, one after the other.
pub struct DatatypeWriter {
    name: &'static str,
    client: HttpClient,
    plan: WorkloadPlan,
    random: SplitMix64,
}

impl DatatypeWriter {
    /// A writer over this client.
    pub fn new(name: &'static str, client: HttpClient, plan: WorkloadPlan, random: &mut SplitMix64) -> Self {
        Self { name, client, plan, random: SplitMix64::new(random.number()) }
    }

    /// Sends as many changes as the plan says.
    pub fn work(&mut self, changes: &Mutex<&mut Vec<SentChange>>) {
        for _ in 0..self.plan.changes {
            let buffered = self.random.below(5) < 2;
            let (own, shared) = (self.random.below(KEYS), self.random.below(KEYS));
            let (name, set) = (format!("{}-{own}", self.name), format!("w-{shared}"));
            let done = match self.random.below(9) {
                0 | 1 => self.increment(&name, buffered),
                2 => self.delete(&name),
                3 | 4 => self.update_map(&name, buffered),
                _ => self.edit_set(&set, buffered),
            };
            changes.lock().expect("no writer panics").push(done);
            thread::sleep(Duration::from_millis(self.random.below(PAUSE_MAX) as u64));
        }
    }

    /// Increments a counter; half of the increments have an id and are sent twice.
    fn increment(&mut self, name: &str, buffered: bool) -> SentChange {
        let key =
            CutKey { api: CutApi::Counter, bucket: "/types/counters/buckets/b".to_owned(), name: name.to_owned() };
        let by = 1 + self.random.below(9) as u64;
        let total = self.value(&key).as_u64().unwrap_or_default() + by;
        let id = (self.random.below(2) == 0).then(|| format!("{:x}", self.random.number()));
        self.send(key, Some(CutBody::number(total)), by.to_string(), id, buffered)
    }

    /// Deletes a counter, if it is there.
    fn delete(&mut self, name: &str) -> SentChange {
        let bucket = "/types/counters/buckets/b".to_owned();
        let target = format!("{bucket}/keys/{name}");
        let key = CutKey { api: CutApi::Counter, bucket, name: name.to_owned() };
        let sent = now();
        let status = self.client.delete(&target).status;
        assert!([204, 404].contains(&status), "DELETE {target}: {status}");
        SentChange { key, to: None, sent, answered: Some(now()), durable: self.plan.durable }
    }

    fn update_map(&mut self, name: &str, buffered: bool) -> SentChange {
        let key = CutKey { api: CutApi::Map, bucket: "/types/maps/buckets/b".to_owned(), name: name.to_owned() };
        let by = 1 + self.random.below(9) as u64;
        let total = self.value(&key)["n_counter"].as_u64().unwrap_or_default() + by;
        let body = format!(r#"{{"update":{{"n_counter":{by},"in_map":{{"update":{{"n_register":"{total}"}}}}}}}}"#);
        self.send(key, Some(CutBody::number(total)), body, None, buffered)
    }

    /// Adds an element that the set lacks, or removes one with the context of a read.
    fn edit_set(&mut self, name: &str, buffered: bool) -> SentChange {
        let element = format!("{}{}", self.name, self.random.below(ELEMENTS));
        let bucket = "/types/sets/buckets/b".to_owned();
        let seen = self.client.get(&format!("{bucket}/datatypes/{name}"));
        let seen = if seen.status == 200 { seen.json() } else { Value::Null };
        let has = seen["value"].as_array().is_some_and(|elements| elements.iter().any(|one| *one == *element));
        let (to, body) = match has {
            true => (None, format!(r#"{{"remove":"{element}","context":{}}}"#, seen["context"])),
            false => (Some(CutBody::number(1)), format!(r#"{{"add":"{element}"}}"#)),
        };
        let key = CutKey { api: CutApi::Element, bucket, name: format!("{name}?element={element}") };
        self.send(key, to, body, None, buffered)
    }

    /// The value of a key; null if there is none.
    fn value(&mut self, key: &CutKey) -> Value {
        let answer = self.client.get(&key.path());
        if answer.status == 404 { Value::Null } else { answer.expect(200).json()["value"].clone() }
    }

    /// Sends an update; with `buffered` the answer does not wait for the disk.
    fn send(
        &mut self,
        key: CutKey,
        to: Option<CutBody>,
        body: String,
        id: Option<String>,
        buffered: bool,
    ) -> SentChange {
        let target = format!("{}/datatypes/{}{}", key.bucket, key.listed_name(), if buffered { "?dw=0" } else { "" });
        let mut request = HttpRequest::post_json(&target, &body);
        if let Some(id) = &id {
            request = request.header("X-Larder-Request-Id", id);
        }
        let sent = now();
        for _ in 0..=usize::from(id.is_some()) {
            self.client.send(&request).expect(204);
        }
        SentChange { key, to, sent, answered: Some(now()), durable: self.plan.durable && !buffered }
    }
}
