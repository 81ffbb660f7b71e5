//! Putting an object. Read [`Objects::put`] as the list of its steps.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::limits::S3_KEY_BYTES_MAX;
use larder_model::objects::access::Asked;
use larder_model::objects::{Acl, Algorithm, Bucket, Checksum, Etag, Object, Permission, SystemHeader, Tag, Version};

use crate::body::ByteStream;

use super::acl::{AclChoice, refuse_public};
use super::commit::{Place, shown_id};
use super::receive::Received;
use super::{Caller, Error, Objects, Result};

/// What a client says about an object, beside its bytes.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Headers with a meaning.
    pub headers: Vec<(SystemHeader, Bytes)>,
    /// User metadata, names in lower case without their prefix.
    pub meta: Vec<(String, Bytes)>,
    /// Tags, checked by the edge.
    pub tags: Vec<Tag>,
    /// Who may.
    pub acl: AclChoice,
}

/// Bytes on their way in, and what they have to be.
pub struct Incoming {
    /// The bytes.
    pub stream: Box<dyn ByteStream>,
    /// Announced length in bytes.
    pub length: Option<u64>,
    /// Their MD5, when the client said it.
    pub md5: Option<[u8; 16]>,
    /// Their checksum.
    pub checksum: ChecksumWanted,
}

/// The checksum of bytes on their way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChecksumWanted {
    /// None was asked for: an object gets CRC64NVME, a part what its upload wants.
    Default,
    /// This one is to be computed.
    Compute(Algorithm),
    /// It must be this one.
    Given(Checksum),
    /// It comes behind the body, see [`ByteStream::trailing`], in this algorithm.
    Trailing(Algorithm),
}

/// What must hold of the current version when a write is committed. A delete marker counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// `If-Match`: one of these entity tags (`*` any) must be current.
    pub if_match: Option<Vec<String>>,
    /// `If-None-Match`: none of these (`*`: nothing) may be current.
    pub if_none_match: Option<Vec<String>>,
}

/// A put.
pub struct PutObject {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// What is said about the object.
    pub about: About,
    /// Its bytes.
    pub incoming: Incoming,
    /// What must hold.
    pub conditions: WriteConditions,
}

/// A version that was written.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The version.
    pub version: Version,
    /// Its id as clients see it; `None` in a bucket that never kept versions.
    pub version_id: Option<String>,
}

impl Objects {
    /// Puts an object: whole or not at all.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `KeyTooLong`, `EntityTooLarge`, `BadDigest`, `BadChecksum`, `BrokenBody`,
    /// `PreconditionFailed`, `NoSuchKey` (`If-Match` without an object), `ConditionalConflict`; nothing remains then.
    pub async fn put(&self, caller: &Caller, request: PutObject) -> Result<Stored> {
        let PutObject { bucket, key, about, incoming, conditions } = request;
        let bucket = self.writable(caller, &bucket, &key, &about.tags).await?;
        let owner = owner_of(caller, &bucket);
        let acl = self.acl_for(caller, &bucket, &key, (&about.acl, &owner)).await?;
        let place = Place::of(&bucket, &key);
        self.check_early(&place, &conditions).await?;
        let to = self.object_destination(&place).await?;
        let received = self.receive(incoming, to).await?;
        let object = Object {
            body: received.body.clone(),
            etag: Etag::of_md5(received.md5),
            headers: about.headers,
            meta: about.meta,
            tags: about.tags,
            acl,
            checksum: Some(received.checksum.clone()),
            upload: None,
        };
        self.store(&place, owner, object, received, &conditions).await
    }

    /// A bucket the caller may put this key, with these tags, into.
    ///
    /// # Errors
    /// `KeyTooLong`, `NoSuchBucket`, `AccessDenied`.
    pub(super) async fn writable(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        tags: &[Tag],
    ) -> Result<std::sync::Arc<Bucket>> {
        if key.len() > S3_KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(key.len()));
        }
        let bucket = self.bucket(bucket).await?;
        let actions = std::iter::once("s3:PutObject").chain((!tags.is_empty()).then_some("s3:PutObjectTagging"));
        for action in actions {
            let write = Asked { action, permission: Some(Permission::Write), key: Some(key), version: None };
            caller.check(&bucket, &write)?;
        }
        Ok(bucket)
    }

    /// The list of grants of an object to be.
    ///
    /// # Errors
    /// What a choice may be refused for; `AccessDenied` for grants where the caller may give none, and for grants to the public
    /// where the bucket refuses them.
    pub(super) async fn acl_for(
        &self,
        caller: &Caller,
        bucket: &Bucket,
        key: &Bytes,
        (choice, owner): (&AclChoice, &str),
    ) -> Result<Option<Acl>> {
        let acl = self.resolve_acl(choice, owner, &bucket.owner).await?;
        if acl.is_some() {
            let (permission, key) = (Some(Permission::Write), Some(key.as_ref()));
            caller.check(bucket, &Asked { action: "s3:PutObjectAcl", permission, key, version: None })?;
        }
        refuse_public(bucket, acl.as_ref())?;
        Ok(acl)
    }

    /// Refuses what cannot hold before a body is received for nothing.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NoSuchKey`.
    pub(super) async fn check_early(&self, place: &Place, conditions: &WriteConditions) -> Result<()> {
        if conditions.is_empty() {
            return Ok(());
        }
        let seen = self.read_head(&place.partition(), &self.options()).await?;
        conditions.check(seen.head.current.as_ref())
    }

    /// Makes an object of a body that was received the current version. When that fails for good, nothing remains of it.
    ///
    /// # Errors
    /// As [`Self::put_version`].
    pub(super) async fn store(
        &self,
        place: &Place,
        owner: String,
        object: Object,
        received: Received,
        conditions: &WriteConditions,
    ) -> Result<Stored> {
        let blob = received.blob();
        let stored = self.put_version(place, &owner, &object, blob, conditions).await;
        if let Err(error) = &stored {
            self.discard(error, blob).await;
        }
        // Until here no sweeper may take the blob for waste.
        drop(received.lease);
        stored
    }

    /// Makes an object the current version, if the conditions hold of the one it replaces.
    async fn put_version(
        &self,
        place: &Place,
        owner: &str,
        object: &Object,
        blob: Option<BlobId>,
        conditions: &WriteConditions,
    ) -> Result<Stored> {
        let mut race = self.race(place, blob);
        loop {
            let turn = race.turn().await.map_err(|error| lost(error, conditions))?;
            conditions.check(turn.head.current.as_ref())?;
            // Perhaps forbidden while the body arrived.
            refuse_public(turn.bucket(), object.acl.as_ref())?;
            let version = turn.new_version(owner.to_owned(), Some(object.clone()));
            let version_id = shown_id(turn.bucket(), &version);
            let next = turn.add(version.clone()).await?;
            if turn.commit(next).await? {
                return Ok(Stored { version, version_id });
            }
        }
    }
}

/// Who owns what the caller puts: what nobody puts is the bucket owner's.
pub(super) fn owner_of(caller: &Caller, bucket: &Bucket) -> String {
    caller.user.as_ref().map_or(&bucket.owner, |user| &user.id).clone()
}

/// A race lost for good, in the words of who set conditions.
pub(super) fn lost(error: Error, conditions: &WriteConditions) -> Error {
    if error.is_contention() && !conditions.is_empty() { Error::ConditionalConflict } else { error }
}
