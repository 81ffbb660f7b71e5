//! Putting an object. [`Objects::put`] is the list of the steps.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::content::BlobId;

use super::acl_choice::check_public_acl;
use super::commit::{KeyChange, ObjectLocation, client_version_id, lifecycle_expiry};
use super::events::{ChangeCause, WriteTerms};
use super::quotas::Admission;
use super::receive::{BodyReceiver, VerifiedBody};
use super::{Caller, Error, Objects, Result};
use crate::rules::notification::EventAction;
use crate::rules::{Bucket, Etag, Object, Storage, Version};

pub use crate::conditions::WriteConditions;
pub use crate::receive::{ChecksumWanted, ObjectMetadata, UploadBody, stored_encoding};

/// A request to put an object.
pub struct PutObject {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// Its metadata.
    pub metadata: ObjectMetadata,
    /// Its bytes.
    pub upload_body: UploadBody,
    /// Conditions on the current version.
    pub conditions: WriteConditions,
}

/// A stored version.
#[derive(Debug, Clone)]
pub struct StoredVersion {
    /// The version.
    pub version: Version,
    /// Its id for clients; `None` in a bucket that never had versioning.
    pub version_id: Option<String>,
    /// When, and by which rule, the lifecycle will remove it.
    pub expires: Option<(Timestamp, String)>,
}

/// An object whose bytes are here, before its commit.
pub(super) struct NewObject<'a> {
    pub(super) object: Object,
    pub(super) received: VerifiedBody,
    /// Its room in the quotas.
    pub(super) admission: Admission<'a>,
}

/// What became of an acknowledged put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutFate {
    Stored,
    /// It counts as made just before a put of the same time, which replaced it: nothing was written.
    Replaced,
}

impl Objects {
    /// Puts an object, atomically.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `KeyTooLong`, `QuotaExceeded`, `EntityTooLarge`, `BadDigest`, `BadChecksum`, `BrokenBody`,
    /// `PreconditionFailed`, `NoSuchKey` (`If-Match` without an object), `ConditionalConflict`, `Encryption`, `InvalidRequest` for a lock in a bucket
    /// without, `InvalidArgument` for a retention in the past; no bytes remain then.
    pub async fn put(&self, caller: &Caller, request: PutObject) -> Result<StoredVersion> {
        self.put_as(ChangeCause::request(EventAction::Put, caller), caller, request).await
    }

