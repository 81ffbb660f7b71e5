//! Uploads nobody ends, and rows of parts of those that have ended.

use larder_model::objects::{UploadId, UploadState};
use larder_model::rows::{Change, Stamp};
use larder_store::{Batch, Partition, ReadQuery, Table};

use super::{Sweep, id_of};
use crate::objects::upload_head::UploadHead;
use crate::objects::{Objects, Result};

impl Objects {
    /// Ends the uploads of buckets that are gone, and takes back what was left behind in the middle of its completion.
    pub(super) async fn sweep_uploads(&self, done: &mut Sweep) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.partitions(Table::Uploads, after).await?;
            let mut alive = Vec::new();
            for partition in page.partitions {
                match self.read_alive(partition).await {
                    Ok(head) => alive.extend(head),
                    Err(error) => done.fails("an upload", &error),
                }
            }
            // After the uploads were read: their buckets were there when they were begun.
            self.gateway.refresh().await?;
            let catalogue = self.gateway.fresh().await?;
            for head in alive {
                let gone = catalogue.s3_buckets().all(|bucket| bucket.id != head.upload.bucket);
                match self.sweep_upload(head, gone).await {
                    Ok(ended) => done.uploads += u64::from(ended),
                    Err(error) => done.fails("an upload", &error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn read_alive(&self, partition: Partition) -> Result<Option<UploadHead>> {
        let id = UploadId(id_of(&partition)?);
        Ok(self.read_upload(id).await?.filter(|head| head.upload.state.is_alive()))
    }

    /// Whether there was something to do: the bucket `gone`, or the completing writer.
    async fn sweep_upload(&self, head: UploadHead, gone: bool) -> Result<bool> {
        let mut head = head;
        match &head.upload.state {
            UploadState::Completing { version, since, .. } if !self.is_left_behind(*version, *since) => {
                return Ok(false);
            }
            UploadState::Open if !gone => return Ok(false),
            UploadState::Completing { .. } | UploadState::Reopening { .. } => match self.take_back(&head).await? {
                Some(settled) => head = settled,
                None => return Ok(true),
            },
            UploadState::Open | UploadState::Done { .. } | UploadState::Aborted => {}
        }
        if gone && head.upload.state == UploadState::Open {
            return self.give_up_upload(head).await;
        }
        Ok(true)
    }

    /// Removes the rows of parts whose upload has ended.
    pub(super) async fn sweep_parts(&self, done: &mut Sweep) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.partitions(Table::Parts, after).await?;
            for partition in page.partitions {
                match self.sweep_parts_of(partition).await {
                    Ok(removed) => done.rows += removed,
                    Err(error) => done.fails("the parts of an upload", &error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn sweep_parts_of(&self, partition: Partition) -> Result<u64> {
        let id = UploadId(id_of(&partition)?);
        match self.read_upload(id).await? {
            Some(head) if head.upload.state.is_alive() => Ok(0),
            Some(head) => self.remove_leavings(&head, None).await.map(|()| 1),
            None => self.clear(partition).await.map(|()| 1),
        }
    }

    /// Removes the rows of a partition of a plain table, whoever's clock they were written by. Rows that are written
    /// meanwhile may stay.
    pub(super) async fn clear(&self, partition: Partition) -> Result<()> {
        let mut stamp = self.gateway.issue().await?;
        let page = self.gateway.ports.store.read(&partition, &ReadQuery::all(1), &self.options()).await?;
        stamp = page.rows.iter().map(|row| row.stamp).fold(stamp, Stamp::max);
        let batch = Batch::of(partition, vec![Change::Clear { stamp }]);
        Ok(self.gateway.ports.store.apply(batch, &self.options().reclaiming()).await?)
    }
}
