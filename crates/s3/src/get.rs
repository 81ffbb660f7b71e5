//! Reading an object.

mod at_once;
mod body_blob;
mod reader;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_store::Partition;

use super::commit::{ObjectLocation, client_version_id, external_body, lifecycle_expiry};
use super::object_lock::visible_lock;
use super::release::Pin;
use super::{Caller, Error, Objects, Result};
use crate::conditions::window_range;
use crate::encryption::BytesKey;
use crate::rules::{Bucket, Checksum, Object, ObjectBody, ObjectLock, Version, Versioning};
use body_blob::BodyBlob;
use larder_encryption::SecretKey;
use reader::{BodySource, PartsReader};

pub use crate::conditions::{IfRange, ReadConditions, ReadWindow};
pub use crate::object_location::VersionSpec;
pub use reader::ObjectReader;
pub(super) use reader::{ManifestCursor, missing_bytes};

/// Most attempts of a read whose bytes are being removed.
const RETRIES_MAX: usize = 8;

/// A request to read an object.
#[derive(Debug, Clone, Default)]
pub struct GetObject {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The version a request names.
    pub version: VersionSpec,
    /// The bytes to read.
    pub window: ReadWindow,
    /// Conditions on the version.
    pub conditions: ReadConditions,
    /// The key of a customer, with which the object is encrypted.
    pub customer_key: Option<SecretKey>,
}

/// An object found by a read.
#[derive(Debug)]
pub struct FoundObject {
    /// The version; it has an object.
    pub version: Version,
    /// Its id for clients; `None` in a bucket that never had versioning.
    pub version_id: Option<String>,
    /// The requested bytes.
    pub window: Range<u64>,
    /// Whether the request names a part of the bytes.
    pub partial: bool,
    /// The requested part.
    pub part: Option<FoundPart>,
    /// When, and by which rule, the lifecycle will remove it.
    pub expires: Option<(Timestamp, String)>,
    /// The parts of its lock that the caller may see.
    pub lock: ObjectLock,
}

/// A part of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPart {
    /// The number of parts; `None` for an object put in one piece.
    pub count: Option<u32>,
    /// The checksum of the part, if the object has one.
    pub checksum: Option<Checksum>,
}

impl FoundObject {
    /// The current version of a key, and the bytes that are `requested` of it.
    fn from_current(
        bucket: &Bucket,
        key: &[u8],
        version: Version,
        requested_window: ReadWindow,
        window: Range<u64>,
    ) -> Self {
        let length = version.object.as_ref().map_or(0, |object| object.length());
        Self {
            version_id: client_version_id(bucket, &version),
            partial: requested_window != ReadWindow::Whole && length > 0,
            window,
            part: None,
            expires: lifecycle_expiry(bucket, key, &version),
            lock: ObjectLock::default(),
            version,
        }
    }
}

impl FoundPart {
    fn from_many(object: &Object, count: u32, digest: Option<Bytes>) -> Self {
        // AWS shows those of parts only where the object's is made of them.
        let algorithm =
            object.checksum.as_ref().filter(|checksum| checksum.parts.is_some()).map(|checksum| checksum.algorithm);
        let checksum = algorithm.zip(digest).map(|(algorithm, digest)| Checksum::full(algorithm, digest));
        Self { count: Some(count), checksum }
    }
}

/// A version the caller may access; it has an object.
#[derive(Debug, Clone)]
pub(super) struct LocatedVersion {
    /// Its bucket.
    pub(super) bucket: Arc<Bucket>,
    /// The partition of its key.
    pub(super) partition: Partition,
    /// The version.
    pub(super) version: Version,
    /// Whether it is the current one.
    pub(super) current: bool,
}

/// A read that may be answered.
struct CheckedRead {
    found_object: FoundObject,
    located: LocatedVersion,
    /// Keeps the manifest of a multipart object.
    pin: Option<Pin>,
    /// Opens the bytes, where they are encrypted.
    key: Option<BytesKey>,
}

