//! Reads: from any replicas, as many as the level requires.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Replicas;
use super::cells::ReplicaCells;
use super::node::ReplicaMutation;
use larder_store::{CallOptions, ConsistencyLevel, Error, Kind, Partition, ReadQuery, Result, RowPage};

/// How long a coordinator waits for replicas.
pub(super) const REPLICA_WAIT_MAX: Duration = Duration::from_secs(2);

impl Replicas {
    /// Chooses the replicas of a read, each with the time of its answer.
    fn choose_read_replicas(&self, partition: &Partition, level: ConsistencyLevel) -> Result<Vec<(Instant, usize)>> {
        let mut state = self.current_state();
        let replicas = state.replicas(partition);
        let near = state.datacentre_side(self.side, &replicas);
        let (_, required) = state.choose_coordinator(self.side, &near, level.max(ConsistencyLevel::One))?;
        let mut nodes = state.choose(self.side, &near, required);
        if partition.table.is_guarded() && level >= ConsistencyLevel::Quorum {
            // A serial read: the voters know the last decision. Fewer replicas could miss a compare-and-set that was
            // answered.
            let voters = state.reach_majority(self.side, partition)?.nodes;
            nodes.retain(|node| !voters.contains(node));
            nodes.extend(voters);
        }
        let mut asked: Vec<_> = nodes.into_iter().map(|node| (Instant::now() + state.delay(), node)).collect();
        asked.sort_unstable();
        Ok(asked)
    }

    /// A page; fails over too many tombstones.
    pub(super) async fn page(
        &self,
        partition: &Partition,
        query: &ReadQuery,
        options: &CallOptions,
    ) -> Result<RowPage> {
        Ok(self.read_merged(partition, query, options).await?.page(query, self.clock.now()))
    }

    /// The merged cells of a range from as many replicas as the level requires; repairs those replicas.
    pub(super) async fn read_merged(
        &self,
        partition: &Partition,
        query: &ReadQuery,
        options: &CallOptions,
    ) -> Result<ReplicaCells> {
        let mut known = ReplicaCells::default();
        let asked = self.choose_read_replicas(partition, options.level)?;
        for (due, node) in &asked {
            wait_until((*due).min(options.deadline)).await;
            check_deadline(options)?;
            // Each replica is read at the time of its own answer: writes may arrive in between, as in a real cluster.
            let answer = self.read_node(*node, partition, query);
            match answer {
                Some(cells) => known.merge(&cells?),
                None => return Err(self.timeout_error(options).await),
            }
        }
        let mut state = self.current_state();
        // Repaired before the answer: a later read of these replicas cannot show an older row.
        if state.setup.read_repair {
            for (_, node) in asked {
                let cells = state.nodes[node].cells(partition).slice(&query.range);
                let writes = known.missing_in(&cells);
                if !writes.is_empty() && state.can_reach(self.side, node) {
                    let syncs = state.setup.syncs;
                    state.nodes[node].take(&Arc::new(ReplicaMutation { partition: partition.clone(), writes }), syncs);
                }
            }
        }
        Ok(known)
    }

    /// The cells of one node; `None` if it does not answer.
    fn read_node(&self, node: usize, partition: &Partition, query: &ReadQuery) -> Option<Result<ReplicaCells>> {
        let mut state = self.current_state();
        let lose = state.faults.lose_per_mille;
        if !state.can_reach(self.side, node) || state.random.chance(lose) {
            return None;
        }
        let cells = state.nodes[node].cells(partition);
        let (rows, tombstones) = cells.count_scanned(query, self.clock.now());
        state.scanned.rows += rows;
        state.scanned.tombstones += tombstones;
        if tombstones > state.setup.tombstones_max {
            return Some(Err(Error::new(Kind::Io, format!("too many tombstones: {tombstones}"))));
        }
        Some(Ok(cells.slice(&query.range)))
    }

    /// The error of a call that no replica answers: waits until its deadline.
    pub(super) async fn timeout_error(&self, options: &CallOptions) -> Error {
        wait_until(options.deadline.min(Instant::now() + REPLICA_WAIT_MAX)).await;
        Error::new(Kind::TimedOut, "a replica did not answer")
    }
}

/// Waits until `due`; returns at once if it has passed, since timers are coarse.
pub(super) async fn wait_until(due: Instant) {
    if due > Instant::now() {
        sleep_until(due).await;
    }
}

pub(super) fn check_deadline(options: &CallOptions) -> Result<()> {
    if Instant::now() >= options.deadline {
        return Err(Error::new(Kind::TimedOut, "the deadline had passed"));
    }
    Ok(())
}
