//! Leases that every gateway sees: a column with an expiry, renewed by its holder.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::records::{Name, Records};

/// How often a lease is renewed while it lasts once.
const RENEWALS: u32 = 3;

/// Keeps sweepers away from a blob until dropped. A blob that was not finished then is removed, as far as it got.
pub(super) struct Lease {
    records: Arc<Records>,
    pub(super) name: Name,
    /// Groups that may have blocks, until the blob is finished.
    pub(super) groups: Option<i32>,
    end: Option<oneshot::Sender<Option<i32>>>,
}

impl Lease {
    /// Holds a record that is being begun, and goes on renewing its lease. Blobs are written on a runtime, which the renewals
    /// run on too.
    pub(super) fn hold(records: Arc<Records>, name: Name) -> Self {
        records.held.lock().insert(name.run);
        let (end, ended) = oneshot::channel();
        tokio::spawn(keep(records.clone(), name, ended));
        Self { records, name, groups: Some(1), end: Some(end) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.records.held.lock().remove(&self.name.run);
        if let Some(end) = self.end.take() {
            let _ = end.send(self.groups);
        }
    }
}

/// Renews a lease until it ends. What fails is tried again at the next turn, or left to the purge.
async fn keep(records: Arc<Records>, name: Name, mut ended: oneshot::Receiver<Option<i32>>) {
    for count in 1.. {
        let unfinished = match timeout(records.lease / RENEWALS, &mut ended).await {
            Err(_) => {
                if let Err(error) = records.renew(name, count).await {
                    tracing::debug!(%error, "a blob's lease was not renewed");
                }
                continue;
            }
            Ok(ending) => ending.unwrap_or(None),
        };
        let done = match unfinished {
            Some(groups) => records.forget(name, groups).await,
            None => records.release(name, count).await,
        };
        if let Err(error) = done {
            tracing::debug!(%error, "the end of a blob's lease is left to its expiry");
        }
        return;
    }
}
