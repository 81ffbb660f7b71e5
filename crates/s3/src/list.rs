//! Pages of keys and versions: merges the entry shards of a bucket and skips over common prefixes.

mod merged;
mod source_keys;
mod versions;

#[cfg(test)]
mod tests;

use super::commit::HeadStore;
use super::{Caller, Objects, Result};
use crate::rules::listing::{KeyPage, KeyPageStep};
use crate::rules::{BucketId, ListingEntry};
use source_keys::{ListedEntries, SourceKeys};

pub use super::listing_page::{ListObjects, ListVersions, ListedVersion, ListingPage, VersionsPage};
pub use crate::rules::listing::KeyOrPrefix;
pub(super) use merged::MergedEntries;
pub(super) use versions::VersionMarker;

impl Objects {
    /// A page of the keys of a bucket, with every put that was acknowledged before.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn list(&self, caller: &Caller, request: &ListObjects) -> Result<ListingPage<ListingEntry>> {
        let bucket = self.buckets.find_for(caller, &request.bucket).await?;
        let mut page = KeyPage::new(request.query(false));
        let range = page.read_range();
        let there = range.as_ref().and_then(|(begin, _)| SourceKeys::from(&self.heads, &bucket, request, begin));
        let mut entries = ListedEntries {
            here: MergedEntries::new(&self.heads, bucket.id, range, request.max),
            next: None,
            there,
            heads: &self.heads,
        };
        while let Some((key, mut entry)) = entries.next().await? {
            if entry.object.is_none() {
                continue; // A deleted key makes no common prefix either.
            }
            if !bucket.has_acls() {
                entry.owner.clone_from(&bucket.owner);
            }
            match page.push(key, entry) {
                KeyPageStep::Next => {}
                KeyPageStep::SkipTo(key) => entries.seek(&key),
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
        let mut page = self.heads.versions_page(bucket.id, objects, marker).await?;
        if bucket.hides_markers() {
            // The markers of deletions are for the move alone.
            let is_marker = |listed: &ListedVersion| listed.version.object.is_none() && listed.version.null;
            page.lines.retain(|line| !matches!(line, KeyOrPrefix::Key(_, listed) if is_marker(listed)));
        }
        for line in &mut page.lines {
            if let (KeyOrPrefix::Key(_, listed), false) = (line, bucket.has_acls()) {
                listed.version.owner.clone_from(&bucket.owner);
            }
        }
        Ok(page)
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
