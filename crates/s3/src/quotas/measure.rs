//! Counts what a bucket holds over its rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::node_context::NodeContext;
use larder_rows::Row;
use larder_rows::limits::{KEY_VIEW_SHARDS, LISTING_PAGE_ROWS};
use larder_store::{Partition, ReadQuery, Stopped};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::Result;
use crate::catalogue::S3Catalogue;
use crate::commit::HeadStore;
use crate::list::{KeyOrPrefix, VersionMarker};
use crate::listing_page::ListObjects;
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
        let live: HashSet<_> = S3Catalogue::within(&self.heads.gateway.catalogue().current())
            .buckets()
            .map(|known_bucket| known_bucket.id)
            .collect();
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
            Versioning::Off => current_storage(self.heads.gateway.context(), bucket.id).await?,
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
        let mut pages = RowPages::over(self.heads.gateway.context(), Partition::upload_entries(bucket));
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
pub(crate) async fn current_storage(context: &NodeContext, bucket: BucketId) -> Result<Storage> {
    let mut stored = Storage::default();
    for shard in 0..KEY_VIEW_SHARDS {
        let mut pages = RowPages::over(context, Partition::entries(bucket, shard));
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
    context: &'a NodeContext,
    partition: Partition,
    last: Option<Bytes>,
    has_more: bool,
}

impl<'a> RowPages<'a> {
    fn over(context: &'a NodeContext, partition: Partition) -> Self {
        Self { context, partition, last: None, has_more: true }
    }

    async fn next(&mut self) -> Result<Option<Vec<Row>>> {
        if !self.has_more {
            return Ok(None);
        }
        let query = ReadQuery::after(self.last.as_ref(), LISTING_PAGE_ROWS);
        let page = self.context.read_at_quorum(&self.partition, &query).await?;
        self.last = page.rows.last().map(|row| row.name.clone());
        self.has_more = page.stopped != Stopped::End;
        tokio::task::yield_now().await; // Lets other requests run.
        Ok(Some(page.rows))
    }
}

/// A bucket is measured for a tenth of the time at most.
const PAUSE_FACTOR: u32 = 10;

/// An account for each bucket under a quota.
#[derive(Default)]
pub(super) struct Ledger {
    accounts: HashMap<BucketId, StorageAccount>,
}

#[derive(Default)]
struct StorageAccount {
    measured: Option<Measurement>,
    /// Room of the writes under way.
    open: Storage,
    /// Room of the writes that ended since the last measurement began.
    written: Storage,
    /// Those of them that ended since the running measurement began.
    written_during: Storage,
    /// The running measurement: its sender is dropped at its end.
    running: Option<watch::Receiver<()>>,
}

struct Measurement {
    stored: Storage,
    ended: Instant,
    took: Duration,
}

impl Ledger {
    /// The objects and bytes of these buckets together, writes under way included; `None` before all are measured.
    pub(super) fn stored(&self, buckets: impl Iterator<Item = BucketId>) -> Option<Storage> {
        let mut all = Storage::default();
        for bucket in buckets {
            let account = self.accounts.get(&bucket)?;
            all += account.measured.as_ref()?.stored;
            all += account.written;
            all += account.open;
        }
        Some(all)
    }

    /// Takes room for a write.
    pub(super) fn open(&mut self, bucket: BucketId, room: Storage) {
        self.accounts.entry(bucket).or_default().open += room;
    }

    /// Ends a write.
    pub(super) fn close(&mut self, bucket: BucketId, room: Storage, is_written: bool) {
        let Some(account) = self.accounts.get_mut(&bucket) else { return };
        account.open = account.open.less(room);
        if is_written {
            account.written += room;
            // Race: the running measurement may have read past this key before: counted twice rather than
            // not at all [invariant 141].
            account.written_during += room;
        }
    }

    /// Whether the last measurement of a bucket is older; `Duration::MAX`: whether there is none.
    pub(super) fn is_due(&self, bucket: BucketId, now: Instant, age_max: Duration) -> bool {
        let Some(measured) = self.accounts.get(&bucket).and_then(|account| account.measured.as_ref()) else {
            return true;
        };
        let pause = if age_max.is_zero() { age_max } else { age_max.max(measured.took * PAUSE_FACTOR) };
        now.duration_since(measured.ended) >= pause
    }

    /// The running measurement of a bucket.
    pub(super) fn running(&self, bucket: BucketId) -> Option<watch::Receiver<()>> {
        let running = self.accounts.get(&bucket)?.running.clone();
        // One that ended without a result, as by a panic, runs no more.
        running.filter(|running| running.has_changed().is_ok())
    }

    /// Begins a measurement.
    pub(super) fn begin(&mut self, bucket: BucketId, running: watch::Receiver<()>) {
        let account = self.accounts.entry(bucket).or_default();
        account.running = Some(running);
        account.written_during = Storage::default();
    }

    /// Ends the measurement that began at `begun`; without a result, the last one stays.
    pub(super) fn end(&mut self, bucket: BucketId, begun: Instant, ended: Instant, stored: Option<Storage>) {
        let Some(account) = self.accounts.get_mut(&bucket) else { return };
        account.running = None;
        if let Some(stored) = stored {
            account.measured = Some(Measurement { stored, ended, took: ended.duration_since(begun) });
            account.written = account.written_during;
        }
    }

    /// Forgets all buckets but these: others were deleted.
    pub(super) fn keep(&mut self, buckets: &HashSet<BucketId>) {
        self.accounts.retain(|bucket, _| buckets.contains(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: BucketId = BucketId([1; 16]);
    const OTHER: BucketId = BucketId([2; 16]);

    fn stored(ledger: &Ledger) -> Option<u64> {
        ledger.stored([BUCKET].into_iter()).map(|stored| stored.bytes)
    }

    fn measure(ledger: &mut Ledger, bytes: u64, during: impl FnOnce(&mut Ledger)) {
        let (_ended, running) = watch::channel(());
        ledger.begin(BUCKET, running);
        during(ledger);
        ledger.end(BUCKET, Instant::now(), Instant::now(), Some(Storage::object(bytes)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_counts_from_its_admission_until_a_measurement_that_began_after_its_end() {
        let mut ledger = Ledger::default();
        let room = Storage::object;
        assert_eq!(stored(&ledger), None);
        measure(&mut ledger, 100, |_| {});
        ledger.open(BUCKET, room(1));
        ledger.open(BUCKET, room(10));
        assert_eq!(stored(&ledger), Some(111));
        ledger.close(BUCKET, room(1), false);
        assert_eq!(stored(&ledger), Some(110));
        measure(&mut ledger, 100, |ledger| ledger.close(BUCKET, room(10), true));
        assert_eq!(stored(&ledger), Some(110), "it ended during the measurement, which may have missed it");
        ledger.open(BUCKET, room(5));
        measure(&mut ledger, 110, |_| {});
        assert_eq!(stored(&ledger), Some(115), "it is still under way");
        ledger.close(BUCKET, room(5), true);
        measure(&mut ledger, 115, |_| {});
        assert_eq!(stored(&ledger), Some(115));
        assert_eq!(ledger.stored([BUCKET, OTHER].into_iter()), None, "the other is not measured");
    }

    #[tokio::test(start_paused = true)]
    async fn a_measurement_is_due_by_its_age_and_by_what_it_costs() {
        let mut ledger = Ledger::default();
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert!(ledger.is_due(BUCKET, now, Duration::MAX));
        let (ended, running) = watch::channel(());
        ledger.begin(BUCKET, running);
        assert!(ledger.running(BUCKET).is_some());
        ledger.end(BUCKET, now, now + second, Some(Storage::default()));
        let due = |after, age_max| ledger.is_due(BUCKET, now + second * after, age_max);
        assert!(!due(1, Duration::MAX) && due(1, Duration::ZERO));
        assert!(!due(10, second) && due(11, second), "ten times the second that it took");
        assert!(!due(60, second * 60) && due(61, second * 60));
        drop(ended);
        assert!(ledger.running(BUCKET).is_none());
        ledger.keep(&HashSet::new());
        assert_eq!(stored(&ledger), None);
    }

    #[tokio::test]
    async fn a_measurement_whose_task_is_gone_runs_no_more() {
        let mut ledger = Ledger::default();
        let (ended, running) = watch::channel(());
        ledger.begin(BUCKET, running);
        drop(ended);
        assert!(ledger.running(BUCKET).is_none());
    }
}
