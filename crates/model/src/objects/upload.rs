//! A multipart upload: the head of its partition.
//!
//! ```text
//! open ──> completing(version) ──> done (kept a day: a repeat answers the same)
//!   │ ^          │ dead
//!   │ └──────── reopening: the mark behind which the object's head is touched and looked at
//!   └────> aborted (kept a day)
//! ```

use bytes::Bytes;

use crate::codec::{DecodeError, Decoder, Encoder};
use crate::rows::Micros;

use super::acl::Acl;
use super::checksum::{Algorithm, Checksum, Kind};
use super::ids::{BucketId, VersionId};
use super::tags::Tag;
use super::version::fields::{self, algorithm_and_kind, array, optional, put_algorithm, put_optional, put_text, text};
use super::version::{Etag, SystemHeader};

const VERSION: u8 = 1;

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

impl Upload {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::with_capacity(512);
        out.u8(VERSION);
        out.raw(&self.bucket.0);
        out.bytes(&self.key);
        put_text(&mut out, &self.initiator);
        put_text(&mut out, &self.owner);
        out.u64(self.initiated);
        fields::put_headers(&mut out, &self.headers);
        fields::put_meta(&mut out, &self.meta);
        fields::put_tags(&mut out, &self.tags);
        put_optional(&mut out, self.acl.as_ref(), fields::put_acl);
        put_optional(&mut out, self.checksum, put_algorithm);
        self.state.put(&mut out);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`]: an unknown version is never guessed at.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = Decoder::new(value);
        rest.version(VERSION)?;
        let upload = Self {
            bucket: BucketId(array(&mut rest)?),
            key: rest.bytes()?,
            initiator: text(&mut rest)?,
            owner: text(&mut rest)?,
            initiated: rest.u64()?,
            headers: fields::headers(&mut rest)?,
            meta: fields::meta(&mut rest)?,
            tags: fields::tags(&mut rest)?,
            acl: optional(&mut rest, fields::acl)?,
            checksum: optional(&mut rest, algorithm_and_kind)?,
            state: UploadState::take(&mut rest)?,
        };
        rest.finish()?;
        Ok(upload)
    }
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

    fn put(&self, out: &mut Encoder) {
        match self {
            Self::Open => out.u8(1),
            Self::Completing { version, list, since } => {
                out.u8(2);
                out.raw(&version.0);
                out.raw(list);
                out.u64(*since);
            }
            Self::Reopening { version, list } => {
                out.u8(3);
                out.raw(&version.0);
                out.raw(list);
            }
            Self::Done { version, null, list, etag, checksum } => {
                out.u8(4);
                out.raw(&version.0);
                out.u8(u8::from(*null));
                out.raw(list);
                fields::put_etag(out, *etag);
                put_optional(out, checksum.as_ref(), fields::put_checksum);
            }
            Self::Aborted => out.u8(5),
        }
    }

    fn take(rest: &mut Decoder) -> Result<Self, DecodeError> {
        match rest.u8()? {
            1 => Ok(Self::Open),
            2 => Ok(Self::Completing { version: VersionId(array(rest)?), list: array(rest)?, since: rest.u64()? }),
            3 => Ok(Self::Reopening { version: VersionId(array(rest)?), list: array(rest)? }),
            4 => Ok(Self::Done {
                version: VersionId(array(rest)?),
                null: optional(rest, |_| Ok(()))?.is_some(),
                list: array(rest)?,
                etag: fields::etag(rest)?,
                checksum: optional(rest, fields::checksum)?,
            }),
            5 => Ok(Self::Aborted),
            _ => Err(DecodeError::Invalid("upload state")),
        }
    }
}
