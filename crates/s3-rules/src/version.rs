//! The stored form of a version of an S3 object.

pub(crate) mod fields;
#[cfg(test)]
pub(crate) mod tests;

pub use fields::Etag;
pub use fields::SystemHeader;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::content::BlobId;
use larder_rows::ids::{UploadId, VersionId};

use super::acl::Acl;
use super::checksum::Checksum;
use super::encryption::{EncryptionKind, ObjectEncryption};
use super::object_lock::ObjectLock;
use super::tags::Tag;
use larder_encryption::sealed_body::{opened_length, sealed_length};

const VERSION: u8 = 1;
const NULL: u8 = 1;
const OBJECT: u8 = 2;
/// The object has a lock. Programs without locks refuse the flag, and with it the version.
const LOCK: u8 = 4;
/// The object is encrypted.
const ENCRYPTED: u8 = 8;

/// A version of an S3 key: an object or a delete marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its identity, and the name of its row when it is noncurrent.
    pub id: VersionId,
    /// Whether its version id for clients is `null`: it was written while versioning was off or suspended.
    pub null: bool,
    /// Its `Last-Modified`.
    pub modified: Timestamp,
    /// Canonical id of its owner.
    pub owner: String,
    /// The object; `None` for a delete marker.
    pub object: Option<Object>,
}

impl Version {
    /// The name of its row when it is noncurrent. Newer versions sort first.
    #[must_use]
    pub fn row_name(&self) -> Bytes {
        Bytes::copy_from_slice(&self.id.0)
    }

    /// Its lock; that of a delete marker is empty.
    #[must_use]
    pub fn lock(&self) -> ObjectLock {
        self.object.as_ref().map_or_else(ObjectLock::default, |object| object.lock)
    }

    /// The stored form of a noncurrent version.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, self.size_hint());
        self.put(&mut out);
        out.finish()
    }

    /// Reads the stored form. The body shares its memory.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let rest = FieldDecoder::versioned(value, VERSION)?;
        Self::take(rest)
    }

    /// An estimate of the length of its stored form, in bytes.
    pub(super) fn size_hint(&self) -> usize {
        let Some(object) = &self.object else { return 128 };
        let meta: usize = object.meta.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let body = if let ObjectBody::Inline(bytes) = &object.body { bytes.len() } else { 0 };
        512 + meta + body
    }

    /// Appends the version. The body comes last.
    pub(super) fn put(&self, out: &mut FieldEncoder) {
        out.raw(&self.id.0);
        let (lock, encryption) = (self.lock(), self.object.as_ref().and_then(|object| object.encryption));
        let (object, locked) = (u8::from(self.object.is_some()), u8::from(!lock.is_empty()));
        let encrypted = u8::from(encryption.is_some());
        out.u8(u8::from(self.null) * NULL + object * OBJECT + locked * LOCK + encrypted * ENCRYPTED);
        out.u64(self.modified.0);
        out.text(&self.owner);
        if !lock.is_empty() {
            lock.put(out);
        }
        if let Some(encryption) = encryption {
            encryption.put(out);
        }
        if let Some(object) = &self.object {
            object.put(out);
        }
    }

    /// Reads a version that ends with the row.
    pub(super) fn take(mut rest: FieldDecoder) -> Result<Self, DecodeError> {
        let id = VersionId(rest.array()?);
        let flags = rest.u8()?;
        let of_object = LOCK | ENCRYPTED;
        if flags & !(NULL | OBJECT | of_object) != 0 || (flags & OBJECT == 0 && flags & of_object != 0) {
            return Err(DecodeError::Invalid("version flags"));
        }
        let modified = rest.u64()?;
        let owner = rest.text()?;
        let lock = if flags & LOCK == 0 { ObjectLock::default() } else { ObjectLock::take(&mut rest)? };
        let encryption = (flags & ENCRYPTED != 0).then(|| ObjectEncryption::take(&mut rest)).transpose()?;
        let object = if flags & OBJECT == 0 {
            rest.finish()?;
            None
        } else {
            Some(Object { lock, ..Object::take(rest, encryption)? })
        };
        Ok(Self { id, null: flags & NULL != 0, modified: Timestamp(modified), owner, object })
    }
}

