//! Completing an upload.
//!
//! ```text
//! open ─> completing(version) ─> manifest ─> head of the key ─> done (kept a day)
//! ```
//! Whoever meets an upload that has been completing for too long takes it back: it marks the upload *reopening*, touches the
//! key's head, looks whether the version is there, and makes the upload done or open accordingly. The completing writer reads
//! the key's head, then its own upload, then commits against that head: so one of the two gives way.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_model::limits::BATCH_BYTES_MAX;
use larder_model::objects::part::manifest_rows;
use larder_model::objects::{
    Bucket, Checksum, Etag, ManifestOwner, ManifestPart, Object, ObjectBody, UploadState, Version, VersionId,
    Versioning,
};
use larder_model::rows::{Batch, Change, Row, changes_bytes};
use larder_store::Partition;
use tokio::time::Instant;

use super::assemble::{Assembly, assemble, list_digest};
use super::commit::Place;
use super::put::{WriteConditions, lost};
use super::reopen::done;
use super::upload_head::UploadHead;
use super::{Caller, Error, Objects, Result};
use crate::Rule;

/// A part as listed by who completes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Its number as it came, at least 1.
    pub number: u32,
    /// Its entity tag as it came, without quotes.
    pub etag: String,
    /// Its checksum, if one was listed.
    pub checksum: Option<Checksum>,
}

/// What is to be completed.
#[derive(Debug, Clone)]
pub struct CompleteUpload {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload, as it came.
    pub upload: String,
    /// The parts; at least one.
    pub parts: Vec<ListedPart>,
    /// What must hold of the current version.
    pub conditions: WriteConditions,
    /// The object's checksum, if the client says it.
    pub checksum: Option<Checksum>,
    /// The object's length in bytes, if the client says it.
    pub length: Option<u64>,
}

/// An upload that became an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// The object's entity tag.
    pub etag: Etag,
    /// The object's checksum.
    pub checksum: Option<Checksum>,
    /// Its version id as clients see it, where versions are kept.
    pub version_id: Option<String>,
}

impl Objects {
    /// Makes an object of parts. A repeat with the same list is answered the same for a day, one with another list as if there
    /// were no upload.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `InvalidPartOrder`, `InvalidPart`, `EntityTooSmall`, `EntityTooLarge`,
    /// `BadChecksum`, `InvalidRequest` (length, checksums), `PreconditionFailed`, `NoSuchKey` (`If-Match` without an object),
    /// `ConditionalConflict`: the upload stays open. `OperationAborted` when somebody else completes it all the time.
    pub async fn complete(&self, caller: &Caller, request: CompleteUpload) -> Result<Completed> {
        let bucket = self.writable(caller, &request.bucket, &request.key, &[]).await?;
        let mut head = self.known_upload(&bucket, &request.key, &request.upload).await?;
        let list = list_digest(&request.parts);
        let deadline = Instant::now() + self.gateway.config.timeout;
        loop {
            let id = head.id;
            let settled = self.settle_upload(head, deadline).await?.ok_or(Error::NoSuchUpload)?;
            if settled.upload.state != UploadState::Open {
                return answer(&bucket, &settled.upload.state, &list);
            }
            if let Some(state) = self.complete_open(&bucket, settled, &request, list).await? {
                return answer(&bucket, &state, &list);
            }
            if Instant::now() >= deadline {
                return Err(Error::OperationAborted);
            }
            head = self.read_upload(id).await?.ok_or(Error::NoSuchUpload)?;
        }
    }

    /// Completes an upload that was seen open, and answers the state it ends in; `None`: somebody else came in between.
    async fn complete_open(
        &self,
        bucket: &Bucket,
        open: UploadHead,
        request: &CompleteUpload,
        list: [u8; 20],
    ) -> Result<Option<UploadState>> {
        let stored = self.all_parts(open.id).await?;
        let assembly = assemble(request, &stored, open.upload.checksum, &self.config)?;
        drop(stored);
        let version = VersionId::new(self.gateway.issue().await?, self.gateway.actor);
        let begun = UploadState::Completing { version, list, since: self.gateway.now() };
        let Some(completing) = self.swap_upload(&open, begun).await? else { return Ok(None) };
        let place = Place::of(bucket, &request.key);
        match self.commit_upload(&place, &completing, version, &assembly, &request.conditions).await {
            Ok(Some(made)) => Ok(Some(self.finish_upload(&completing, done(&made, list)).await)),
            Ok(None) => self.give_way(&completing, version).await,
            Err(error) => {
                // Whether it happened all the same, the fence finds out.
                self.give_way(&completing, version).await.unwrap_or(None).map_or(Err(error), |state| Ok(Some(state)))
            }
        }
    }

