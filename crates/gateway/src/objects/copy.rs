//! Copying objects. Copies to another key copy bytes; a copy of a key onto itself shares them.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::limits::PART_BYTES_MAX;
use larder_model::objects::access::Asked;
use larder_model::objects::{Acl, Algorithm, Bucket, Etag, Object, Permission, SystemHeader, Tag, Version};
use parking_lot::Mutex;

use super::acl::{AclChoice, refuse_public};
use super::attributes::GET_TAGS;
use super::commit::{Place, bytes_of, id_text, shown_id};
use super::get::{Found, GetObject, ObjectReader, VersionSpec, Window, missing_bytes};
use super::put::{About, ChecksumWanted, Incoming, Stored, WriteConditions, lost, owner_of};
use super::receive::{Destination, Received};
use super::{Caller, Error, Objects, Result};
use crate::Rule;
use crate::body::{BodyError, ByteStream};

/// Headers of an object that a copy never takes over (AWS, CopyObject).
pub const NEVER_COPIED: &[SystemHeader] = &[SystemHeader::StorageClass, SystemHeader::WebsiteRedirect];
/// How much of the source is read at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// How often a copy starts again because its source was replaced while it was at it.
const RETRIES_MAX: usize = 8;

/// A copy.
pub struct CopyObject {
    /// The source, with its version and conditions; `Whole`.
    pub source: GetObject,
    /// Bucket of the destination.
    pub bucket: String,
    /// Key of the destination.
    pub key: Bytes,
    /// What replaces headers and metadata of the source; `None` takes them over.
    pub replace: Option<About>,
    /// What replaces the tags; `None` takes them over.
    pub tags: Option<Vec<Tag>>,
    /// Who may: never copied.
    pub acl: AclChoice,
    /// What the request says of the headers that are [`NEVER_COPIED`].
    pub own: Vec<(SystemHeader, Bytes)>,
    /// Whether the request says anything of them: then a copy onto itself is allowed.
    pub changes_more: bool,
    /// The checksum to compute; otherwise the source's algorithm.
    pub checksum: Option<Algorithm>,
    /// What must hold of the destination.
    pub conditions: WriteConditions,
}

/// A copy that was made.
#[derive(Debug, Clone)]
pub struct Copied {
    /// The new version.
    pub stored: Stored,
    /// The source's version id, where versions are kept.
    pub source_version: Option<String>,
}

/// Where a copy goes, and what is said about it.
struct Target {
    place: Place,
    owner: String,
    acl: Option<Acl>,
    onto_itself: bool,
}

impl Objects {
    /// Copies an object.
    ///
    /// # Errors
    /// Those of a get of the source, its tags included if they are taken over, and of a put of the destination; `InvalidRequest` for a source above 5 GiB and for a copy
    /// onto itself that changes nothing.
    pub async fn copy(&self, caller: &Caller, request: CopyObject) -> Result<Copied> {
        let given = request.tags.as_deref().unwrap_or_default();
        let bucket = self.writable(caller, &request.bucket, &request.key, given).await?;
        let owner = owner_of(caller, &bucket);
        let acl = self.acl_for(caller, &bucket, &request.key, (&request.acl, &owner)).await?;
        let onto_itself = request.source.bucket == request.bucket && request.source.key == request.key;
        let target = Target { place: Place::of(&bucket, &request.key), owner, acl, onto_itself };
        refuse_unchanged(&request, onto_itself)?;
        self.check_early(&target.place, &request.conditions).await?;
        let source = GetObject { window: Window::Whole, ..request.source.clone() };
        for _ in 0..RETRIES_MAX {
            let (found, reader) = self.open_source(caller, source.clone()).await?;
            refuse_large(&found)?;
            self.check_tags(caller, &request, &bucket, &found).await?;
            let source_version = found.version_id.clone();
            let stored = if self.shares(&request, &target, &found) {
                drop(reader);
                self.copy_shared(&request, &target, &found).await?
            } else {
                Some(self.copy_bytes(&request, &target, &found, reader).await?)
            };
            if let Some(stored) = stored {
                return Ok(Copied { stored, source_version });
            }
        }
        Err(missing_bytes())
    }

    /// Tags that are taken over are read there and given here: whoever copies has to be allowed both.
    async fn check_tags(&self, caller: &Caller, request: &CopyObject, to: &Bucket, found: &Found) -> Result<()> {
        let tagged = found.version.object.as_ref().is_some_and(|object| !object.tags.is_empty());
        if request.tags.is_some() || !tagged {
            return Ok(());
        }
        let GetObject { bucket, key, version, .. } = &request.source;
        let (action, version) = (GET_TAGS.action(version), Some(&found.version));
        let read = Asked { action, permission: GET_TAGS.permission, key: Some(key), version };
        caller.check(&*self.bucket(bucket).await?, &read)?;
        let (action, key) = ("s3:PutObjectTagging", Some(request.key.as_ref()));
        caller.check(to, &Asked { action, permission: Some(Permission::Write), key, version: None })
    }