impl Objects {
    /// The metadata of an object.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchKey` (`AccessDenied` for a caller that may not list the bucket),
    /// `NoSuchVersion`, `BadVersionId`, `DeleteMarker`, `PreconditionFailed`, `NotModified`, `InvalidRange`,
    /// `InvalidPartNumber`; `Encryption` for a customer's key that is missing, wrong, or not used by the object.
    pub async fn head(&self, caller: &Caller, request: &GetObject) -> Result<FoundObject> {
        Ok(self.locate_and_check(caller, request).await?.found_object)
    }

    /// An object and a reader of the requested bytes, which stay readable until the reader is dropped.
    ///
    /// # Errors
    /// As [`Self::head`], and `Damaged`.
    pub async fn get(&self, caller: &Caller, request: &GetObject) -> Result<(FoundObject, ObjectReader)> {
        let opened = async {
            // Race: an overwrite may remove the bytes before they are opened; the next round finds its version.
            for _ in 0..RETRIES_MAX {
                let mut read = self.locate_and_check(caller, request).await?;
                if let Some(reader) = self.open(&mut read).await? {
                    return Ok((read.found_object, reader));
                }
            }
            Err(missing_bytes())
        };
        opened.await.inspect_err(|error| reader::count_damage(&self.gateway, error))
    }

    /// Finds a version that has an object and that the caller has permission for.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchKey`, `NoSuchVersion`, `BadVersionId`, `DeleteMarker`.
    pub(super) async fn locate(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        spec: &VersionSpec,
    ) -> Result<LocatedVersion> {
        let bucket = self.buckets.find(bucket).await?;
        let partition = ObjectLocation::new(&bucket, key).partition();
        let options = self.heads.options();
        let mut observed = self.heads.read_head(&partition, &options).await?;
        if bucket.moving.is_some()
            && observed.head.current.as_ref().is_none_or(|current| bucket.may_be_partial(current))
        {
            // A caller without permission brings nothing.
            caller.check(&bucket, &spec.action(caller.action()?).on_key(key))?;
            self.heads.bring_absent(&bucket, key).await?;
            observed = self.heads.read_head(&partition, &self.heads.options()).await?;
        }
        let version = self.heads.find_version(&partition, &observed.head, spec, &options).await?;
        // The marker of a deletion is for the move alone.
        let version = version.filter(|version| version.object.is_some() || bucket.versioning != Versioning::Off);
        check_access(caller, &bucket, key, spec, version.as_ref())?;
        let version = match version {
            Some(version) if version.object.is_some() => version,
            version => return Err(spec.missing_error(version.as_ref())),
        };
        let current = observed.head.current.is_some_and(|current| current.id == version.id);
        Ok(LocatedVersion { bucket, partition, version, current })
    }

    /// Finds the object of a request and its key, and pins the manifest of a multipart object.
    async fn locate_and_check(&self, caller: &Caller, request: &GetObject) -> Result<CheckedRead> {
        for _ in 0..RETRIES_MAX {
            let GetObject { bucket, key, version, .. } = request;
            let located = self.locate(caller, bucket, key, version).await?;
            let bytes_key = match &located.version.object {
                Some(object) => self.keys.object_key(object, request.customer_key.as_ref())?,
                None => None,
            };
            request.conditions.check(&located.bucket, &located.version, || self.gateway.context().now())?;
            // Race: pin before the manifest is read, so that a concurrent release waits for the reader [invariant 63].
            let pin = self.pin(&located.version);
            let requested_window = request.conditions.window(&located.version, request.window);
            // Race: an overwrite may have removed the manifest; the next round finds its version.
            let Some((window, part)) = self.window(&located.version, requested_window).await? else { continue };
            let found_object =
                FoundObject::from_current(&located.bucket, key, located.version.clone(), requested_window, window);
            let expires = found_object.expires.filter(|_| located.current && *version == VersionSpec::Current);
            let lock = visible_lock(caller, &located.bucket, key, &located.version);
            return Ok(CheckedRead {
                found_object: FoundObject { part, expires, lock, ..found_object },
                located,
                pin,
                key: bytes_key,
            });
        }
        Err(missing_bytes())
    }