    /// Makes the version the current one of its key; `None`: the upload is not being completed as this version any more, or
    /// the version has become too old to be the newest of the key.
    async fn commit_upload(
        &self,
        place: &Place,
        completing: &UploadHead,
        id: VersionId,
        assembly: &Assembly,
        conditions: &WriteConditions,
    ) -> Result<Option<Version>> {
        let manifest_first = self.gateway.rule(Rule::ManifestFirst);
        if manifest_first {
            self.write_manifest(completing, id, &assembly.parts).await?;
        }
        let mut race = self.race(place, None);
        loop {
            let turn = race.turn().await.map_err(|error| lost(error, conditions))?;
            // After the head of the key was read: who takes the upload back marks it, and then touches that head.
            if self.gateway.rule(Rule::FenceCompleting)
                && self.read_upload(completing.id).await?.as_ref() != Some(completing)
            {
                return Ok(None);
            }
            conditions.check(turn.head.current.as_ref())?;
            let object = object_of(completing, id, assembly);
            let made = Version { id, ..turn.new_version(completing.upload.owner.clone(), Some(object)) };
            // Versions sort by their ids, so this one must not be older than one that stays.
            if turn.newest_left(&made).await?.is_some_and(|newest| newest.stamp() >= id.stamp()) {
                return Ok(None);
            }
            let next = turn.add(made.clone()).await?;
            if turn.commit(next).await? {
                if !manifest_first {
                    self.write_manifest(completing, id, &assembly.parts).await?;
                }
                return Ok(Some(made));
            }
        }
    }

    /// Writes the manifest of a version that no head names yet, and whose it is.
    async fn write_manifest(&self, head: &UploadHead, version: VersionId, parts: &[ManifestPart]) -> Result<()> {
        let (store, stamp) = (&self.gateway.ports.store, self.gateway.issue().await?);
        let bytes_max = store.limits().batch_max.min(BATCH_BYTES_MAX) / 2;
        let owner = ManifestOwner { bucket: head.upload.bucket, upload: head.id, key: head.upload.key.clone() };
        let owner = Row { name: Bytes::new(), value: owner.encode(), stamp, expires: None };
        // In every batch: rows that come late, after all was removed, are found by it too.
        let mut changes = vec![Change::Put(owner.clone())];
        let write =
            async |changes| store.apply(Batch::of(Partition::manifest(version), changes), &self.options()).await;
        for (name, value) in manifest_rows(parts) {
            if changes_bytes(&changes) + value.len() > bytes_max {
                write(std::mem::replace(&mut changes, vec![Change::Put(owner.clone())])).await?;
            }
            changes.push(Change::Put(Row { name, value, stamp, expires: None }));
        }
        Ok(write(changes).await?)
    }

    /// Ends an upload whose version was committed. What fails now is left to whoever meets the upload next.
    async fn finish_upload(&self, completing: &UploadHead, state: UploadState) -> UploadState {
        let ended = async {
            if let Some(ended) = self.swap_upload(completing, state.clone()).await? {
                return self.remove_leavings(&ended, self.gateway.releases.answered()).await;
            }
            // Whoever replaced the version already has ended the upload.
            match self.read_upload(completing.id).await? {
                Some(ended) => self.remove_leavings(&ended, None).await,
                None => Ok(()),
            }
        };
        let ended: Result<()> = ended.await;
        if let Err(error) = ended {
            tracing::debug!(%error, "the end of a completed upload is left to the sweeper");
        }
        state
    }

    /// Opens the upload again after a version was not committed, as far as is known; answers how it ended if that was wrong.
    async fn give_way(&self, completing: &UploadHead, version: VersionId) -> Result<Option<UploadState>> {
        let settled = self.take_back(completing).await?;
        match settled.map(|head| head.upload.state) {
            Some(state @ UploadState::Done { version: found, .. }) if found == version => Ok(Some(state)),
            // Somebody else is looking whether it happened.
            Some(UploadState::Reopening { version: found, .. }) if found == version => Ok(None),
            _ => {
                // Whoever took it back before may have done so before the manifest was written.
                self.forget_manifest(version).await?;
                Ok(None)
            }
        }
    }
}

/// What a completed upload is answered with, now and when it is asked for again.
fn answer(bucket: &Bucket, state: &UploadState, asked: &[u8; 20]) -> Result<Completed> {
    match state {
        UploadState::Done { version, null, list, etag, checksum } if list == asked => {
            let shown = !null || bucket.versioning != Versioning::Off;
            let text = || if *null { "null".to_owned() } else { version.text() };
            Ok(Completed { etag: *etag, checksum: checksum.clone(), version_id: shown.then(text) })
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
