//! Deleting objects, versions and delete markers.

use bytes::Bytes;

use super::get::VersionSpec;
use super::{Caller, Objects, Result};

/// What a delete did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Whether a delete marker was written or removed.
    pub marker: bool,
    /// The version written or removed, as clients see it; `None` in a bucket that never kept versions.
    pub version_id: Option<String>,
}

impl Objects {
    /// Deletes: without a version the current object (a marker is written where versions are kept), with one that version for
    /// ever. What is not there is no error. `if_match`: entity tags of which one must be current, `*` any.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `BadVersionId`, `PreconditionFailed`.
    pub async fn delete(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        if_match: Option<Vec<String>>,
    ) -> Result<Deleted> {
        unimplemented!()
    }
}
