//! Completing an upload.
//!
//! ```text
//! open ─> completing(version) ─> manifest ─> head of the key ─> done (kept for a day)
//! ```
//! A request or sweeper that finds an upload *completing* for too long takes it back: it marks the upload *reopening*,
//! fences the key's head, looks for the version, and sets the upload to done or open. The completing writer reads the key's
//! head, then its upload, then commits against that head: so one of the two gives way.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_rows::limits::BATCH_BYTES_MAX;
use larder_rows::{Batch, Change, Row, changes_bytes};
use larder_store::Partition;
use tokio::time::Instant;

use super::assemble::{Assembly, assemble, list_digest};
use super::commit::ObjectLocation;
use super::put::{WriteConditions, conditional_conflict};
use super::upload_head::{UploadHead, done_state};
use super::uploads::Uploads;
use super::{Caller, Error, Result};
use crate::rules::part::manifest_rows;
use crate::rules::{
    Bucket, Checksum, ChecksumKind, Etag, ManifestOwner, ManifestPart, Object, ObjectBody, Storage, UploadState,
    Version, VersionId,
};

/// A part in the list of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Its number as given, at least 1.
    pub number: u32,
    /// Its entity tag as given, without quotes.
    pub etag: String,
    /// Its checksum, if given.
    pub checksum: Option<Checksum>,
}

/// A request to complete an upload.
#[derive(Debug, Clone)]
pub struct CompleteUpload {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload id, as given.
    pub upload: String,
    /// The parts; at least one.
    pub parts: Vec<ListedPart>,
    /// Conditions on the current version.
    pub conditions: WriteConditions,
    /// The object's checksum, if the client gives one.
    pub checksum: Option<Checksum>,
    /// The kind of the upload's checksums, if the client gives it.
    pub checksum_kind: Option<ChecksumKind>,
    /// The object's length in bytes, if the client gives one.
    pub length: Option<u64>,
}

/// A completed upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedUpload {
    /// The object's entity tag.
    pub etag: Etag,
    /// The object's checksum.
    pub checksum: Option<Checksum>,
    /// Its version id for clients, in a bucket with versioning.
    pub version_id: Option<String>,
}

impl Uploads {
    /// Makes an object of parts. For a day a repeat with the same list gets the same answer, and one with another list
    /// `NoSuchUpload`.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `InvalidPartOrder`, `InvalidPart`, `EntityTooSmall`, `EntityTooLarge`,
    /// `QuotaExceeded`, `BadChecksum`, `InvalidRequest` (length, checksums), `PreconditionFailed`, `NoSuchKey` (`If-Match` without an
    /// object), `ConditionalConflict`: the upload stays open. `OperationAborted` while another completion runs until the deadline.
    pub async fn complete(&self, caller: &Caller, request: CompleteUpload) -> Result<CompletedUpload> {
        let bucket = self.buckets.find_for_put(caller, &request.bucket, &request.key, &[]).await?;
        let mut head = self.heads.find_upload(&bucket, &request.key, &request.upload).await?;
        let list = list_digest(&request.parts);
        let deadline = Instant::now() + self.gateway.core.config.timeout;
        loop {
            let id = head.id;
            let settled = self.settle(head, deadline).await?.ok_or(Error::NoSuchUpload)?;
            if settled.upload.state != UploadState::Open {
                return completed_answer(&settled.upload.state, &list);
            }
            if let Some(state) = self.complete_open(&bucket, settled, &request, list).await? {
                return completed_answer(&state, &list);
            }
            if Instant::now() >= deadline {
                return Err(Error::OperationAborted);
            }
            // Race: another request changed the upload first; its end state may answer this one too.
            head = self.heads.read_upload(id).await?.ok_or(Error::NoSuchUpload)?;
        }
    }

    /// Completes an upload read as open, and returns its end state; `None`: another request changed the upload first.
    async fn complete_open(
        &self,
        bucket: &Arc<Bucket>,
        open: UploadHead,
        request: &CompleteUpload,
        list: [u8; 20],
    ) -> Result<Option<UploadState>> {
        let stored = self.heads.all_parts(open.id).await?;
        let assembly = assemble(request, &stored, open.upload.checksum, &self.config)?;
        // Bound: up to 10,000 parts; the commit below needs only those of the list.
        drop(stored);
        // The bytes are those of the parts, which have their room.
        let admission = self.quotas.admit(bucket, &request.key, Storage::object(0)).await?;
        let version = VersionId::new(self.gateway.issuer.issue().await?, self.gateway.core.ports.actor);
        let begun = UploadState::Completing { version, list, since: self.gateway.core.now() };
        // Crash: from here on the upload names its version, so a recovery can look for it.
        let Some(completing) = self.heads.cas_upload_state(&open, begun).await? else { return Ok(None) };
        let location = ObjectLocation::new(bucket, &request.key);
        match self.commit_upload(&location, &completing, version, &assembly, &request.conditions).await {
            Ok(Some(made)) => {
                admission.written();
                Ok(Some(self.finish_upload(&completing, done_state(&made, list)).await))
            }
            Ok(None) => self.resolve_failed_completion(&completing, version).await,
            Err(error) => {
                // Race: the commit may have happened in spite of the error. The fence finds out.
                self.resolve_failed_completion(&completing, version)
                    .await
                    .unwrap_or(None)
                    .map_or(Err(error), |state| Ok(Some(state)))
            }
        }
    }

