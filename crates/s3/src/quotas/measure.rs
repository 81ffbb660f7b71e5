//! Counts what a bucket holds over its rows.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use larder_core::gateway_core::GatewayCore;
use larder_rows::Row;
use larder_rows::limits::{KEY_VIEW_SHARDS, LISTING_PAGE_ROWS};
use larder_store::{Partition, ReadQuery, Stopped};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::ledger::Ledger;
use crate::Result;
use crate::catalogue::S3Catalogue;
use crate::commit::HeadStore;
use crate::list::{KeyOrPrefix, ListObjects, VersionMarker};
use crate::rules::entry::upload_of_entry_name;
use crate::rules::{Bucket, BucketId, ListingEntry, Storage, Versioning};

/// Most measurements at a time: each reads a bucket as fast as it can.
const AT_A_TIME: usize = 2;

/// Measures buckets, a few at a time.
pub(super) struct Measurer {
    heads: Arc<HeadStore>,
    turns: Semaphore,
}

impl Measurer {
    pub(super) fn new(heads: &Arc<HeadStore>) -> Self {
        Self { heads: Arc::clone(heads), turns: Semaphore::new(AT_A_TIME) }
    }

    /// Measures a bucket for the ledger, in which this measurement has begun.
    pub(super) async fn measure(&self, bucket: &Bucket, ledger: &Mutex<Ledger>) {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let begun = Instant::now();
        let stored = self.stored_in(bucket).await;
        let live: HashSet<_> =
            S3Catalogue::within(&self.heads.gateway.catalogue.current()).buckets().map(|found| found.id).collect();
        if let Err(error) = &stored {
            tracing::warn!(%error, bucket = bucket.name, "measurement of a bucket failed: its quota goes by the last one");
        }
        let mut ledger = ledger.lock();
        ledger.end(bucket.id, begun, Instant::now(), stored.ok());
        ledger.keep(&live);
    }

    /// All versions of a bucket, and the parts of its open uploads.
    async fn stored_in(&self, bucket: &Bucket) -> Result<Storage> {
        let mut stored = match bucket.versioning {
            Versioning::Off => current_storage(&self.heads.gateway.core, bucket.id).await?,
            Versioning::Enabled | Versioning::Suspended => self.versions_in(bucket.id).await?,
        };
        stored += self.parts_in(bucket.id).await?;
        Ok(stored)
    }

    async fn versions_in(&self, bucket: BucketId) -> Result<Storage> {
        let (mut stored, mut marker) = (Storage::default(), None);
        let mut page = ListObjects { max: LISTING_PAGE_ROWS, ..ListObjects::default() };
        loop {
            let versions = self.heads.versions_page(bucket, &page, marker).await?;
            for line in &versions.lines {
                let KeyOrPrefix::Key(_, listed) = line else { continue };
                if let Some(object) = &listed.version.object {
                    stored += Storage::object(object.length());
                }
            }
            let Some((key, version)) = versions.next else { return Ok(stored) };
            marker = VersionMarker::parse(version.as_deref(), &key)?;
            page.after = key;
            tokio::task::yield_now().await; // Lets other requests run.
        }
    }

    async fn parts_in(&self, bucket: BucketId) -> Result<Storage> {
        let mut stored = Storage::default();
        let mut pages = RowPages::over(&self.heads.gateway.core, Partition::upload_entries(bucket));
        while let Some(rows) = pages.next().await? {
            for row in rows {
                let (_, upload) = upload_of_entry_name(&row.name)?;
                let parts = self.heads.all_parts(upload).await?;
                stored += Storage::part(parts.values().map(|part| part.length).sum());
            }
        }
        Ok(stored)
    }
}

/// The current objects of a bucket, counted over its entries.
///
/// # Errors
/// Any error of the store.
pub(crate) async fn current_storage(core: &GatewayCore, bucket: BucketId) -> Result<Storage> {
    let mut stored = Storage::default();
    for shard in 0..KEY_VIEW_SHARDS {
        let mut pages = RowPages::over(core, Partition::entries(bucket, shard));
        while let Some(rows) = pages.next().await? {
            for row in rows {
                if let Some(object) = ListingEntry::decode(row.value)?.object {
                    stored += Storage::object(object.length);
                }
            }
        }
    }
    Ok(stored)
}

/// The rows of a partition, page by page.
struct RowPages<'a> {
    core: &'a GatewayCore,
    partition: Partition,
    last: Option<Bytes>,
    has_more: bool,
}

impl<'a> RowPages<'a> {
    fn over(core: &'a GatewayCore, partition: Partition) -> Self {
        Self { core, partition, last: None, has_more: true }
    }

    async fn next(&mut self) -> Result<Option<Vec<Row>>> {
        if !self.has_more {
            return Ok(None);
        }
        let query = ReadQuery::after(self.last.as_ref(), LISTING_PAGE_ROWS);
        let page = self.core.read_at_quorum(&self.partition, &query).await?;
        self.last = page.rows.last().map(|row| row.name.clone());
        self.has_more = page.stopped != Stopped::End;
        tokio::task::yield_now().await; // Lets other requests run.
        Ok(Some(page.rows))
    }
}