/// An S3 object as a client put it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its bytes, inline or outside of the row.
    pub body: ObjectBody,
    /// The entity tag.
    pub etag: Etag,
    /// System headers, each at most once.
    pub headers: Vec<(SystemHeader, Bytes)>,
    /// User metadata: the name after `x-amz-meta-` in lower case, and the value.
    pub meta: Vec<(String, Bytes)>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// The grants beside the owner's; `None` is `private`.
    pub acl: Option<Acl>,
    /// The checksum it was stored with.
    pub checksum: Option<Checksum>,
    /// The multipart upload that made it.
    pub upload: Option<UploadId>,
    /// How its bytes are encrypted; `None`: they are as they came.
    pub encryption: Option<ObjectEncryption>,
    /// Its retention and legal hold.
    pub lock: ObjectLock,
}

impl Object {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match (&self.body, self.encryption) {
            (ObjectBody::Inline(sealed), Some(_)) => opened_length(sealed.len() as u64),
            (body, _) => body.length(),
        }
    }

    /// How its bytes are encrypted.
    #[must_use]
    pub fn encryption_kind(&self) -> Option<EncryptionKind> {
        self.encryption.map(|encryption| encryption.kind())
    }

    /// Its blob and the length of the stored bytes, if it has one blob.
    #[must_use]
    pub fn blob(&self) -> Option<(BlobId, u64)> {
        match (&self.body, self.encryption) {
            (ObjectBody::Blob { id, length }, Some(_)) => Some((*id, sealed_length(*length))),
            (ObjectBody::Blob { id, length }, None) => Some((*id, *length)),
            (ObjectBody::Inline(_) | ObjectBody::Parts { .. }, _) => None,
        }
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, header: SystemHeader) -> Option<&Bytes> {
        self.headers.iter().find(|(name, _)| *name == header).map(|(_, value)| value)
    }

    fn put(&self, out: &mut FieldEncoder) {
        fields::put_etag(out, self.etag);
        fields::put_headers(out, &self.headers);
        fields::put_meta(out, &self.meta);
        fields::put_tags(out, &self.tags);
        out.optional(self.acl.as_ref(), fields::put_acl);
        out.optional(self.checksum.as_ref(), fields::put_checksum);
        out.optional(self.upload, |out, upload| out.raw(&upload.0));
        self.body.put(out);
    }

    fn take(mut rest: FieldDecoder, encryption: Option<ObjectEncryption>) -> Result<Self, DecodeError> {
        Ok(Self {
            encryption,
            etag: fields::etag(&mut rest)?,
            headers: fields::headers(&mut rest)?,
            meta: fields::meta(&mut rest)?,
            tags: fields::tags(&mut rest)?,
            acl: rest.optional(fields::acl)?,
            checksum: rest.optional(fields::checksum)?,
            upload: rest.optional(|rest| Ok(UploadId(rest.array()?)))?,
            // The version has it, before the object.
            lock: ObjectLock::default(),
            body: ObjectBody::take(rest)?,
        })
    }
}

/// The bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectBody {
    /// Bytes in the row itself; sealed, where the object is encrypted.
    Inline(Bytes),
    /// One blob.
    Blob {
        /// Its identity.
        id: BlobId,
        /// The length of the object in bytes; encrypted bytes are longer.
        length: u64,
    },
    /// The parts of an upload, listed in a manifest.
    Parts {
        /// The name of the manifest: the version that the upload became. A copy of the key onto itself shares the manifest.
        manifest: VersionId,
        /// The number of parts.
        count: u32,
        /// The length of all parts together, in bytes.
        length: u64,
    },
}

impl ObjectBody {
    /// Length in bytes; of sealed bytes in the row, with their tags.
    #[must_use]
    fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Blob { length, .. } | Self::Parts { length, .. } => *length,
        }
    }

    /// Inline bytes come last, so they need no length.
    fn put(&self, out: &mut FieldEncoder) {
        match self {
            Self::Inline(bytes) => {
                out.u8(0);
                out.raw(bytes);
            }
            Self::Blob { id, length } => {
                out.u8(1);
                out.raw(&id.0);
                out.varint(*length);
            }
            Self::Parts { manifest, count, length } => {
                out.u8(2);
                out.raw(&manifest.0);
                out.varint(u64::from(*count));
                out.varint(*length);
            }
        }
    }

    fn take(mut rest: FieldDecoder) -> Result<Self, DecodeError> {
        let body = match rest.u8()? {
            0 => return Ok(Self::Inline(rest.rest())),
            1 => Self::Blob { id: BlobId(rest.array()?), length: rest.varint()? },
            2 => Self::Parts {
                manifest: VersionId(rest.array()?),
                count: u32::try_from(rest.varint()?).map_err(|_| DecodeError::Invalid("parts"))?,
                length: rest.varint()?,
            },
            _ => return Err(DecodeError::Invalid("body kind")),
        };
        rest.finish()?;
        Ok(body)
    }
}
