//! Aborting an upload, and removing the parts of an ended one.
//!
//! Recovery of uploads whose completion was abandoned.
//!
//! A recovery does not resume such a completion: hours later it would replace newer puts. Any request that finds the upload
//! takes it back: it marks the upload *reopening*, fences the head of its key, and looks for the version. A completing
//! writer reads the head, then its upload, then commits against that head. So either it sees the mark, or its commit fails,
//! or the version is there and the upload is done.
//!
//! A version may leave its key only after its upload is done ([`HeadStore::finish_upload_behind`](super::commit::HeadStore::finish_upload_behind)): otherwise the recovery would
//! miss it and reopen the upload over parts that went with the object.

#[cfg(test)]
mod reopen_tests;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use larder_core::blobs::release::SyncProof;
use larder_rows::content::BlobId;
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_rows::{Batch, Change, Timestamp};
use larder_store::{Partition, ReadQuery, Stopped};
use tokio::time::Instant;

use super::parts::{blob_of_row, blob_rows};
use super::uploads::{UploadHead, Uploads, done_state, state_completion};
use super::{Caller, Error, Result};
use crate::rules::part::decode_manifest_row;
use crate::rules::{UploadId, UploadState, Version, VersionId};

impl Uploads {
    /// Aborts an upload and removes its parts. `initiated`: the required start time, in whole seconds since 1970.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload` (also after an earlier abort), `OtherInitiationTime`,
    /// `OperationAborted` while a completion runs until the deadline.
    pub async fn abort(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        upload: &str,
        initiated: Option<u64>,
    ) -> Result<()> {
        let bucket = self.buckets.find(bucket).await?;
        let head = self.heads.find_live_upload(&bucket, key, upload).await?;
        head.check(caller, &bucket)?;
        if initiated.is_some_and(|initiated| initiated != head.upload.initiated.as_secs()) {
            return Err(Error::OtherInitiationTime);
        }
        if self.abort_upload(head).await? { Ok(()) } else { Err(Error::NoSuchUpload) }
    }

    /// Aborts a live upload; waits for a running completion. `false`: the upload ended in another way.
    pub(super) async fn abort_upload(&self, head: UploadHead) -> Result<bool> {
        let deadline = Instant::now() + self.gateway.context().config.timeout;
        let mut observed = Some(head);
        while let Some(head) = observed {
            let id = head.id;
            let Some(settled) = self.settle(head, deadline).await? else { break };
            if settled.upload.state != UploadState::Open {
                break;
            }
            // Crash: end the upload first; the sweeper removes parts of ended uploads only.
            if let Some(aborted) = self.heads.cas_upload_state(&settled, UploadState::Aborted).await? {
                let synced = self.gateway.blobs().releases.proof_of_answered_write();
                if let Err(error) = self.remove_unused_parts(&aborted, synced).await {
                    tracing::debug!(%error, "removal of the parts of an aborted upload failed; the sweeper retries");
                }
                return Ok(true);
            }
            // Race: another request changed the upload first; its new state decides.
            observed = self.heads.read_upload(id).await?;
        }
        Ok(false)
    }

    /// Aborts an upload, unless a completion is running.
    pub(super) async fn abort_unless_completing(&self, id: UploadId) -> Result<bool> {
        let Some(head) = self.heads.read_upload(id).await? else { return Ok(false) };
        match &head.upload.state {
            UploadState::Completing { version, since, .. } if !self.is_abandoned(*version, *since) => Ok(false),
            state if !state.is_alive() => Ok(false),
            _ => self.abort_upload(head).await,
        }
    }

