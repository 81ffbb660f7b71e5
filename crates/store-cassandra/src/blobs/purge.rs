//! Removing blocks for good: of removed blobs, of dead writers, and of blobs that were written again.
//!
//! ```text
//! removed                      grace period later: blocks go, then the record
//! no lease, not readable       mark abandoned ── grace period later, still not readable: blocks go, then the record
//! readable, and a later one    mark removed
//! ```
//! Any number of gateways may purge at once, since each step may be done twice. A writer that was only slow sees the
//! mark when it finishes, and fails. A writer that finished before the mark was written is readable, and the purge
//! leaves it alone.

use larder_store::{Result, Timestamp};

use super::cql::BlobStatement;
use super::records::{BlobRecord, BlobRecords, SHARDS, current_record};

/// The action of a purge for one record.
#[derive(Debug, PartialEq, Eq)]
enum PurgeAction {
    Leave,
    Mark(BlobStatement),
    Forget,
}

impl BlobRecords {
    /// Visits every record once; returns how many were removed with their blocks. A failure is logged and left to the
    /// next purge.
    ///
    /// # Errors
    /// Errors of listing the records.
    pub(super) async fn purge(&self) -> Result<u64> {
        let mut purged = 0;
        for shard in 0..SHARDS {
            let (mut after, mut more) = (Vec::new(), true);
            while more {
                let (records, is_full) = self.page(shard, &after).await?;
                let Some(last) = records.last() else { break };
                (after, more) = (last.name.id.0.to_vec(), is_full);
                for blob in records.chunk_by(|record, other| record.name.id == other.name.id) {
                    purged += self.purge_blob(blob).await;
                }
            }
        }
        Ok(purged)
    }

    async fn purge_blob(&self, records: &[BlobRecord]) -> u64 {
        let mut purged = 0;
        for record in records {
            match self.purge_record(record, current_record(records)).await {
                Ok(is_gone) => purged += u64::from(is_gone),
                Err(error) => {
                    tracing::warn!(%error, blob = record.name.id.hex(), "purging a blob failed; the next purge tries again")
                }
            }
        }
        purged
    }

    async fn purge_record(&self, record: &BlobRecord, current: Option<&BlobRecord>) -> Result<bool> {
        match self.purge_action(record, current) {
            PurgeAction::Leave => Ok(false),
            PurgeAction::Mark(mark) => self.mark(mark, record.name).await.map(|()| false),
            PurgeAction::Forget => {
                // The record was read a page ago, and its writer may have finished since. The mark is a grace period
                // old, so a writer that finishes after this read finds it and fails.
                let records = self.find(record.name.id).await?;
                let now = records.iter().find(|candidate| candidate.name == record.name);
                match now.map(|now| self.purge_action(now, current)) {
                    Some(PurgeAction::Forget) => self.forget(record.name, record.groups).await.map(|()| true),
                    _ => Ok(false),
                }
            }
        }
    }

    fn purge_action(&self, record: &BlobRecord, current: Option<&BlobRecord>) -> PurgeAction {
        let (removed, abandoned) = (record.removed, record.abandoned);
        let is_over = |since: Timestamp| since.saturating_add(self.grace.as_micros() as u64) <= self.clock.now();
        match record.finished {
            // First: a leased run may still be written, whatever its marks.
            _ if self.is_leased(record) => PurgeAction::Leave,
            _ if removed.is_some_and(is_over) => PurgeAction::Forget,
            _ if removed.is_some() => PurgeAction::Leave,
            Some(_) if current.is_some_and(|current| current.name != record.name) => {
                PurgeAction::Mark(BlobStatement::MarkRemoved)
            }
            Some(_) => PurgeAction::Leave,
            // A running writer may have lost its lease for a moment: the grace period lets it see the mark and fail.
            None if abandoned.is_some_and(is_over) => PurgeAction::Forget,
            None if abandoned.is_some() => PurgeAction::Leave,
            None => PurgeAction::Mark(BlobStatement::MarkAbandoned),
        }
    }
}
