//! One node: its partitions, the hints it keeps for others, and what of it is on disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cells::{Cells, Write};
use crate::{Micros, Partition};

/// How often a commit log that is synced periodically is.
const SYNC_EVERY: Duration = Duration::from_secs(10);

/// Changes to one partition on their way to a replica.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mutation {
    pub(super) partition: Partition,
    pub(super) writes: Vec<Write>,
}

/// A write that a replica missed, kept by the node that coordinated it.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    pub(super) due: Instant,
    pub(super) to: usize,
    pub(super) mutation: Arc<Mutation>,
}

/// One node.
#[derive(Default)]
pub(super) struct Node {
    pub(super) down: bool,
    pub(super) side: usize,
    pub(super) hints: Vec<Hint>,
    pub(super) partitions: BTreeMap<Partition, Cells>,
    /// What a power cut leaves.
    disk: BTreeMap<Partition, Cells>,
    unsynced: VecDeque<(Instant, Arc<Mutation>)>,
}

impl Node {
    /// Takes a write; with `syncs` it is on disk at once.
    pub(super) fn take(&mut self, mutation: &Arc<Mutation>, syncs: bool) {
        write(&mut self.partitions, mutation);
        if syncs {
            write(&mut self.disk, mutation);
        } else {
            self.unsynced.push_back((Instant::now(), mutation.clone()));
        }
    }

    /// Writes to disk what is due.
    pub(super) fn sync(&mut self, now: Instant) {
        while self.unsynced.front().is_some_and(|(since, _)| now.duration_since(*since) >= SYNC_EVERY) {
            if let Some((_, mutation)) = self.unsynced.pop_front() {
                write(&mut self.disk, &mutation);
            }
        }
    }

    /// What was not on disk is gone.
    pub(super) fn lose_power(&mut self) {
        self.unsynced.clear();
        self.partitions = self.disk.clone();
    }

    /// Forgets tombstones from before `horizon`.
    pub(super) fn purge(&mut self, horizon: Micros, now: Micros) {
        for partitions in [&mut self.partitions, &mut self.disk] {
            partitions.values_mut().for_each(|cells| cells.purge(horizon, now));
            partitions.retain(|_, cells| !cells.is_empty());
        }
    }

    pub(super) fn cells(&self, partition: &Partition) -> Cells {
        self.partitions.get(partition).cloned().unwrap_or_default()
    }
}

fn write(partitions: &mut BTreeMap<Partition, Cells>, mutation: &Mutation) {
    let cells = partitions.entry(mutation.partition.clone()).or_default();
    mutation.writes.iter().for_each(|write| cells.write(write));
}
