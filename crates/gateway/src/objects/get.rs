//! Reading an object.

mod conditions;
mod manifest;
mod reader;
#[cfg(test)]
mod tests;

pub(super) use conditions::holds;
pub(super) use manifest::Walk;
pub use reader::ObjectReader;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_model::objects::access::Asked;
use larder_model::objects::{Bucket, Checksum, Object, ObjectBody, Permission, Version, VersionId};
use larder_model::rows::Micros;
use larder_store::Partition;

use super::commit::{Place, bytes_of, shown_id};
use super::release::Pin;
use super::{Caller, Error, Objects, Result};
use crate::Rule;

/// How often a read starts again because bytes went away between the head and them.
const RETRIES_MAX: usize = 8;

/// Which version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum VersionSpec {
    /// The current one.
    #[default]
    Current,
    /// The one of this id, as it came; `null` is one.
    Id(String),
}

/// Which bytes of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Window {
    /// All.
    #[default]
    Whole,
    /// From the first to the last offset, included; without a last one to the end.
    Range(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
    /// Those of this part, counted from 1.
    Part(u16),
}

/// What must hold of an object that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadConditions {
    /// `If-Match`: one of these entity tags, `*` any.
    pub if_match: Option<Vec<String>>,
    /// `If-None-Match`: none of these.
    pub if_none_match: Option<Vec<String>>,
    /// `If-Modified-Since`.
    pub modified_since: Option<Micros>,
    /// `If-Unmodified-Since`.
    pub unmodified_since: Option<Micros>,
    /// Whether a hit of `If-None-Match` or `If-Modified-Since` is a failed precondition too: the source of a copy.
    pub always_precondition: bool,
    /// `If-Range`: which object a range is of; of another all bytes are read.
    pub if_range: Option<IfRange>,
}

/// The object that a client has some bytes of and wants more of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfRange {
    /// The one with this entity tag.
    Tag(String),
    /// The one that was last modified in this second.
    Modified(Micros),
    /// None: what cannot be read, or is not exact, fits no object.
    Nothing,
}

/// A get.
#[derive(Debug, Clone, Default)]
pub struct GetObject {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// Which version.
    pub version: VersionSpec,
    /// Which bytes.
    pub window: Window,
    /// What must hold.
    pub conditions: ReadConditions,
}

/// An object that was found.
#[derive(Debug)]
pub struct Found {
    /// The version, an object.
    pub version: Version,
    /// Its id as clients see it; `None` in a bucket that never kept versions.
    pub version_id: Option<String>,
    /// The bytes that were asked for.
    pub window: Range<u64>,
    /// Whether only some of the bytes were asked for.
    pub partial: bool,
    /// The part that was asked for.
    pub part: Option<FoundPart>,
    /// When and by which rule the lifecycle will remove it.
    pub expires: Option<(Micros, String)>,
}

/// A part of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPart {
    /// How many parts the object was made of; `None` when it was put in one piece.
    pub count: Option<u32>,
    /// The checksum of the part, if the object has one.
    pub checksum: Option<Checksum>,
}

/// What is asked of an object, as policies and lists of grants name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deed {
    /// The action on the current version.
    pub(super) current: &'static str,
    /// The action on a version named by its id.
    pub(super) versioned: &'static str,
    /// What a list of grants has to grant; `None` when none can.
    pub(super) permission: Option<Permission>,
}

/// Reading an object.
pub(super) const READ: Deed =
    Deed { current: "s3:GetObject", versioned: "s3:GetObjectVersion", permission: Some(Permission::Read) };

impl Deed {
    /// The action's name for what is asked for.
    pub(super) fn action(&self, spec: &VersionSpec) -> &'static str {
        match spec {
            VersionSpec::Current => self.current,
            VersionSpec::Id(_) => self.versioned,
        }
    }
}

impl FoundPart {
    fn of_many(object: &Object, count: u32, digest: Option<Bytes>) -> Self {
        let algorithm = object.checksum.as_ref().map(|checksum| checksum.algorithm);
        let checksum = algorithm.zip(digest).map(|(algorithm, digest)| Checksum::full(algorithm, digest));
        Self { count: Some(count), checksum }
    }
}

