//! The server is killed under load many times: no acknowledged write is lost, no key becomes unreadable, and
//! the index finds each key by the term of its value alone.
//!
//! Each writer owns its keys, so a key has at most two possible values: the last acknowledged one, and the one whose answer the
//! kill cut off. `LARDER_TEST_SCALE=soak` runs 200 rounds instead of 4.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{HttpClient, HttpRequest, LarderNode, Scale, SplitMix64, figure};

const WRITERS: u64 = 4;
const OVERWRITTEN_KEYS: usize = 12;
/// The least size of a large body, whose key is deleted two rounds later, so that a soak fits on a disk.
const LARGE: usize = 100 * 1024;

/// A body by its seed and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeededBody {
    seed: u64,
    size: usize,
}

impl SeededBody {
    fn bytes(self) -> Vec<u8> {
        SplitMix64::new(self.seed).bytes(self.size)
    }

    /// The index term of its object.
    fn term(self) -> String {
        format!("{:016x}", self.seed)
    }
}

/// The values that a key may hold; `None` is no object.
#[derive(Debug, Clone, Default)]
struct PossibleValues {
    acknowledged: Option<SeededBody>,
    /// The value of a request without an answer.
    in_flight: Option<Option<SeededBody>>,
}

impl PossibleValues {
    fn matching(&self, found: Option<&[u8]>) -> Result<Option<SeededBody>, String> {
        let candidates = std::iter::once(self.acknowledged).chain(self.in_flight);
        for candidate in candidates {
            match (candidate, found) {
                (None, None) => return Ok(None),
                (Some(made), Some(bytes)) if made.bytes() == bytes => return Ok(Some(made)),
                _ => {}
            }
        }
        let length = found.map(<[u8]>::len);
        Err(format!("acknowledged {:?}, in flight {:?}, found {length:?} bytes", self.acknowledged, self.in_flight))
    }
}

/// The keys of one writer.
#[derive(Debug, Default)]
struct WriterLedger {
    keys: BTreeMap<String, PossibleValues>,
    large: Vec<String>,
    acknowledged: u64,
}

impl WriterLedger {
    /// Writes until the server does not answer.
    fn write(&mut self, client: &mut HttpClient, random: &mut SplitMix64, prefix: &str, stop: &AtomicBool) {
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let overwrite = random.below(3) == 0;
            let size = size(random);
            let key = if overwrite {
                format!("{}-again-{}", writer_of(prefix), random.below(OVERWRITTEN_KEYS))
            } else {
                format!("{prefix}-{number}")
            };
            let made = SeededBody { seed: random.number(), size };
            if size >= LARGE && !overwrite {
                self.large.push(key.clone());
            }
            let request = HttpRequest::put(&format!("/buckets/kill/keys/{key}"), made.bytes());
            let request = request.header("X-Riak-Index-seed_bin", &made.term());
            if !self.send(client, &key, &request, Some(made), 204) {
                return;
            }
        }
    }

    /// Sends one change; `false` when there was no answer.
    fn send(
        &mut self,
        client: &mut HttpClient,
        key: &str,
        request: &HttpRequest,
        to: Option<SeededBody>,
        status: u16,
    ) -> bool {
        let may = self.keys.entry(key.to_owned()).or_default();
        may.in_flight = Some(to);
        match client.try_send(request) {
            Ok(response) if response.status == status => {
                *may = PossibleValues { acknowledged: to, in_flight: None };
                self.acknowledged += 1;
                true
            }
            Ok(response) => panic!("{key}: {} {}", response.status, response.text()),
            Err(_) => false,
        }
    }

    /// Reads `keys` back, keeps the value that each holds, and returns the errors.
    fn verify(&mut self, client: &mut HttpClient, keys: &[String]) -> Vec<String> {
        let mut wrong = Vec::new();
        for key in keys {
            let response = client.get(&format!("/buckets/kill/keys/{key}"));
            let may = self.keys.get_mut(key).expect("it was written");
            let found = match response.status {
                200 => Some(response.body.as_slice()),
                404 => None,
                status => {
                    wrong.push(format!("{key}: {status} {}", response.text()));
                    continue;
                }
            };
            match may.matching(found) {
                Ok(made) => *may = PossibleValues { acknowledged: made, in_flight: None },
                Err(what) => wrong.push(format!("{key}: {what}")),
            }
        }
        wrong
    }

    /// The keys to read after a round: those that the round wrote, and a sample of the rest.
    fn to_verify(&self, prefix: &str, random: &mut SplitMix64, everything: bool) -> Vec<String> {
        let recent = |key: &str, may: &PossibleValues| {
            key.starts_with(prefix) || key.contains("-again-") || may.in_flight.is_some()
        };
        let sample = |random: &mut SplitMix64| everything || random.below(20) == 0;
        let keys = self.keys.iter().filter(|(key, may)| recent(key, may) || sample(random));
        keys.map(|(key, _)| key.clone()).collect()
    }

    fn delete_large(&mut self, client: &mut HttpClient) {
        for key in std::mem::take(&mut self.large) {
            if self.keys.get(&key).is_some_and(|may| may.acknowledged.is_some()) {
                let request = HttpRequest::new("DELETE", &format!("/buckets/kill/keys/{key}"));
                assert!(self.send(client, &key, &request, None, 204), "{key} is not deleted");
            }
        }
    }
}

