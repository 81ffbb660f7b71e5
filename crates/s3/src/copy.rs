//! Copies of objects. A copy to another key copies bytes; a copy of a key onto itself shares them [invariant 61].

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream};
use larder_rows::limits::PART_BYTES_MAX;
use parking_lot::Mutex;

use super::acl_choice::{AclChoice, check_public_acl};
use super::commit::{ObjectLocation, client_version_id, lifecycle_expiry, version_id_text};
use super::encryption::{EncryptionChoice, NewEncryption};
use super::events::{ChangeCause, WriteTerms};
use super::get::{FoundObject, GetObject, ObjectReader, ReadWindow, VersionSpec, missing_bytes};
use super::put::{ChecksumWanted, ObjectMetadata, StoredVersion, UploadBody, WriteConditions, conditional_conflict};
use super::receive::{BlobDestination, BodyReceiver, VerifiedBody};
use super::{Caller, Error, Objects, Result};
use crate::rules::encryption::EncryptionKind;
use crate::rules::notification::EventAction;
use crate::rules::{Acl, Algorithm, Bucket, Etag, Object, ObjectLock, S3Action, Storage, SystemHeader, Tag, Version};

/// Headers a copy never inherits (AWS, CopyObject).
pub const NEVER_COPIED: &[SystemHeader] = &[SystemHeader::StorageClass, SystemHeader::WebsiteRedirect];
/// Bytes of the source per read.
const PIECE_BYTES: usize = 256 * 1024;
/// Most attempts of a copy whose source is being replaced.
const RETRIES_MAX: usize = 8;

/// A request to copy an object.
pub struct CopyObject {
    /// The source, with its version and conditions; its window is `Whole`.
    pub source: GetObject,
    /// Bucket of the destination.
    pub bucket: String,
    /// Key of the destination.
    pub key: Bytes,
    /// New headers and metadata; `None` inherits those of the source.
    pub replace: Option<ObjectMetadata>,
    /// New tags; `None` inherits those of the source.
    pub tags: Option<Vec<Tag>>,
    /// The ACL, which a client's copy never inherits.
    pub acl: AclChoice,
    /// Whether the copy has the grants of the source instead, and gives full control to an owner who does not own it any more.
    pub keeps_acl: bool,
    /// The request's own values of the [`NEVER_COPIED`] headers.
    pub own: Vec<(SystemHeader, Bytes)>,
    /// Whether the request has any of those headers: a copy onto itself is valid then.
    pub changes_more: bool,
    /// The encryption of the copy, which never inherits that of the source.
    pub encryption: EncryptionChoice,
    /// The checksum to compute; `None`: the source's algorithm.
    pub checksum: Option<Algorithm>,
    /// The lock of the copy, which never inherits that of the source.
    pub lock: ObjectLock,
    /// Conditions on the destination.
    pub conditions: WriteConditions,
}

/// A finished copy.
#[derive(Debug, Clone)]
pub struct CopiedObject {
    /// The new version.
    pub stored: StoredVersion,
    /// The source's version id, in a bucket with versioning.
    pub source_version: Option<String>,
}

/// The destination of a copy.
struct CopyTarget {
    location: ObjectLocation,
    owner: String,
    acl: Option<Acl>,
    onto_itself: bool,
    encryption: Option<NewEncryption>,
}

impl Objects {
    /// Copies an object.
    ///
    /// # Errors
    /// Those of a get of the source, its tags included if inherited, and of a put of the destination; `InvalidRequest`
    /// for a source above 5 GiB and for a copy onto itself that changes nothing.
    pub async fn copy(&self, caller: &Caller, request: CopyObject) -> Result<CopiedObject> {
        let given = request.tags.as_deref().unwrap_or_default();
        let bucket = self.buckets.find_for_put(caller, &request.bucket, &request.key, given, &request.lock).await?;
        self.heads.check_new_lock(&bucket, &request.lock).await?;
        let owner = caller.object_owner(&bucket, request.acl.gives_control());
        let acl = self.buckets.new_object_acl(caller, &bucket, &request.key, &request.acl, &owner).await?;
        let onto_itself = request.source.bucket == request.bucket && request.source.key == request.key;
        let encryption = self.keys.begin(request.encryption, &bucket).await?;
        let location = ObjectLocation::new(&bucket, &request.key);
        let mut target = CopyTarget { location, owner, acl, onto_itself, encryption };
        check_changes(&request, &target)?;
        self.precheck_conditions(caller, &bucket, &target.location, &request.conditions).await?;
        let source = GetObject { window: ReadWindow::Whole, ..request.source.clone() };
        let cause = ChangeCause::request(EventAction::Copy, caller);
        for _ in 0..RETRIES_MAX {
            let (found_object, reader) = self.open_source(caller, source.clone()).await?;
            found_object.version.object.as_ref().map_or(Ok(()), check_copied_size)?;
            self.check_tags(caller, &request, &bucket, &found_object).await?;
            if request.keeps_acl {
                target.acl = self.kept_acl(caller, &request, &bucket, &found_object.version).await?;
            }
            let source_version = found_object.version_id.clone();
            let length = found_object.version.object.as_ref().map_or(0, Object::length);
            let admission = self.quotas.admit(&bucket, &request.key, Storage::object(length)).await?;
            let stored = if shares(&request, &target, &found_object) {
                // A shared copy reads no bytes, so a removal need not wait for this reader.
                drop(reader);
                self.copy_shared(&request, &target, &found_object, cause).await?
            } else {
                Some(self.copy_bytes(&request, &target, &found_object, reader, cause).await?)
            };
            // Race: the source was removed before the commit; the next round looks for it again.
            if let Some(stored) = stored {
                admission.written();
                return Ok(CopiedObject { stored, source_version });
            }
        }
        Err(missing_bytes())
    }