impl VersionSpec {
    /// Refuses a text that can be no version's id.
    ///
    /// # Errors
    /// `BadVersionId`.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Id(text) if text != "null" && VersionId::from_text(text).is_none() => {
                Err(Error::BadVersionId(text.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// A version the caller may see: an object.
#[derive(Debug, Clone)]
pub(super) struct Located {
    /// Its bucket.
    pub(super) bucket: Arc<Bucket>,
    /// Its key's head and versions.
    pub(super) partition: Partition,
    /// The version.
    pub(super) version: Version,
    /// Whether it is the current one.
    pub(super) current: bool,
}

impl Objects {
    /// What is known of an object, without its bytes.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchKey` (`AccessDenied` to who may not list the bucket), `NoSuchVersion`,
    /// `BadVersionId`, `DeleteMarker`, `PreconditionFailed`, `NotModified`, `InvalidRange`, `InvalidPartNumber`.
    pub async fn head(&self, caller: &Caller, request: &GetObject) -> Result<Found> {
        Ok(self.sight(caller, request).await?.0)
    }

    /// An object and a reader of the bytes asked for. They stay readable until the reader is dropped.
    ///
    /// # Errors
    /// As [`Self::head`], and `Damaged`.
    pub async fn get(&self, caller: &Caller, request: &GetObject) -> Result<(Found, ObjectReader)> {
        let opened = self.sight_and_open(caller, request).await;
        opened.inspect_err(|error| reader::count_damage(&self.gateway, error))
    }

    async fn sight_and_open(&self, caller: &Caller, request: &GetObject) -> Result<(Found, ObjectReader)> {
        for _ in 0..RETRIES_MAX {
            let (found, located, pin) = self.sight(caller, request).await?;
            if let Some(reader) = self.open(&located, found.window.clone(), pin).await? {
                return Ok((found, reader));
            }
        }
        Err(missing_bytes())
    }

    /// Finds a version that is an object and that the caller may do `deed` to.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchKey`, `NoSuchVersion`, `BadVersionId`, `DeleteMarker`.
    pub(super) async fn locate(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        spec: &VersionSpec,
        deed: Deed,
    ) -> Result<Located> {
        let bucket = self.bucket(bucket).await?;
        spec.check()?;
        let partition = Place::of(&bucket, key).partition();
        let options = self.options();
        let seen = self.read_head(&partition, &options).await?;
        let found = self.find_version(&partition, &seen.head, spec, &options).await?;
        check_access(caller, &bucket, key, spec, deed, found.as_ref())?;
        let version = match (found, spec) {
            (Some(version), _) if version.object.is_some() => version,
            (Some(marker), _) => return Err(marker_met(&marker, *spec == VersionSpec::Current)),
            (None, VersionSpec::Current) => return Err(Error::NoSuchKey),
            (None, VersionSpec::Id(text)) => return Err(Error::NoSuchVersion(text.clone())),
        };
        let current = seen.head.current.is_some_and(|current| current.id == version.id);
        Ok(Located { bucket, partition, version, current })
    }

    /// Finds what a request asks for, holding the manifest of an object made of parts.
    async fn sight(&self, caller: &Caller, request: &GetObject) -> Result<(Found, Located, Option<Pin>)> {
        for _ in 0..RETRIES_MAX {
            let GetObject { bucket, key, version, .. } = request;
            let located = self.locate(caller, bucket, key, version, READ).await?;
            request.conditions.check(&located.bucket, &located.version)?;
            let pin = self.pin(&located.version);
            let wanted = request.conditions.window(&located.version, request.window);
            let Some((window, part)) = self.window(&located.version, wanted).await? else { continue };
            let expires = located.bucket.lifecycle.as_ref().filter(|_| located.current);
            let expires = expires.and_then(|rules| rules.expires(key, &located.version));
            let length = located.version.object.as_ref().map_or(0, |object| object.length());
            let found = Found {
                version: located.version.clone(),
                version_id: shown_id(&located.bucket, &located.version),
                partial: wanted != Window::Whole && length > 0,
                window,
                part,
                expires: expires.map(|(when, rule)| (when, rule.to_owned())),
            };
            return Ok((found, located, pin));
        }
        Err(missing_bytes())
    }

    /// Keeps the manifest of a version, if it has one.
    fn pin(&self, version: &Version) -> Option<Pin> {
        let object = version.object.as_ref().filter(|_| self.gateway.rule(Rule::PinReaders))?;
        match object.body {
            ObjectBody::Parts { manifest, .. } => Some(self.pins.pin(manifest, object.upload)),
            ObjectBody::Inline(_) | ObjectBody::Blob { .. } => None,
        }
    }

    /// The bytes of a window, and the part when it is one; `None` when the manifest is gone.
    async fn window(&self, version: &Version, window: Window) -> Result<Option<(Range<u64>, Option<FoundPart>)>> {
        let Some(object) = &version.object else { return Ok(None) };
        match (window, &object.body) {
            (Window::Part(number), ObjectBody::Parts { manifest, count, .. }) => {
                if number == 0 || u32::from(number) > *count {
                    return Err(Error::InvalidPartNumber);
                }
                let part = manifest::part(&self.gateway, *manifest, u32::from(number) - 1).await?;
                Ok(part.map(|(range, digest)| (range, Some(FoundPart::of_many(object, *count, digest)))))
            }
            (window, body) => {
                let whole = matches!(window, Window::Part(_));
                let part = whole.then(|| FoundPart { count: None, checksum: object.checksum.clone() });
                Ok(Some((conditions::range(window, body.length())?, part)))
            }
        }
    }

    /// Opens the bytes of a version; `None` when they went away since it was looked at.
    pub(super) async fn open(
        &self,
        located: &Located,
        window: Range<u64>,
        pin: Option<Pin>,
    ) -> Result<Option<ObjectReader>> {
        let Some(object) = &located.version.object else { return Ok(None) };
        match &object.body {
            ObjectBody::Inline(bytes) => Ok(Some(ObjectReader::of_bytes(&self.gateway, bytes, window))),
            ObjectBody::Blob { id, length } => ObjectReader::of_blob(&self.gateway, (*id, *length), window).await,
            ObjectBody::Parts { manifest, .. } => {
                // What was released before it was pinned may be going.
                if pin.is_some() && !self.is_still_there(located).await? {
                    return Ok(None);
                }
                ObjectReader::of_parts(&self.gateway, *manifest, window, pin).await.map(Some)
            }
        }
    }

    async fn is_still_there(&self, located: &Located) -> Result<bool> {
        let options = self.options();
        let seen = self.read_head(&located.partition, &options).await?;
        let spec = VersionSpec::Id(super::commit::id_text(&located.version));
        let now = self.find_version(&located.partition, &seen.head, &spec, &options).await?;
        Ok(now.is_some_and(|now| bytes_of(&now) == bytes_of(&located.version)))
    }
}

/// Refuses who may not do `deed` to what was found. What is not there is hidden from who may not list the bucket.
fn check_access(
    caller: &Caller,
    bucket: &Bucket,
    key: &[u8],
    spec: &VersionSpec,
    deed: Deed,
    found: Option<&Version>,
) -> Result<()> {
    let action = deed.action(spec);
    caller.check(bucket, &Asked { action, permission: deed.permission, key: Some(key), version: found })?;
    if found.is_some_and(|version| version.object.is_some()) {
        return Ok(());
    }
    let list = Asked { action: "s3:ListBucket", permission: Some(Permission::Read), key: None, version: None };
    caller.check(bucket, &list)
}

fn marker_met(marker: &Version, current: bool) -> Error {
    Error::DeleteMarker { id: marker.id, null: marker.null, modified: marker.modified, current }
}

pub(super) fn missing_bytes() -> Error {
    crate::Error::Damaged("an object's bytes are missing".into()).into()
}
