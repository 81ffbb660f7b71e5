//! Manifests that no version names.

use std::collections::HashSet;

use larder_model::objects::{ManifestOwner, UploadState, VersionId};
use larder_store::{Partition, ReadQuery, Table};

use super::named::Wanted;
use super::{Sweep, id_of};
use crate::Rule;
use crate::objects::{Objects, Result};

impl Objects {
    /// Looks at every manifest.
    pub(super) async fn sweep_manifests(&self, done: &mut Sweep) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.partitions(Table::Manifests, after).await?;
            for partition in page.partitions {
                match self.sweep_manifest(partition).await {
                    Ok(removed) => done.rows += u64::from(removed),
                    Err(error) => done.fails("the manifest of an object", &error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes the rows of a manifest that nobody names. Its blobs have owners of their own.
    async fn sweep_manifest(&self, partition: Partition) -> Result<bool> {
        let manifest = VersionId(id_of(&partition)?);
        let page = self.gateway.ports.store.read(&partition, &ReadQuery::all(1), &self.options()).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(false) };
        if !row.name.is_empty() {
            return Err(crate::Error::Damaged("a manifest does not say whose it is".into()).into());
        }
        let owner = ManifestOwner::decode(row.value)?;
        if self.is_completing(&owner, manifest).await? {
            return Ok(false);
        }
        let key = Partition::head(owner.bucket, &owner.key);
        let wanted = Wanted { manifests: HashSet::from([manifest]), ..Wanted::default() };
        let mut left = self.unnamed_once(&key, &wanted).await?;
        if !left.is_found() && self.gateway.rule(Rule::FenceSweeper) {
            // Who still completes this version reads the head, then its upload, and finds that it is not completing any more.
            self.touch(owner.bucket, &owner.key).await?;
            left = self.unnamed_now(&key, &wanted).await?;
        }
        let read = self.gateway.rule(Rule::PinReaders) && self.pins.holds(&manifest);
        if left.is_found() || read {
            return Ok(false);
        }
        self.clear(partition).await?;
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
