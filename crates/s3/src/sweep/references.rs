//! References from the versions of a key to blobs and manifests.

use std::collections::HashSet;

use larder_core::node_context::yield_after;
use larder_rows::Timestamp;
use larder_rows::content::BlobId;
use larder_store::{Partition, ReadQuery, Stopped};

use super::{ObjectSweeper, partition_id};
use crate::Result;
use crate::get::ManifestCursor;
use crate::rules::{ManifestOwner, ObjectBody, ObjectHead, UploadId, UploadState, Version, VersionId};

/// Versions per read: each may hold an inline body.
const PAGE_ROWS: usize = 32;
/// Most scans of a key that changes during the scan.
const SCANS_MAX: usize = 20;

/// Candidates for removal that belong to one key. A scan removes each referenced one; the rest are garbage.
#[derive(Debug, Clone, Default)]
pub(super) struct SweepCandidates {
    /// Blobs.
    pub(super) blobs: HashSet<BlobId>,
    /// The uploads of some of the blobs: the scan opens only the manifests of their objects.
    pub(super) uploads: HashSet<UploadId>,
    /// Manifests.
    pub(super) manifests: HashSet<VersionId>,
}

impl SweepCandidates {
    /// Whether every candidate is referenced.
    pub(super) fn all_referenced(&self) -> bool {
        self.blobs.is_empty() && self.manifests.is_empty()
    }
}

impl ObjectSweeper {
    /// The candidates that no version of a key references, from one snapshot: the head is the same before and after the scan.
    ///
    /// # Errors
    /// Any error of the store; `Damaged`; `Overloaded` when the key changes during every scan.
    pub(super) async fn find_unreferenced_stable(
        &self,
        key: &Partition,
        candidates: &SweepCandidates,
    ) -> Result<SweepCandidates> {
        for _ in 0..SCANS_MAX {
            let (left, before) = self.find_unreferenced(key, candidates).await?;
            if left.all_referenced() || self.heads.read_head(key, &self.heads.options()).await?.stamp == before {
                return Ok(left);
            }
        }
        Err(larder_core::Error::Overloaded { retry_after: 1 }.into())
    }

    /// The candidates that no version of a key references, and the stamp of the first head read. Without a stable head the
    /// result is no snapshot: a concurrent change may hide a reference.
    ///
    /// # Errors
    /// Any error of the store; `Damaged`.
    pub(super) async fn find_unreferenced(
        &self,
        key: &Partition,
        candidates: &SweepCandidates,
    ) -> Result<(SweepCandidates, Option<Timestamp>)> {
        let (mut left, mut stamp) = (candidates.clone(), None);
        let mut query = ReadQuery::all(PAGE_ROWS);
        loop {
            let page = self.gateway.context().ports.store.read(key, &query, &self.heads.options()).await?;
            yield_after(page.stopped).await;
            let last = page.rows.last().map(|row| row.name.clone());
            for row in page.rows {
                if row.name.is_empty() {
                    stamp = Some(row.stamp);
                    if let Some(current) = ObjectHead::decode(row.value)?.current {
                        self.remove_referenced(&current, &mut left).await?;
                    }
                } else {
                    self.remove_referenced(&Version::decode(row.value)?, &mut left).await?;
                }
            }
            match last {
                Some(last) if page.stopped == Stopped::Limit && !left.all_referenced() => {
                    query = ReadQuery::after(Some(&last), PAGE_ROWS);
                }
                _ => return Ok((left, stamp)),
            }
        }
    }

    /// Removes the candidates a version references.
    async fn remove_referenced(&self, version: &Version, left: &mut SweepCandidates) -> Result<()> {
        let Some(object) = &version.object else { return Ok(()) };
        match object.body {
            ObjectBody::Inline(_) => {}
            ObjectBody::Blob { id, .. } => {
                left.blobs.remove(&id);
            }
            ObjectBody::Parts { manifest, .. } => {
                left.manifests.remove(&manifest);
                // Only an object of the same upload can use its parts; other manifests are not read.
                if !left.blobs.is_empty() && object.upload.is_none_or(|upload| left.uploads.contains(&upload)) {
                    let mut cursor = ManifestCursor::new(manifest);
                    while let Some((_, part)) = cursor.next(&self.gateway).await? {
                        if let Some(blob) = part.blob {
                            left.blobs.remove(&blob);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl ObjectSweeper {
    /// Removes the rows of an unreferenced manifest. Its blobs have owners of their own.
    pub(super) async fn sweep_manifest(&self, partition: Partition) -> Result<u64> {
        let manifest = VersionId(partition_id(&partition)?);
        let page =
            self.gateway.context().ports.store.read(&partition, &ReadQuery::all(1), &self.heads.options()).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(0) };
        // Crash: each batch of a manifest has the owner row, and a removal takes it last.
        if !row.name.is_empty() {
            return Err(larder_core::Error::Damaged("a manifest has no owner row".into()).into());
        }
        let owner = ManifestOwner::decode(row.value)?;
        // Race: a running completion writes the manifest before the head that references it [invariant 60].
        if self.is_completing(&owner, manifest).await? {
            return Ok(0);
        }
        let key = Partition::head(owner.bucket, &owner.key);
        let candidates = SweepCandidates { manifests: HashSet::from([manifest]), ..SweepCandidates::default() };
        let (mut left, _) = self.find_unreferenced(&key, &candidates).await?;
        if !left.all_referenced() {
            // Race: a writer that still completes this version reads the head, then its upload, and finds it no
            // longer completing [invariant 59].
            self.heads.fence_head(owner.bucket, &owner.key).await?;
            left = self.find_unreferenced_stable(&key, &candidates).await?;
        }
        // Race: a client may still read the parts that this manifest lists [invariant 63].
        if left.all_referenced() || self.heads.pins.is_pinned(&manifest) {
            return Ok(0);
        }
        self.clear_partition(partition).await?;
        Ok(1)
    }

    /// Whether the upload may become this version.
    async fn is_completing(&self, owner: &ManifestOwner, manifest: VersionId) -> Result<bool> {
        let head = self.heads.read_upload(owner.upload).await?;
        Ok(head.is_some_and(|head| match head.upload.state {
            UploadState::Completing { version, .. } | UploadState::Reopening { version, .. } => version == manifest,
            UploadState::Open | UploadState::Done { .. } | UploadState::Aborted => false,
        }))
    }
}
