//! The nodes and the messages between them. No code here waits: the first call after a message's due time delivers it.
//! So one seed makes one history.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::node::{Hint, ReplicaMutation, ReplicaNode};
use super::paxos::Proposal;
use super::{ClusterSetup, NetworkFaults, ScanCounts, SerialScope};
use crate::SplitMix64;
use larder_store::{ConsistencyLevel, Error, Kind, Partition, Result, Table};

/// Age after which the batch log replays a batch that its coordinator left.
const REPLAY_AFTER: Duration = Duration::from_secs(10);

/// Number of replicas that have acknowledged a write.
pub(super) type AckCount = Arc<AtomicUsize>;

/// A write on its way to a replica.
struct Message {
    from: usize,
    to: usize,
    mutation: Arc<ReplicaMutation>,
    answers: AckCount,
}

/// A batch of several partitions in the batch log: it is applied even if its coordinator dies.
struct LoggedBatch {
    due: Instant,
    mutations: Vec<Arc<ReplicaMutation>>,
}

/// The whole simulated cluster.
pub(super) struct ReplicasState {
    pub(super) setup: ClusterSetup,
    pub(super) nodes: Vec<ReplicaNode>,
    pub(super) faults: NetworkFaults,
    pub(super) random: SplitMix64,
    pub(super) scanned: ScanCounts,
    pub(super) ballot: u64,
    pub(super) proposals: BTreeMap<(usize, Partition), Proposal>,
    /// Whether nodes of different sides are disconnected.
    pub(super) cut: bool,
    messages: BTreeMap<(Instant, u64), Message>,
    batch_log: HashMap<u64, LoggedBatch>,
    sent: u64,
}

impl ReplicasState {
    pub(super) fn new(setup: ClusterSetup, seed: u64) -> Self {
        Self {
            nodes: (0..setup.nodes).map(|_| ReplicaNode::default()).collect(),
            setup,
            faults: NetworkFaults::none(),
            random: SplitMix64::new(seed),
            scanned: ScanCounts::default(),
            ballot: 0,
            proposals: BTreeMap::new(),
            cut: false,
            messages: BTreeMap::new(),
            batch_log: HashMap::new(),
            sent: 0,
        }
    }

    /// Replicas of a partition: as many in each datacentre, in a ring order that starts at a hashed position.
    pub(super) fn replicas(&self, partition: &Partition) -> Vec<usize> {
        let per = self.setup.nodes / self.setup.datacentres;
        let mut hasher = DefaultHasher::new();
        partition.hash(&mut hasher);
        let first = (hasher.finish() % per as u64) as usize;
        // A datacentre with fewer nodes than n_val has fewer copies.
        let copies = usize::from(partition.copies).min(per);
        let places =
            (0..self.setup.datacentres).flat_map(|at| (0..copies).map(move |copy| at * per + (first + copy) % per));
        places.collect()
    }

    /// Those of `nodes` in the datacentre of a gateway on this side.
    pub(super) fn datacentre_side(&self, side: usize, nodes: &[usize]) -> Vec<usize> {
        let per = self.setup.nodes / self.setup.datacentres;
        nodes.iter().copied().filter(|node| node / per == side % self.setup.datacentres).collect()
    }

    pub(super) fn is_any_down(&self) -> bool {
        self.nodes.iter().any(|node| node.down)
    }

    /// Whether a gateway on this side reaches a node.
    pub(super) fn can_reach(&self, side: usize, node: usize) -> bool {
        !self.nodes[node].down && (!self.cut || self.nodes[node].side == side)
    }

    /// Whether two nodes reach each other.
    fn are_connected(&self, one: usize, other: usize) -> bool {
        let sides = !self.cut || self.nodes[one].side == self.nodes[other].side;
        sides && !self.nodes[one].down && !self.nodes[other].down
    }

