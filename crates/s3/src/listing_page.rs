//! The pages of listings, and the requests for them.

use bytes::Bytes;

use crate::rules::Version;
use crate::rules::listing::{KeyOrPrefix, KeyQuery};

/// A request to list keys.
#[derive(Debug, Clone, Default)]
pub struct ListObjects {
    /// The bucket.
    pub bucket: String,
    /// The prefix of the keys.
    pub prefix: Bytes,
    /// The delimiter that ends a common prefix; empty: no common prefixes.
    pub delimiter: Bytes,
    /// Only keys and common prefixes after this one; empty: all.
    pub after: Bytes,
    /// Most keys and common prefixes together.
    pub max: usize,
}

/// A page of a listing.
#[derive(Debug, Clone)]
pub struct ListingPage<T> {
    /// Keys and common prefixes in their order.
    pub lines: Vec<KeyOrPrefix<T>>,
    /// The start of the next page: the last key or common prefix of this one; `None` at the end.
    pub next: Option<Bytes>,
}

/// A request to list versions.
#[derive(Debug, Clone, Default)]
pub struct ListVersions {
    /// As for keys; `after` is the key marker.
    pub objects: ListObjects,
    /// The version marker: the version of the key marker to start after, as given.
    pub version: Option<String>,
}

/// A version in a list.
#[derive(Debug, Clone)]
pub struct ListedVersion {
    /// The version, with as much of its object as listings show: without bytes, metadata, tags and grants.
    pub version: Version,
    /// Its id for clients, `null` included.
    pub version_id: String,
    /// Whether it is the current one.
    pub latest: bool,
}

/// A page of versions.
#[derive(Debug, Clone)]
pub struct VersionsPage {
    /// Versions, newest first for each key, and common prefixes, in the order of keys.
    pub lines: Vec<KeyOrPrefix<ListedVersion>>,
    /// Key and version id of the last line, if there are more.
    pub next: Option<(Bytes, Option<String>)>,
}

impl ListObjects {
    /// The query of a page; `after_has_more`: whether `after` itself may have more lines.
    pub(crate) fn query(&self, after_has_more: bool) -> KeyQuery {
        let Self { prefix, delimiter, after, max, .. } = self.clone();
        KeyQuery { prefix, delimiter, after, after_has_more, max }
    }
}