fn writer_of(prefix: &str) -> &str {
    prefix.split('-').next().unwrap_or(prefix)
}

/// A random size: mostly small, some beside their table, some larger than a row holds, a few large.
fn size(random: &mut SplitMix64) -> usize {
    match random.below(100) {
        0 => 2 * 1024 * 1024,
        1..=6 => LARGE,
        7..=26 => 2048 + random.below(60_000),
        _ => 1 + random.below(2000),
    }
}

#[test]
fn every_acknowledged_write_survives_a_kill() {
    let rounds = Scale::current().pick(4, 200);
    let mut random = SplitMix64::from_environment("kill9");
    let mut node = LarderNode::start(&[]);
    let mut ledgers: Vec<WriterLedger> = (0..WRITERS).map(|_| WriterLedger::default()).collect();
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let pause = Duration::from_millis(150 + random.below(1000) as u64);
        node.kill_under(pause, &mut random, &mut ledgers, |writer, ledger, client, random, stop| {
            ledger.write(client, random, &format!("w{writer}-r{round}"), stop);
        });
        let start = Instant::now();
        node.restart();
        slowest = slowest.max(start.elapsed());
        let everything = round + 1 == rounds;
        let wrong = verify(&node, &mut ledgers, round, &mut random, everything);
        assert!(wrong.is_empty(), "round {round}: {} wrong\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
        if round % 2 == 1 {
            ledgers.iter_mut().for_each(|ledger| ledger.delete_large(&mut node.client()));
        }
    }
    let writes: u64 = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    figure("kill -9 rounds", &rounds.to_string());
    figure("kill -9 acknowledged writes, all there", &writes.to_string());
    figure("kill -9 slowest restart, ms", &slowest.as_millis().to_string());
    assert!(writes > rounds * 20, "only {writes} writes: too few to test anything");
}

/// The errors after a restart, in the keys and in their listing.
fn verify(
    node: &LarderNode,
    ledgers: &mut [WriterLedger],
    round: u64,
    random: &mut SplitMix64,
    everything: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (writer, ledger) in ledgers.iter_mut().enumerate() {
        let keys = ledger.to_verify(&format!("w{writer}-r{round}-"), random, everything);
        wrong.extend(ledger.verify(&mut node.client(), &keys));
    }
    let listed = list(node);
    let once: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    if once.len() != listed.len() {
        wrong.push(format!("{} keys are listed twice", listed.len() - once.len()));
    }
    let all = || ledgers.iter().flat_map(|ledger| &ledger.keys);
    for (key, may) in all().filter(|(_, may)| may.in_flight.is_none()) {
        match (may.acknowledged.is_some(), once.contains(key.as_str())) {
            (true, false) => {
                // Tells a listing that missed an entry from an entry that is lost.
                let (read, next) = (node.client().get(&format!("/buckets/kill/keys/{key}")).status, list(node));
                let next = if next.contains(key) { "has" } else { "lacks" };
                wrong
                    .push(format!("{key} is stored but not listed; a read answers {read}, the next listing {next} it"));
            }
            (false, true) => wrong.push(format!("{key} is listed but not stored")),
            _ => {}
        }
    }
    let terms = terms(node);
    for (key, may) in all().filter(|(_, may)| may.in_flight.is_none()) {
        let wanted: Vec<String> = may.acknowledged.iter().map(|made| made.term()).collect();
        let found = terms.get(key).cloned().unwrap_or_default();
        if found != wanted {
            wrong.push(format!("{key} is found by the terms {found:?} instead of {wanted:?}"));
        }
    }
    let known: BTreeSet<&str> = all().map(|(key, _)| key.as_str()).collect();
    wrong.extend(once.difference(&known).map(|key| format!("{key} is listed but was never written")));
    wrong
}

fn list(node: &LarderNode) -> Vec<String> {
    let listing = node.client().get("/buckets/kill/keys?keys=true").expect(200).json();
    listing["keys"].as_array().expect("keys").iter().filter_map(|key| key.as_str()).map(str::to_owned).collect()
}

/// The terms by which the index finds each key.
fn terms(node: &LarderNode) -> BTreeMap<String, Vec<String>> {
    let found = node.client().get("/buckets/kill/index/seed_bin/0/g?return_terms=true").expect(200).json();
    let mut terms = BTreeMap::<String, Vec<String>>::new();
    for result in found["results"].as_array().expect("results") {
        for (term, key) in result.as_object().expect("a term and its key") {
            terms.entry(key.as_str().expect("a key").to_owned()).or_default().push(term.clone());
        }
    }
    terms
}