    /// Chooses a coordinator for a gateway, and computes how many of the nodes `among` the level requires.
    pub(super) fn choose_coordinator(
        &mut self,
        side: usize,
        among: &[usize],
        level: ConsistencyLevel,
    ) -> Result<(usize, usize)> {
        let alive = among.iter().filter(|node| self.can_reach(side, **node)).count();
        let required = required(level, among.len());
        let reached: Vec<usize> = (0..self.nodes.len()).filter(|node| self.can_reach(side, *node)).collect();
        // Refused before any message is sent: an unavailable write is on no node.
        if reached.is_empty() || (alive < required && level != ConsistencyLevel::Any) {
            let (alive, required) = (alive as u32, required as u32);
            return Err(Error::new(
                Kind::Unavailable { alive, required },
                format!("{alive} of {required} replicas are up"),
            ));
        }
        Ok((reached[self.random.below(reached.len())], required))
    }

    /// Chooses `count` of the nodes that the gateway reaches, in random order.
    pub(super) fn choose(&mut self, side: usize, among: &[usize], count: usize) -> Vec<usize> {
        let mut reached: Vec<usize> = among.iter().copied().filter(|node| self.can_reach(side, *node)).collect();
        // Fisher-Yates with the seeded generator, so that one seed makes one history.
        for at in (1..reached.len()).rev() {
            reached.swap(at, self.random.below(at + 1));
        }
        reached.truncate(count);
        reached
    }

    /// Draws the delay of a message.
    pub(super) fn delay(&mut self) -> Duration {
        Duration::from_millis(self.random.number_below(self.faults.delay_ms_max + 1))
    }

    /// Sends a mutation to a replica; a message that does not arrive becomes a hint.
    pub(super) fn send(&mut self, from: usize, to: usize, mutation: &Arc<ReplicaMutation>, answers: &AckCount) {
        let due = Instant::now() + self.delay();
        self.sent += 1;
        let message = Message { from, to, mutation: mutation.clone(), answers: answers.clone() };
        self.messages.insert((due, self.sent), message);
    }

    /// Sends a mutation to all its replicas without waiting for them.
    pub(super) fn send_all(&mut self, from: usize, mutation: &Arc<ReplicaMutation>) -> AckCount {
        let answers = AckCount::default();
        for to in self.replicas(&mutation.partition) {
            self.send(from, to, mutation, &answers);
        }
        answers
    }

    /// Keeps a hint for a replica that missed a write, unless the hint is lost too.
    fn hint(&mut self, from: usize, to: usize, mutation: Arc<ReplicaMutation>) {
        let lost = self.random.chance(self.faults.hints_lost_per_mille);
        let late = self.random.number_below(self.faults.hint_ms_max + 1);
        // The hint lives on the coordinator: if that is down, the hint is lost with it.
        if !lost && !self.nodes[from].down {
            let due = Instant::now() + Duration::from_millis(late);
            self.nodes[from].hints.push(Hint { due, to, mutation });
        }
    }

    /// Writes a batch to the batch log; answers its number there.
    pub(super) fn log_batch(&mut self, mutations: Vec<Arc<ReplicaMutation>>) -> u64 {
        self.sent += 1;
        self.batch_log.insert(self.sent, LoggedBatch { due: Instant::now() + REPLAY_AFTER, mutations });
        self.sent
    }

    pub(super) fn remove_logged(&mut self, logged: u64) {
        self.batch_log.remove(&logged);
    }

    /// Delivers every message, hint and sync that is due.
    pub(super) fn deliver_due(&mut self) {
        let now = Instant::now();
        // The order of these steps is fixed, so that one seed makes one history.
        self.replay(now);
        while self.messages.first_key_value().is_some_and(|((due, _), _)| *due <= now) {
            if let Some((_, message)) = self.messages.pop_first() {
                self.deliver(message);
            }
        }
        self.deliver_hints_if(|hint| hint.due <= now);
        self.nodes.iter_mut().for_each(|node| node.sync(now));
    }

