//! Putting an object. Read [`Objects::put`] as the list of its steps.

use bytes::Bytes;
use larder_model::objects::{Algorithm, Checksum, SystemHeader, Tag, Version};

use crate::body::ByteStream;

use super::acl::AclChoice;
use super::{Caller, Objects, Result};

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
        unimplemented!()
    }
}