    /// The source of a copy and a reader of the bytes asked for.
    ///
    /// # Errors
    /// As [`Self::get`], in the words of copies: a delete marker is none, conditions fail as those of a write.
    pub(super) async fn open_source(&self, caller: &Caller, mut source: GetObject) -> Result<(Found, ObjectReader)> {
        source.conditions.always_precondition = true;
        self.get(caller, &source).await.map_err(|error| match error {
            Error::DeleteMarker { current: true, .. } => Error::NoSuchKey,
            Error::DeleteMarker { .. } => Error::InvalidRequest("The source of a copy is a delete marker.".into()),
            other => other,
        })
    }

    /// Receives the bytes of an object as those of another.
    ///
    /// # Errors
    /// As [`Self::receive`], and `Damaged` when the source is.
    pub(super) async fn receive_copy(
        &self,
        reader: ObjectReader,
        checksum: ChecksumWanted,
        to: Destination,
    ) -> Result<Received> {
        let failed = Arc::new(Mutex::new(None));
        let length = Some(reader.left());
        let stream = Box::new(CopyStream { reader, failed: Arc::clone(&failed) });
        let received = self.receive(Incoming { stream, length, md5: None, checksum }, to).await;
        // What stopped the source says more than that the body broke off.
        received.map_err(|error| failed.lock().take().unwrap_or(error))
    }

    /// Whether source and copy name the same bytes: versions of one key may, and the checksum must be the same one.
    fn shares(&self, request: &CopyObject, target: &Target, found: &Found) -> bool {
        let one_key = target.onto_itself || !self.gateway.rule(Rule::CopyBytes);
        let object = found.version.object.as_ref();
        let algorithm = object.and_then(|object| object.checksum.as_ref()).map(|checksum| checksum.algorithm);
        one_key && request.checksum.is_none_or(|wanted| Some(wanted) == algorithm)
    }

    async fn copy_bytes(
        &self,
        request: &CopyObject,
        target: &Target,
        found: &Found,
        reader: ObjectReader,
    ) -> Result<Stored> {
        let Some(source) = &found.version.object else { return Err(missing_bytes()) };
        let own = source.checksum.as_ref().map(|checksum| checksum.algorithm);
        let checksum = request.checksum.or(own).map_or(ChecksumWanted::Default, ChecksumWanted::Compute);
        let to = self.object_destination(&target.place).await?;
        let received = self.receive_copy(reader, checksum, to).await?;
        let object = Object {
            body: received.body.clone(),
            etag: Etag::of_md5(received.md5),
            checksum: Some(received.checksum.clone()),
            upload: None,
            ..described(request, target, source)
        };
        self.store(&target.place, target.owner.clone(), object, received, &request.conditions).await
    }

    /// Writes a version that names the bytes of the source; `None` when the source is not there any more.
    async fn copy_shared(&self, request: &CopyObject, target: &Target, found: &Found) -> Result<Option<Stored>> {
        let Some(source) = &found.version.object else { return Ok(None) };
        let spec = VersionSpec::Id(id_text(&found.version));
        let mut race = self.race(&target.place, None);
        loop {
            let turn = race.turn().await.map_err(|error| lost(error, &request.conditions))?;
            request.conditions.check(turn.head.current.as_ref())?;
            if target.onto_itself && !is_same(&found.version, turn.find(&spec).await?.as_ref()) {
                return Ok(None);
            }
            let object = described(request, target, source);
            refuse_public(turn.bucket(), object.acl.as_ref())?;
            let version = turn.new_version(target.owner.clone(), Some(object));
            let version_id = shown_id(turn.bucket(), &version);
            let next = turn.add_shared(version.clone()).await?;
            if turn.commit(next).await? {
                return Ok(Some(Stored { version, version_id }));
            }
        }
    }
}

/// The source with what is said about the copy.
fn described(request: &CopyObject, target: &Target, source: &Object) -> Object {
    let mut object = Object { acl: target.acl.clone(), ..source.clone() };
    if let Some(about) = &request.replace {
        object.headers.clone_from(&about.headers);
        object.meta.clone_from(&about.meta);
    }
    object.headers.retain(|(header, _)| !NEVER_COPIED.contains(header));
    object.headers.extend(request.own.iter().cloned());
    if let Some(tags) = &request.tags {
        object.tags.clone_from(tags);
    }
    object
}

/// Whether this is still the version that was looked at: a `null` version may have been replaced by another.
fn is_same(seen: &Version, now: Option<&Version>) -> bool {
    now.is_some_and(|now| now.id == seen.id && bytes_of(now) == bytes_of(seen))
}

fn refuse_unchanged(request: &CopyObject, onto_itself: bool) -> Result<()> {
    let changes = request.replace.is_some() || request.tags.is_some() || request.changes_more;
    if !onto_itself || changes || request.source.version != VersionSpec::Current {
        return Ok(());
    }
    Err(Error::InvalidRequest("A copy of an object onto itself has to change its metadata or storage class.".into()))
}

fn refuse_large(found: &Found) -> Result<()> {
    let length = found.version.object.as_ref().map_or(0, Object::length);
    if length <= PART_BYTES_MAX {
        return Ok(());
    }
    let message = format!("The source has {length} bytes; a copy in one piece may have {PART_BYTES_MAX}.");
    Err(Error::InvalidRequest(message))
}

/// An object on its way into another one.
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
                let told = BodyError(error.to_string());
                *self.failed.lock() = Some(error);
                Some(Err(told))
            }
        }
    }
}
