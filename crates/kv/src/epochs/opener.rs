//! The task that counts the rows of shards, opens epochs, and takes them through their stages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_core::members::Members;
use larder_core::metrics::Event;
use larder_core::node_context::{PAGE_ROWS, internal_options};
use larder_core::rules::catalogue_row::CatalogueKey;
use larder_core::types::{Catalogue, CatalogueEdit};
use larder_core::{Error, Result};
use larder_rows::BucketEpochs;
use larder_rows::address::BucketAddress;
use larder_store::{ConsistencyLevel, Partition, RateLimitedLog, ReadQuery, Stopped, as_micros};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::growth::{IndexGrowth, IndexName, ShardSize};

/// Interval of looks for epochs whose opening stopped, because its gateway did.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Opens the epochs of one gateway.
struct EpochOpener<'a> {
    members: &'a Members,
    growth: &'a IndexGrowth,
}

/// Spawns the task, until the members are dropped or it is aborted.
pub(crate) fn spawn_epoch_opener(members: &Arc<Members>, growth: Arc<IndexGrowth>) -> JoinHandle<()> {
    let members = Arc::downgrade(members);
    tokio::spawn(async move {
        let (log, mut looked) = (RateLimitedLog::new(), Instant::now());
        loop {
            // Where some index is always due, stopped openings still get their turn.
            let due = match looked.elapsed() < LOOK_INTERVAL {
                true => timeout_at(looked + LOOK_INTERVAL, growth.next_due()).await.ok(),
                false => None,
            };
            if due.is_none() {
                looked = Instant::now();
            }
            let Some(members) = Weak::upgrade(&members) else { return };
            let opener = EpochOpener { members: &members, growth: &growth };
            if let Err(error) = opener.look(due.as_ref()).await {
                let (context, stage) = (&members.context, members.context.config.index_splitting.stage);
                if let Some(line) = log.admit(context.monotonic()) {
                    let left_out = line.left_out;
                    tracing::warn!(%error, left_out, "counting or splitting an index failed: it is tried again with later writes");
                }
                sleep(stage).await;
            }
        }
    })
}

impl EpochOpener<'_> {
    /// Counts the index that is due, and splits it if it is too large; without one goes on with openings that stopped.
    async fn look(&self, due: Option<&IndexName>) -> Result<()> {
        if let Some(index) = due {
            return self.look_at(index).await;
        }
        let catalogue = self.members.catalogue.fresh().await?;
        for (bucket, _) in catalogue.split_buckets().filter(|(_, epochs)| epochs.in_next_stage().is_some()) {
            self.finish(bucket).await?;
        }
        Ok(())
    }

    async fn look_at(&self, index: &IndexName) -> Result<()> {
        let Some(shard_rows) = self.growth.shard_rows() else { return Ok(()) };
        let bucket = &index.bucket;
        let mut epochs = self.finish(bucket).await?;
        let mut size = self.count_shard(index, epochs, shard_rows).await?;
        if size.is_full(shard_rows) {
            let Some(more) = epochs.with_new_epoch() else {
                // It has all shards that there can be.
                self.growth.set_rows_left(index, u64::MAX);
                return Ok(());
            };
            self.open(bucket, epochs, more).await?;
            epochs = self.finish(bucket).await?;
            size = ShardSize::default();
        }
        let shards = epochs.counts().last().copied().unwrap_or(1);
        let members = self.members.known_names().len() as u64;
        self.growth.set_rows_left(index, size.rows_until_next_count(shard_rows, shards.into(), members));
        Ok(())
    }

    /// Counts the rows of one shard of the newest epoch, until it is full.
    async fn count_shard(&self, index: &IndexName, epochs: BucketEpochs, shard_rows: u64) -> Result<ShardSize> {
        let context = &self.members.context;
        let copies = self.members.catalogue.copies(&index.bucket);
        // Any of them: keys are spread by their hash.
        let place = epochs.newest_shard(&as_micros(context.monotonic()).to_be_bytes());
        let shard = match &index.field {
            Some(field) => Partition::index(&index.bucket, field, place.epoch, place.shard, copies),
            None => Partition::keys(&index.bucket, place.epoch, place.shard, copies),
        };
        let (mut size, mut query) = (ShardSize::default(), ReadQuery::all(PAGE_ROWS));
        loop {
            let page = context.ports.store.read(&shard, &query, &internal_options(ConsistencyLevel::One)).await?;
            page.rows.iter().for_each(|row| size.add(row));
            let Some(last) = page.rows.last().filter(|_| page.stopped == Stopped::Limit) else { return Ok(size) };
            if size.is_full(shard_rows) {
                return Ok(size);
            }
            query.continue_after(&last.name);
            // Paced: a count is never urgent, and must not slow requests down.
            sleep(context.config.index_splitting.pause).await;
        }
    }

    /// Makes a new epoch known, unless another gateway did.
    async fn open(&self, bucket: &BucketAddress, epochs: BucketEpochs, more: BucketEpochs) -> Result<()> {
        if self.change_epochs(bucket, epochs, more).await? {
            self.members.context.metrics.count_event(Event::EpochOpened);
            let BucketAddress { bucket_type, bucket } = bucket;
            tracing::info!(
                shards = more.counts().last(),
                "bucket {}/{} has many keys: its indexes get more shards",
                bucket_type.escape_ascii(),
                bucket.escape_ascii()
            );
        }
        Ok(())
    }

    /// Takes the newest epoch of a bucket through its stages; returns the epochs with the newest one open.
    async fn finish(&self, bucket: &BucketAddress) -> Result<BucketEpochs> {
        let Members { context, catalogue, .. } = self.members;
        loop {
            let current = catalogue.refreshed().await?;
            let epochs = current.epochs(bucket);
            let Some(next) = epochs.in_next_stage() else { return Ok(epochs) };
            // Race: a gateway two stages behind would list, or remove rows in, epochs without the one that others write to
            // alone [invariants 132, 133].
            self.members.await_propagation(current.number()).await?;
            if !context.config.single_process {
                // Race: the others do not wait for a gateway whose heartbeats fail; it serves from its copy for a while yet.
                sleep(context.config.index_splitting.stage).await;
            }
            self.change_epochs(bucket, epochs, next).await?;
        }
    }

    /// Changes the epochs of a bucket if they still are `from`; whether they were.
    async fn change_epochs(&self, bucket: &BucketAddress, from: BucketEpochs, to: BucketEpochs) -> Result<bool> {
        let is_changed = AtomicBool::new(false);
        let edit = |catalogue: &Catalogue| {
            let is_same = catalogue.epochs(bucket) == from;
            is_changed.store(is_same, Ordering::Relaxed);
            Ok(match is_same {
                true => CatalogueEdit::Write(CatalogueKey::Epochs(bucket.clone()), to.to_json()),
                false => CatalogueEdit::Nothing,
            })
        };
        self.members.catalogue.change::<Error>(edit).await?;
        Ok(is_changed.into_inner())
    }
}
