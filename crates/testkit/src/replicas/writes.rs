//! Writes: to every replica, answered when as many as the level requires have acknowledged them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_store::{Batch, CallOptions, Change, ConsistencyLevel, Error, Kind, ReadQuery, Result};
use tokio::time::Instant;

use super::cells::writes;
use super::cluster::AckCount;
use super::node::ReplicaMutation;
use super::reads::{REPLICA_WAIT_MAX, wait_until};
use super::{ClusterSetup, Replicas};

/// For each partition the acknowledgements required, and those received.
type PendingAcks = Vec<(usize, AckCount)>;

impl Replicas {
    pub(super) async fn check_row_count(&self, batch: &Batch, options: &CallOptions) -> Result<()> {
        for one in &batch.partitions {
            let Some(rows_max) = one.rows_max else { continue };
            let known = self.read_merged(&one.partition, &ReadQuery::all(usize::MAX), options).await?;
            let rows = known.count_after(one, self.clock.now());
            if rows > rows_max {
                return Err(Error::new(Kind::TooManyRows { rows }, format!("{rows} rows, {rows_max} at most")));
            }
        }
        Ok(())
    }

    /// Refuses batches that the nodes would refuse for their size.
    pub(super) fn check_batch_size(&self, batch: &Batch) -> Result<()> {
        let ClusterSetup { mutation_max, logged_max, .. } = self.state.lock().setup;
        let too_large = |what: &str, bytes: usize| Error::new(Kind::TooLarge, format!("a {what} of {bytes} bytes"));
        for one in &batch.partitions {
            let bytes = larder_rows::changes_bytes(&one.changes);
            if bytes > mutation_max {
                return Err(too_large("mutation", bytes));
            }
        }
        if is_logged(batch) && batch.bytes() > logged_max {
            return Err(too_large("logged batch", batch.bytes()));
        }
        Ok(())
    }

    /// Sends a batch. Answers the acknowledgements to wait for, and the number in the batch log.
    pub(super) fn send_batch(
        &self,
        batch: &Batch,
        level: ConsistencyLevel,
        has_log: bool,
    ) -> Result<(PendingAcks, Option<u64>)> {
        let mut state = self.current_state();
        let now = self.clock.now();
        let mut sent = Vec::new();
        for one in &batch.partitions {
            let replicas = state.replicas(&one.partition);
            let near = state.datacentre_side(self.side, &replicas);
            // Every partition is checked before any message is sent, so a refused batch writes nothing.
            sent.push((state.choose_coordinator(self.side, &near, level)?, near));
        }
        let mutations: Vec<_> = batch
            .partitions
            .iter()
            .map(|one| ReplicaMutation { partition: one.partition.clone(), writes: writes(&one.changes, now) })
            .map(Arc::new)
            .collect();
        // In the log before the first message: if the coordinator dies, another node finishes the batch.
        let logged = (has_log && is_logged(batch)).then(|| state.log_batch(mutations.clone()));
        let stop = state.faults.stop_per_mille;
        let stops = state.random.chance(stop);
        let mut left = if stops { state.random.number_below(3 * mutations.len() as u64) } else { u64::MAX };
        let mut waits = Vec::new();
        for (mutation, ((coordinator, required), near)) in mutations.iter().zip(sent) {
            let answers = AckCount::default();
            for to in state.replicas(&mutation.partition) {
                // Replicas elsewhere get the write too, but only acknowledgements of the local datacentre count.
                let counted = if near.contains(&to) { answers.clone() } else { AckCount::default() };
                if left > 0 {
                    state.send(coordinator, to, mutation, &counted);
                }
                left = left.saturating_sub(1);
            }
            let required = match level {
                // The coordinator died, so the client never gets an answer.
                _ if stops => usize::MAX,
                // A hint is enough.
                ConsistencyLevel::Any => 0,
                _ => required,
            };
            waits.push((required, answers));
        }
        state.deliver_due();
        Ok((waits, logged))
    }

    /// Waits until enough replicas have acknowledged.
    pub(super) async fn await_answers(&self, waits: &[(usize, AckCount)], options: &CallOptions) -> Result<()> {
        let end = options.deadline.min(Instant::now() + REPLICA_WAIT_MAX);
        loop {
            let next = {
                let state = self.current_state();
                if waits.iter().all(|(required, answers)| answers.load(Ordering::Relaxed) >= *required) {
                    return Ok(());
                }
                state.next_due(end)
            };
            if Instant::now() >= end {
                return Err(Error::new(Kind::TimedOut, "too few replicas answered the write"));
            }
            wait_until(next).await;
        }
    }
}

/// Whether a batch goes through the batch log: it removes a row outside its first partition.
pub(super) fn is_logged(batch: &Batch) -> bool {
    batch.partitions.iter().skip(1).any(|one| one.changes.iter().any(|change| !is_put(change)))
}

/// Such a batch where the log cannot be used: first all but the removals outside the first partition, then these.
pub(super) fn stages_without_log(mut batch: Batch) -> Vec<Batch> {
    let mut removals = Batch::default();
    for one in batch.partitions.iter_mut().skip(1) {
        let (put, removed): (Vec<_>, Vec<_>) = one.changes.drain(..).partition(is_put);
        one.changes = put;
        removals.add(one.partition.clone(), removed);
    }
    batch.partitions.retain(|one| !one.changes.is_empty());
    vec![batch, removals]
}

fn is_put(change: &Change) -> bool {
    matches!(change, Change::Put(_))
}
