//! The nodes and what is under way between them. Nothing here waits: a message is delivered by the first call that comes when it
//! is due, so that one seed makes one history.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::node::{Hint, Mutation, Node};
use super::paxos::Proposal;
use super::{Met, Serial, Setup, Weather};
use crate::wrappers::random::SplitMix64;
use crate::{Error, Kind, Level, Partition, Result, Table};

/// When a batch of the batch log counts as left behind.
const REPLAY_AFTER: Duration = Duration::from_secs(10);

/// Who has answered a write.
pub(super) type Answers = Arc<AtomicUsize>;

/// A write on its way to a replica.
struct Message {
    from: usize,
    to: usize,
    mutation: Arc<Mutation>,
    answers: Answers,
}

/// A write of several partitions that is done whatever happens to who asked for it.
struct Logged {
    due: Instant,
    mutations: Vec<Arc<Mutation>>,
}

/// Everything there is.
pub(super) struct State {
    pub(super) setup: Setup,
    pub(super) nodes: Vec<Node>,
    pub(super) weather: Weather,
    pub(super) random: SplitMix64,
    pub(super) met: Met,
    pub(super) ballot: u64,
    pub(super) proposals: BTreeMap<(usize, Partition), Proposal>,
    /// Whether nodes of different sides cannot reach each other.
    pub(super) cut: bool,
    messages: BTreeMap<(Instant, u64), Message>,
    batch_log: HashMap<u64, Logged>,
    sent: u64,
}

impl State {
    pub(super) fn new(setup: Setup, seed: u64) -> Self {
        Self {
            nodes: (0..setup.nodes).map(|_| Node::default()).collect(),
            setup,
            weather: Weather::calm(),
            random: SplitMix64::new(seed),
            met: Met::default(),
            ballot: 0,
            proposals: BTreeMap::new(),
            cut: false,
            messages: BTreeMap::new(),
            batch_log: HashMap::new(),
            sent: 0,
        }
    }

    /// Nodes that have copies of a partition: so many in each datacentre, in an order that begins anywhere.
    pub(super) fn replicas(&self, partition: &Partition) -> Vec<usize> {
        let per = self.setup.nodes / self.setup.datacentres;
        let mut hasher = DefaultHasher::new();
        partition.hash(&mut hasher);
        let first = (hasher.finish() % per as u64) as usize;
        let copies = usize::from(partition.n_val).min(per);
        let places =
            (0..self.setup.datacentres).flat_map(|at| (0..copies).map(move |copy| at * per + (first + copy) % per));
        places.collect()
    }

    /// Those of `nodes` that are in the datacentre of a gateway on this side.
    pub(super) fn local(&self, side: usize, nodes: &[usize]) -> Vec<usize> {
        let per = self.setup.nodes / self.setup.datacentres;
        nodes.iter().copied().filter(|node| node / per == side % self.setup.datacentres).collect()
    }

    /// Whether a gateway on this side reaches a node.
    pub(super) fn reaches(&self, side: usize, node: usize) -> bool {
        !self.nodes[node].down && (!self.cut || self.nodes[node].side == side)
    }

    /// Whether two nodes reach each other.
    fn linked(&self, one: usize, other: usize) -> bool {
        let sides = !self.cut || self.nodes[one].side == self.nodes[other].side;
        sides && !self.nodes[one].down && !self.nodes[other].down
    }

    /// The node that does the work for a gateway, with what a level asks for of the nodes `among`.
    pub(super) fn coordinate(&mut self, side: usize, among: &[usize], level: Level) -> Result<(usize, usize)> {
        let alive = among.iter().filter(|node| self.reaches(side, **node)).count();
        let required = required(level, among.len());
        let reached: Vec<usize> = (0..self.nodes.len()).filter(|node| self.reaches(side, *node)).collect();
        if reached.is_empty() || (alive < required && level != Level::Any) {
            let (alive, required) = (alive as u32, required as u32);
            return Err(Error::new(
                Kind::Unavailable { alive, required },
                format!("{alive} of {required} replicas are up"),
            ));
        }
        Ok((reached[self.random.below(reached.len() as u64) as usize], required))
    }

