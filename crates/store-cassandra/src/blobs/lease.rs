//! Leases that every gateway sees: a column with an expiry, renewed by its holder.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::records::{BlobRecords, RecordName};

/// Renewals within the duration of one lease.
const RENEWALS: u32 = 3;

/// Keeps sweepers away from a blob until dropped. If the blob is not finished then, its record and blocks are removed.
pub(super) struct RecordLease {
    records: Arc<BlobRecords>,
    pub(super) name: RecordName,
    /// Groups that may have blocks; `None` once the blob is finished.
    pub(super) groups: Option<i32>,
    end: Option<oneshot::Sender<Option<i32>>>,
}

impl RecordLease {
    /// Leases a record that is being created, and renews the lease on the current runtime.
    pub(super) fn hold(records: Arc<BlobRecords>, name: RecordName) -> Self {
        // In memory first: a listing of this process sees the lease before the record exists.
        records.leased_runs.lock().insert(name.run);
        let (end, ended) = oneshot::channel();
        tokio::spawn(renew_until_ended(records.clone(), name, ended));
        Self { records, name, groups: Some(1), end: Some(end) }
    }
}

impl Drop for RecordLease {
    fn drop(&mut self) {
        // Before the row changes: this process may list the blob as free from now on, other processes once the column
        // is gone.
        self.records.leased_runs.lock().remove(&self.name.run);
        if let Some(end) = self.end.take() {
            let _ = end.send(self.groups);
        }
    }
}

/// Renews a lease until it ends. A failed renewal is repeated at the next interval; a failed end is left to the purge.
async fn renew_until_ended(records: Arc<BlobRecords>, name: RecordName, mut ended: oneshot::Receiver<Option<i32>>) {
    for count in 1.. {
        let unfinished = match timeout(records.lease / RENEWALS, &mut ended).await {
            Err(_) => {
                // The count is in the stamp: a renewal that arrives late does not undo the release.
                if let Err(error) = records.renew(name, count).await {
                    tracing::debug!(%error, "renewing a blob's lease failed; trying again before it expires");
                }
                continue;
            }
            Ok(ending) => ending.unwrap_or(None),
        };
        let ended = match unfinished {
            Some(groups) => records.forget(name, groups).await,
            None => records.release(name, count).await,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "ending a blob's lease failed; it expires");
        }
        return;
    }
}
