//! A stand-in for a cluster of Riak, as far as a move reads it over HTTP: vector clocks, siblings, tombstones that are reaped,
//! listings in parts, and faults: refused connections, overload, answers that break off, nodes with an older state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream};
use larder_core::rules::external_term::TermWriter;
use larder_moving::rules::SourceHeaders;
use larder_moving::{SourceAnswer, SourceCall, SourceHttp, SourceRequest};
use larder_testkit::SplitMix64;
use miniz_oxide::deflate::compress_to_vec;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

/// The vnodes that coordinate writes.
const ACTORS: u64 = 3;
/// The actor of a vnode has the number of the key's birth above this.
const EPOCH: u64 = 1 << 16;
/// Time between the year 0 and 1970, in seconds.
const YEAR_0: u64 = 62_167_219_200;

/// A value of a key.
#[derive(Debug, Clone)]
struct StandInValue {
    text: String,
    dot: (u64, u64),
    modified: u64,
}

/// A key: its clock, and its values; none for a tombstone.
#[derive(Debug, Clone, Default)]
struct StandInKey {
    clock: BTreeMap<u64, u64>,
    values: Vec<StandInValue>,
}

/// Whether folds over trees show clocks.
#[derive(Debug, Clone, Copy, Default)]
enum StandInTrees {
    /// An older Riak.
    #[default]
    Unknown,
    /// They are switched off: a fold shows nothing.
    Off,
    On,
}

#[derive(Default)]
struct StandInState {
    /// Bucket and key.
    keys: BTreeMap<(String, String), StandInKey>,
    /// The state of each key before the last one.
    older: BTreeMap<(String, String), StandInKey>,
    /// Requests of which so many of a thousand fail.
    faults: u32,
    random: Option<SplitMix64>,
    /// Keys that were made, also those made anew.
    births: u64,
    /// The bytes of keys of which the answer is no object.
    broken: Vec<String>,
    trees: StandInTrees,
}

