//! Writes: to every replica, answered when as many as a level asks have taken them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::cells::writes;
use super::cluster::Answers;
use super::node::Mutation;
use super::reads::{PATIENCE, until};
use super::{Replicas, Setup};
use crate::{Batch, Change, Error, Kind, Level, Options, ReadQuery, Result};

/// For each partition how many must answer, and those who have.
type Waits = Vec<(usize, Answers)>;

impl Replicas {
    pub(super) async fn refuse_too_many_rows(&self, batch: &Batch, options: &Options) -> Result<()> {
        for one in &batch.partitions {
            let Some(rows_max) = one.rows_max else { continue };
            let known = self.gather(&one.partition, &ReadQuery::all(usize::MAX), options).await?;
            let rows = known.count_after(one, self.clock.now());
            if rows > rows_max {
                return Err(Error::new(Kind::TooManyRows { rows }, format!("{rows} rows, {rows_max} at most")));
            }
        }
        Ok(())
    }

    /// Refuses what the nodes would.
    pub(super) fn fits(&self, batch: &Batch) -> Result<()> {
        let Setup { mutation_max, logged_max, .. } = self.state.lock().setup;
        let too_large = |what: &str, bytes: usize| Error::new(Kind::TooLarge, format!("a {what} of {bytes} bytes"));
        for one in &batch.partitions {
            let bytes = larder_model::rows::changes_bytes(&one.changes);
            if bytes > mutation_max {
                return Err(too_large("mutation", bytes));
            }
        }
        if is_logged(batch) && batch.bytes() > logged_max {
            return Err(too_large("logged batch", batch.bytes()));
        }
        Ok(())
    }

    /// Sends a batch on its way: for each partition how many must answer, and those who have; and its place in the batch log.
    pub(super) fn send(&self, batch: &Batch, level: Level) -> Result<(Waits, Option<u64>)> {
        let mut state = self.now_state();
        let now = self.clock.now();
        let mut sent = Vec::new();
        for one in &batch.partitions {
            let replicas = state.replicas(&one.partition);
            let near = state.local(self.side, &replicas);
            sent.push((state.coordinate(self.side, &near, level)?, near));
        }
        let mutations: Vec<_> = batch
            .partitions
            .iter()
            .map(|one| Mutation { partition: one.partition.clone(), writes: writes(&one.changes, now) })
            .map(Arc::new)
            .collect();
        let logged = is_logged(batch).then(|| state.log(mutations.clone()));
        let stop = state.weather.stop_per_mille;
        let stops = state.random.chance(stop);
        let mut left = if stops { state.random.below(3 * mutations.len() as u64) } else { u64::MAX };
        let mut waits = Vec::new();
        for (mutation, ((coordinator, required), near)) in mutations.iter().zip(sent) {
            let answers = Answers::default();
            for to in state.replicas(&mutation.partition) {
                // Others hear of it, but nobody waits for another datacentre.
                let counted = if near.contains(&to) { answers.clone() } else { Answers::default() };
                if left > 0 {
                    state.send(coordinator, to, mutation, &counted);
                }
                left = left.saturating_sub(1);
            }
            let required = match level {
                // Nobody is there to answer.
                _ if stops => usize::MAX,
                // A hint is enough.
                Level::Any => 0,
                _ => required,
            };
            waits.push((required, answers));
        }
        state.tick();
        Ok((waits, logged))
    }

    /// Waits until enough have answered.
    pub(super) async fn await_answers(&self, waits: &[(usize, Answers)], options: &Options) -> Result<()> {
        let end = options.deadline.min(Instant::now() + PATIENCE);
        loop {
            let next = {
                let state = self.now_state();
                if waits.iter().all(|(required, answers)| answers.load(Ordering::Relaxed) >= *required) {
                    return Ok(());
                }
                state.next_due(end)
            };
            if Instant::now() >= end {
                return Err(Error::new(Kind::TimedOut, "too few replicas answered the write"));
            }
            until(next).await;
        }
    }
}

/// Whether a batch goes through the batch log: it removes something outside its first partition.
fn is_logged(batch: &Batch) -> bool {
    let removes = |change: &Change| !matches!(change, Change::Put(_));
    batch.partitions.iter().skip(1).any(|one| one.changes.iter().any(removes))
}
