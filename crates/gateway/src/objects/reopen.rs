//! Uploads whose completion was left in the middle.
//!
//! Nobody carries such a completion on: hours later it would replace what was put meanwhile. It is taken back, and by whoever
//! meets it: the upload is marked *reopening*, the head of its key is touched, and then looked at. Who completes reads the
//! head of the key, then its own upload, then commits against that head. So either the mark is seen, or the commit fails, or
//! the version is there to be found: the upload then was done.
//!
//! A version may leave its key only after its upload is done ([`Objects::end_upload_of`]): otherwise it would not be found,
//! and the upload would be opened again over parts that were removed with the object.

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use larder_model::objects::{UploadState, Version, VersionId};
use larder_model::rows::{Batch, Change, Micros};
use larder_store::{Partition, ReadQuery};
use tokio::time::Instant;

use super::upload_head::UploadHead;
use super::{Error, Objects, Result};
use crate::Rule;

/// How often an upload that somebody else is completing is looked at.
const POLL: Duration = Duration::from_millis(50);

impl Objects {
    /// Waits until an upload is not being completed any more, and takes back what was left behind: it is then open, done,
    /// aborted, or gone (`None`).
    ///
    /// # Errors
    /// `OperationAborted` when it is still being completed at the deadline.
    pub(super) async fn settle_upload(&self, seen: UploadHead, deadline: Instant) -> Result<Option<UploadHead>> {
        let mut head = seen;
        while let Some((version, _, since)) = completing(&head.upload.state) {
            if Instant::now() >= deadline {
                return Err(Error::OperationAborted);
            }
            let next = if since.is_none_or(|since| self.is_left_behind(version, since)) {
                self.take_back(&head).await?
            } else {
                tokio::time::sleep(POLL).await;
                self.read_upload(head.id).await?
            };
            match next {
                Some(next) => head = next,
                None => return Ok(None),
            }
        }
        Ok(Some(head))
    }

    /// Ends the completion of an upload whose completing writer is gone or has given up, and answers what the upload is then.
    /// Safe beside others that do the same, and beside a completing writer that is not gone after all.
    pub(super) async fn take_back(&self, seen: &UploadHead) -> Result<Option<UploadHead>> {
        let Some((version, list, since)) = completing(&seen.upload.state) else { return Ok(Some(seen.clone())) };
        let fenced = self.gateway.rule(Rule::FenceCompleting);
        let mut marked = seen.clone();
        if since.is_some() && fenced {
            match self.swap_upload(seen, UploadState::Reopening { version, list }).await? {
                Some(reopening) => marked = reopening,
                None => return self.read_upload(seen.id).await,
            }
        }
        let state = match self.completed_version(&marked, version, fenced).await? {
            Some(found) => done(&found, list),
            None => UploadState::Open,
        };
        let Some(settled) = self.swap_upload(&marked, state).await? else { return self.read_upload(seen.id).await };
        if settled.upload.state.is_alive() {
            // Not before: the version may have been there, its upload ended, and a copy of it may name the manifest.
            self.forget_manifest(version).await?;
        } else {
            self.remove_leavings(&settled, self.gateway.releases.answered()).await?;
        }
        Ok(Some(settled))
    }

    /// The version of this id, if the key has it. Once the key was touched no completing writer can add it any more that does
    /// not see the upload as it is now.
    async fn completed_version(&self, head: &UploadHead, id: VersionId, touch: bool) -> Result<Option<Version>> {
        let (bucket, key) = (head.upload.bucket, &head.upload.key);
        let partition = Partition::head(bucket, key);
        let found = if touch {
            self.touch(bucket, key).await?
        } else {
            self.read_head(&partition, &self.options()).await?.head
        };
        if let Some(current) = found.current.filter(|current| current.id == id) {
            return Ok(Some(current));
        }
        let query = ReadQuery::one(Bytes::copy_from_slice(&id.0));
        let page = self.gateway.ports.store.read(&partition, &query, &self.options()).await?;
        let row = page.rows.into_iter().next();
        row.map(|row| Version::decode(row.value).map_err(Error::from)).transpose()
    }

    /// Removes the rows of a manifest that no version will name. Its blobs stay: they belong to the upload.
    pub(super) async fn forget_manifest(&self, version: VersionId) -> Result<()> {
        let gone = Change::Clear { stamp: self.gateway.issue().await? };
        let batch = Batch::of(Partition::manifest(version), vec![gone]);
        Ok(self.gateway.ports.store.apply(batch, &self.options().reclaiming()).await?)
    }

    /// Ends the upload that made `version`, which is there and is about to leave its key.
    pub(super) async fn end_upload_of(&self, version: &Version) -> Result<()> {
        let Some(id) = version.object.as_ref().and_then(|object| object.upload) else { return Ok(()) };
        while let Some(head) = self.read_upload(id).await? {
            let Some((completed, list, _)) = completing(&head.upload.state) else { break };
            if completed != version.id || self.swap_upload(&head, done(version, list)).await?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Whether who began to complete an upload as `version` at `since` is gone, or has had all the time there is.
    pub(super) fn is_left_behind(&self, version: VersionId, since: Micros) -> bool {
        if self.config.alone && version.actor() != self.gateway.actor {
            return true;
        }
        let max = u64::try_from(self.config.completing_max.as_micros()).unwrap_or(u64::MAX);
        self.gateway.now() > since.saturating_add(max)
    }
}

/// The version an upload is being completed as, the digest of its list, and since when; no time: it is being taken back.
fn completing(state: &UploadState) -> Option<(VersionId, [u8; 20], Option<Micros>)> {
    match state {
        UploadState::Completing { version, list, since } => Some((*version, *list, Some(*since))),
        UploadState::Reopening { version, list } => Some((*version, *list, None)),
        UploadState::Open | UploadState::Done { .. } | UploadState::Aborted => None,
    }
}

/// The state of an upload that became this version.
pub(super) fn done(version: &Version, list: [u8; 20]) -> UploadState {
    let Some(object) = &version.object else { return UploadState::Aborted };
    let checksum = object.checksum.clone();
    UploadState::Done { version: version.id, null: version.null, list, etag: object.etag, checksum }
}
