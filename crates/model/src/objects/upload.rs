//! A multipart upload: the head of its partition.
//!
//! ```text
//! open ──> completing(version) ──> done (kept a day: a repeat answers the same)
//!   │ ^          │ dead
//!   │ └──────── reopening: the mark behind which the object's head is touched and looked at
//!   └────> aborted (kept a day)
//! ```

use bytes::Bytes;

use crate::rows::Micros;

use super::acl::Acl;
use super::checksum::{Algorithm, Checksum, Kind};
use super::ids::{BucketId, VersionId};
use super::tags::Tag;
use super::version::{Etag, SystemHeader};

/// An upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The bucket.
    pub bucket: BucketId,
    /// The key.
    pub key: Bytes,
    /// Canonical id of who began it.
    pub initiator: String,
    /// Canonical id of the owner of the object to be.
    pub owner: String,
    /// When it was begun.
    pub initiated: Micros,
    /// Headers of the object to be.
    pub headers: Vec<(SystemHeader, Bytes)>,
    /// User metadata of the object to be.
    pub meta: Vec<(String, Bytes)>,
    /// Tags of the object to be.
    pub tags: Vec<Tag>,
    /// Access to the object to be.
    pub acl: Option<Acl>,
    /// The checksum its parts and the object are to have.
    pub checksum: Option<(Algorithm, Kind)>,
    /// How far it has come.
    pub state: UploadState,
}

/// How far an upload has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadState {
    /// Takes parts.
    Open,
    /// Is being completed as this version.
    Completing {
        /// The version to be.
        version: VersionId,
        /// Digest of the list of parts.
        list: [u8; 20],
        /// When it began.
        since: Micros,
    },
    /// The completing of this version is being taken back, unless it succeeded.
    Reopening {
        /// The version that was to be.
        version: VersionId,
        /// Digest of the list of parts.
        list: [u8; 20],
    },
    /// Became an object.
    Done {
        /// The version.
        version: VersionId,
        /// Whether clients know it as `null`.
        null: bool,
        /// Digest of the list of parts: a repeat of the same list is answered the same.
        list: [u8; 20],
        /// Its entity tag.
        etag: Etag,
        /// Its checksum.
        checksum: Option<Checksum>,
    },
    /// Was given up.
    Aborted,
}

impl UploadState {
    /// Whether the upload still takes parts or may do so again.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self, Self::Open | Self::Completing { .. } | Self::Reopening { .. })
    }
}
