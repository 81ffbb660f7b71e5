//! Pages of keys, of versions: the shards of a bucket's entries merged, common prefixes skipped over.

use bytes::Bytes;
use larder_model::objects::{Entry, Version};

use super::{Caller, Objects, Result};

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct ListObjects {
    /// The bucket.
    pub bucket: String,
    /// What keys begin with.
    pub prefix: Bytes,
    /// What ends a common prefix; empty: there are none.
    pub delimiter: Bytes,
    /// Only keys and common prefixes behind this one; empty: all.
    pub after: Bytes,
    /// Most keys and common prefixes together.
    pub max: usize,
}

/// One line of a listing.
#[derive(Debug, Clone)]
pub enum Listed<T> {
    /// A key.
    Key(Bytes, T),
    /// A common prefix.
    Prefix(Bytes),
}

/// A page of a listing.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// Keys and common prefixes in their order.
    pub lines: Vec<Listed<T>>,
    /// Where the next page begins: the last key or common prefix of this one; `None` at the end.
    pub next: Option<Bytes>,
}

/// What to list versions from.
#[derive(Debug, Clone, Default)]
pub struct ListVersions {
    /// As for keys; `after` is the key marker.
    pub objects: ListObjects,
    /// Behind which version of the key marker, as it came.
    pub version: Option<String>,
}

/// A version in a list.
#[derive(Debug, Clone)]
pub struct ListedVersion {
    /// The version; inline bytes are left out.
    pub version: Version,
    /// Its id as clients see it, `null` included.
    pub version_id: String,
    /// Whether it is the current one.
    pub latest: bool,
}

/// A page of versions.
#[derive(Debug, Clone)]
pub struct VersionsPage {
    /// Versions, newest first for each key, and common prefixes, in the order of keys.
    pub lines: Vec<Listed<ListedVersion>>,
    /// Key and version id of the last line, if there is more behind it.
    pub next: Option<(Bytes, Option<String>)>,
}

impl Objects {
    /// A page of the keys of a bucket: every put that was answered before is in it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn list(&self, caller: &Caller, request: &ListObjects) -> Result<Page<Entry>> {
        unimplemented!()
    }

    /// A page of the versions and delete markers of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `InvalidArgument` for a version that is none.
    pub async fn list_versions(&self, caller: &Caller, request: &ListVersions) -> Result<VersionsPage> {
        unimplemented!()
    }
}
