//! One version of an object, as it is stored.

use bytes::Bytes;

use crate::content::BlobId;
use crate::rows::Micros;

use super::acl::Acl;
use super::checksum::Checksum;
use super::ids::{UploadId, VersionId};
use super::tags::Tag;

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
}

/// MD5 of the bytes, or of the MD5s of the parts with their count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Etag {
    /// The digest.
    pub md5: [u8; 16],
    /// How many parts, for an object made of parts.
    pub parts: Option<u32>,
}

/// Headers that are stored with an object and given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SystemHeader {
    /// `Content-Type`
    ContentType = 1,
    /// `Cache-Control`
    CacheControl = 2,
    /// `Content-Disposition`
    ContentDisposition = 3,
    /// `Content-Encoding`, without `aws-chunked`
    ContentEncoding = 4,
    /// `Content-Language`
    ContentLanguage = 5,
    /// `Expires`
    Expires = 6,
    /// `x-amz-website-redirect-location`
    WebsiteRedirect = 7,
    /// `x-amz-storage-class`, when it is not `STANDARD`
    StorageClass = 8,
}