    /// Inheriting tags requires permission to read them at the source and to write them at the destination.
    async fn check_tags(
        &self,
        caller: &Caller,
        request: &CopyObject,
        to: &Bucket,
        found_object: &FoundObject,
    ) -> Result<()> {
        let tagged = found_object.version.object.as_ref().is_some_and(|object| !object.tags.is_empty());
        if request.tags.is_some() || !tagged {
            return Ok(());
        }
        let GetObject { bucket, key, version, .. } = &request.source;
        let read = version.action(S3Action::GetObjectTagging);
        let reader = caller.with_version(version);
        reader.check(&*self.buckets.find(bucket).await?, &read.on_version(key, Some(&found_object.version)))?;
        caller.check(to, &S3Action::NewObjectTags.on_key(&request.key))
    }

    /// The grants of the source for a copy that keeps them. It takes the permission to read them there and to give them here.
    async fn kept_acl(
        &self,
        caller: &Caller,
        request: &CopyObject,
        to: &Bucket,
        version: &Version,
    ) -> Result<Option<Acl>> {
        let mut acl = version.object.as_ref().and_then(|object| object.acl.clone()).unwrap_or_default();
        if version.owner != caller.object_owner(to, request.acl.gives_control()) {
            acl.grants = acl.effective_grants(&version.owner);
        }
        if acl.grants.is_empty() {
            return Ok(None);
        }
        let GetObject { bucket, key, version: spec, .. } = &request.source;
        let read = spec.action(S3Action::GetObjectAcl).on_version(key, Some(version));
        caller.with_version(spec).check(&*self.buckets.find(bucket).await?, &read)?;
        caller.check(to, &S3Action::NewObjectAcl.on_key(&request.key))?;
        Ok(Some(acl))
    }

    /// The source of a copy and a reader of its bytes.
    ///
    /// # Errors
    /// As [`Self::get`]; a delete marker and failed conditions become errors of a copy.
    pub(super) async fn open_source(
        &self,
        caller: &Caller,
        mut source: GetObject,
    ) -> Result<(FoundObject, ObjectReader)> {
        source.conditions.always_precondition = true;
        let reader = caller.with_action(S3Action::GetObject).with_version(&source.version);
        self.get(&reader, &source).await.map_err(|error| match error {
            Error::DeleteMarker { current: true, .. } => Error::NoSuchKey,
            Error::DeleteMarker { .. } => Error::InvalidRequest("The source of a copy is a delete marker.".into()),
            other => other,
        })
    }

    async fn copy_bytes(
        &self,
        request: &CopyObject,
        target: &CopyTarget,
        found_object: &FoundObject,
        reader: ObjectReader,
        cause: ChangeCause<'_>,
    ) -> Result<StoredVersion> {
        let Some(source) = &found_object.version.object else { return Err(missing_bytes()) };
        let algorithm = source.checksum.as_ref().map(|checksum| checksum.algorithm);
        let checksum = request.checksum.or(algorithm).map_or(ChecksumWanted::Default, ChecksumWanted::Compute);
        let key = target.encryption.map(|encryption| encryption.key);
        let to = self.receiver.object_destination(&target.location).await?.sealed(key);
        let received = self.receiver.receive_copy(reader, checksum, to).await?;
        let object = Object {
            body: received.body.clone(),
            etag: Etag::from_md5(received.tag),
            checksum: Some(received.checksum.clone()),
            upload: None,
            encryption: target.encryption.map(|encryption| encryption.stored),
            ..described(request, target, source)
        };
        let terms = WriteTerms { conditions: &request.conditions, cause };
        self.commit_object(&target.location, target.owner.clone(), object, received, terms).await
    }

