//! Starts a server on the files after a cut, and checks its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::harness::{Home, HttpClient, HttpRequest, HttpResponse, LarderNode, S3Client, element};

use crate::powercut::ledger::{CutApi, CutBody, CutKey, CutLedger, PossibleAfterCut, WallMicros, shortened};
use crate::powercut::record::args;
use crate::powercut::workload::{INDEX_FIELD, INDEX_HEADER};

/// A promise that a power cut must not break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// The server refuses to start.
    StartRefused,
    /// A key has neither its last durable change nor a later one.
    DurableWriteLost,
    /// A key with a durable value cannot be read.
    DurableKeyUnreadable,
    /// A key cannot be read; none of its values was durable.
    BufferedKeyUnreadable,
    /// A key has bytes that no client wrote.
    OtherBytes,
    /// A listing differs from the keys that can be read.
    Listing,
    /// An index differs from the terms of the objects that can be read.
    Index,
    /// The server refuses a write.
    NoWrite,
    /// The server panicked.
    Panicked,
}

/// A violation after a cut.
#[derive(Debug, Clone)]
pub struct CutFinding {
    /// The broken promise.
    pub violation: Violation,
    /// The key or the error, the expected value and the found one.
    pub text: String,
}

/// The bytes of bodies, by their seed and size.
pub struct BodyTable(BTreeMap<CutBody, Arc<Vec<u8>>>);

impl BodyTable {
    /// The bodies of a ledger.
    pub fn new(ledger: &CutLedger) -> Self {
        let made = ledger.changes.iter().filter_map(|change| change.to);
        Self(made.map(|made| (made, Arc::new(made.bytes()))).collect())
    }

    fn matches(&self, made: Option<CutBody>, found: Option<&[u8]>) -> bool {
        match (made, found) {
            (None, None) => true,
            (Some(made), Some(found)) => self.0.get(&made).is_some_and(|bytes| **bytes == found),
            _ => false,
        }
    }

    fn name(&self, found: &[u8]) -> String {
        let known = self.0.iter().find(|(_, bytes)| ***bytes == found).map(|(made, _)| made.to_string());
        known.unwrap_or_else(|| format!("{} bytes that no client wrote", found.len()))
    }
}

/// Checks the data of `home` after a cut at this time.
pub fn judge(home: Home, durable: bool, ledger: &CutLedger, bodies: &BodyTable, cut: WallMicros) -> Vec<CutFinding> {
    let mut findings = Vec::new();
    let node = match LarderNode::try_start(home, &args(durable)) {
        Ok(node) => node,
        Err(ended) => {
            let violation =
                if ended.stderr.contains("panicked") { Violation::Panicked } else { Violation::StartRefused };
            return vec![CutFinding { violation, text: shortened(ended.stderr.trim(), 400) }];
        }
    };
    let (client, s3, postings) = (node.client(), node.s3_admin(), BTreeMap::new());
    let mut judge = CutJudge { client, s3, bodies, postings, findings: &mut findings };
    let possible = ledger.possible(cut);
    let read: BTreeSet<&CutKey> =
        possible.iter().filter(|(key, possible)| judge.read(key, possible)).map(|(key, _)| *key).collect();
    judge.check_listings(&possible.keys().copied().collect(), &read);
    judge.check_indexes();
    judge.check_write();
    drop(judge.client);
    if node.log().contains("panicked") {
        findings.push(CutFinding { violation: Violation::Panicked, text: shortened(&node.log(), 400) });
    }
    drop(node);
    findings
}

/// A term with the key of its object.
type TermOfKey = (String, String);

struct CutJudge<'a> {
    client: HttpClient,
    s3: S3Client,
    bodies: &'a BodyTable,
    /// The keys that can be read, with their terms, by bucket.
    postings: BTreeMap<String, BTreeSet<TermOfKey>>,
    findings: &'a mut Vec<CutFinding>,
}

