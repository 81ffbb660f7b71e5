//! Completing an upload.
//!
//! ```text
//! open ─> completing(version) ─> manifest ─> head of the key ─> done (kept a day)
//! ```
//! Whoever meets an upload that has been completing for too long takes it back: it marks the upload *reopening*, touches the
//! key's head, looks whether the version is there, and makes the upload done or open accordingly. The completing writer reads
//! the key's head, then its own upload, then commits against that head: so one of the two gives way.

use bytes::Bytes;
use larder_model::objects::{Checksum, Etag};

use super::put::WriteConditions;
use super::{Caller, Objects, Result};

/// A part as listed by who completes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Its number as it came, at least 1.
    pub number: u32,
    /// Its entity tag as it came, without quotes.
    pub etag: String,
    /// Its checksum, if one was listed.
    pub checksum: Option<Checksum>,
}

/// What is to be completed.
#[derive(Debug, Clone)]
pub struct CompleteUpload {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload, as it came.
    pub upload: String,
    /// The parts; at least one.
    pub parts: Vec<ListedPart>,
    /// What must hold of the current version.
    pub conditions: WriteConditions,
    /// The object's checksum, if the client says it.
    pub checksum: Option<Checksum>,
    /// The object's length in bytes, if the client says it.
    pub length: Option<u64>,
}

/// An upload that became an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// The object's entity tag.
    pub etag: Etag,
    /// The object's checksum.
    pub checksum: Option<Checksum>,
    /// Its version id as clients see it, where versions are kept.
    pub version_id: Option<String>,
}

impl Objects {
    /// Makes an object of parts. A repeat with the same list is answered the same for a day.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `InvalidPartOrder`, `InvalidPart`, `EntityTooSmall`, `EntityTooLarge`,
    /// `BadChecksum`, `InvalidRequest` (length), `PreconditionFailed`, `ConditionalConflict`: the upload stays open.
    pub async fn complete(&self, caller: &Caller, request: CompleteUpload) -> Result<Completed> {
        unimplemented!()
    }
}
