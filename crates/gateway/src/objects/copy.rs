//! Copying objects. Copies to another key copy bytes; a copy of a key onto itself shares them.

use bytes::Bytes;
use larder_model::objects::{Algorithm, Tag};

use super::acl::AclChoice;
use super::get::GetObject;
use super::put::{About, Stored, WriteConditions};
use super::{Caller, Objects, Result};

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
    /// Whether the request changes anything else (storage class, website redirect): then a copy onto itself is allowed.
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

impl Objects {
    /// Copies an object.
    ///
    /// # Errors
    /// Those of a get of the source and of a put of the destination; `InvalidRequest` for a source above 5 GiB and for a copy
    /// onto itself that changes nothing.
    pub async fn copy(&self, caller: &Caller, request: CopyObject) -> Result<Copied> {
        unimplemented!()
    }
}
