//! Starts a server on what a cut left, and says what is wrong with what it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_tests::{Client, Home, Node, Request, Response, S3, element};

use crate::ledger::{Api, Key, Ledger, Made, Micros, Possible, shortened};
use crate::record::args;

/// What a power cut must not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// The server refuses to start.
    StartRefused,
    /// A change that was answered as durable is not there, nor a later one.
    DurableWriteLost,
    /// A key with a durable value cannot be read.
    DurableKeyUnreadable,
    /// A key cannot be read; none of its values was durable.
    BufferedKeyUnreadable,
    /// A key has bytes that nobody wrote.
    OtherBytes,
    /// A listing shows other keys than those that can be read.
    Listing,
    /// The server does not take a write.
    NoWrite,
    /// The server panicked.
    Panicked,
}

/// Something wrong after a cut.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What it is.
    pub wrong: Wrong,
    /// About which key, or what was said; what was expected, what was found.
    pub text: String,
}

/// Bodies by what they are made from.
pub struct Bodies(BTreeMap<Made, Arc<Vec<u8>>>);

impl Bodies {
    /// Those that a ledger names.
    pub fn new(ledger: &Ledger) -> Self {
        let made = ledger.asked.iter().filter_map(|asked| asked.to);
        Self(made.map(|made| (made, Arc::new(made.bytes()))).collect())
    }

    fn is(&self, made: Option<Made>, found: Option<&[u8]>) -> bool {
        match (made, found) {
            (None, None) => true,
            (Some(made), Some(found)) => self.0.get(&made).is_some_and(|bytes| **bytes == found),
            _ => false,
        }
    }

    fn name(&self, found: &[u8]) -> String {
        let known = self.0.iter().find(|(_, bytes)| ***bytes == found).map(|(made, _)| made.to_string());
        known.unwrap_or_else(|| format!("{} bytes that nobody wrote", found.len()))
    }
}

/// Judges what is in `home` after a cut at this moment.
pub fn judge(home: Home, durable: bool, ledger: &Ledger, bodies: &Bodies, cut: Micros) -> Vec<Finding> {
    let mut findings = Vec::new();
    let node = match Node::try_start(home, &args(durable)) {
        Ok(node) => node,
        Err(ended) => {
            let wrong = if ended.stderr.contains("panicked") { Wrong::Panicked } else { Wrong::StartRefused };
            return vec![Finding { wrong, text: shortened(ended.stderr.trim(), 400) }];
        }
    };
    let mut judge = Judge { client: node.client(), s3: S3::admin(&node), bodies, findings: &mut findings };
    let possible = ledger.possible(cut);
    let read: BTreeSet<&Key> =
        possible.iter().filter(|(key, possible)| judge.read(key, possible)).map(|(key, _)| *key).collect();
    judge.list(&possible.keys().copied().collect(), &read);
    judge.write();
    drop(judge.client);
    if node.log().contains("panicked") {
        findings.push(Finding { wrong: Wrong::Panicked, text: shortened(&node.log(), 400) });
    }
    drop(node);
    findings
}

struct Judge<'a> {
    client: Client,
    s3: S3,
    bodies: &'a Bodies,
    findings: &'a mut Vec<Finding>,
}

impl Judge<'_> {
    fn finds(&mut self, wrong: Wrong, text: String) {
        self.findings.push(Finding { wrong, text });
    }

    /// Reads; an answer that breaks off has no status.
    fn get(&mut self, api: Api, target: &str) -> Response {
        let answer = match api {
            Api::Kv => self.client.try_send(&Request::get(target)),
            Api::S3 => self.s3.try_call("GET", target, ""),
        };
        answer.unwrap_or_else(|error| Response { status: 0, headers: Vec::new(), body: error.to_string().into() })
    }

    /// Reads a key; answers whether it is there.
    fn read(&mut self, key: &Key, possible: &Possible) -> bool {
        let between = if key.api == Api::Kv { "/keys/" } else { "/" };
        let answer = self.get(key.api, &format!("{}{between}{}", key.bucket, key.name));
        let found = match answer.status {
            200 => Some(answer.body.as_slice()),
            404 => None,
            status => {
                let wrong = if possible.durable { Wrong::DurableKeyUnreadable } else { Wrong::BufferedKeyUnreadable };
                let expected = expected(possible);
                self.finds(wrong, format!("{key}: {expected}, found {status} {}", shortened(&answer.text(), 200)));
                return true;
            }
        };
        if !possible.values.iter().any(|made| self.bodies.is(*made, found)) {
            let text = found.map_or_else(|| "nothing".to_owned(), |found| self.bodies.name(found));
            let wrong = if text.contains("nobody") { Wrong::OtherBytes } else { Wrong::DurableWriteLost };
            self.finds(wrong, format!("{key}: {}, found {text}", expected(possible)));
        }
        found.is_some()
    }

    /// The listing of each bucket shows the keys that are there.
    fn list(&mut self, keys: &BTreeSet<&Key>, read: &BTreeSet<&Key>) {
        let buckets: BTreeSet<(Api, &str)> = keys.iter().map(|key| (key.api, key.bucket.as_str())).collect();
        for (api, bucket) in buckets {
            let listed = self.listed(api, bucket);
            let there: BTreeSet<String> = read
                .iter()
                .filter(|key| (key.api, key.bucket.as_str()) == (api, bucket))
                .map(|key| key.name.clone())
                .collect();
            match listed {
                Ok(listed) if listed == there => {}
                Ok(listed) => {
                    let missing: Vec<_> = there.difference(&listed).collect();
                    let besides: Vec<_> = listed.difference(&there).collect();
                    self.finds(
                        Wrong::Listing,
                        format!("{bucket}: not listed {missing:?}, listed but not there {besides:?}"),
                    );
                }
                Err(why) => self.finds(Wrong::Listing, format!("{bucket}: {why}")),
            }
        }
    }

    fn listed(&mut self, api: Api, bucket: &str) -> Result<BTreeSet<String>, String> {
        let target = if api == Api::Kv { format!("{bucket}/keys?keys=true") } else { bucket.to_owned() };
        let answer = self.get(api, &target);
        let names: Vec<String> = match (answer.status, api) {
            (404, _) => Vec::new(),
            (200, Api::Kv) => {
                let keys = answer.json()["keys"].as_array().cloned().unwrap_or_default();
                keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect()
            }
            (200, Api::S3) => {
                answer.text().split("<Contents>").skip(1).filter_map(|entry| element(entry, "Key")).collect()
            }
            (status, _) => return Err(format!("{status} {}", shortened(&answer.text(), 200))),
        };
        let count = names.len();
        let once: BTreeSet<String> = names.into_iter().collect();
        if once.len() == count { Ok(once) } else { Err("keys are listed twice".to_owned()) }
    }

    /// The server takes a write and shows it.
    fn write(&mut self) {
        let url = "/buckets/after/keys/cut";
        let put = self.client.send(&Request::put(url, "written after the cut"));
        let got = self.client.get(url);
        if put.status != 204 || got.text() != "written after the cut" {
            let (put, got) = (shortened(&put.text(), 100), shortened(&got.text(), 100));
            self.finds(Wrong::NoWrite, format!("a PUT is answered {put}, the GET after it {got}"));
        }
    }
}

fn expected(possible: &Possible) -> String {
    let names: Vec<String> =
        possible.values.iter().map(|made| made.map_or_else(|| "nothing".to_owned(), |made| made.to_string())).collect();
    let first = if possible.durable { "durable" } else { "at first" };
    format!("expected {} ({first}){}{}", names[0], if names.len() > 1 { " or " } else { "" }, names[1..].join(" or "))
}
