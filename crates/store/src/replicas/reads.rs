//! Reads: from as many replicas as a level asks, any of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Replicas;
use super::cells::Cells;
use super::node::Mutation;
use crate::{Error, Kind, Level, Options, Page, Partition, ReadQuery, Result};

/// How long a coordinator waits for replicas.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

impl Replicas {
    /// Replicas that answer a read, each with the moment of its answer.
    fn ask(&self, partition: &Partition, level: Level) -> Result<Vec<(Instant, usize)>> {
        let mut state = self.now_state();
        let replicas = state.replicas(partition);
        let near = state.local(self.side, &replicas);
        let (_, required) = state.coordinate(self.side, &near, level.max(Level::One))?;
        let mut nodes = state.choose(self.side, &near, required);
        if partition.table.is_guarded() && level >= Level::Quorum {
            // Never by fewer than decide: those who vote know what was decided last.
            let voters = state.gather(self.side, partition)?.nodes;
            nodes.retain(|node| !voters.contains(node));
            nodes.extend(voters);
        }
        let mut asked: Vec<_> = nodes.into_iter().map(|node| (Instant::now() + state.delay(), node)).collect();
        asked.sort_unstable();
        Ok(asked)
    }

    /// A page, unless there is too much in its way.
    pub(super) async fn page(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        Ok(self.gather(partition, query, options).await?.page(query, self.clock.now()))
    }

    /// What the replicas that a level asks for know of a range together.
    pub(super) async fn gather(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Cells> {
        let mut known = Cells::default();
        let asked = self.ask(partition, options.level)?;
        for (due, node) in &asked {
            until((*due).min(options.deadline)).await;
            in_time(options)?;
            let answer = self.answer(*node, partition, query);
            match answer {
                Some(cells) => known.absorb(&cells?),
                None => return Err(self.unanswered(options).await),
            }
        }
        let mut state = self.now_state();
        if state.setup.read_repair {
            for (_, node) in asked {
                let cells = state.nodes[node].cells(partition).slice(&query.range);
                let writes = known.unknown_to(&cells);
                if !writes.is_empty() && state.reaches(self.side, node) {
                    let syncs = state.setup.syncs;
                    state.nodes[node].take(&Arc::new(Mutation { partition: partition.clone(), writes }), syncs);
                }
            }
        }
        Ok(known)
    }

    /// What one node says; `None`: nothing.
    fn answer(&self, node: usize, partition: &Partition, query: &ReadQuery) -> Option<Result<Cells>> {
        let mut state = self.now_state();
        let lose = state.weather.lose_per_mille;
        if !state.reaches(self.side, node) || state.random.chance(lose) {
            return None;
        }
        let cells = state.nodes[node].cells(partition);
        let (rows, tombstones) = cells.met(query, self.clock.now());
        state.met.rows += rows;
        state.met.tombstones += tombstones;
        if tombstones > state.setup.tombstones_max {
            return Some(Err(Error::new(Kind::Io, format!("too many tombstones: {tombstones}"))));
        }
        Some(Ok(cells.slice(&query.range)))
    }

    /// What a call gets that nobody answers in time.
    pub(super) async fn unanswered(&self, options: &Options) -> Error {
        until(options.deadline.min(Instant::now() + PATIENCE)).await;
        Error::new(Kind::TimedOut, "a replica did not answer")
    }
}

/// Waits; not at all for what is due, since a timer is coarse.
pub(super) async fn until(due: Instant) {
    if due > Instant::now() {
        sleep_until(due).await;
    }
}

pub(super) fn in_time(options: &Options) -> Result<()> {
    if Instant::now() >= options.deadline {
        return Err(Error::new(Kind::TimedOut, "the deadline had passed"));
    }
    Ok(())
}
