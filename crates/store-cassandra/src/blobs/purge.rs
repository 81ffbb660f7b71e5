//! Removing blocks for good: of blobs that were removed, of writers that died, of bodies that were written again.
//!
//! ```text
//! removed                  grace later   blocks go, then the record
//! no lease, not readable   abandoned is noted ── grace later, still not readable ──> blocks go, then the record
//! readable, a later one is too           removed is noted
//! ```
//! Any number of gateways may do this at once: all of it may be done twice. A writer that was only slow finds the note when it
//! finishes and fails; one that finished before the note was written is found readable and left alone.

use larder_store::{Micros, Result};

use super::cql::Cql;
use super::records::{Record, Records, SHARDS, current};

/// What to do with a record.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Leave,
    Mark(Cql),
    Forget,
}

impl Records {
    /// Looks at every record once; answers how many were removed with their blocks. What fails is told and left to the next
    /// pass.
    ///
    /// # Errors
    /// What the cluster answers to who asks what there is.
    pub(super) async fn purge(&self) -> Result<u64> {
        let mut purged = 0;
        for shard in 0..SHARDS {
            let (mut after, mut more) = (Vec::new(), true);
            while more {
                let (records, is_full) = self.page(shard, &after).await?;
                let Some(last) = records.last() else { break };
                (after, more) = (last.name.id.0.to_vec(), is_full);
                for blob in records.chunk_by(|one, other| one.name.id == other.name.id) {
                    purged += self.purge_blob(blob).await;
                }
            }
        }
        Ok(purged)
    }

    async fn purge_blob(&self, records: &[Record]) -> u64 {
        let mut purged = 0;
        for record in records {
            match self.purge_record(record, current(records)).await {
                Ok(is_gone) => purged += u64::from(is_gone),
                Err(error) => tracing::warn!(%error, blob = record.name.id.hex(), "blocks are left to the next purge"),
            }
        }
        purged
    }

    async fn purge_record(&self, record: &Record, current: Option<&Record>) -> Result<bool> {
        match self.step(record, current) {
            Step::Leave => Ok(false),
            Step::Mark(mark) => self.mark(mark, record.name).await.map(|()| false),
            Step::Forget => {
                // What was read a page ago may have become readable: its note was written long ago, so now or never.
                let found = self.find(record.name.id).await?;
                let now = found.iter().find(|found| found.name == record.name);
                match now.map(|now| self.step(now, current)) {
                    Some(Step::Forget) => self.forget(record.name, record.groups).await.map(|()| true),
                    _ => Ok(false),
                }
            }
        }
    }

    fn step(&self, record: &Record, current: Option<&Record>) -> Step {
        let (removed, abandoned) = (record.removed, record.abandoned);
        let is_over = |since: Micros| since.saturating_add(self.grace.as_micros() as u64) <= self.clock.now();
        match record.finished {
            _ if self.is_leased(record) => Step::Leave,
            _ if removed.is_some_and(is_over) => Step::Forget,
            _ if removed.is_some() => Step::Leave,
            Some(_) if current.is_some_and(|current| current.name != record.name) => Step::Mark(Cql::MarkRemoved),
            Some(_) => Step::Leave,
            None if abandoned.is_some_and(is_over) => Step::Forget,
            None if abandoned.is_some() => Step::Leave,
            None => Step::Mark(Cql::MarkAbandoned),
        }
    }
}