    /// Removes part rows and blobs of an ended upload, except blobs its object references. The sweeper calls this too
    /// and retries what fails. `synced`: proof that the end of the upload is on disk; without it this waits for a sync,
    /// since after a power cut the upload could be open again.
    pub(super) async fn remove_unused_parts(&self, head: &UploadHead, mut synced: Option<SyncProof>) -> Result<()> {
        let kept = match &head.upload.state {
            UploadState::Done { version, .. } => self.manifest_blobs(*version).await?,
            UploadState::Aborted => HashSet::new(),
            // Race: a running completion may use any part, also a replaced one [invariant 58].
            UploadState::Open | UploadState::Completing { .. } | UploadState::Reopening { .. } => return Ok(()),
        };
        let (store, partition) = (&self.gateway.context().ports.store, Partition::parts(head.id));
        // Race: a part put after this stamp rereads the upload afterwards and removes its own rows.
        let mut stamp = self.gateway.issuer().issue().await?;
        let mut after = None;
        loop {
            let page =
                store.read(&partition, &blob_rows(after.as_ref(), LISTING_PAGE_ROWS), &self.heads.options()).await?;
            for blob in page.rows.iter().filter_map(|row| blob_of_row(&row.name)) {
                if kept.contains(&blob) {
                    continue;
                }
                let synced = match synced {
                    Some(synced) => synced,
                    // Crash: after a power cut the upload could be open again, and would need these bytes [invariant 94].
                    None => *synced.insert(self.gateway.blobs().releases.sync_barrier().await?),
                };
                self.gateway.blobs().releases.remove_or_leave(blob, synced).await;
            }
            // Race: rows by a gateway with a faster clock are newer than the stamp above, and would stay.
            stamp = page.rows.iter().map(|row| row.stamp).fold(stamp, Timestamp::max);
            after = page.rows.last().map(|row| row.name.clone());
            if page.stopped == Stopped::End || after.is_none() {
                break;
            }
        }
        let batch = Batch::single(partition, vec![Change::Clear { stamp }]);
        Ok(store.apply(batch, &self.heads.options().reclaiming()).await?)
    }

    /// The blobs a manifest references; empty when it was removed with its object.
    pub(super) async fn manifest_blobs(&self, manifest: VersionId) -> Result<HashSet<BlobId>> {
        // The owner row has the empty name, so the read begins after it.
        let (mut blobs, mut after) = (HashSet::new(), Some(Bytes::new()));
        loop {
            let query = ReadQuery::after(after.as_ref(), 8);
            let page = self
                .gateway
                .context()
                .ports
                .store
                .read(&Partition::manifest(manifest), &query, &self.heads.options())
                .await?;
            after = page.rows.last().map(|row| row.name.clone());
            for row in page.rows {
                let (_, _, parts) = decode_manifest_row(&row.name, row.value)?;
                blobs.extend(parts.iter().filter_map(|part| part.blob));
            }
            if page.stopped == Stopped::End || after.is_none() {
                return Ok(blobs);
            }
        }
    }
}

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
        while let Some((version, _, since)) = state_completion(&head.upload.state) {
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
        let Some((version, list, since)) = state_completion(&observed.upload.state) else {
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
            Some(completed_version) => done_state(&completed_version, list),
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
            self.remove_unused_parts(&settled, self.gateway.blobs().releases.proof_of_answered_write()).await?;
        }
        Ok(Some(settled))
    }

    /// Fences the head of the key and returns the version of this id, if the key has it. After the fence no completing
    /// writer can add it without seeing the upload's new state.
    async fn completed_version(&self, head: &UploadHead, id: VersionId) -> Result<Option<Version>> {
        let (bucket, key) = (head.upload.bucket, &head.upload.key);
        let object_head = self.heads.fence_head(bucket, key).await?;
        if let Some(current) = object_head.current.filter(|current| current.id == id) {
            return Ok(Some(current));
        }
        self.heads.read_version(&Partition::head(bucket, key), id, &self.heads.options()).await
    }

    /// Removes the rows of a manifest that no version references. Its blobs stay: they belong to the upload.
    pub(super) async fn clear_manifest(&self, version: VersionId) -> Result<()> {
        let gone = Change::Clear { stamp: self.gateway.issuer().issue().await? };
        let batch = Batch::single(Partition::manifest(version), vec![gone]);
        Ok(self.gateway.context().ports.store.apply(batch, &self.heads.options().reclaiming()).await?)
    }

    /// Whether the writer that began to complete an upload as `version` at `since` is gone or out of time.
    pub(super) fn is_abandoned(&self, version: VersionId, since: Timestamp) -> bool {
        // The directory's lock proves that the run that began the completion has ended.
        if self.config.single_process && version.actor() != self.gateway.context().ports.actor {
            return true;
        }
        let max = u64::try_from(self.config.completing_max.as_micros()).unwrap_or(u64::MAX);
        self.gateway.context().now() > since.saturating_add(max)
    }
}