    fn deliver(&mut self, Message { from, to, mutation, answers }: Message) {
        let lost = from != to && self.random.chance(self.faults.lose_per_mille);
        if lost || !self.are_connected(from, to) {
            return self.hint(from, to, mutation);
        }
        // The write is applied before its acknowledgement, which may be lost.
        self.nodes[to].take(&mutation, self.setup.syncs);
        // The replica has written; its acknowledgement may be lost as well.
        if from == to || !self.random.chance(self.faults.lose_per_mille) {
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Delivers the hints that `wanted` selects and whose nodes reach each other.
    pub(super) fn deliver_hints_if(&mut self, wanted: impl Fn(&Hint) -> bool) {
        for from in 0..self.nodes.len() {
            let hints = std::mem::take(&mut self.nodes[from].hints);
            for hint in hints {
                if wanted(&hint) && self.are_connected(from, hint.to) {
                    self.nodes[hint.to].take(&hint.mutation, self.setup.syncs);
                } else {
                    self.nodes[from].hints.push(hint);
                }
            }
        }
    }

    /// Replays the batches of the log whose coordinators died.
    fn replay(&mut self, now: Instant) {
        let Some(from) = (0..self.nodes.len()).find(|node| !self.nodes[*node].down) else { return };
        let mut due: Vec<u64> = self.batch_log.iter().filter(|(_, one)| one.due <= now).map(|(at, _)| *at).collect();
        // The order of a hash map differs between runs; the order of numbers does not.
        due.sort_unstable();
        for logged in due {
            // Removed from the log first: the messages or their hints deliver the batch from here on.
            let Some(LoggedBatch { mutations, .. }) = self.batch_log.remove(&logged) else { continue };
            for mutation in mutations {
                self.send_all(from, &mutation);
            }
        }
    }

    /// The due time of the next message, at most `end`.
    pub(super) fn next_due(&self, end: Instant) -> Instant {
        self.messages.first_key_value().map_or(end, |((due, _), _)| (*due).min(end))
    }

    /// The first partition of a table after `after` on any node that this side reaches.
    pub(super) fn next_partition(&self, side: usize, table: Table, after: Option<&Partition>) -> Option<Partition> {
        let first = Partition { table, copies: 0, key: Bytes::new() };
        let from = after.map_or(Bound::Included(&first), Bound::Excluded);
        let reached = (0..self.nodes.len()).filter(|node| self.can_reach(side, *node));
        let next = reached.filter_map(|node| self.nodes[node].partitions.range((from, Bound::Unbounded)).next());
        next.map(|(partition, _)| partition).min().filter(|partition| partition.table == table).cloned()
    }

    /// The replicas that vote on a compare-and-set from this side, and the number of their group.
    pub(super) fn voters(&self, side: usize, partition: &Partition) -> (usize, Vec<usize>) {
        let replicas = self.replicas(partition);
        match self.setup.serial {
            SerialScope::Global => (0, replicas),
            SerialScope::Local => (side % self.setup.datacentres, self.datacentre_side(side, &replicas)),
        }
    }

    /// Exchanges all cells between nodes that reach each other.
    pub(super) fn repair(&mut self) {
        for one in 0..self.nodes.len() {
            for other in 0..self.nodes.len() {
                if one != other && self.are_connected(one, other) {
                    self.copy_missing(one, other);
                }
            }
        }
    }

    /// Copies the cells that one node has and another one misses, for partitions that both hold.
    fn copy_missing(&mut self, from: usize, to: usize) {
        let known: Vec<Partition> = self.nodes[from].partitions.keys().cloned().collect();
        for partition in known {
            if !self.replicas(&partition).contains(&to) {
                continue;
            }
            let writes = self.nodes[from].cells(&partition).missing_in(&self.nodes[to].cells(&partition));
            if !writes.is_empty() {
                self.nodes[to].take(&Arc::new(ReplicaMutation { partition, writes }), self.setup.syncs);
            }
        }
    }
}

/// Replicas that a level requires, at most `copies`.
fn required(level: ConsistencyLevel, copies: usize) -> usize {
    let required = match level {
        ConsistencyLevel::Any | ConsistencyLevel::One => 1,
        ConsistencyLevel::Two => 2,
        ConsistencyLevel::Three => 3,
        ConsistencyLevel::Quorum => copies / 2 + 1,
        ConsistencyLevel::All => copies,
    };
    required.min(copies)
}
