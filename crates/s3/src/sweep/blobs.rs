//! The sweeper's view of blobs of S3 objects: whether a version of their key references them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use larder_core::blobs::sweep::{BlobReferences, OwnedBlob, SweepPhase};
use larder_rows::content::BlobId;
use larder_rows::{Change, Timestamp};
use larder_store::{Batch, Partition, ReadQuery, Table};

use super::references::SweepCandidates;
use super::{ObjectSweeper, SweepReport, partition_id};
use crate::catalogue::S3Catalogue;
use crate::rules::{Part, UploadId, UploadState};
use crate::uploads::UploadHead;
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
            uploads: blobs.iter().filter_map(blob_upload).collect(),
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
        blob_upload(blob).is_some_and(|upload| self.heads.pins.is_upload_pinned(&upload))
    }
}

impl ObjectSweeper {
    /// The blobs without those of live uploads. A blob of a replaced part remains in the result.
    async fn without_live_uploads(&self, blobs: Vec<OwnedBlob>) -> Result<Vec<OwnedBlob>> {
        let mut uploads: HashMap<UploadId, BlobUse> = HashMap::new();
        let mut left = Vec::with_capacity(blobs.len());
        for blob in blobs {
            let Some((upload, number)) = blob_part(&blob) else {
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
                replaced_before: self.gateway.context().now().saturating_sub(REPLACED_MICROS),
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
fn blob_part(blob: &OwnedBlob) -> Option<(UploadId, u16)> {
    let (id, number) = blob.row.split_at_checked(16)?;
    Some((UploadId(id.try_into().ok()?), u16::from_be_bytes(number.try_into().ok()?)))
}

fn blob_upload(blob: &OwnedBlob) -> Option<UploadId> {
    blob_part(blob).map(|(upload, _)| upload)
}

/// Maps an error to one of the gateway.
fn into_gateway_error(error: Error) -> larder_core::Error {
    match error {
        Error::Gateway(error) => error,
        other => larder_core::Error::Internal(other.to_string()),
    }
}

impl ObjectSweeper {
    /// Aborts the uploads of deleted buckets, and resolves abandoned completions.
    pub(super) async fn sweep_uploads(&self, report: &mut SweepReport) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.partitions(Table::Uploads, after).await?;
            let mut alive = Vec::new();
            for partition in page.partitions {
                match self.read_live_upload(partition).await {
                    Ok(head) => alive.extend(head),
                    Err(error) => report.record_failure("an upload", &error),
                }
            }
            // Race: refresh after reading the uploads. Their buckets existed when they began, so a missing one is deleted.
            let catalogue = self.gateway.catalogue().refreshed().await?;
            for head in alive {
                // By id: a later bucket of the same name is another bucket.
                let gone = S3Catalogue::within(&catalogue).buckets().all(|bucket| bucket.id != head.upload.bucket);
                match self.sweep_upload(head, gone).await {
                    Ok(ended) => report.uploads += u64::from(ended),
                    Err(error) => report.record_failure("an upload", &error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn read_live_upload(&self, partition: Partition) -> Result<Option<UploadHead>> {
        let id = UploadId(partition_id(&partition)?);
        Ok(self.heads.read_upload(id).await?.filter(|head| head.upload.state.is_alive()))
    }

    /// Ends an upload whose bucket is `gone` or whose completing writer is. `false`: nothing to do.
    async fn sweep_upload(&self, head: UploadHead, gone: bool) -> Result<bool> {
        let mut head = head;
        match &head.upload.state {
            UploadState::Completing { version, since, .. } if !self.uploads.is_abandoned(*version, *since) => {
                return Ok(false);
            }
            UploadState::Open if !gone => return Ok(false),
            UploadState::Completing { .. } | UploadState::Reopening { .. } => {
                match self.uploads.resolve_completion(&head).await? {
                    Some(settled) => head = settled,
                    None => return Ok(true),
                }
            }
            UploadState::Open | UploadState::Done { .. } | UploadState::Aborted => {}
        }
        if gone && head.upload.state == UploadState::Open {
            return self.uploads.abort_upload(head).await;
        }
        Ok(true)
    }

    /// Removes the part rows of an upload that has ended.
    pub(super) async fn sweep_parts(&self, partition: Partition) -> Result<u64> {
        let id = UploadId(partition_id(&partition)?);
        match self.heads.read_upload(id).await? {
            Some(head) if head.upload.state.is_alive() => Ok(0),
            Some(head) => self.uploads.remove_unused_parts(&head, None).await.map(|()| 1),
            // The upload ended more than a day ago; the sweep of blobs finds its bytes without these rows.
            None => self.clear_partition(partition).await.map(|()| 1),
        }
    }

    /// Removes the rows of a partition of a plain table, from any writer's clock. Rows written during the call may stay.
    pub(super) async fn clear_partition(&self, partition: Partition) -> Result<()> {
        let mut stamp = self.gateway.issuer().issue().await?;
        let page =
            self.gateway.context().ports.store.read(&partition, &ReadQuery::all(1), &self.heads.options()).await?;
        stamp = page.rows.iter().map(|row| row.stamp).fold(stamp, Timestamp::max);
        let batch = Batch::single(partition, vec![Change::Clear { stamp }]);
        Ok(self.gateway.context().ports.store.apply(batch, &self.heads.options().reclaiming()).await?)
    }
}
