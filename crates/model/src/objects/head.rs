//! The head of a key: the one row that every change of the key compares and sets.

use crate::content::BlobId;

use super::ids::VersionId;
use super::version::Version;

/// What the head row holds. Versions that are not current have rows of their own behind it, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// The current version; `None` when no version is left: the head then stays a day, so that its stamp orders what follows
    /// (and its listing entry is not taken for newer than the next one).
    pub current: Option<Version>,
    /// The version clients know as `null`, when it has a row of its own.
    pub null: Option<VersionId>,
    /// Whether versions that are not current have rows.
    pub older: bool,
    /// What nobody names any more and may still have to be removed: done by whoever touches the head next.
    pub release: Vec<Release>,
}

/// Bytes that are to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// A blob.
    Blob(BlobId),
    /// A manifest and the blobs it names.
    Parts(VersionId),
}
