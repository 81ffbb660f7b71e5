//! Recovery of uploads whose completion was abandoned.
//!
//! A recovery does not resume such a completion: hours later it would replace newer puts. Any request that finds the upload
//! takes it back: it marks the upload *reopening*, fences the head of its key, and looks for the version. A completing
//! writer reads the head, then its upload, then commits against that head. So either it sees the mark, or its commit fails,
//! or the version is there and the upload is done.
//!
//! A version may leave its key only after its upload is done ([`HeadStore::finish_upload_of`](super::commit::HeadStore::finish_upload_of)): otherwise the recovery would
//! miss it and reopen the upload over parts that went with the object.

#[cfg(test)]
mod tests;

use std::time::Duration;

use larder_rows::{Batch, Change, Timestamp};
use larder_store::Partition;
use tokio::time::Instant;

use super::upload_head::{UploadHead, completion_of, done_state};
use super::uploads::Uploads;
use super::{Error, Result};
use crate::rules::{UploadState, Version, VersionId};

/// Pause between reads of an upload that another request is completing.
const POLL: Duration = Duration::from_millis(50);

impl Uploads {
    /// Waits for a running completion and recovers an abandoned one: the upload is then open, done, aborted, or gone
    /// (`None`).
    ///
    /// # Errors
    /// `OperationAborted` when the completion still runs at the deadline.
    pub(super) async fn settle(&self, observed: UploadHead, deadline: Instant) -> Result<Option<UploadHead>> {
        let mut head = observed;
        while let Some((version, _, since)) = completion_of(&head.upload.state) {
            if Instant::now() >= deadline {
                return Err(Error::OperationAborted);
            }
            let next = if since.is_none_or(|since| self.is_abandoned(version, since)) {
                self.resolve_completion(&head).await?
            } else {
                tokio::time::sleep(POLL).await;
                self.heads.read_upload(head.id).await?
            };
            match next {
                Some(next) => head = next,
                None => return Ok(None),
            }
        }
        Ok(Some(head))
    }

    /// Resolves the completion of an upload whose writer is gone or has given up, and returns the upload. Safe next to
    /// other recoveries and to a completing writer that is still alive.
    pub(super) async fn resolve_completion(&self, observed: &UploadHead) -> Result<Option<UploadHead>> {
        let Some((version, list, since)) = completion_of(&observed.upload.state) else {
            return Ok(Some(observed.clone()));
        };
        let mut marked = observed.clone();
        if since.is_some() {
            match self.heads.cas_upload_state(observed, UploadState::Reopening { version, list }).await? {
                Some(reopening) => marked = reopening,
                // Race: another recovery or the completing writer was first.
                None => return self.heads.read_upload(observed.id).await,
            }
        }
        // Race: mark, fence, look. A completing writer that read its upload before the mark fails [invariant 59].
        let state = match self.completed_version(&marked, version).await? {
            Some(found) => done_state(&found, list),
            None => UploadState::Open,
        };
        let Some(settled) = self.heads.cas_upload_state(&marked, state).await? else {
            return self.heads.read_upload(observed.id).await;
        };
        if settled.upload.state.is_alive() {
            // Race: only after the state change. The version may have been there, and a copy of it may
            // reference the manifest [invariant 101].
            self.clear_manifest(version).await?;
        } else {
            self.remove_unused_parts(&settled, self.gateway.blobs.releases.proof_of_answered_write()).await?;
        }
        Ok(Some(settled))
    }

    /// Fences the head of the key and returns the version of this id, if the key has it. After the fence no completing
    /// writer can add it without seeing the upload's new state.
    async fn completed_version(&self, head: &UploadHead, id: VersionId) -> Result<Option<Version>> {
        let (bucket, key) = (head.upload.bucket, &head.upload.key);
        let found = self.heads.fence_head(bucket, key).await?;
        if let Some(current) = found.current.filter(|current| current.id == id) {
            return Ok(Some(current));
        }
        self.heads.read_version(&Partition::head(bucket, key), id, &self.heads.options()).await
    }

    /// Removes the rows of a manifest that no version references. Its blobs stay: they belong to the upload.
    pub(super) async fn clear_manifest(&self, version: VersionId) -> Result<()> {
        let gone = Change::Clear { stamp: self.gateway.issuer.issue().await? };
        let batch = Batch::single(Partition::manifest(version), vec![gone]);
        Ok(self.gateway.core.ports.store.apply(batch, &self.heads.options().reclaiming()).await?)
    }

    /// Whether the writer that began to complete an upload as `version` at `since` is gone or out of time.
    pub(super) fn is_abandoned(&self, version: VersionId, since: Timestamp) -> bool {
        // The directory's lock proves that the run that began the completion has ended.
        if self.config.single_process && version.actor() != self.gateway.core.ports.actor {
            return true;
        }
        let max = u64::try_from(self.config.completing_max.as_micros()).unwrap_or(u64::MAX);
        self.gateway.core.now() > since.saturating_add(max)
    }
}
