//! Entries of listings: the shadows of heads.

use crate::rows::Micros;

use super::checksum::{Algorithm, Kind};
use super::version::Etag;

/// What listings show of a key; the shadow of its head. A key without any version has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When the current version was written.
    pub modified: Micros,
    /// Canonical id of its owner.
    pub owner: String,
    /// The object; `None` when the current version is a delete marker: such a key shows in the list of versions alone.
    pub object: Option<EntryObject>,
}

/// What listings show of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryObject {
    /// Its entity tag.
    pub etag: Etag,
    /// Its length in bytes.
    pub length: u64,
    /// Its storage class, when it is not `STANDARD`.
    pub storage_class: Option<String>,
    /// Algorithm and kind of its checksum.
    pub checksum: Option<(Algorithm, Kind)>,
}

/// What the list of uploads shows of one; the shadow of the upload's head while it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadEntry {
    /// When it was begun.
    pub initiated: Micros,
    /// Canonical id of who began it.
    pub initiator: String,
    /// Canonical id of the owner of the object to be.
    pub owner: String,
    /// The storage class, when it is not `STANDARD`.
    pub storage_class: Option<String>,
    /// Algorithm and kind of the checksum to be.
    pub checksum: Option<(Algorithm, Kind)>,
}