/// A cluster of Riak.
pub(crate) struct StandIn {
    state: Mutex<StandInState>,
    /// Seconds since 1970.
    now: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl StandIn {
    pub(crate) fn new(seed: u64, faults: u32, now: impl Fn() -> u64 + Send + Sync + 'static) -> Arc<Self> {
        let trees = [StandInTrees::On, StandInTrees::Off, StandInTrees::Unknown][seed as usize % 3];
        let state = StandInState { faults, random: Some(SplitMix64::new(seed)), trees, ..StandInState::default() };
        Arc::new(Self { state: Mutex::new(state), now: Box::new(now) })
    }

    /// Fails so many of a thousand requests from now on.
    pub(crate) fn set_faults(&self, faults: u32) {
        self.state.lock().faults = faults;
    }

    /// Answers this key with what is no object.
    pub(crate) fn break_key(&self, key: &str) {
        self.state.lock().broken.push(key.to_owned());
    }

    pub(crate) fn mend_keys(&self) {
        self.state.lock().broken.clear();
    }

    /// A put: with the context of a read it replaces what that showed, else it is a sibling.
    pub(crate) fn put(&self, bucket: &str, key: &str, text: &str, with_context: bool) {
        let mut state = self.state.lock();
        let vnode = 1 + state.random.as_mut().unwrap().number_below(ACTORS);
        let place = (bucket.to_owned(), key.to_owned());
        let mut found = state.keys.get(&place).cloned().unwrap_or_default();
        // A key that is made anew has another epoch, so its clock is none of before.
        state.births += u64::from(found.clock.is_empty());
        let new = if found.clock.is_empty() { state.births * EPOCH + vnode } else { vnode };
        let actor = found.clock.keys().copied().find(|actor| actor % EPOCH == vnode).unwrap_or(new);
        state.older.insert(place.clone(), found.clone());
        let count = found.clock.entry(actor).or_default();
        *count += 1;
        let dot = (actor, *count);
        if with_context {
            found.values.clear();
        }
        found.values.push(StandInValue { text: text.to_owned(), dot, modified: (self.now)() });
        state.keys.insert(place, found);
    }

    /// A delete; some are reaped at once.
    pub(crate) fn delete(&self, bucket: &str, key: &str, reaped: bool) {
        let mut state = self.state.lock();
        let actor = 1 + state.random.as_mut().unwrap().number_below(ACTORS);
        let place = (bucket.to_owned(), key.to_owned());
        let Some(mut found) = state.keys.get(&place).cloned() else { return };
        state.older.insert(place.clone(), found.clone());
        *found.clock.entry(actor).or_default() += 1;
        found.values.clear();
        match reaped {
            true => drop(state.keys.remove(&place)),
            false => drop(state.keys.insert(place, found)),
        }
    }

    /// Removes all tombstones: later writes of their keys begin a clock of their own.
    pub(crate) fn reap(&self) {
        let mut state = self.state.lock();
        state.keys.retain(|_, key| !key.values.is_empty());
        state.older.clear();
    }

    /// The values of every live key, sorted.
    pub(crate) fn values(&self) -> BTreeMap<(String, String), Vec<String>> {
        let state = self.state.lock();
        let live = state.keys.iter().filter(|(_, key)| !key.values.is_empty());
        live.map(|(place, key)| {
            let mut texts: Vec<_> = key.values.iter().map(|value| value.text.clone()).collect();
            texts.sort();
            (place.clone(), texts)
        })
        .collect()
    }

    fn answer(&self, method: SourceRequest, path: &str) -> Result<SourceAnswer, String> {
        let mut state = self.state.lock();
        let faults = state.faults;
        let random = state.random.as_mut().unwrap();
        let (fault, is_stale) = (random.chance(faults).then(|| random.below(3)), random.chance(faults));
        match fault {
            Some(0) => return Err("connection refused".into()),
            Some(1) => return Ok(plain(503, "overload")),
            _ => {}
        }
        let breaks_off = fault.is_some();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<String> =
            path.split('/').map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts[..] {
            ["", "ping"] => Ok(plain(200, "OK")),
            ["", "types", "default", "props"] | ["", "types", "default", "buckets", _, "props"] => {
                Ok(plain(200, r#"{"props":{"allow_mult":true,"precommit":[],"claimant":"riak@127.0.0.1"}}"#))
            }
            ["", "types", _, "props"] => Ok(plain(404, "not found")),
            ["", "types", "default", "buckets"] => {
                let mut names: Vec<&str> = state.keys.keys().map(|(bucket, _)| bucket.as_str()).collect();
                names.dedup();
                Ok(listing("buckets", &names, breaks_off))
            }
            ["", "types", "default", "buckets", bucket, "keys"] => {
                let of_bucket = state.keys.keys().filter(|(other, _)| other == bucket);
                let names: Vec<&str> = of_bucket.map(|(_, key)| key.as_str()).collect();
                Ok(listing("keys", &names, breaks_off))
            }
            ["", "rangetrees", "buckets", bucket, "keysclocks"] => {
                let clocks: Vec<_> = match state.trees {
                    StandInTrees::Unknown => return Ok(plain(404, "not found")),
                    StandInTrees::Off => Vec::new(),
                    StandInTrees::On => {
                        let map = if is_stale { &state.older } else { &state.keys };
                        let of_bucket = map.iter().filter(|((other, _), key)| other == bucket && !key.clock.is_empty());
                        of_bucket.map(|((_, key), found)| (key.clone(), clock_text(&found.clock))).collect()
                    }
                };
                Ok(folded(bucket, query, clocks.into_iter()))
            }
            ["", "types", "default", "buckets", bucket, "keys", key] => {
                let place = (bucket.to_owned(), key.to_owned());
                if state.broken.contains(&place.1) && key == "proxied" {
                    return Ok(plain(404, "<html>no server</html>"));
                }
                if state.broken.contains(&place.1) && method == SourceRequest::Get {
                    let breaks_off = key == "cut";
                    return Ok(found(key_headers(&[("x-riak-vclock", "***")]), 200, b"x".to_vec(), breaks_off));
                }
                // A node that missed the last write; a strict read waits for the others.
                let is_stale = is_stale && !query.contains("notfound_ok=false");
                let map = if is_stale && state.older.contains_key(&place) { &state.older } else { &state.keys };
                Ok(object(map.get(&place), breaks_off && method == SourceRequest::Get))
            }
            _ => Ok(plain(400, "unknown")),
        }
    }
}

#[async_trait]
impl SourceHttp for StandIn {
    async fn send(&self, call: SourceCall<'_>) -> Result<SourceAnswer, String> {
        // Answers take time, so that writes come in between.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let path = call.url.strip_prefix("http://stand-in:8098").unwrap();
        self.answer(call.method, path)
    }
}

fn clock_text(clock: &BTreeMap<u64, u64>) -> String {
    let mut term = TermWriter::default();
    term.list(clock.len(), |term| {
        for (actor, count) in clock {
            term.tuple(2);
            term.binary(&actor.to_be_bytes());
            term.tuple(2);
            term.integer((*count).into());
            term.integer((YEAR_0 + 1_800_000_000 + count).into());
        }
    });
    STANDARD.encode(compress_to_vec(&term.finish(), 6))
}

fn object(key: Option<&StandInKey>, breaks_off: bool) -> SourceAnswer {
    let Some(key) = key.filter(|key| !key.clock.is_empty()) else { return plain(404, "not found") };
    let clock = clock_text(&key.clock);
    let date = |value: &StandInValue| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(value.modified));
    let tag = |value: &StandInValue| format!("{}-{}-{}", value.dot.0, value.dot.1, value.modified);
    match &key.values[..] {
        [] => {
            let headers = key_headers(&[("X-Riak-Vclock", &clock), ("X-Riak-Deleted", "true")]);
            found(headers, 404, b"not found".to_vec(), false)
        }
        [value] => {
            let headers = key_headers(&[
                ("X-Riak-Vclock", &clock),
                ("Content-Type", "text/plain"),
                ("ETag", &format!("\"{}\"", tag(value))),
                ("Last-Modified", &date(value)),
                ("x-riak-index-f_bin", &value.text),
            ]);
            found(headers, 200, value.text.clone().into_bytes(), breaks_off)
        }
        values => {
            let headers = key_headers(&[("X-Riak-Vclock", &clock), ("Content-Type", "multipart/mixed; boundary=B")]);
            let part = |value: &StandInValue| {
                format!(
                    "\r\n--B\r\nContent-Type: text/plain\r\nEtag: {}\r\nLast-Modified: {}\r\nx-riak-index-f_bin: {}\r\n\r\n{}",
                    tag(value),
                    date(value),
                    value.text,
                    value.text
                )
            };
            let body = values.iter().map(part).collect::<String>() + "\r\n--B--\r\n";
            found(headers, 300, body.into_bytes(), breaks_off)
        }
    }
}

/// A listing in parts of two names. One that breaks off has no end.
pub(crate) fn listing(member: &str, names: &[&str], breaks_off: bool) -> SourceAnswer {
    let part = |names: &[&str]| serde_json::json!({ member: names }).to_string();
    let mut text: String = names.chunks(2).map(part).collect::<String>() + &part(&[]);
    if breaks_off {
        text.truncate(text.len() / 2);
    }
    found(SourceHeaders::default(), 200, text.into_bytes(), breaks_off)
}

/// The answer of a fold to these clocks, as Riak's encoder shows a text, and the range of keys of its filter.
pub(crate) fn folded(bucket: &str, query: &str, clocks: impl Iterator<Item = (String, String)>) -> SourceAnswer {
    let filter = percent_decode_str(query.strip_prefix("filter=").unwrap()).collect::<Vec<_>>();
    let filter: serde_json::Value = serde_json::from_slice(&STANDARD.decode(filter).unwrap()).unwrap();
    let [start, end] = ["start", "end"].map(|bound| filter["key_range"][bound].as_str().unwrap().to_owned());
    let in_range = clocks.filter(|(key, _)| (&start..=&end).contains(&key));
    let shown = in_range
        .map(|(key, clock)| serde_json::json!({ "bucket": bucket, "key": key, "clock": clock.into_bytes() }))
        .collect::<Vec<_>>();
    plain(200, &serde_json::json!({ "keys-clocks": shown }).to_string())
}

pub(crate) fn plain(status: u16, text: &str) -> SourceAnswer {
    found(SourceHeaders::default(), status, text.as_bytes().to_vec(), false)
}

pub(crate) fn key_headers(lines: &[(&str, &str)]) -> SourceHeaders {
    let mut headers = SourceHeaders::default();
    lines.iter().for_each(|(name, value)| headers.add(name.as_bytes(), value.as_bytes()));
    headers
}

pub(crate) fn found(headers: SourceHeaders, status: u16, body: Vec<u8>, breaks_off: bool) -> SourceAnswer {
    let half = body.len() / 2;
    let mut pieces = vec![Ok(Bytes::from(body[..half].to_vec()))];
    pieces.push(match breaks_off {
        true => Err(BodyError("connection reset".into())),
        false => Ok(Bytes::from(body[half..].to_vec())),
    });
    SourceAnswer { status, headers, body: Box::new(Pieces(pieces.into())) }
}

struct Pieces(std::collections::VecDeque<Result<Bytes, BodyError>>);

#[async_trait]
impl ByteStream for Pieces {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        self.0.pop_front()
    }
}
