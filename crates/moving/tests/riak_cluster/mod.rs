//! A stand-in for a Riak of three nodes with a replication queue on each, as far as a move uses it over HTTP: replicas that
//! agree a moment after a write, clocks with dots and epochs of keys, tombstones that are reaped, queues that overflow and that
//! a restart empties, answers that break off or lie, and nodes that are slow or refuse.

mod objects;
pub(crate) mod sink;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_moving::{SourceAnswer, SourceCall, SourceHttp, SourceRequest};
use larder_testkit::SplitMix64;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, sleep};

use crate::stand_in::{folded, found, key_headers, listing, plain};
use objects::{ClusterObject, ClusterValue};

/// Nodes, each with a replica of every key.
pub(crate) const NODES: usize = 3;
/// Elements of a queue that hold their object; later ones are references.
const QUEUED_OBJECTS_MAX: usize = 4;
/// The time after which a tombstone is reaped.
const REAP_AFTER: Duration = Duration::from_secs(3);

/// A bucket and a key.
pub(crate) type Place = (String, String);

/// Faults of requests, of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RiakFaults {
    /// Refused connections.
    pub(crate) refused: u32,
    /// Answers that break off.
    pub(crate) broken: u32,
    /// Elements with another byte, with a term that is cut, or of a GiB.
    pub(crate) damaged: u32,
    /// Answers that take seconds.
    pub(crate) slow: u32,
}

#[derive(Default)]
struct RiakNode {
    replicas: BTreeMap<Place, ClusterObject>,
    queue: VecDeque<QueuedElement>,
    /// Keys that it saw first.
    epochs: u32,
    discarded: u64,
    fetches: u64,
    down_until: Option<Instant>,
    /// Counts its restarts: an answer that was under way breaks off.
    run: u64,
}

#[derive(Clone)]
struct QueuedElement {
    place: Place,
    /// `None`: a reference.
    object: Option<ClusterObject>,
}

/// A write on its way to another replica.
struct ReplicatedWrite {
    due: Instant,
    node: usize,
    place: Place,
    object: ClusterObject,
}

struct RiakClusterState {
    nodes: Vec<RiakNode>,
    under_way: Vec<ReplicatedWrite>,
    random: SplitMix64,
    faults: RiakFaults,
    overflow: usize,
    has_queues: [bool; NODES],
    /// Whether folds over trees show clocks.
    has_trees: bool,
    /// The clocks that they show, where they are behind.
    old_trees: Option<BTreeMap<Place, String>>,
    deleted_at: BTreeMap<Place, Instant>,
    /// The values that each write replaced, and those that they had replaced.
    ancestors: BTreeMap<String, BTreeSet<String>>,
    /// Values that a deletion removed.
    deleted: BTreeSet<String>,
    requests: u64,
}

