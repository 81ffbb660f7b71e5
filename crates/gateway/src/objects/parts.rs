//! Parts of an upload: put, copied, listed page by page.

use bytes::Bytes;
use larder_model::objects::{Part, Upload};

use super::get::GetObject;
use super::put::Incoming;
use super::uploads::AbortDate;
use super::{Caller, Objects, Result};

/// Where a part goes.
#[derive(Debug, Clone)]
pub struct PartAddress {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload, as it came.
    pub upload: String,
    /// The part's number, 1 to 10,000: checked by the edge.
    pub number: u16,
}

/// A page of parts.
#[derive(Debug, Clone)]
pub struct PartsPage {
    /// The upload.
    pub upload: Upload,
    /// Parts with numbers above the marker, ascending.
    pub parts: Vec<Part>,
    /// Whether there are more.
    pub truncated: bool,
    /// Number of the last part of this page, 0 for an empty one.
    pub next_marker: u16,
    /// When the lifecycle will give the upload up.
    pub abort_date: AbortDate,
}

/// What to list.
#[derive(Debug, Clone)]
pub struct ListParts {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload, as it came.
    pub upload: String,
    /// Only parts above this number.
    pub after: u32,
    /// Most parts, 0 to 1000.
    pub max: usize,
}

impl Objects {
    /// Stores a part: of several with one number the one finished last counts.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `EntityTooLarge`, `BadDigest`, `BadChecksum`, `BrokenBody`,
    /// `InvalidRequest` for a checksum of another algorithm than the upload's, or none where it must be given.
    pub async fn put_part(&self, caller: &Caller, at: &PartAddress, incoming: Incoming) -> Result<Part> {
        unimplemented!()
    }

    /// Stores a part made of bytes of an object; answers the source's version id, where versions are kept. A window beyond the
    /// source is refused.
    ///
    /// # Errors
    /// Those of a get of the source and of [`Self::put_part`]; `InvalidArgument` for a window beyond the source.
    pub async fn copy_part(
        &self,
        caller: &Caller,
        source: &GetObject,
        at: &PartAddress,
    ) -> Result<(Part, Option<String>)> {
        unimplemented!()
    }

    /// One page of parts: one read of the upload, one read of the page, whatever the number of parts.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `AccessDenied`.
    pub async fn list_parts(&self, caller: &Caller, request: &ListParts) -> Result<PartsPage> {
        unimplemented!()
    }
}
