//! Pages of keys, of versions: the shards of a bucket's entries merged, common prefixes skipped over.

mod merged;
#[cfg(test)]
mod tests;
mod versions;

use bytes::Bytes;
pub use larder_model::objects::listing::Listed;
use larder_model::objects::listing::{KeyPage, KeyQuery, Step};
use larder_model::objects::{Entry, Version};

use merged::Merged;
use versions::Marker;

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
    /// The version, with as much of its object as listings show: its bytes, metadata, tags and grants are left out.
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

impl ListObjects {
    fn query(&self, after_again: bool) -> KeyQuery {
        let Self { prefix, delimiter, after, max, .. } = self.clone();
        KeyQuery { prefix, delimiter, after, after_again, max }
    }
}

impl Objects {
    /// A page of the keys of a bucket: every put that was answered before is in it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn list(&self, caller: &Caller, request: &ListObjects) -> Result<Page<Entry>> {
        let bucket = self.bucket_for(caller, &request.bucket, "s3:ListBucket").await?;
        let mut page = KeyPage::new(request.query(false));
        let mut rows = Merged::new(self, bucket.id, page.range(), request.max);
        while let Some(row) = rows.next().await? {
            let entry = Entry::decode(row.value)?;
            if entry.object.is_none() {
                continue; // Deleted: it does not even make a common prefix.
            }
            match page.push(row.name, entry) {
                Step::Next => {}
                Step::SkipTo(key) => rows.seek(&key),
                Step::Full => break,
            }
        }
        let page = page.finish();
        Ok(Page { lines: page.listed, next: page.next })
    }

    /// A page of the versions and delete markers of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `InvalidArgument` for a version that is none.
    pub async fn list_versions(&self, caller: &Caller, request: &ListVersions) -> Result<VersionsPage> {
        let ListVersions { objects, version } = request;
        let marker = Marker::parse(version.as_deref(), &objects.after)?;
        let bucket = self.bucket_for(caller, &objects.bucket, "s3:ListBucketVersions").await?;
        let mut page = KeyPage::new(objects.query(marker.is_some()));
        let mut rows = Merged::new(self, bucket.id, page.range(), objects.max);
        while let Some(row) = rows.next().await? {
            let key = row.name;
            let step = if page.lists(&key) {
                let behind = marker.filter(|_| key == objects.after);
                self.push_versions(&mut page, bucket.id, &key, behind).await?
            } else {
                page.pass(&key)
            };
            match step {
                Step::Next => {}
                Step::SkipTo(key) => rows.seek(&key),
                Step::Full => break,
            }
        }
        let page = page.finish();
        let last = page.listed.last().filter(|_| page.truncated);
        let next = last.map(|last| match last {
            Listed::Key(key, version) => (key.clone(), Some(version.version_id.clone())),
            Listed::Prefix(prefix) => (prefix.clone(), None),
        });
        Ok(VersionsPage { lines: page.listed, next })
    }
}