    /// So many of the nodes that are reached, in an order of this moment.
    pub(super) fn choose(&mut self, side: usize, among: &[usize], count: usize) -> Vec<usize> {
        let mut reached: Vec<usize> = among.iter().copied().filter(|node| self.reaches(side, *node)).collect();
        for at in (1..reached.len()).rev() {
            reached.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        reached.truncate(count);
        reached
    }

    /// How long a message takes.
    pub(super) fn delay(&mut self) -> Duration {
        Duration::from_millis(self.random.below(self.weather.delay_ms_max + 1))
    }

    /// Sends a mutation to a replica; what does not arrive becomes a hint.
    pub(super) fn send(&mut self, from: usize, to: usize, mutation: &Arc<Mutation>, answers: &Answers) {
        let due = Instant::now() + self.delay();
        self.sent += 1;
        let message = Message { from, to, mutation: mutation.clone(), answers: answers.clone() };
        self.messages.insert((due, self.sent), message);
    }

    /// Sends a mutation to all its replicas: nobody waits for them.
    pub(super) fn send_all(&mut self, from: usize, mutation: &Arc<Mutation>) -> Answers {
        let answers = Answers::default();
        for to in self.replicas(&mutation.partition) {
            self.send(from, to, mutation, &answers);
        }
        answers
    }

    /// Keeps a write for a replica that did not get it; whether it was kept.
    fn hint(&mut self, from: usize, to: usize, mutation: Arc<Mutation>) {
        let lost = self.random.chance(self.weather.hints_lost_per_mille);
        let late = self.random.below(self.weather.hint_ms_max + 1);
        if !lost && !self.nodes[from].down {
            let due = Instant::now() + Duration::from_millis(late);
            self.nodes[from].hints.push(Hint { due, to, mutation });
        }
    }

    /// Notes a batch that must be done; answers what to strike it out with.
    pub(super) fn log(&mut self, mutations: Vec<Arc<Mutation>>) -> u64 {
        self.sent += 1;
        self.batch_log.insert(self.sent, Logged { due: Instant::now() + REPLAY_AFTER, mutations });
        self.sent
    }

    pub(super) fn strike_out(&mut self, logged: u64) {
        self.batch_log.remove(&logged);
    }

    /// Does everything that is due.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        self.replay(now);
        while self.messages.first_key_value().is_some_and(|((due, _), _)| *due <= now) {
            if let Some((_, message)) = self.messages.pop_first() {
                self.deliver(message);
            }
        }
        self.hand_over(|hint| hint.due <= now);
        self.nodes.iter_mut().for_each(|node| node.sync(now));
    }

    fn deliver(&mut self, Message { from, to, mutation, answers }: Message) {
        let lost = from != to && self.random.chance(self.weather.lose_per_mille);
        if lost || !self.linked(from, to) {
            return self.hint(from, to, mutation);
        }
        self.nodes[to].take(&mutation, self.setup.syncs);
        // Its answer may be lost as well.
        if from == to || !self.random.chance(self.weather.lose_per_mille) {
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Delivers the hints that `wanted` names and that can be.
    pub(super) fn hand_over(&mut self, wanted: impl Fn(&Hint) -> bool) {
        for from in 0..self.nodes.len() {
            let hints = std::mem::take(&mut self.nodes[from].hints);
            for hint in hints {
                if wanted(&hint) && self.linked(from, hint.to) {
                    self.nodes[hint.to].take(&hint.mutation, self.setup.syncs);
                } else {
                    self.nodes[from].hints.push(hint);
                }
            }
        }
    }

    /// Does the batches of the log whose coordinators did not come back.
    fn replay(&mut self, now: Instant) {
        let Some(from) = (0..self.nodes.len()).find(|node| !self.nodes[*node].down) else { return };
        let mut due: Vec<u64> = self.batch_log.iter().filter(|(_, one)| one.due <= now).map(|(at, _)| *at).collect();
        due.sort_unstable();
        for logged in due {
            let Some(Logged { mutations, .. }) = self.batch_log.remove(&logged) else { continue };
            for mutation in mutations {
                self.send_all(from, &mutation);
            }
        }
    }

    /// The earliest moment at which something under way arrives, before `end`.
    pub(super) fn next_due(&self, end: Instant) -> Instant {
        self.messages.first_key_value().map_or(end, |((due, _), _)| (*due).min(end))
    }

    /// The first partition of a table behind `after` that a node knows which this side reaches.
    pub(super) fn next_partition(&self, side: usize, table: Table, after: Option<&Partition>) -> Option<Partition> {
        let first = Partition { table, n_val: 0, key: Bytes::new() };
        let from = after.map_or(Bound::Included(&first), Bound::Excluded);
        let reached = (0..self.nodes.len()).filter(|node| self.reaches(side, *node));
        let next = reached.filter_map(|node| self.nodes[node].partitions.range((from, Bound::Unbounded)).next());
        next.map(|(partition, _)| partition).min().filter(|partition| partition.table == table).cloned()
    }

    /// The nodes that vote on a swap of a partition from this side, and whose votes they are.
    pub(super) fn electorate(&self, side: usize, partition: &Partition) -> (usize, Vec<usize>) {
        let replicas = self.replicas(partition);
        match self.setup.serial {
            Serial::Global => (0, replicas),
            Serial::Local => (side % self.setup.datacentres, self.local(side, &replicas)),
        }
    }

    /// All that reach each other tell each other everything.
    pub(super) fn repair(&mut self) {
        for one in 0..self.nodes.len() {
            for other in 0..self.nodes.len() {
                if one != other && self.linked(one, other) {
                    self.teach(one, other);
                }
            }
        }
    }

    /// Tells one node what another knows of the partitions both have.
    fn teach(&mut self, teacher: usize, pupil: usize) {
        let known: Vec<Partition> = self.nodes[teacher].partitions.keys().cloned().collect();
        for partition in known {
            if !self.replicas(&partition).contains(&pupil) {
                continue;
            }
            let writes = self.nodes[teacher].cells(&partition).unknown_to(&self.nodes[pupil].cells(&partition));
            if !writes.is_empty() {
                self.nodes[pupil].take(&Arc::new(Mutation { partition, writes }), self.setup.syncs);
            }
        }
    }
}

/// Replicas of `copies` that a level asks for; no more than there are, as on one machine.
fn required(level: Level, copies: usize) -> usize {
    let required = match level {
        Level::Any | Level::One => 1,
        Level::Two => 2,
        Level::Three => 3,
        Level::Quorum => copies / 2 + 1,
        Level::All => copies,
    };
    required.min(copies)
}
