//! Sweep of manifests that no version references.

use std::collections::HashSet;

use larder_store::{Partition, ReadQuery};

use super::references::SweepCandidates;
use super::{ObjectSweeper, id_of};
use crate::Result;
use crate::rules::{ManifestOwner, UploadState, VersionId};

impl ObjectSweeper {
    /// Removes the rows of an unreferenced manifest. Its blobs have owners of their own.
    pub(super) async fn sweep_manifest(&self, partition: Partition) -> Result<u64> {
        let manifest = VersionId(id_of(&partition)?);
        let page = self.gateway.core.ports.store.read(&partition, &ReadQuery::all(1), &self.heads.options()).await?;
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
