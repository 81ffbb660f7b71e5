//! Sweep of manifests that no version references.

use std::collections::HashSet;

use larder_model::objects::{ManifestOwner, UploadState, VersionId};
use larder_store::{Partition, ReadQuery, Table};

use super::references::SweepCandidates;
use super::{SweepReport, id_of};
use crate::objects::{Objects, Result};

impl Objects {
    /// Sweeps every manifest.
    pub(super) async fn sweep_manifests(&self, report: &mut SweepReport) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.partitions(Table::Manifests, after).await?;
            for partition in page.partitions {
                match self.sweep_manifest(partition).await {
                    Ok(removed) => report.rows += u64::from(removed),
                    Err(error) => report.record_failure("the manifest of an object", &error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes the rows of an unreferenced manifest. Its blobs have owners of their own.
    async fn sweep_manifest(&self, partition: Partition) -> Result<bool> {
        let manifest = VersionId(id_of(&partition)?);
        let page = self.gateway.core.ports.store.read(&partition, &ReadQuery::all(1), &self.options()).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(false) };
        if !row.name.is_empty() {
            return Err(crate::Error::Damaged("a manifest has no owner row".into()).into());
        }
        let owner = ManifestOwner::decode(row.value)?;
        // Race: a running completion writes the manifest before the head that references it.
        if self.is_completing(&owner, manifest).await? {
            return Ok(false);
        }
        let key = Partition::head(owner.bucket, &owner.key);
        let candidates = SweepCandidates { manifests: HashSet::from([manifest]), ..SweepCandidates::default() };
        let mut left = self.find_unreferenced(&key, &candidates).await?;
        if !left.all_referenced() {
            // Race: a writer that still completes this version reads the head, then its upload, and finds it no
            // longer completing.
            self.fence_head(owner.bucket, &owner.key).await?;
            left = self.find_unreferenced_stable(&key, &candidates).await?;
        }
        if left.all_referenced() || self.pins.is_pinned(&manifest) {
            return Ok(false);
        }
        self.clear_partition(partition).await?;
        Ok(true)
    }

    /// Whether the upload may become this version.
    async fn is_completing(&self, owner: &ManifestOwner, manifest: VersionId) -> Result<bool> {
        let head = self.read_upload(owner.upload).await?;
        Ok(head.is_some_and(|head| match head.upload.state {
            UploadState::Completing { version, .. } | UploadState::Reopening { version, .. } => version == manifest,
            UploadState::Open | UploadState::Done { .. } | UploadState::Aborted => false,
        }))
    }
}
