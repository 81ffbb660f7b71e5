//! Importing versions that another store had, with their entity tags and times.
//!
//! A move imports the versions of a key one by one, the oldest first. Each goes onto the version that the one before it became:
//! what a client of this store wrote in between stays, and the rest of the key's versions is not imported.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_rows::limits::S3_KEY_BYTES_MAX;
use larder_rows::{ActorId, Timestamp};

use super::commit::{CasAttempt, CasLoop, ObjectLocation};
use super::events::ChangeEvent;
use super::object_lock::NO_LOCK_FOR_NEW;
use super::receive::{BodyReceiver, VerifiedBody};
use super::{Error, Objects, Result};
use crate::put::{ObjectMetadata, UploadBody};
use crate::rules::{Acl, Bucket, Etag, Object, ObjectLock, Version, VersionId, Versioning};

/// The key of an import, and the version that it goes onto.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportPlace {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The version that the last import of this key became; `None`: the key has none.
    pub after: Option<VersionId>,
    /// The versions of the key in the other store, the newest first.
    pub listed: Arc<[ImportedIdentity]>,
    /// The actor of the move: no gateway has it, so its versions are told from those of clients.
    pub actor: ActorId,
}

/// What a version was in the other store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportedIdentity {
    /// Its entity tag; `None` for a delete marker, and where the tag of its bytes is to be taken.
    pub etag: Option<Etag>,
    /// Its time.
    pub modified: Timestamp,
    /// Whether its version id was `null`; in a bucket without versioning it always is.
    pub null: bool,
}

/// An object of another store.
pub struct ImportedObject {
    /// Its metadata. The choice of an ACL in it does not count.
    pub metadata: ObjectMetadata,
    /// Its grants beside those of the bucket's owner, who owns it here.
    pub acl: Option<Acl>,
    /// Its bytes.
    pub upload_body: UploadBody,
}

/// What became of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFate {
    /// The key has it as this version.
    Imported(VersionId),
    /// The key has no version left.
    Removed,
    /// A client changed the key here, and that stays.
    Kept,
    /// Another import of the move has brought a newer version.
    Passed,
}

/// How an import ended.
struct ImportEnd {
    fate: ImportFate,
    /// Whether this import added the version, and not one before it.
    is_added: bool,
}

impl Objects {
    /// Makes an object of another store the current version of its key. No receiver of events is told.
    ///
    /// # Errors
    /// `OperationAborted` in a bucket that the move has left, `NoSuchBucket`, `KeyTooLong`, `QuotaExceeded`, `EntityTooLarge`, `BadDigest`, `BadChecksum`, `BrokenBody`, `Locked`,
    /// `InvalidRequest` for a lock in a bucket without; no bytes remain then.
    pub async fn import(
        &self,
        place: &ImportPlace,
        identity: ImportedIdentity,
        object: ImportedObject,
    ) -> Result<ImportFate> {
        let (bucket, location) = self.import_location(place).await?;
        let ImportedObject { metadata, acl, upload_body } = object;
        check_lock(&bucket, &metadata.lock)?;
        // What is refused is cheap to find before the body; the commit checks it again.
        if let Some(fate) = self.early_fate(&location, place, identity).await? {
            return Ok(fate);
        }
        // What an upload in parts made there comes in one piece.
        let receiver = BodyReceiver { gateway: Arc::clone(&self.gateway), bytes_max: self.config.object_bytes_max };
        let new = self.receive_object(&receiver, &bucket, &location, metadata, upload_body).await?;
        let object = Object { etag: identity.etag.unwrap_or(new.object.etag), acl, ..new.object };
        let fate = self.commit_import(&location, place, identity, object, new.received).await?;
        new.admission.written();
        Ok(fate)
    }

    /// Makes a delete marker of another store the current version of its key.
    ///
    /// # Errors
    /// `NoSuchBucket`, `KeyTooLong`, `Locked`, and any error of the store.
    pub async fn import_marker(&self, place: &ImportPlace, identity: ImportedIdentity) -> Result<ImportFate> {
        let (_, location) = self.import_location(place).await?;
        Ok(self.add_imported(&mut self.heads.cas_loop(&location, None), place, identity, None).await?.fate)
    }

    /// Deletes a key that the other store has no more, if it has what an import left there. A bucket with versioning keeps
    /// its versions behind a delete marker, which the answer names.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Locked`, and any error of the store.
    pub async fn remove_imported(&self, place: &ImportPlace) -> Result<ImportFate> {
        let (bucket, location) = self.import_location(place).await?;
        // A full disk must accept deletes, or it stays full.
        let mut cas = self.heads.cas_loop(&location, None).reclaiming();
        loop {
            let attempt = cas.next_attempt().await?;
            attempt.check_moves(place)?;
            let current = match attempt.head.current.clone() {
                Some(current) if place.is_of_move(&current) => current,
                Some(_) => return Ok(ImportFate::Kept),
                None => return Ok(ImportFate::Removed),
            };
            let (fate, next) = if bucket.versioning != Versioning::Off || attempt.head.older {
                let identity = ImportedIdentity {
                    etag: None,
                    modified: self.gateway.context().now(),
                    null: bucket.versioning != Versioning::Enabled,
                };
                let marker = attempt.imported_version(identity, place.actor, None);
                (ImportFate::Imported(marker.id), attempt.add(marker).await?)
            } else {
                (ImportFate::Removed, attempt.remove(&current, false).await?)
            };
            if attempt.commit(next, &ChangeEvent::silent()).await? {
                return Ok(fate);
            }
        }
    }

