//! Giving an upload up, and removing what an upload that has ended leaves behind.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::limits::LISTING_PAGE_ROWS;
use larder_model::objects::access::Asked;
use larder_model::objects::part::decode_manifest_row;
use larder_model::objects::{UploadState, VersionId};
use larder_model::rows::{Batch, Change, Stamp};
use larder_store::{Partition, ReadQuery, Stopped};
use tokio::time::Instant;

use super::part_rows::{blob_of_row, blob_rows};
use super::upload_head::UploadHead;
use super::{Caller, Error, Objects, Result};
use crate::blobs::release::Synced;

impl Objects {
    /// Gives an upload up and removes its parts. `initiated`: when it must have been begun, in whole seconds since 1970.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload` (also when it was given up before), `PreconditionFailed`,
    /// `OperationAborted` when it is being completed all the time.
    pub async fn abort(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        upload: &str,
        initiated: Option<u64>,
    ) -> Result<()> {
        let bucket = self.bucket(bucket).await?;
        let head = self.upload(&bucket, key, upload).await?;
        let asked =
            Asked { action: "s3:AbortMultipartUpload", permission: None, key: Some(key.as_ref()), version: None };
        if !head.is_begun_by(caller) {
            caller.check(&bucket, &asked)?;
        }
        if initiated.is_some_and(|initiated| initiated != head.upload.initiated / 1_000_000) {
            return Err(Error::PreconditionFailed("x-amz-if-match-initiated-time"));
        }
        if self.give_up_upload(head).await? { Ok(()) } else { Err(Error::NoSuchUpload) }
    }

    /// Gives an upload up that is alive; waits while somebody completes it. `false`: it had ended otherwise.
    pub(super) async fn give_up_upload(&self, head: UploadHead) -> Result<bool> {
        let deadline = Instant::now() + self.gateway.config.timeout;
        let mut seen = Some(head);
        while let Some(head) = seen {
            let id = head.id;
            let Some(settled) = self.settle_upload(head, deadline).await? else { break };
            if settled.upload.state != UploadState::Open {
                break;
            }
            if let Some(aborted) = self.swap_upload(&settled, UploadState::Aborted).await? {
                if let Err(error) = self.remove_leavings(&aborted, self.gateway.releases.answered()).await {
                    tracing::debug!(%error, "the parts of an upload that was given up are left to the sweeper");
                }
                return Ok(true);
            }
            seen = self.read_upload(id).await?;
        }
        Ok(false)
    }

    /// Removes rows and blobs of the parts of an upload that has ended, except the blobs an object was made of. What fails is
    /// left to the sweeper, which calls this too. `synced`: that the end of the upload is on disk; without it that is waited
    /// for, since a power cut must not open the upload again.
    pub(super) async fn remove_leavings(&self, head: &UploadHead, mut synced: Option<Synced>) -> Result<()> {
        let kept = match &head.upload.state {
            UploadState::Done { version, .. } => self.manifest_blobs(*version).await?,
            UploadState::Aborted => HashSet::new(),
            UploadState::Open | UploadState::Completing { .. } | UploadState::Reopening { .. } => return Ok(()),
        };
        let (store, partition) = (&self.gateway.ports.store, Partition::parts(head.id));
        // Rows that are written from now on are their writers' to remove: they look at the upload afterwards.
        let mut stamp = self.gateway.issue().await?;
        let mut after = None;
        loop {
            let page = store.read(&partition, &blob_rows(after.as_ref(), LISTING_PAGE_ROWS), &self.options()).await?;
            for blob in page.rows.iter().filter_map(|row| blob_of_row(&row.name)) {
                if kept.contains(&blob) {
                    continue;
                }
                let synced = match synced {
                    Some(synced) => synced,
                    None => *synced.insert(self.gateway.releases.barrier().await?),
                };
                self.gateway.releases.remove_or_leave(blob, synced).await;
            }
            stamp = page.rows.iter().map(|row| row.stamp).fold(stamp, Stamp::max);
            after = page.rows.last().map(|row| row.name.clone());
            if page.stopped == Stopped::End || after.is_none() {
                break;
            }
        }
        let batch = Batch::of(partition, vec![Change::Clear { stamp }]);
        Ok(store.apply(batch, &self.options().reclaiming()).await?)
    }

    /// The blobs a manifest names; none when it was removed with its object.
    pub(super) async fn manifest_blobs(&self, manifest: VersionId) -> Result<HashSet<BlobId>> {
        let (mut blobs, mut after) = (HashSet::new(), Some(Bytes::new()));
        loop {
            let query = ReadQuery::after(after.as_ref(), 8);
            let page = self.gateway.ports.store.read(&Partition::manifest(manifest), &query, &self.options()).await?;
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