    /// Writes a version that references the bytes of the source; `None` when the source is gone.
    async fn copy_shared(
        &self,
        request: &CopyObject,
        target: &CopyTarget,
        found_object: &FoundObject,
        cause: ChangeCause<'_>,
    ) -> Result<Option<StoredVersion>> {
        let Some(source) = &found_object.version.object else { return Ok(None) };
        let spec = VersionSpec::Id(version_id_text(&found_object.version));
        let terms = WriteTerms { conditions: &request.conditions, cause };
        // No blob is checked for a mark: sweepers keep the bytes that the source version references.
        let mut cas = self.heads.cas_loop(&target.location, None);
        loop {
            let attempt = cas.next_attempt().await.map_err(|error| conditional_conflict(error, &request.conditions))?;
            terms.check(&attempt)?;
            // Race: the source must still be there in this attempt; a removal of it would have released the shared bytes. Its tags
            // and grants may have changed, and the copy would take them back.
            if target.onto_itself && attempt.find(&spec).await?.as_ref() != Some(&found_object.version) {
                return Ok(None);
            }
            let object = described(request, target, source);
            check_public_acl(attempt.bucket(), object.acl.as_ref())?;
            let version = attempt.new_version(target.owner.clone(), Some(object));
            let version_id = client_version_id(attempt.bucket(), &version);
            let expires = lifecycle_expiry(attempt.bucket(), &request.key, &version);
            let next = attempt.add_shared(version.clone()).await?;
            if attempt.commit(next, &cause.event(Some(&version))).await? {
                return Ok(Some(StoredVersion { version, version_id, expires }));
            }
        }
    }
}

impl BodyReceiver {
    /// Receives the bytes of an object as those of another.
    ///
    /// # Errors
    /// As [`Self::receive`], and `Damaged` when the source is damaged.
    pub(super) async fn receive_copy(
        &self,
        reader: ObjectReader,
        checksum: ChecksumWanted,
        to: BlobDestination,
    ) -> Result<VerifiedBody> {
        let failed = Arc::new(Mutex::new(None));
        let length = Some(reader.left());
        let stream = Box::new(CopyStream { reader, failed: Arc::clone(&failed) });
        let received = self.receive(UploadBody { stream, length, md5: None, checksum }, to).await;
        // The error of the source is more precise than a broken body.
        received.map_err(|error| failed.lock().take().unwrap_or(error))
    }
}

/// Whether the copy can share the source's bytes: same key, same checksum algorithm. A deletion of the source removes
/// the bytes of its key, whatever other keys reference [invariant 61].
fn shares(request: &CopyObject, target: &CopyTarget, found_object: &FoundObject) -> bool {
    let object = found_object.version.object.as_ref();
    let algorithm = object.and_then(|object| object.checksum.as_ref()).map(|checksum| checksum.algorithm);
    // Bytes under a key of the server may stay so; others are written anew.
    let kind = object.and_then(Object::encryption_kind);
    let same_kind = kind == target.encryption.map(|encryption| encryption.stored.kind());
    let is_readable = kind != Some(EncryptionKind::Customer);
    target.onto_itself
        && same_kind
        && is_readable
        && request.checksum.is_none_or(|requested_algorithm| Some(requested_algorithm) == algorithm)
}

/// The object of a copy: the source with the request's metadata.
fn described(request: &CopyObject, target: &CopyTarget, source: &Object) -> Object {
    let mut object = Object { acl: target.acl.clone(), lock: request.lock, ..source.clone() };
    if let Some(metadata) = &request.replace {
        object.headers.clone_from(&metadata.headers);
        object.meta.clone_from(&metadata.meta);
    }
    object.headers.retain(|(header, _)| !NEVER_COPIED.contains(header));
    object.headers.extend(request.own.iter().cloned());
    if let Some(tags) = &request.tags {
        object.tags.clone_from(tags);
    }
    object
}

fn check_changes(request: &CopyObject, target: &CopyTarget) -> Result<()> {
    let changes =
        request.replace.is_some() || request.tags.is_some() || request.changes_more || target.encryption.is_some();
    if !target.onto_itself || changes || request.source.version != VersionSpec::Current {
        return Ok(());
    }
    Err(Error::InvalidRequest("A copy of an object onto itself has to change its metadata or storage class.".into()))
}

/// Refuses the source of a copy that is too large for one piece.
///
/// # Errors
/// `InvalidRequest`.
pub fn check_copied_size(source: &Object) -> Result<()> {
    let length = source.length();
    if length <= PART_BYTES_MAX {
        return Ok(());
    }
    let message = format!("The source has {length} bytes; a copy in one piece may have {PART_BYTES_MAX}.");
    Err(Error::InvalidRequest(message))
}

/// The bytes of an object as a request body.
struct CopyStream {
    reader: ObjectReader,
    failed: Arc<Mutex<Option<Error>>>,
}

#[async_trait]
impl ByteStream for CopyStream {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        match self.reader.next(PIECE_BYTES).await {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => Some(Ok(piece)),
            Err(error) => {
                let broken = BodyError(error.to_string());
                *self.failed.lock() = Some(error);
                Some(Err(broken))
            }
        }
    }
}
