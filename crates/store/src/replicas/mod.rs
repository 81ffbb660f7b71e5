//! A cluster as Cassandra is one, in memory and out of one seed: the engine of the simulation of many machines.
//!
//! ```text
//! gateway ── Replicas::seen_from(side) ─┐                    rows with their tombstones    node 0   side 0
//! gateway ── Replicas::seen_from(side) ─┴── coordinator ──── a hint for who missed it      node 1   side 0
//!                                           (any node of                                   node 2   side 1
//!                                            that side)      batch log · Paxos
//!
//! write    sent to every replica; answered when as many as the level asks have taken it. Who misses it gets a hint.
//! read     from as many replicas as the level asks, any of them; what they know together, and each of them knows it then
//! batch    of several partitions: in the batch log first if it removes behind the first of them, otherwise side by side
//! swap     by a majority, one at a time, see [`paxos`]
//! ```
//! Between replicas the newer write wins, a removal wins a tie, then the greater value. What was removed leaves a tombstone on
//! each node until [`Replicas::purge`], and reads walk over it. [`Weather`] says what goes wrong by chance; a schedule kills
//! nodes, cuts the network, loses hints by hand. Time of messages is tokio's; that of expiry and tombstones is the clock's.
//!
//! It keeps no shadows: wrap it in [`crate::shadows::Shadowed`]. Reads of guarded partitions at a quorum or more are serial.

mod cells;
mod cluster;
mod node;
mod paxos;
mod reads;
mod verbs;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::{Clock, Partition, ReadQuery};

use cluster::State;

/// Whose majority decides swaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serial {
    /// That of all replicas.
    Global,
    /// That of the replicas in the gateway's datacentre.
    Local,
}

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Nodes in all; a partition is on `n_val` of them, in each datacentre.
    pub nodes: usize,
    /// Datacentres of equally many nodes, the first nodes in the first. A gateway's is its side.
    pub datacentres: usize,
    /// Whose majority decides swaps.
    pub serial: Serial,
    /// Largest value that gateways keep inside a row.
    pub inline_max: usize,
    /// Largest write of one partition, in bytes.
    pub mutation_max: usize,
    /// Largest batch that goes through the batch log, in bytes.
    pub logged_max: usize,
    /// Most tombstones a read walks over; with more it fails.
    pub tombstones_max: usize,
    /// Whether a range whose read fails is read in halves.
    pub halves: bool,
    /// Whether a write is on disk when it is answered; if not, ten seconds later.
    pub syncs: bool,
    /// Whether a read tells the replicas that it asked what they did not know.
    pub read_repair: bool,
}

/// How often things go wrong by chance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weather {
    /// Longest time a message is under way, in milliseconds.
    pub delay_ms_max: u64,
    /// How many of a thousand messages between nodes do not arrive.
    pub lose_per_mille: u32,
    /// How many of a thousand writes are left by their coordinator in the middle: it sends no more, and keeps no hints.
    pub stop_per_mille: u32,
    /// How many of a thousand hints are never delivered.
    pub hints_lost_per_mille: u32,
    /// Longest time a hint is kept once its node is back, in milliseconds.
    pub hint_ms_max: u64,
    /// How many of a thousand swaps are not answered, wherever they stopped.
    pub swaps_torn_per_mille: u32,
}

/// What reads have walked over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Met {
    /// Live rows.
    pub rows: usize,
    /// Rows that were removed or had expired.
    pub tombstones: usize,
}

/// One gateway's way to the cluster.
#[derive(Clone)]
pub struct Replicas {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
    side: usize,
}

impl Default for Setup {
    /// Three nodes set up as Cassandra is.
    fn default() -> Self {
        Self {
            nodes: 3,
            datacentres: 1,
            serial: Serial::Global,
            inline_max: 16 * 1024,
            mutation_max: 4 * 1024 * 1024,
            logged_max: 40 * 1024,
            tombstones_max: 100_000,
            halves: true,
            syncs: false,
            read_repair: true,
        }
    }
}

impl Weather {
    /// Nothing goes wrong.
    #[must_use]
    pub fn calm() -> Self {
        Self::default()
    }
}

impl Replicas {
    /// A cluster without rows. The way answered is on side 0.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, setup: Setup, seed: u64) -> Self {
        Self { clock, state: Arc::new(Mutex::new(State::new(setup, seed))), side: 0 }
    }

    /// The way of a gateway that is on this side of the network when it is cut.
    #[must_use]
    pub fn seen_from(&self, side: usize) -> Self {
        Self { side, ..self.clone() }
    }

    /// The way of somebody who judges expiry by a clock of his own, as nobody should.
    #[must_use]
    pub fn judged_by(&self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self.clone() }
    }

    /// From now on, this often.
    pub fn set_weather(&self, weather: Weather) {
        self.now_state().weather = weather;
    }

    /// Stops a node; it keeps what it knows.
    pub fn kill(&self, node: usize) {
        self.now_state().nodes[node].down = true;
    }

    /// Starts it again.
    pub fn revive(&self, node: usize) {
        self.now_state().nodes[node].down = false;
    }

    /// Cuts the network: node `i` is on side `sides[i]`, and sides do not reach each other.
    pub fn cut(&self, sides: &[usize]) {
        let mut state = self.now_state();
        state.cut = true;
        state.nodes.iter_mut().zip(sides).for_each(|(node, side)| node.side = *side);
    }

    /// Mends the network.
    pub fn heal(&self) {
        self.now_state().cut = false;
    }

    /// Delivers every hint that can be delivered.
    pub fn deliver_hints(&self) {
        self.now_state().hand_over(|_| true);
    }

    /// Forgets every hint, as nodes that were down for too long find them.
    pub fn lose_hints(&self) {
        self.now_state().nodes.iter_mut().for_each(|node| node.hints.clear());
    }

    /// Makes all nodes that reach each other know the same.
    pub fn repair(&self) {
        self.now_state().repair();
    }

    /// Lets a node forget tombstones that are older than `gc_grace`.
    pub fn purge(&self, node: usize, gc_grace: Duration) {
        let now = self.clock.now();
        let grace = u64::try_from(gc_grace.as_micros()).unwrap_or(u64::MAX);
        self.now_state().nodes[node].purge(now.saturating_sub(grace), now);
    }

    /// Cuts the power of every node: what is not on disk is gone.
    pub fn lose_power(&self) {
        let mut state = self.now_state();
        state.proposals.clear();
        state.nodes.iter_mut().for_each(node::Node::lose_power);
    }

    /// What reads have walked over since the last call.
    pub fn take_met(&self) -> Met {
        std::mem::take(&mut self.now_state().met)
    }

    /// What one node knows of a partition: rows that can be read, and others.
    #[must_use]
    pub fn kept(&self, node: usize, partition: &Partition) -> Met {
        let cells = self.now_state().nodes[node].cells(partition);
        let (rows, tombstones) = cells.met(&ReadQuery::all(usize::MAX), self.clock.now());
        Met { rows, tombstones }
    }

    /// The state, with everything done that is due.
    fn now_state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.tick();
        state
    }
}

#[cfg(test)]
mod tests;
