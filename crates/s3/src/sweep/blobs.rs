//! The sweeper's view of blobs of S3 objects: whether a version of their key references them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use larder_core::blobs::sweep::{BlobReferences, OwnedBlob, SweepPhase};
use larder_rows::Timestamp;
use larder_rows::content::BlobId;
use larder_store::{Partition, Table};

use super::ObjectSweeper;
use super::references::SweepCandidates;
use crate::rules::{Part, UploadId, UploadState};
use crate::{Error, Result};

/// Time after which the bytes of a replaced part may go: longer than any completion takes.
const REPLACED_MICROS: u64 = 60 * 60 * 1_000_000;

#[async_trait]
impl BlobReferences for ObjectSweeper {
    fn owns_table(&self, table: Table) -> bool {
        table == Table::Heads
    }

    /// Always: versions move between the head and their own rows, and a scan is exact only after the fence.
    fn is_fenced(&self) -> bool {
        true
    }

    async fn unnamed(
        &self,
        key: &Partition,
        blobs: Vec<OwnedBlob>,
        phase: SweepPhase,
    ) -> larder_core::Result<Vec<OwnedBlob>> {
        let blobs = if phase == SweepPhase::Unfenced {
            self.without_live_uploads(blobs).await.map_err(into_gateway_error)?
        } else {
            blobs
        };
        let candidates = SweepCandidates {
            blobs: blobs.iter().map(|blob| blob.id).collect(),
            uploads: blobs.iter().filter_map(upload_of).collect(),
            ..SweepCandidates::default()
        };
        if candidates.all_referenced() {
            return Ok(Vec::new());
        }
        // Race: a version may move between its row and the head during a scan, and both reads would miss it.
        let left = match phase {
            SweepPhase::Unfenced => self.find_unreferenced(key, &candidates).await.map(|(left, _)| left),
            SweepPhase::Fenced => self.find_unreferenced_stable(key, &candidates).await,
        };
        let left = left.map_err(into_gateway_error)?;
        let is_left = |blob: &OwnedBlob| left.blobs.contains(&blob.id);
        Ok(blobs.into_iter().filter(is_left).collect())
    }

    async fn fence_head(&self, key: &Partition) -> larder_core::Result<()> {
        let damaged = || larder_core::Error::Damaged("the name of a key's head".into());
        let (bucket, name) = key.head_bucket_and_key().ok_or_else(damaged)?;
        self.heads.fence_head(bucket, &name).await.map(drop).map_err(into_gateway_error)
    }

    fn has_readers(&self, blob: &OwnedBlob) -> bool {
        // Race: a client may still stream parts of a deleted object [invariant 63].
        upload_of(blob).is_some_and(|upload| self.heads.pins.is_upload_pinned(&upload))
    }
}

impl ObjectSweeper {
    /// The blobs without those of live uploads. A blob of a replaced part remains in the result.
    async fn without_live_uploads(&self, blobs: Vec<OwnedBlob>) -> Result<Vec<OwnedBlob>> {
        let mut uploads: HashMap<UploadId, BlobUse> = HashMap::new();
        let mut left = Vec::with_capacity(blobs.len());
        for blob in blobs {
            let Some((upload, number)) = part_of(&blob) else {
                left.push(blob);
                continue;
            };
            let used = match uploads.entry(upload) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(self.blob_use(upload).await?),
            };
            if !used.keeps(number, blob.id) {
                left.push(blob);
            }
        }
        Ok(left)
    }

    /// Reads once which blobs an upload uses: a key may have ten thousand blobs of one.
    async fn blob_use(&self, upload: UploadId) -> Result<BlobUse> {
        Ok(match self.heads.read_upload(upload).await?.map(|head| head.upload.state) {
            Some(UploadState::Open) => BlobUse::OfParts {
                parts: self.heads.all_parts(upload).await?,
                // Race: a completion that read the parts before a replacement may still use the old bytes [invariant 58].
                replaced_before: self.gateway.core.now().saturating_sub(REPLACED_MICROS),
            },
            // Race: the completion may use any part, and a recovery may open the upload again.
            Some(state) if state.is_alive() => BlobUse::All,
            _ => BlobUse::None,
        })
    }
}

/// The blobs that an upload uses.
enum BlobUse {
    /// It is open: all but those of parts replaced before this moment. No running completion has seen those.
    OfParts { parts: BTreeMap<u16, Part>, replaced_before: Timestamp },
    /// It is being completed.
    All,
    /// It has ended.
    None,
}

impl BlobUse {
    fn keeps(&self, number: u16, blob: BlobId) -> bool {
        match self {
            Self::OfParts { parts, replaced_before } => {
                // Race: the row of a part whose bytes have just arrived may not be written yet.
                parts.get(&number).is_none_or(|part| part.blob == Some(blob) || part.modified >= *replaced_before)
            }
            Self::All => true,
            Self::None => false,
        }
    }
}

/// The upload and the number of the part a blob belongs to, from its owner row.
fn part_of(blob: &OwnedBlob) -> Option<(UploadId, u16)> {
    let (id, number) = blob.row.split_at_checked(16)?;
    Some((UploadId(id.try_into().ok()?), u16::from_be_bytes(number.try_into().ok()?)))
}

fn upload_of(blob: &OwnedBlob) -> Option<UploadId> {
    part_of(blob).map(|(upload, _)| upload)
}

/// Maps an error to one of the gateway.
fn into_gateway_error(error: Error) -> larder_core::Error {
    match error {
        Error::Gateway(error) => error,
        other => larder_core::Error::Internal(other.to_string()),
    }
}
