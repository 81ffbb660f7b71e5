//! One version of an object, as it is stored.

mod etag;
pub(in crate::objects) mod fields;
mod header;
#[cfg(test)]
pub(in crate::objects) mod tests;

pub use etag::Etag;
pub use header::SystemHeader;

use bytes::Bytes;

use crate::codec::{DecodeError, Decoder, Encoder};
use crate::content::BlobId;
use crate::rows::Micros;

use super::acl::Acl;
use super::checksum::Checksum;
use super::ids::{UploadId, VersionId};
use super::tags::Tag;
use fields::{array, optional, put_optional};

const VERSION: u8 = 1;
const NULL: u8 = 1;
const OBJECT: u8 = 2;

/// A version: an object, or a marker that says it was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its identity, also the name of its row once it is not current any more.
    pub id: VersionId,
    /// Whether clients know it as `null`: written while versioning was off or suspended.
    pub null: bool,
    /// When it was written: `Last-Modified`.
    pub modified: Micros,
    /// Canonical id of its owner.
    pub owner: String,
    /// The object; `None` for a delete marker.
    pub object: Option<Object>,
}

impl Version {
    /// Name of its row once it is not current any more: newer ones sort first.
    #[must_use]
    pub fn row_name(&self) -> Bytes {
        Bytes::copy_from_slice(&self.id.0)
    }

    /// The stored form of a version that is not current.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::with_capacity(self.room());
        out.u8(VERSION);
        self.put(&mut out);
        out.finish()
    }

    /// Reads the stored form; the body shares its memory.
    ///
    /// # Errors
    /// [`DecodeError`]: an unknown version is never guessed at.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = Decoder::new(value);
        rest.version(VERSION)?;
        Self::take(rest)
    }

    /// About as many bytes as its stored form has.
    pub(super) fn room(&self) -> usize {
        let Some(object) = &self.object else { return 128 };
        let meta: usize = object.meta.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let body = if let ObjectBody::Inline(bytes) = &object.body { bytes.len() } else { 0 };
        512 + meta + body
    }

    /// Writes it behind whatever was written; the body comes last.
    pub(super) fn put(&self, out: &mut Encoder) {
        out.raw(&self.id.0);
        out.u8(u8::from(self.null) * NULL + u8::from(self.object.is_some()) * OBJECT);
        out.u64(self.modified);
        fields::put_text(out, &self.owner);
        if let Some(object) = &self.object {
            object.put(out);
        }
    }

    /// Reads it to the end of the row.
    pub(super) fn take(mut rest: Decoder) -> Result<Self, DecodeError> {
        let id = VersionId(array(&mut rest)?);
        let flags = rest.u8()?;
        if flags & !(NULL | OBJECT) != 0 {
            return Err(DecodeError::Invalid("version flags"));
        }
        let modified = rest.u64()?;
        let owner = fields::text(&mut rest)?;
        let object = if flags & OBJECT == 0 {
            rest.finish()?;
            None
        } else {
            Some(Object::take(rest)?)
        };
        Ok(Self { id, null: flags & NULL != 0, modified, owner, object })
    }
}

/// What a client put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The bytes, or where they are.
    pub body: ObjectBody,
    /// The entity tag.
    pub etag: Etag,
    /// Headers with a meaning, each at most once.
    pub headers: Vec<(SystemHeader, Bytes)>,
    /// User metadata: name behind `x-amz-meta-` in lower case, and value as it came.
    pub meta: Vec<(String, Bytes)>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Who may, beside its owner; `None` is `private`.
    pub acl: Option<Acl>,
    /// The checksum it was stored with.
    pub checksum: Option<Checksum>,
    /// The multipart upload that made it.
    pub upload: Option<UploadId>,
}

impl Object {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.body.length()
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, wanted: SystemHeader) -> Option<&Bytes> {
        self.headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }

    fn put(&self, out: &mut Encoder) {
        fields::put_etag(out, self.etag);
        fields::put_headers(out, &self.headers);
        fields::put_meta(out, &self.meta);
        fields::put_tags(out, &self.tags);
        put_optional(out, self.acl.as_ref(), fields::put_acl);
        put_optional(out, self.checksum.as_ref(), fields::put_checksum);
        put_optional(out, self.upload, |out, upload| out.raw(&upload.0));
        self.body.put(out);
    }

    fn take(mut rest: Decoder) -> Result<Self, DecodeError> {
        Ok(Self {
            etag: fields::etag(&mut rest)?,
            headers: fields::headers(&mut rest)?,
            meta: fields::meta(&mut rest)?,
            tags: fields::tags(&mut rest)?,
            acl: optional(&mut rest, fields::acl)?,
            checksum: optional(&mut rest, fields::checksum)?,
            upload: optional(&mut rest, |rest| Ok(UploadId(array(rest)?)))?,
            body: ObjectBody::take(rest)?,
        })
    }
}

/// The bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectBody {
    /// Small enough to live in its row.
    Inline(Bytes),
    /// One blob.
    Blob {
        /// Which.
        id: BlobId,
        /// Its length in bytes.
        length: u64,
    },
    /// The parts of an upload, in the manifest of this name.
    Parts {
        /// Partition of the manifest: the version that was completed. A copy onto itself keeps it.
        manifest: VersionId,
        /// How many parts.
        count: u32,
        /// Bytes of all parts.
        length: u64,
    },
}

impl ObjectBody {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Blob { length, .. } | Self::Parts { length, .. } => *length,
        }
    }

    /// The bytes of an inline body come last and as they are.
    fn put(&self, out: &mut Encoder) {
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

    fn take(mut rest: Decoder) -> Result<Self, DecodeError> {
        let body = match rest.u8()? {
            0 => return Ok(Self::Inline(rest.rest())),
            1 => Self::Blob { id: BlobId(array(&mut rest)?), length: rest.varint()? },
            2 => Self::Parts {
                manifest: VersionId(array(&mut rest)?),
                count: u32::try_from(rest.varint()?).map_err(|_| DecodeError::Invalid("parts"))?,
                length: rest.varint()?,
            },
            _ => return Err(DecodeError::Invalid("body kind")),
        };
        rest.finish()?;
        Ok(body)
    }
}