/// A cluster of Riak.
pub(crate) struct RiakCluster {
    state: Mutex<RiakClusterState>,
    /// Microseconds since 1970.
    now: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl RiakCluster {
    pub(crate) fn new(seed: u64, now: impl Fn() -> u64 + Send + Sync + 'static) -> Arc<Self> {
        let state = RiakClusterState {
            nodes: (0..NODES).map(|_| RiakNode::default()).collect(),
            under_way: Vec::new(),
            random: SplitMix64::new(seed),
            faults: RiakFaults::default(),
            overflow: 10_000_000,
            has_queues: [true; NODES],
            has_trees: seed.is_multiple_of(2),
            old_trees: None,
            deleted_at: BTreeMap::new(),
            ancestors: BTreeMap::new(),
            deleted: BTreeSet::new(),
            requests: 0,
        };
        Arc::new(Self { state: Mutex::new(state), now: Box::new(now) })
    }

    pub(crate) fn set_faults(&self, faults: RiakFaults) {
        self.state.lock().faults = faults;
    }

    /// Discards elements beyond so many of a queue.
    pub(crate) fn set_overflow(&self, elements: usize) {
        self.state.lock().overflow = elements;
    }

    pub(crate) fn set_queue(&self, node: usize, is_there: bool) {
        self.state.lock().has_queues[node] = is_there;
    }

    /// Switches the trees on, and leaves them behind all later writes.
    pub(crate) fn freeze_trees(&self) {
        let mut state = self.state.lock();
        state.has_trees = true;
        state.old_trees = Some(state.clocks());
    }

    /// Kills a node, which empties its queue and its counters; it refuses connections for a while.
    pub(crate) fn restart(&self, node: usize, down: Duration) {
        let mut state = self.state.lock();
        let node = &mut state.nodes[node];
        node.queue.clear();
        (node.discarded, node.fetches) = (0, 0);
        node.run += 1;
        node.down_until = Some(Instant::now() + down);
    }

    /// Whether a node takes writes.
    pub(crate) fn is_up(&self) -> bool {
        !self.state.lock().up().is_empty()
    }

    /// Elements in all queues.
    pub(crate) fn queued(&self) -> usize {
        self.state.lock().nodes.iter().map(|node| node.queue.len()).sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// A put: with the context of a read it replaces what that showed, else it is a sibling. Without a node it is refused.
    pub(crate) fn put(&self, place: &Place, text: &str, with_context: bool) {
        let value = |now| (text.to_owned(), now, false);
        self.write(place, with_context, value);
    }

    /// A put whose time is wrong: a year ahead.
    pub(crate) fn put_ahead(&self, place: &Place, text: &str) {
        self.write(place, true, |now| (text.to_owned(), now + 31_536_000_000_000, false));
    }

    /// A delete of a key that a read shows.
    pub(crate) fn delete(&self, place: &Place) {
        let is_live = self.state.lock().read(place, true).is_some_and(|object| object.is_live());
        if is_live {
            self.write(place, true, |now| (String::new(), now, true));
        }
    }

    fn write(&self, place: &Place, with_context: bool, value: impl FnOnce(u64) -> (String, u64, bool)) {
        let (text, modified, is_deleted) = value((self.now)());
        let mut state = self.state.lock();
        state.pass_on();
        let up = state.up();
        let Some(node) = (!up.is_empty()).then(|| *state.random.pick(&up)) else { return };
        let context = if with_context { state.read(place, false).map(|read| read.clock) } else { None };
        let mut object = state.nodes[node].replicas.get(place).cloned().unwrap_or_default();
        let actor = state.actor(node, &object);
        let vtag = format!("v{:016x}", state.random.number());
        let value = ClusterValue { text: text.clone(), dot: (Vec::new(), 0), modified, vtag, is_deleted };
        let replaced = object.write(&actor, context, value);
        let mut ancestors: BTreeSet<String> = replaced.iter().cloned().collect();
        ancestors.extend(replaced.iter().flat_map(|text| state.ancestors.get(text).cloned().unwrap_or_default()));
        match is_deleted {
            true => {
                state.deleted.extend(ancestors);
                state.deleted_at.insert(place.clone(), Instant::now());
            }
            false => drop(state.ancestors.insert(text, ancestors)),
        }
        state.store(node, place, &object);
        state.enqueue(node, place, object);
    }

    /// The live values of every key after all nodes agree, sorted.
    pub(crate) fn values(&self) -> BTreeMap<Place, Vec<String>> {
        let mut state = self.state.lock();
        state.pass_on();
        assert!(state.under_way.is_empty(), "the nodes have not agreed yet");
        let mut values = BTreeMap::new();
        for (place, object) in &state.nodes[0].replicas {
            let mut texts: Vec<_> = object.live().map(|value| value.text.clone()).collect();
            texts.sort();
            values.insert(place.clone(), texts);
        }
        values.retain(|_, texts| !texts.is_empty());
        values
    }

    /// Whether a value is one that this value, or a deletion, replaced at the source.
    pub(crate) fn is_replaced_by(&self, older: &str, newer: &str) -> bool {
        self.state.lock().ancestors.get(newer).is_some_and(|ancestors| ancestors.contains(older))
    }

    pub(crate) fn is_deleted(&self, text: &str) -> bool {
        self.state.lock().deleted.contains(text)
    }

    fn answer(&self, node: usize, call: &OwnedCall) -> Result<SourceAnswer, String> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.requests += 1;
        state.pass_on();
        if !state.up().contains(&node) || state.random.chance(state.faults.refused) {
            return Err("connection refused".into());
        }
        let is_broken = state.random.chance(state.faults.broken);
        let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
        let parts: Vec<String> =
            path.split('/').map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts[..] {
            ["", "ping"] => Ok(plain(200, "OK")),
            ["", "membership_request"] => {
                let node = r#"{"ip":"127.0.0.1","port":"18098"}"#;
                Ok(plain(200, &format!(r#"{{"up_nodes":[{}]}}"#, [node; NODES].join(","))))
            }
            ["", "stats"] => Ok(plain(200, &state.nodes[node].stats())),
            ["", "queuename", "larder"] if call.method == SourceRequest::Post => Ok(match state.has_queues[node] {
                true => plain(200, &format!("Queue larder: 0 0 {}", state.nodes[node].queue.len())),
                false => plain(400, "Queue name [108,97,114,100,101,114] not defined"),
            }),
            ["", "queuename", "larder"] => Ok(state.take(node, is_broken)),
            ["", "types", "default", "props"] | ["", "types", "default", "buckets", _, "props"] => {
                Ok(plain(200, r#"{"props":{"allow_mult":true,"precommit":[],"claimant":"riak@127.0.0.1"}}"#))
            }
            ["", "types", "default", "buckets"] => {
                let places = state.places();
                let names: BTreeSet<&str> = places.iter().map(|(bucket, _)| bucket.as_str()).collect();
                Ok(listing("buckets", &names.into_iter().collect::<Vec<_>>(), is_broken))
            }
            ["", "types", "default", "buckets", bucket, "keys"] => {
                let places = state.places();
                let of_bucket = places.iter().filter(|(other, _)| other == bucket);
                Ok(listing("keys", &of_bucket.map(|(_, key)| key.as_str()).collect::<Vec<_>>(), is_broken))
            }
            ["", "rangetrees", "buckets", bucket, "keysclocks"] => {
                let mut clocks = state.old_trees.clone().unwrap_or_else(|| state.clocks());
                clocks.retain(|(other, _), _| other == bucket && state.has_trees);
                Ok(folded(bucket, query, clocks.into_iter().map(|((_, key), clock)| (key, clock))))
            }
            ["", "types", "default", "buckets", bucket, "keys", key] => {
                let object = state.read(&(bucket.to_owned(), key.to_owned()), query.contains("notfound_ok=false"));
                Ok(wire::object(object.as_ref(), is_broken && call.method == SourceRequest::Get))
            }
            _ => Ok(plain(400, "unknown")),
        }
    }
}

impl RiakClusterState {
    /// Lets writes arrive at replicas, and reaps tombstones that all replicas have.
    fn pass_on(&mut self) {
        let now = Instant::now();
        for node in &mut self.nodes {
            node.down_until = node.down_until.filter(|until| *until > now);
        }
        let (due, later) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|write: &ReplicatedWrite| write.due <= now && self.nodes[write.node].down_until.is_none());
        self.under_way = later;
        for ReplicatedWrite { node, place, object, .. } in due {
            self.nodes[node].replicas.entry(place).or_default().merge(&object);
        }
        if self.up().len() < NODES {
            return;
        }
        let is_old = |at: &Instant| now >= *at + REAP_AFTER;
        let reaped: Vec<_> =
            self.deleted_at.iter().filter(|(_, at)| is_old(at)).map(|(place, _)| place.clone()).collect();
        for place in reaped {
            if self.under_way.iter().any(|write| write.place == place) {
                continue;
            }
            let is_tombstone = |node: &RiakNode| node.replicas.get(&place).is_none_or(|object| !object.is_live());
            if self.nodes.iter().all(is_tombstone) {
                self.nodes.iter_mut().for_each(|node| drop(node.replicas.remove(&place)));
            }
            self.deleted_at.remove(&place);
        }
    }

    fn up(&self) -> Vec<usize> {
        (0..NODES).filter(|node| self.nodes[*node].down_until.is_none()).collect()
    }

    /// The object that two replicas, or all, have together.
    fn read(&mut self, place: &Place, all: bool) -> Option<ClusterObject> {
        let mut nodes = self.up();
        if !all && nodes.len() == NODES {
            let left_out = self.random.below(NODES);
            nodes.remove(left_out);
        }
        let found: Vec<_> = nodes.iter().filter_map(|node| self.nodes[*node].replicas.get(place)).collect();
        let mut merged = (*found.first()?).clone();
        found.iter().skip(1).for_each(|object| merged.merge(object));
        Some(merged)
    }

    /// The actor of a node for a key: with an epoch when the node sees the key for the first time.
    fn actor(&mut self, node: usize, object: &ClusterObject) -> Vec<u8> {
        let base = [b"#\t\xfe\xf9\xe5\xba9".as_slice(), &[node as u8]].concat();
        if let Some(own) = object.clock.keys().find(|actor| actor.starts_with(&base)) {
            return own.clone();
        }
        if !object.clock.is_empty() {
            return base;
        }
        self.nodes[node].epochs += 1;
        [base, self.nodes[node].epochs.to_be_bytes().to_vec()].concat()
    }

    fn store(&mut self, node: usize, place: &Place, object: &ClusterObject) {
        self.nodes[node].replicas.insert(place.clone(), object.clone());
        for other in (0..NODES).filter(|other| *other != node) {
            let due = Instant::now() + Duration::from_millis(self.random.number_below(40));
            self.under_way.push(ReplicatedWrite { due, node: other, place: place.clone(), object: object.clone() });
        }
    }

    fn enqueue(&mut self, node: usize, place: &Place, object: ClusterObject) {
        if !self.has_queues[node] {
            return;
        }
        let (overflow, node) = (self.overflow, &mut self.nodes[node]);
        if node.queue.len() >= overflow {
            node.discarded += 1;
            return;
        }
        let object = Some(object).filter(|_| node.queue.len() < QUEUED_OBJECTS_MAX);
        node.queue.push_back(QueuedElement { place: place.clone(), object });
    }

    /// Takes an element: it is gone whatever becomes of the answer.
    fn take(&mut self, node: usize, is_broken: bool) -> SourceAnswer {
        self.nodes[node].fetches += 1;
        let taken = if self.has_queues[node] { self.nodes[node].queue.pop_front() } else { None };
        let Some(QueuedElement { place, object }) = taken else {
            return found(key_headers(&[("content-length", "1")]), 200, vec![0], is_broken);
        };
        let Some(object) = object.or_else(|| self.read(&place, true)) else {
            return plain(500, "<pre>{error,notfound}</pre>");
        };
        let mut answer = wire::element(&place, &object, self.random.chance(300));
        let mut length = answer.len() as u64;
        if self.random.chance(self.faults.damaged) {
            match self.random.below(3) {
                0 => {
                    let at = self.random.below(answer.len() - 2) + 2;
                    answer[at] ^= 1;
                }
                1 => answer = wire::cut_element(&place, &object),
                _ => length = 1 << 30,
            }
        }
        found(key_headers(&[("content-length", &length.to_string())]), 200, answer, is_broken)
    }

    /// The clock of each key, of any node that has it.
    fn clocks(&mut self) -> BTreeMap<Place, String> {
        let (up, mut clocks) = (self.up(), BTreeMap::new());
        for place in self.places() {
            let node = *self.random.pick(&up);
            let object = self.nodes[node].replicas.get(&place);
            clocks.extend(object.map(|object| wire::clock_text(&object.clock)).map(|clock| (place, clock)));
        }
        clocks
    }

    fn places(&self) -> BTreeSet<Place> {
        self.nodes.iter().flat_map(|node| node.replicas.keys().cloned()).collect()
    }
}

impl RiakNode {
    fn stats(&self) -> String {
        format!(
            r#"{{"ngrfetch_nofetch_total":{},"ngrfetch_prefetch_total":0,"ngrfetch_tofetch_total":0,"ngrrepl_srcdiscard_total":{}}}"#,
            self.fetches, self.discarded
        )
    }
}

/// A request, as the stand-in keeps it while it is slow.
struct OwnedCall {
    method: SourceRequest,
    path: String,
}

#[async_trait]
impl SourceHttp for RiakCluster {
    async fn send(&self, call: SourceCall<'_>) -> Result<SourceAnswer, String> {
        let rest = call.url.strip_prefix("http://node").unwrap();
        let (node, path) = rest.split_once(":8098").unwrap();
        let node: usize = node.parse().unwrap();
        let (time, run) = {
            let mut state = self.state.lock();
            let slow = state.faults.slow;
            let is_slow = state.random.chance(slow);
            (if is_slow { 2000 + state.random.number_below(4000) } else { 2 }, state.nodes[node].run)
        };
        let call = OwnedCall { method: call.method, path: path.to_owned() };
        // Answers take time, so that writes come in between.
        sleep(Duration::from_millis(time / 2)).await;
        let answer = self.answer(node, &call);
        sleep(Duration::from_millis(time.div_ceil(2))).await;
        match self.state.lock().nodes[node].run == run {
            true => answer,
            false => Err("connection reset".into()),
        }
    }
}