    /// Makes the version current; `None`: another request has taken the upload back, or the version is now older than
    /// one that stays.
    async fn commit_upload(
        &self,
        location: &ObjectLocation,
        completing: &UploadHead,
        id: VersionId,
        assembly: &Assembly,
        conditions: &WriteConditions,
    ) -> Result<Option<Version>> {
        // Crash: the manifest precedes the head that references it; otherwise a reader finds no bytes [invariant 60].
        self.write_manifest(completing, id, &assembly.parts).await?;
        // No blob is checked for a mark: sweepers keep the blobs of an upload that is alive.
        let mut cas = self.heads.cas_loop(location, None);
        loop {
            let attempt = cas.next_attempt().await.map_err(|error| conditional_conflict(error, conditions))?;
            // Race: head before upload. A request that takes the upload back marks it and then fences that
            // head, so a stale read here makes the commit conflict [invariant 59].
            if self.heads.read_upload(completing.id).await?.as_ref() != Some(completing) {
                return Ok(None);
            }
            conditions.check(attempt.head.current.as_ref())?;
            let object = object_of(completing, id, assembly);
            let made = Version { id, ..attempt.new_version(completing.upload.owner.clone(), Some(object)) };
            // Race: a put overtook this completion, whose older id must not become current after it [invariant 99].
            if attempt.newest_remaining(&made).await?.is_some_and(|newest| newest.stamp() >= id.stamp()) {
                return Ok(None);
            }
            let next = attempt.add(made.clone()).await?;
            if attempt.commit(next).await? {
                return Ok(Some(made));
            }
        }
    }

    /// Writes the manifest of a version that no head references yet, with its owner row.
    async fn write_manifest(&self, head: &UploadHead, version: VersionId, parts: &[ManifestPart]) -> Result<()> {
        let (store, stamp) = (&self.gateway.core.ports.store, self.gateway.issuer.issue().await?);
        let bytes_max = store.limits().batch_max.min(BATCH_BYTES_MAX) / 2;
        let owner = ManifestOwner { bucket: head.upload.bucket, upload: head.id, key: head.upload.key.clone() };
        let owner = Row { name: Bytes::new(), value: owner.encode(), stamp, expires: None };
        // Crash: each batch has the owner row, so the sweeper can attribute rows that arrive after a removal.
        let mut changes = vec![Change::Put(owner.clone())];
        let write = async |changes| {
            store.apply(Batch::single(Partition::manifest(version), changes), &self.heads.options()).await
        };
        for (name, value) in manifest_rows(parts) {
            if changes_bytes(&changes) + value.len() > bytes_max {
                write(std::mem::replace(&mut changes, vec![Change::Put(owner.clone())])).await?;
            }
            changes.push(Change::Put(Row { name, value, stamp, expires: None }));
        }
        Ok(write(changes).await?)
    }

    /// Marks an upload done after its version was committed. The next request on the upload retries what fails here.
    async fn finish_upload(&self, completing: &UploadHead, state: UploadState) -> UploadState {
        let ended = async {
            if let Some(ended) = self.heads.cas_upload_state(completing, state.clone()).await? {
                return self.remove_unused_parts(&ended, self.gateway.blobs.releases.proof_of_answered_write()).await;
            }
            // A writer that replaced the version has already ended the upload.
            match self.heads.read_upload(completing.id).await? {
                Some(ended) => self.remove_unused_parts(&ended, None).await,
                None => Ok(()),
            }
        };
        let ended: Result<()> = ended.await;
        if let Err(error) = ended {
            tracing::debug!(%error, "cleanup after a completed upload failed; the sweeper retries");
        }
        state
    }

    /// Opens the upload again after a failed commit; returns its end state if the commit had happened.
    async fn resolve_failed_completion(
        &self,
        completing: &UploadHead,
        version: VersionId,
    ) -> Result<Option<UploadState>> {
        let settled = self.resolve_completion(completing).await?;
        match settled.map(|head| head.upload.state) {
            Some(state @ UploadState::Done { version: found, .. }) if found == version => Ok(Some(state)),
            // Another request is resolving the same completion.
            Some(UploadState::Reopening { version: found, .. }) if found == version => Ok(None),
            _ => {
                // Race: an earlier recovery may have run before the manifest was written.
                self.clear_manifest(version).await?;
                Ok(None)
            }
        }
    }
}

/// The answer of a completed upload, for the first request and its repeats.
fn completed_answer(state: &UploadState, asked: &[u8; 20]) -> Result<CompletedUpload> {
    match state {
        UploadState::Done { version, null, list, etag, checksum } if list == asked => {
            // AWS names a version, not that it is the null one.
            let version_id = (!null).then(|| version.text());
            Ok(CompletedUpload { etag: *etag, checksum: checksum.clone(), version_id })
        }
        _ => Err(Error::NoSuchUpload),
    }
}

fn object_of(head: &UploadHead, manifest: VersionId, assembly: &Assembly) -> Object {
    let upload = &head.upload;
    // Part numbers end at 10,000.
    let count = u32::try_from(assembly.parts.len()).unwrap_or(u32::MAX);
    Object {
        body: ObjectBody::Parts { manifest, count, length: assembly.length },
        etag: assembly.etag,
        headers: upload.headers.clone(),
        meta: upload.meta.clone(),
        tags: upload.tags.clone(),
        acl: upload.acl.clone(),
        checksum: assembly.checksum.clone(),
        upload: Some(head.id),
    }
}
