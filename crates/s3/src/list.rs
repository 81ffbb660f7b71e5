//! Pages of keys and versions: merges the entry shards of a bucket and skips over common prefixes.

mod merged;
#[cfg(test)]
mod tests;
mod versions;

use bytes::Bytes;

pub use crate::rules::listing::KeyOrPrefix;
use crate::rules::listing::{KeyPage, KeyPageStep, KeyQuery};
use crate::rules::{BucketId, ListingEntry, Version};

use merged::MergedEntries;
pub(super) use versions::VersionMarker;

use super::commit::HeadStore;
use super::{Caller, Objects, Result};

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
    pub(super) fn query(&self, after_has_more: bool) -> KeyQuery {
        let Self { prefix, delimiter, after, max, .. } = self.clone();
        KeyQuery { prefix, delimiter, after, after_has_more, max }
    }
}

impl Objects {
    /// A page of the keys of a bucket, with every put that was acknowledged before.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn list(&self, caller: &Caller, request: &ListObjects) -> Result<ListingPage<ListingEntry>> {
        let bucket = self.buckets.find_for(caller, &request.bucket).await?;
        let mut page = KeyPage::new(request.query(false));
        let mut rows = MergedEntries::new(&self.heads, bucket.id, page.read_range(), request.max);
        while let Some(row) = rows.next().await? {
            let entry = ListingEntry::decode(row.value)?;
            if entry.object.is_none() {
                continue; // A deleted key makes no common prefix either.
            }
            match page.push(row.name, entry) {
                KeyPageStep::Next => {}
                KeyPageStep::SkipTo(key) => rows.seek(&key),
                KeyPageStep::Full => break,
            }
        }
        let page = page.finish();
        Ok(ListingPage { lines: page.listed, next: page.next })
    }

    /// A page of the versions and delete markers of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `InvalidArgument` for a malformed version marker.
    pub async fn list_versions(&self, caller: &Caller, request: &ListVersions) -> Result<VersionsPage> {
        let ListVersions { objects, version } = request;
        let marker = VersionMarker::parse(version.as_deref(), &objects.after)?;
        let bucket = self.buckets.find_for(caller, &objects.bucket).await?;
        self.heads.versions_page(bucket.id, objects, marker).await
    }
}

impl HeadStore {
    /// A page of the versions and delete markers of a bucket, whoever asks.
    ///
    /// # Errors
    /// Any error of the store.
    pub(super) async fn versions_page(
        &self,
        bucket: BucketId,
        objects: &ListObjects,
        marker: Option<VersionMarker>,
    ) -> Result<VersionsPage> {
        let mut page = KeyPage::new(objects.query(marker.is_some()));
        let mut rows = MergedEntries::new(self, bucket, page.read_range(), objects.max);
        while let Some(row) = rows.next().await? {
            let key = row.name;
            let step = if page.is_listed_alone(&key) {
                let after_version = marker.filter(|_| key == objects.after);
                self.push_versions(&mut page, bucket, &key, after_version).await?
            } else {
                page.roll_up(&key)
            };
            match step {
                KeyPageStep::Next => {}
                KeyPageStep::SkipTo(key) => rows.seek(&key),
                KeyPageStep::Full => break,
            }
        }
        let page = page.finish();
        let last = page.listed.last().filter(|_| page.truncated);
        let next = last.map(|last| match last {
            KeyOrPrefix::Key(key, version) => (key.clone(), Some(version.version_id.clone())),
            KeyOrPrefix::Prefix(prefix) => (prefix.clone(), None),
        });
        Ok(VersionsPage { lines: page.listed, next })
    }
}
