//! Sweep of abandoned uploads, and of part rows of ended ones.

use larder_rows::{Change, Timestamp};
use larder_store::{Batch, Partition, ReadQuery, Table};

use super::{ObjectSweeper, SweepReport, id_of};
use crate::Result;
use crate::catalogue::S3Catalogue;
use crate::rules::{UploadId, UploadState};
use crate::upload_head::UploadHead;

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
            let catalogue = self.gateway.catalogue.refreshed().await?;
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
        let id = UploadId(id_of(&partition)?);
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
        let id = UploadId(id_of(&partition)?);
        match self.heads.read_upload(id).await? {
            Some(head) if head.upload.state.is_alive() => Ok(0),
            Some(head) => self.uploads.remove_unused_parts(&head, None).await.map(|()| 1),
            // The upload ended more than a day ago; the sweep of blobs finds its bytes without these rows.
            None => self.clear_partition(partition).await.map(|()| 1),
        }
    }

    /// Removes the rows of a partition of a plain table, from any writer's clock. Rows written during the call may stay.
    pub(super) async fn clear_partition(&self, partition: Partition) -> Result<()> {
        let mut stamp = self.gateway.issuer.issue().await?;
        let page = self.gateway.core.ports.store.read(&partition, &ReadQuery::all(1), &self.heads.options()).await?;
        stamp = page.rows.iter().map(|row| row.stamp).fold(stamp, Timestamp::max);
        let batch = Batch::single(partition, vec![Change::Clear { stamp }]);
        Ok(self.gateway.core.ports.store.apply(batch, &self.heads.options().reclaiming()).await?)
    }
}