impl CutJudge<'_> {
    fn report(&mut self, violation: Violation, text: String) {
        self.findings.push(CutFinding { violation, text });
    }

    /// Reads; an interrupted answer has status 0.
    fn get(&mut self, api: CutApi, target: &str) -> HttpResponse {
        let answer = match api {
            CutApi::S3 => self.s3.try_call("GET", target, ""),
            _ => self.client.try_send(&HttpRequest::get(target)),
        };
        answer.unwrap_or_else(|error| HttpResponse { status: 0, headers: Vec::new(), body: error.to_string().into() })
    }

    /// Reads a key; returns whether it is present.
    fn read(&mut self, key: &CutKey, possible: &PossibleAfterCut) -> bool {
        let answer = self.get(key.api, &key.path());
        if ![200, 404].contains(&answer.status) {
            let violation =
                if possible.durable { Violation::DurableKeyUnreadable } else { Violation::BufferedKeyUnreadable };
            let (expected, status) = (expected(possible), answer.status);
            self.report(violation, format!("{key}: {expected}, found {status} {}", shortened(&answer.text(), 200)));
            return true;
        }
        let is_there = answer.status == 200;
        if key.api == CutApi::Kv {
            let postings = self.postings.entry(key.bucket.clone()).or_default();
            postings.extend(answer.header(INDEX_HEADER).map(|term| (term.to_owned(), key.name.clone())));
        }
        let (is_possible, found) = match key.api {
            CutApi::Kv | CutApi::S3 => {
                let found = is_there.then_some(answer.body.as_slice());
                let name = found.map_or_else(|| "nothing".to_owned(), |found| self.bodies.name(found));
                (possible.values.iter().any(|made| self.bodies.matches(*made, found)), name)
            }
            CutApi::Counter | CutApi::Element | CutApi::Map => match found_datatype(key.api, &answer) {
                Ok(found) => (possible.values.contains(&found), format!("{found:?}")),
                Err(text) => (false, text),
            },
        };
        if !is_possible {
            let violation =
                if found.contains("no client") { Violation::OtherBytes } else { Violation::DurableWriteLost };
            self.report(violation, format!("{key}: {}, found {found}", expected(possible)));
        }
        is_there
    }

    /// Checks that the listing of each bucket shows the keys that are present.
    fn check_listings(&mut self, keys: &BTreeSet<&CutKey>, read: &BTreeSet<&CutKey>) {
        let buckets: BTreeSet<(CutApi, &str)> = keys.iter().map(|key| (key.api, key.bucket.as_str())).collect();
        for (api, bucket) in buckets {
            let listed = self.listed(api, bucket);
            let there: BTreeSet<String> = read
                .iter()
                .filter(|key| (key.api, key.bucket.as_str()) == (api, bucket))
                .map(|key| key.listed_name().to_owned())
                .collect();
            match listed {
                Ok(listed) if listed == there => {}
                Ok(listed) => {
                    let missing: Vec<_> = there.difference(&listed).collect();
                    let besides: Vec<_> = listed.difference(&there).collect();
                    self.report(
                        Violation::Listing,
                        format!("{bucket}: not listed {missing:?}, listed but not there {besides:?}"),
                    );
                }
                Err(why) => self.report(Violation::Listing, format!("{bucket}: {why}")),
            }
        }
    }

    /// Checks that the index of each bucket has the terms of the objects that can be read, and no others.
    fn check_indexes(&mut self) {
        for (bucket, expected) in std::mem::take(&mut self.postings) {
            let answer =
                self.get(CutApi::Kv, &format!("{bucket}/index/{INDEX_FIELD}/0/{}?return_terms=true", u64::MAX));
            // A type that the cut took has no buckets, and no objects.
            let is_there = answer.status == 200;
            let results = if is_there { answer.json()["results"].as_array().cloned() } else { None };
            let results = results.unwrap_or_default();
            let posting = |result: &serde_json::Value| -> Option<TermOfKey> {
                let (term, key) = result.as_object()?.iter().next()?;
                Some((term.clone(), key.as_str()?.to_owned()))
            };
            let found: BTreeSet<TermOfKey> = results.iter().filter_map(posting).collect();
            if ![200, 404].contains(&answer.status) || found.len() != results.len() || found != expected {
                let missing: Vec<_> = expected.difference(&found).collect();
                let besides: Vec<_> = found.difference(&expected).collect();
                let status = answer.status;
                self.report(
                    Violation::Index,
                    format!("{bucket}: {status}, not found {missing:?}, left over {besides:?}"),
                );
            }
        }
    }

    fn listed(&mut self, api: CutApi, bucket: &str) -> Result<BTreeSet<String>, String> {
        let target = if api == CutApi::S3 { bucket.to_owned() } else { format!("{bucket}/keys?keys=true") };
        let answer = self.get(api, &target);
        let names: Vec<String> = match (answer.status, api) {
            (404, _) => Vec::new(),
            (200, CutApi::Kv | CutApi::Counter | CutApi::Element | CutApi::Map) => {
                let keys = answer.json()["keys"].as_array().cloned().unwrap_or_default();
                keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect()
            }
            (200, CutApi::S3) => answer
                .text()
                .split("<Contents>")
                .skip(1)
                .filter_map(|entry| element(entry, "Key"))
                .map(str::to_owned)
                .collect(),
            (status, _) => return Err(format!("{status} {}", shortened(&answer.text(), 200))),
        };
        let count = names.len();
        let once: BTreeSet<String> = names.into_iter().collect();
        if once.len() == count { Ok(once) } else { Err("keys are listed twice".to_owned()) }
    }

    /// Checks that the server takes a write and returns it.
    fn check_write(&mut self) {
        let url = "/buckets/after/keys/cut";
        let put = self.client.send(&HttpRequest::put(url, "written after the cut"));
        let got = self.client.get(url);
        if put.status != 204 || got.text() != "written after the cut" {
            let (put, got) = (shortened(&put.text(), 100), shortened(&got.text(), 100));
            self.report(Violation::NoWrite, format!("a PUT is answered {put}, the GET after it {got}"));
        }
    }
}

/// The value of a data type in an answer, as a writer's ledger has it.
fn found_datatype(api: CutApi, answer: &HttpResponse) -> Result<Option<CutBody>, String> {
    if answer.status == 404 {
        return Ok(None);
    }
    let json = answer.json();
    if api == CutApi::Element {
        return Ok((json["present"] == true).then_some(CutBody::number(1)));
    }
    let total = if api == CutApi::Map { &json["value"]["n_counter"] } else { &json["value"] };
    let register = json["value"]["in_map"]["n_register"].as_str().and_then(|text| text.parse().ok());
    if api == CutApi::Map && total.as_u64() != register {
        return Err(format!("half a batch, that no client wrote: {json}"));
    }
    total.as_u64().map(|total| Some(CutBody::number(total))).ok_or_else(|| format!("no client wrote {json}"))
}

fn expected(possible: &PossibleAfterCut) -> String {
    let names: Vec<String> =
        possible.values.iter().map(|made| made.map_or_else(|| "nothing".to_owned(), |made| made.to_string())).collect();
    let first = if possible.durable { "durable" } else { "at first" };
    format!("expected {} ({first}){}{}", names[0], if names.len() > 1 { " or " } else { "" }, names[1..].join(" or "))
}
