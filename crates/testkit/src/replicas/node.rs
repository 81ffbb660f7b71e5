//! One node: its partitions, the hints it keeps for other nodes, and its disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cells::{CellWrite, ReplicaCells};
use larder_store::{Partition, Timestamp};

/// Interval of a commit log that is synced periodically.
const SYNC_EVERY: Duration = Duration::from_secs(10);

/// Changes to one partition on their way to a replica.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReplicaMutation {
    pub(super) partition: Partition,
    pub(super) writes: Vec<CellWrite>,
}

/// A write that a replica missed, kept by its coordinator.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    pub(super) due: Instant,
    pub(super) to: usize,
    pub(super) mutation: Arc<ReplicaMutation>,
}

/// One node.
#[derive(Default)]
pub(super) struct ReplicaNode {
    pub(super) down: bool,
    pub(super) side: usize,
    pub(super) hints: Vec<Hint>,
    pub(super) partitions: BTreeMap<Partition, ReplicaCells>,
    /// The state that survives a power cut.
    disk: BTreeMap<Partition, ReplicaCells>,
    unsynced: VecDeque<(Instant, Arc<ReplicaMutation>)>,
}

impl ReplicaNode {
    /// Applies a write; with `syncs` it is on disk at once.
    pub(super) fn take(&mut self, mutation: &Arc<ReplicaMutation>, syncs: bool) {
        write(&mut self.partitions, mutation);
        if syncs {
            write(&mut self.disk, mutation);
        } else {
            // A power cut before the next periodic sync loses this write although it was answered.
            self.unsynced.push_back((Instant::now(), mutation.clone()));
        }
    }

    /// Syncs the writes that are due.
    pub(super) fn sync(&mut self, now: Instant) {
        while self.unsynced.front().is_some_and(|(since, _)| now.duration_since(*since) >= SYNC_EVERY) {
            if let Some((_, mutation)) = self.unsynced.pop_front() {
                write(&mut self.disk, &mutation);
            }
        }
    }

    /// Resets the node to the state on disk.
    pub(super) fn lose_power(&mut self) {
        self.unsynced.clear();
        self.partitions = self.disk.clone();
    }

    /// Removes tombstones from before `horizon`.
    pub(super) fn purge(&mut self, horizon: Timestamp, now: Timestamp) {
        for partitions in [&mut self.partitions, &mut self.disk] {
            partitions.values_mut().for_each(|cells| cells.purge(horizon, now));
            partitions.retain(|_, cells| !cells.is_empty());
        }
    }

    pub(super) fn cells(&self, partition: &Partition) -> ReplicaCells {
        self.partitions.get(partition).cloned().unwrap_or_default()
    }
}

fn write(partitions: &mut BTreeMap<Partition, ReplicaCells>, mutation: &ReplicaMutation) {
    let cells = partitions.entry(mutation.partition.clone()).or_default();
    mutation.writes.iter().for_each(|write| cells.write(write));
}
