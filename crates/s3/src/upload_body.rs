//! The body of an upload, and the metadata that comes with it.

use bytes::Bytes;
use larder_core::body::ByteStream;

use crate::acl_choice::AclChoice;
use crate::rules::{Algorithm, Checksum, SystemHeader, Tag};

/// A request body, and what the client announces of it.
pub struct UploadBody {
    /// The bytes.
    pub stream: Box<dyn ByteStream>,
    /// Announced length in bytes.
    pub length: Option<u64>,
    /// Their MD5, if the client gives it.
    pub md5: Option<[u8; 16]>,
    /// Their checksum.
    pub checksum: ChecksumWanted,
}

/// The checksum of a request body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChecksumWanted {
    /// Not given: an object gets CRC64NVME, a part the algorithm of its upload.
    Default,
    /// Compute this one.
    Compute(Algorithm),
    /// The body must have this one.
    Given(Checksum),
    /// In a trailer of the body, see [`ByteStream::trailing`], in this algorithm.
    Trailing(Algorithm),
}

/// The metadata of an object in a request.
#[derive(Debug, Clone, Default)]
pub struct ObjectMetadata {
    /// System headers.
    pub headers: Vec<(SystemHeader, Bytes)>,
    /// User metadata: names in lower case, without the prefix of their headers.
    pub meta: Vec<(String, Bytes)>,
    /// Tags, checked by the edge.
    pub tags: Vec<Tag>,
    /// The ACL.
    pub acl: AclChoice,
}