    /// Puts the object of a form, as [`Self::put`]: its event has a name of its own.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn post(&self, caller: &Caller, request: PutObject) -> Result<StoredVersion> {
        self.put_as(ChangeCause::request(EventAction::Post, caller), caller, request).await
    }

    async fn put_as(&self, cause: ChangeCause<'_>, caller: &Caller, request: PutObject) -> Result<StoredVersion> {
        let PutObject { bucket, key, metadata, upload_body, conditions } = request;
        let bucket = self.buckets.find_for_put(caller, &bucket, &key, &metadata.tags, &metadata.lock).await?;
        self.heads.check_new_lock(&bucket, &metadata.lock).await?;
        let owner = caller.object_owner(&bucket, metadata.acl.gives_control());
        let acl = self.buckets.new_object_acl(caller, &bucket, &key, &metadata.acl, &owner).await?;
        let location = ObjectLocation::new(&bucket, &key);
        // A failed condition is cheap to find before the body; the commit checks it again.
        self.precheck_conditions(caller, &bucket, &location, &conditions).await?;
        let new = self.receive_object(&self.receiver, &bucket, &location, metadata, upload_body).await?;
        let object = Object { acl, ..new.object };
        let stored = self
            .commit_object(&location, owner, object, new.received, WriteTerms { conditions: &conditions, cause })
            .await?;
        new.admission.written();
        Ok(stored)
    }

    /// Receives the bytes of an object into room of its bucket. It has the entity tag of its bytes, and no ACL.
    ///
    /// # Errors
    /// `QuotaExceeded`, `EntityTooLarge`, `BadDigest`, `BadChecksum`, `BrokenBody`, `Encryption`; no bytes remain then.
    pub(super) async fn receive_object(
        &self,
        receiver: &BodyReceiver,
        bucket: &Arc<Bucket>,
        location: &ObjectLocation,
        metadata: ObjectMetadata,
        upload_body: UploadBody,
    ) -> Result<NewObject<'_>> {
        let (key, announced) = (&location.key, upload_body.length);
        let admission = self.quotas.admit(bucket, key, Storage::object(announced.unwrap_or(0))).await?;
        let encryption = self.keys.begin(metadata.encryption, bucket).await?;
        let bytes_key = encryption.map(|encryption| encryption.key);
        let to = receiver.object_destination(location).await?.sealed(bytes_key);
        let received = receiver.receive(upload_body, to).await?;
        let room = Storage::object(received.length);
        let admission = self.quotas.admit_received(admission, announced, bucket, key, room).await;
        let admission = receiver.keep_or_discard(admission, &received).await?;
        let object = Object {
            body: received.body.clone(),
            etag: Etag::from_md5(received.tag),
            headers: metadata.headers,
            meta: metadata.meta,
            tags: metadata.tags,
            acl: None,
            checksum: Some(received.checksum.clone()),
            upload: None,
            encryption: encryption.map(|encryption| encryption.stored),
            lock: metadata.lock,
        };
        Ok(NewObject { object, received, admission })
    }

    /// Checks conditions before the body is received. In a moving bucket the versions that they ask for, or that stay below the
    /// new one, come first.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NoSuchKey`; `AccessDenied` to a caller who may not know an entity tag that they ask for.
    pub(super) async fn precheck_conditions(
        &self,
        caller: &Caller,
        bucket: &Bucket,
        location: &ObjectLocation,
        conditions: &WriteConditions,
    ) -> Result<()> {
        self.heads.bring_before_change(bucket, &location.key, !conditions.is_empty()).await?;
        if conditions.is_empty() {
            return Ok(());
        }
        let observed = self.heads.read_head(&location.partition(), &self.heads.options()).await?;
        caller.check_conditions(bucket, &location.key, observed.head.current.as_ref(), conditions)
    }

    /// Commits an object of a received body. After a definite failure its blob is removed.
    ///
    /// # Errors
    /// As [`Self::put_version`].
    pub(super) async fn commit_object(
        &self,
        location: &ObjectLocation,
        owner: String,
        object: Object,
        received: VerifiedBody,
        terms: WriteTerms<'_>,
    ) -> Result<StoredVersion> {
        let blob = received.blob();
        let stored = self.put_version(location, &owner, &object, blob, terms).await;
        match &stored {
            Ok((_, PutFate::Stored)) => {}
            Ok((_, PutFate::Replaced)) => self.receiver.remove_unnamed(blob).await,
            Err(error) => self.receiver.discard(error, blob).await,
        }
        // Race: until the head references the blob, the lease keeps sweepers from it.
        drop(received.lease);
        stored.map(|(stored, _)| stored)
    }

    /// Makes an object the current version if the conditions hold. A put of another client may have replaced it already.
    async fn put_version(
        &self,
        location: &ObjectLocation,
        owner: &str,
        object: &Object,
        blob: Option<BlobId>,
        terms: WriteTerms<'_>,
    ) -> Result<(StoredVersion, PutFate)> {
        let WriteTerms { conditions, cause } = terms;
        let mut cas = self.heads.cas_loop(location, blob);
        loop {
            let attempt = cas.next_attempt().await.map_err(|error| conditional_conflict(error, conditions))?;
            // Race: the compare-and-set expects the head checked here, so of two If-None-Match puts one fails.
            terms.check(&attempt)?;
            // Race: the bucket may have blocked public grants while the body arrived.
            check_public_acl(attempt.bucket(), object.acl.as_ref())?;
            let version = attempt.new_version(owner.to_owned(), Some(object.clone()));
            let version_id = client_version_id(attempt.bucket(), &version);
            let expires = lifecycle_expiry(attempt.bucket(), &location.key, &version);
            let stored = StoredVersion { version: version.clone(), version_id, expires };
            // Conditions ask for the one version that they were checked against, a bucket with versioning keeps each put, and one with
            // receivers of events tells of each.
            let is_told = attempt.bucket().notification.is_some();
            if conditions.is_empty() && version.null && !is_told && attempt.is_replaced() {
                return Ok((stored, PutFate::Replaced));
            }
            // Race: in a bucket that keeps versions each put is one, and none replaces another [invariant 162]. A put that waits would
            // have failed the conditions of this one, or was not what the lifecycle, a move or a deletion saw [invariant 203].
            let replaces_all = version.null && conditions.is_empty();
            let next = KeyChange { replaces_all, ..attempt.add(version).await? };
            if attempt.commit(next, &cause.event(Some(&stored.version))).await? {
                return Ok((stored, PutFate::Stored));
            }
        }
    }
}

/// Contention on a conditional write becomes `ConditionalConflict`.
pub(super) fn conditional_conflict(error: Error, conditions: &WriteConditions) -> Error {
    if error.is_contention() && !conditions.is_empty() { Error::ConditionalConflict } else { error }
}
