//! What the versions of a key name.

use std::collections::HashSet;

use larder_model::content::BlobId;
use larder_model::objects::{Head, ObjectBody, UploadId, Version, VersionId};
use larder_model::rows::Stamp;
use larder_store::{Partition, ReadQuery, Stopped};

use crate::objects::get::Walk;
use crate::objects::{Objects, Result};

/// Versions read at once: each may hold a body of its own.
const PAGE_ROWS: usize = 32;
/// How often a key is looked at that changes under the eyes of who looks.
const LOOKS_MAX: usize = 20;

/// What is looked for among the versions of one key: what was not found is named by none.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// Blobs.
    pub(super) blobs: HashSet<BlobId>,
    /// The uploads that some of the blobs came by: only the manifests of their objects need be opened.
    pub(super) uploads: HashSet<UploadId>,
    /// Manifests.
    pub(super) manifests: HashSet<VersionId>,
}

impl Wanted {
    /// Whether all was found.
    pub(super) fn is_found(&self) -> bool {
        self.blobs.is_empty() && self.manifests.is_empty()
    }
}

impl Objects {
    /// What of `wanted` no version of a key names. The key may change meanwhile: then what is answered was true of no moment,
    /// and what is named may be missed.
    ///
    /// # Errors
    /// What the store answers; `Damaged`.
    pub(super) async fn unnamed_once(&self, key: &Partition, wanted: &Wanted) -> Result<Wanted> {
        Ok(self.glance(key, wanted).await?.0)
    }

    /// As [`Self::unnamed_once`], true of one moment: the head of the key was the same before and after.
    ///
    /// # Errors
    /// What the store answers; `Damaged`; `Overloaded` when the key never rests.
    pub(super) async fn unnamed_now(&self, key: &Partition, wanted: &Wanted) -> Result<Wanted> {
        for _ in 0..LOOKS_MAX {
            let (left, before) = self.glance(key, wanted).await?;
            if left.is_found() || self.read_head(key, &self.options()).await?.stamp == before {
                return Ok(left);
            }
        }
        Err(crate::Error::Overloaded { retry_after: 1 }.into())
    }

    /// Goes through the versions once; answers what was not found, and the stamp of the head it began with.
    async fn glance(&self, key: &Partition, wanted: &Wanted) -> Result<(Wanted, Option<Stamp>)> {
        let (mut left, mut stamp) = (wanted.clone(), None);
        let mut query = ReadQuery::all(PAGE_ROWS);
        loop {
            // Engines may answer without ever waiting: other requests have their turn all the same.
            tokio::task::consume_budget().await;
            let page = self.gateway.ports.store.read(key, &query, &self.options()).await?;
            let last = page.rows.last().map(|row| row.name.clone());
            for row in page.rows {
                if row.name.is_empty() {
                    stamp = Some(row.stamp);
                    if let Some(current) = Head::decode(row.value)?.current {
                        self.strike(&current, &mut left).await?;
                    }
                } else {
                    self.strike(&Version::decode(row.value)?, &mut left).await?;
                }
            }
            match last {
                Some(last) if page.stopped == Stopped::Limit && !left.is_found() => {
                    query = ReadQuery::after(Some(&last), PAGE_ROWS);
                }
                _ => return Ok((left, stamp)),
            }
        }
    }

    /// Strikes out what a version names.
    async fn strike(&self, version: &Version, left: &mut Wanted) -> Result<()> {
        let Some(object) = &version.object else { return Ok(()) };
        match object.body {
            ObjectBody::Inline(_) => {}
            ObjectBody::Blob { id, .. } => {
                left.blobs.remove(&id);
            }
            ObjectBody::Parts { manifest, .. } => {
                left.manifests.remove(&manifest);
                if !left.blobs.is_empty() && object.upload.is_none_or(|upload| left.uploads.contains(&upload)) {
                    self.strike_manifest(manifest, left).await?;
                }
            }
        }
        Ok(())
    }

    async fn strike_manifest(&self, manifest: VersionId, left: &mut Wanted) -> Result<()> {
        let mut walk = Walk::new(manifest);
        while let Some((_, part)) = walk.next(&self.gateway).await? {
            if let Some(blob) = part.blob {
                left.blobs.remove(&blob);
            }
        }
        Ok(())
    }
}