    /// The current version of a key: an object, or a delete marker.
    ///
    /// # Errors
    /// `NoSuchBucket`, and any error of the store.
    pub async fn current_version(&self, bucket: &str, key: &Bytes) -> Result<Option<Version>> {
        let bucket = self.buckets.find(bucket).await?;
        let location = ObjectLocation::new(&bucket, key);
        Ok(self.heads.read_head(&location.partition(), &self.heads.options()).await?.head.current)
    }

    async fn import_location(&self, place: &ImportPlace) -> Result<(Arc<Bucket>, ObjectLocation)> {
        if place.key.is_empty() || place.key.len() > S3_KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(place.key.len()));
        }
        let bucket = self.buckets.find(&place.bucket).await?;
        let location = ObjectLocation::new(&bucket, &place.key);
        Ok((bucket, location))
    }

    async fn early_fate(
        &self,
        location: &ObjectLocation,
        place: &ImportPlace,
        identity: ImportedIdentity,
    ) -> Result<Option<ImportFate>> {
        let observed = self.heads.read_head(&location.partition(), &self.heads.options()).await?;
        Ok(place.fate(observed.head.current.as_ref(), identity))
    }

    /// Commits an object of a received body. Without it its blob is removed.
    async fn commit_import(
        &self,
        location: &ObjectLocation,
        place: &ImportPlace,
        identity: ImportedIdentity,
        object: Object,
        received: VerifiedBody,
    ) -> Result<ImportFate> {
        let blob = received.blob();
        let committed =
            self.add_imported(&mut self.heads.cas_loop(location, blob), place, identity, Some(object)).await;
        match &committed {
            Ok(end) if end.is_added => {}
            Ok(_) => self.receiver.remove_unnamed(blob).await,
            Err(error) => self.receiver.discard(error, blob).await,
        }
        // Race: until the head references the blob, the lease keeps sweepers from it.
        drop(received.lease);
        committed.map(|end| end.fate)
    }

    /// Adds a version to its key, unless the key's current version forbids it.
    async fn add_imported(
        &self,
        cas: &mut CasLoop<'_>,
        place: &ImportPlace,
        identity: ImportedIdentity,
        object: Option<Object>,
    ) -> Result<ImportEnd> {
        loop {
            let attempt = cas.next_attempt().await?;
            // Race: the compare-and-set expects the head checked here, so what a client writes meanwhile stays [invariant 188].
            if let Some(fate) = place.fate(attempt.head.current.as_ref(), identity) {
                return Ok(ImportEnd { fate, is_added: false });
            }
            attempt.check_moves(place)?;
            let version = attempt.imported_version(identity, place.actor, object.clone());
            let id = version.id;
            let next = attempt.add(version).await?;
            if attempt.commit(next, &ChangeEvent::silent()).await? {
                return Ok(ImportEnd { fate: ImportFate::Imported(id), is_added: true });
            }
        }
    }
}

impl ImportPlace {
    /// What is decided by the current version alone; `None`: the import goes on.
    fn fate(&self, current: Option<&Version>, identity: ImportedIdentity) -> Option<ImportFate> {
        match current {
            current if current.map(|current| current.id) == self.after => None,
            // Crash: this import was made, and nobody noted it.
            Some(current) if identity.is(current) => Some(ImportFate::Imported(current.id)),
            // Race: another gateway brings the key, too, and saw a newer state of the source [invariant 200].
            Some(current) if self.is_passed(current, identity) => Some(ImportFate::Passed),
            // Crash: so was one before it, of a version that the source has replaced since [invariant 187].
            Some(current) if current.id.actor() == self.actor => None,
            _ => Some(ImportFate::Kept),
        }
    }

    /// Whether the current version, which the move has imported, is newer at the source than another one.
    fn is_passed(&self, current: &Version, identity: ImportedIdentity) -> bool {
        let current_at = self.listed.iter().position(|listed| listed.is(current));
        let at = self.listed.iter().position(|listed| *listed == identity);
        let is_newer = match (current_at, at) {
            (Some(current_at), Some(at)) => current_at < at,
            // The list is older than the version.
            _ => current.modified > identity.modified,
        };
        current.id.actor() == self.actor && is_newer
    }

    /// Whether a version here is one of this move.
    fn is_of_move(&self, current: &Version) -> bool {
        Some(current.id) == self.after || current.id.actor() == self.actor
    }
}

impl ImportedIdentity {
    /// Whether a version here was imported as this one: a client's own has the time of its write.
    fn is(&self, version: &Version) -> bool {
        let etag = version.object.as_ref().map(|object| object.etag);
        version.modified == self.modified && (self.etag.is_none() || etag == self.etag)
    }
}

impl CasAttempt<'_> {
    /// Refuses an import into a bucket that its move has left.
    fn check_moves(&self, place: &ImportPlace) -> Result<()> {
        // Race: the move has ended, and with it the markers that keep imports from what clients delete [invariant 201].
        if self.bucket().moving == Some(place.actor) { Ok(()) } else { Err(Error::OperationAborted) }
    }

    /// A version of another store. Its lock is the one that it had there, and no default of the bucket.
    fn imported_version(&self, identity: ImportedIdentity, actor: ActorId, object: Option<Object>) -> Version {
        Version {
            // The stamp is above the replaced head's, so this version sorts before the older ones.
            id: VersionId::new(self.stamp, actor),
            null: identity.null || self.bucket().versioning == Versioning::Off,
            modified: identity.modified,
            owner: self.bucket().owner.clone(),
            object,
        }
    }
}

fn check_lock(bucket: &Bucket, lock: &ObjectLock) -> Result<()> {
    match lock.is_empty() || bucket.object_lock.is_some() {
        true => Ok(()),
        false => Err(Error::InvalidRequest(NO_LOCK_FOR_NEW.to_owned())),
    }
}
