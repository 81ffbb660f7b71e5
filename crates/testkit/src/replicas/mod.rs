//! A simulated Cassandra cluster in memory, driven by one seed: the engine for simulations of several nodes.
//!
//! ```text
//! gateway ── Replicas::from_side(side) ─┐                    rows with their tombstones    node 0   side 0
//! gateway ── Replicas::from_side(side) ─┴── coordinator ──── hints for missed writes       node 1   side 0
//!                                           (any node of                                   node 2   side 1
//!                                            that side)      batch log · Paxos
//!
//! write    sent to every replica; answered when as many as the level requires have written it; a missed write is a hint
//! read     from as many replicas as the level requires, any of them; merged, and written back to those (read repair)
//! batch    of several partitions: through the batch log if it removes outside the first one, otherwise side by side;
//!          while a node is down, and below a quorum, the removals follow without the log
//! CAS      by a majority, one at a time for each partition, see [`paxos`]
//! ```
//! Replicas resolve conflicts as Cassandra does: the newer write wins, a removal wins a tie, then the greater value. A
//! removal leaves a tombstone on each node until [`Replicas::purge`], and reads scan it. [`NetworkFaults`] are random;
//! a schedule kills nodes, cuts the network and loses hints explicitly. Messages run on tokio's time; expiry and
//! tombstones on the clock's.
//!
//! The cluster keeps no derived rows: wrap it in [`larder_store::derived_rows::DerivedRowStore`]. Reads of guarded partitions
//! at a quorum or more are serial.

mod cells;
mod cluster;
mod node;
mod paxos;
mod reads;
mod store;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use larder_store::{Clock, Partition, ReadQuery};

use cluster::ReplicasState;

/// Replicas whose majority decides a compare-and-set, as in SERIAL and LOCAL_SERIAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SerialScope {
    /// All replicas.
    Global,
    /// The replicas in the gateway's datacentre.
    Local,
}

/// Configuration of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterSetup {
    /// Nodes in the cluster; each datacentre has `n_val` copies of a partition.
    pub nodes: usize,
    /// Datacentres, all with the same number of nodes; the first nodes are in the first one. A gateway's datacentre is
    /// its side.
    pub datacentres: usize,
    /// Replicas that decide a compare-and-set.
    pub serial: SerialScope,
    /// Largest value that gateways store inside a row.
    pub inline_max: usize,
    /// Largest write of one partition, in bytes.
    pub mutation_max: usize,
    /// Largest batch that goes through the batch log, in bytes.
    pub logged_max: usize,
    /// Most tombstones that a read scans; with more it fails.
    pub tombstones_max: usize,
    /// Whether a range is bisected when its read fails.
    pub bisects_ranges: bool,
    /// Whether a write is on disk when it is answered; otherwise the node syncs it within ten seconds.
    pub syncs: bool,
    /// Whether a read writes missing cells back to the replicas it asked.
    pub read_repair: bool,
}

/// Probabilities of random faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkFaults {
    /// Longest delay of a message, in milliseconds.
    pub delay_ms_max: u64,
    /// Messages between nodes that are lost, per mille.
    pub lose_per_mille: u32,
    /// Writes whose coordinator dies half way, per mille: it sends no more messages and keeps no hints.
    pub stop_per_mille: u32,
    /// Hints that are never delivered, per mille.
    pub hints_lost_per_mille: u32,
    /// Longest time until a hint is delivered once its node is up again, in milliseconds.
    pub hint_ms_max: u64,
    /// Compare-and-sets that get no answer, per mille, at whatever step they stopped.
    pub cas_torn_per_mille: u32,
}

/// Rows that reads scanned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanCounts {
    /// Live rows.
    pub rows: usize,
    /// Rows that were removed or had expired.
    pub tombstones: usize,
}

/// One gateway's connection to the cluster.
#[derive(Clone)]
pub struct Replicas {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<ReplicasState>>,
    side: usize,
}

impl Default for ClusterSetup {
    /// Three nodes with Cassandra's default configuration.
    fn default() -> Self {
        Self {
            nodes: 3,
            datacentres: 1,
            serial: SerialScope::Global,
            inline_max: 16 * 1024,
            mutation_max: 4 * 1024 * 1024,
            logged_max: 40 * 1024,
            tombstones_max: 100_000,
            bisects_ranges: true,
            syncs: false,
            read_repair: true,
        }
    }
}

impl NetworkFaults {
    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }
}

impl Replicas {
    /// An empty cluster. The connection is on side 0.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, setup: ClusterSetup, seed: u64) -> Self {
        Self { clock, state: Arc::new(Mutex::new(ReplicasState::new(setup, seed))), side: 0 }
    }

    /// The connection of a gateway on this side of a network cut.
    #[must_use]
    pub fn from_side(&self, side: usize) -> Self {
        Self { side, ..self.clone() }
    }

    /// The connection of a gateway that checks expiry by a clock of its own, which breaks the contract.
    #[must_use]
    pub fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self.clone() }
    }

    /// Sets the probabilities of faults.
    pub fn set_network_faults(&self, faults: NetworkFaults) {
        self.current_state().faults = faults;
    }

    /// Stops a node; its data stays.
    pub fn kill(&self, node: usize) {
        self.current_state().nodes[node].down = true;
    }

    /// Starts a stopped node.
    pub fn revive(&self, node: usize) {
        self.current_state().nodes[node].down = false;
    }

    /// Cuts the network: node `i` is on side `sides[i]`, and nodes of different sides do not reach each other.
    pub fn cut(&self, sides: &[usize]) {
        let mut state = self.current_state();
        state.cut = true;
        state.nodes.iter_mut().zip(sides).for_each(|(node, side)| node.side = *side);
    }

    /// Ends the cut.
    pub fn heal(&self) {
        self.current_state().cut = false;
    }

    /// Delivers every hint whose nodes reach each other.
    pub fn deliver_hints(&self) {
        self.current_state().deliver_hints_if(|_| true);
    }

    /// Drops every hint, as nodes do for a replica that was down for too long.
    pub fn lose_hints(&self) {
        self.current_state().nodes.iter_mut().for_each(|node| node.hints.clear());
    }

    /// Repairs the cluster: nodes that reach each other exchange all cells.
    pub fn repair(&self) {
        self.current_state().repair();
    }

    /// Removes tombstones older than `gc_grace` from a node.
    pub fn purge(&self, node: usize, gc_grace: Duration) {
        let now = self.clock.now();
        let grace = u64::try_from(gc_grace.as_micros()).unwrap_or(u64::MAX);
        self.current_state().nodes[node].purge(now.saturating_sub(grace), now);
    }

    /// Cuts the power of every node: writes that are not on disk are lost.
    pub fn lose_power(&self) {
        let mut state = self.current_state();
        state.proposals.clear();
        state.nodes.iter_mut().for_each(node::ReplicaNode::lose_power);
    }

    /// Rows that reads scanned since the last call.
    pub fn take_scan_counts(&self) -> ScanCounts {
        std::mem::take(&mut self.current_state().scanned)
    }

    /// Rows and tombstones of a partition on one node.
    #[must_use]
    pub fn stored_counts(&self, node: usize, partition: &Partition) -> ScanCounts {
        let cells = self.current_state().nodes[node].cells(partition);
        let (rows, tombstones) = cells.count_scanned(&ReadQuery::all(usize::MAX), self.clock.now());
        ScanCounts { rows, tombstones }
    }

    /// The state, after delivering every message that is due.
    fn current_state(&self) -> MutexGuard<'_, ReplicasState> {
        let mut state = self.state.lock();
        state.deliver_due();
        state
    }
}

#[cfg(test)]
mod tests;