    /// Pins the manifest of a version, if it has one.
    fn pin(&self, version: &Version) -> Option<Pin> {
        let object = version.object.as_ref()?;
        match object.body {
            ObjectBody::Parts { manifest, .. } => Some(self.heads.pins.pin(manifest, object.upload)),
            ObjectBody::Inline(_) | ObjectBody::Blob { .. } => None,
        }
    }

    /// Resolves a window to bytes, and to a part; `None` when the manifest is gone.
    async fn window(&self, version: &Version, window: ReadWindow) -> Result<Option<(Range<u64>, Option<FoundPart>)>> {
        let Some(object) = &version.object else { return Ok(None) };
        match (window, &object.body) {
            (ReadWindow::Part(number), ObjectBody::Parts { manifest, count, .. }) => {
                if number == 0 || u32::from(number) > *count {
                    return Err(Error::InvalidPartNumber);
                }
                let part = reader::part(&self.gateway, *manifest, u32::from(number) - 1).await?;
                Ok(part.map(|(range, digest)| (range, Some(FoundPart::from_many(object, *count, digest)))))
            }
            (window, _) => {
                let whole = matches!(window, ReadWindow::Part(_));
                let part = whole.then(|| FoundPart { count: None, checksum: object.checksum.clone() });
                Ok(Some((window_range(window, object.length())?, part)))
            }
        }
    }

    /// Opens the bytes of a version; `None` when they are gone.
    async fn open(&self, read: &mut CheckedRead) -> Result<Option<ObjectReader>> {
        let (located, key, window) = (&read.located, read.key, read.found_object.window.clone());
        let Some(object) = &located.version.object else { return Ok(None) };
        let source = match &object.body {
            ObjectBody::Inline(bytes) => Some(BodySource::Bytes(open_inline(bytes, key.as_ref())?)),
            ObjectBody::Blob { id, length } => {
                BodyBlob::open(&self.gateway, *id, *length, key.as_ref()).await?.map(BodySource::Blob)
            }
            // Race: a release before the pin may be removing the parts; a head read after it decides [invariant 63].
            ObjectBody::Parts { .. } if read.pin.is_some() && !self.is_still_referenced(located).await? => None,
            ObjectBody::Parts { manifest, .. } => {
                let cursor = ManifestCursor::at(&self.gateway, *manifest, window.start).await?;
                Some(BodySource::Parts(Box::new(PartsReader { cursor, open: None, key, _pin: read.pin.take() })))
            }
        };
        Ok(source.map(|source| ObjectReader { gateway: Arc::clone(&self.gateway), source, window }))
    }

    async fn is_still_referenced(&self, located: &LocatedVersion) -> Result<bool> {
        let options = self.heads.options();
        let observed = self.heads.read_head(&located.partition, &options).await?;
        let spec = VersionSpec::Id(super::commit::version_id_text(&located.version));
        let now = self.heads.find_version(&located.partition, &observed.head, &spec, &options).await?;
        Ok(now.is_some_and(|now| external_body(&now) == external_body(&located.version)))
    }
}

/// The bytes in the row of an object, as its client stored them.
fn open_inline(bytes: &Bytes, key: Option<&BytesKey>) -> Result<Bytes> {
    match key {
        Some(key) => Ok(key.cipher(&[])?.open_whole(bytes)?),
        None => Ok(bytes.clone()),
    }
}

/// Refuses a caller without permission for its action. A missing key looks forbidden to a caller that may not list the
/// bucket.
fn check_access(
    caller: &Caller,
    bucket: &Bucket,
    key: &[u8],
    spec: &VersionSpec,
    version: Option<&Version>,
) -> Result<()> {
    caller.check(bucket, &spec.action(caller.action()?).on_version(key, version))?;
    if version.is_some_and(|version| version.object.is_some()) {
        return Ok(());
    }
    caller.check_listing(bucket, key)
}
