//! Writes records into the target store, with many calls at once and few bytes waiting.

use bytes::Bytes;
use larder_store::{Batch, BlobWriter, Durability, Partition, Row, Table, Timestamp};
use tokio::task::JoinSet;

use crate::guarded::{self, into_batches};
use crate::record::{BlobStart, PIECE_BYTES_MAX, PartitionRows, SegmentRecord};
use crate::retry::{join_result, with_retries, with_timeout};
use crate::{Error, Result, StorePair, users};

const BLOB: &str = "writing a large body";
/// Most calls at once.
const CALLS: usize = 32;
/// Most partitions and bytes of one call: enough to spare calls, few enough to spread over the engine's nodes.
const BATCH_PARTITIONS: usize = 32;
const BATCH_BYTES: usize = 256 * 1024;

/// Writes the records of an export into a target.
pub(crate) struct RecordSink {
    stores: StorePair,
    batch_max: usize,
    /// The target's time; rows that expired before it are left out.
    pub(crate) now: Timestamp,
    tasks: JoinSet<Result<()>>,
    batch: Batch,
    bytes: usize,
    blob: Option<IncomingBlob>,
}

/// A blob being written.
struct IncomingBlob {
    start: BlobStart,
    taken: u64,
    /// The writer of a blob of several pieces.
    writer: Option<Box<dyn BlobWriter>>,
}

impl RecordSink {
    pub(crate) fn new(stores: StorePair, now: Timestamp) -> Self {
        let batch_max = stores.store.limits().batch_max;
        Self { stores, batch_max, now, tasks: JoinSet::new(), batch: Batch::default(), bytes: 0, blob: None }
    }

    /// Takes a record. A later call may return its error.
    pub(crate) async fn take(&mut self, record: SegmentRecord) -> Result<()> {
        match record {
            SegmentRecord::Rows(rows) => self.rows(rows).await,
            SegmentRecord::Blob(start) if start.length == 0 => self.spawn_blob(start, Bytes::new()).await,
            SegmentRecord::Blob(start) => {
                self.blob = Some(IncomingBlob { start, taken: 0, writer: None });
                Ok(())
            }
            SegmentRecord::Piece(bytes) => self.piece(bytes).await,
        }
    }

    /// Waits until everything taken so far is written.
    pub(crate) async fn drain(&mut self) -> Result<()> {
        self.flush().await?;
        while let Some(done) = self.tasks.join_next().await {
            join_result("writing rows", done)?;
        }
        if self.blob.is_some() {
            return Err(Error::unreadable(BLOB, "its bytes end too early"));
        }
        Ok(())
    }

    async fn rows(&mut self, mut record: PartitionRows) -> Result<()> {
        let now = self.now;
        let is_live = |row: &Row| row.is_live(now);
        let Some(guard) = record.guard else {
            record.rows.retain(is_live);
            return self.plain(record.partition, record.rows).await;
        };
        // The head has expired: without it the partition does not exist.
        if guard.last && !record.rows.first().is_some_and(is_live) {
            return Ok(());
        }
        record.rows.retain(is_live);
        if !guard.first || record.partition.table == Table::Users {
            // Later rows of a guarded partition must not overtake its first ones, which write the provisional head.
            self.drain().await?;
        }
        let (stores, batch_max) = (self.stores.clone(), self.batch_max);
        self.spawn(async move {
            match record.partition.table {
                Table::Users => users::put(&stores, record, batch_max).await,
                _ => guarded::put(&stores, record, batch_max).await,
            }
        })
        .await
    }

    async fn plain(&mut self, partition: Partition, rows: Vec<Row>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        for changes in into_batches(rows, BATCH_BYTES.min(self.batch_max / 2)) {
            let part = Batch::single(partition.clone(), changes);
            let more = part.bytes();
            let is_full = self.bytes + more > BATCH_BYTES || self.batch.partitions.len() >= BATCH_PARTITIONS;
            // A batch names a partition once, so a second part of it starts a new batch.
            if is_full || self.batch.partitions.last().is_some_and(|last| last.partition == partition) {
                self.flush().await?;
            }
            self.bytes += more;
            self.batch.partitions.extend(part.partitions);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        if self.batch.partitions.is_empty() {
            return Ok(());
        }
        let (batch, stores) = (std::mem::take(&mut self.batch), self.stores.clone());
        self.bytes = 0;
        self.spawn(async move {
            let (store, batch) = (&stores.store, &batch);
            with_retries("writing rows", |options| async move { store.apply(batch.clone(), &options).await }).await
        })
        .await
    }

    async fn piece(&mut self, bytes: Bytes) -> Result<()> {
        let Some(mut incoming) = self.blob.take() else {
            return Err(Error::unreadable(BLOB, "bytes without a beginning"));
        };
        let length = incoming.start.length;
        incoming.taken += bytes.len() as u64;
        if incoming.taken > length || bytes.is_empty() {
            return Err(Error::unreadable(BLOB, "more bytes than its length"));
        }
        if bytes.len() as u64 == length && length <= PIECE_BYTES_MAX as u64 {
            return self.spawn_blob(incoming.start, bytes).await;
        }
        let failed = |source| Error::Store { what: BLOB, source };
        let mut writer = match incoming.writer.take() {
            Some(writer) => writer,
            None => with_timeout(self.stores.blobs.create(incoming.start.id, incoming.start.owner.clone()))
                .await
                .map_err(failed)?,
        };
        with_timeout(writer.write(bytes)).await.map_err(failed)?;
        if incoming.taken == length {
            // The blob is on disk before the checkpoint counts it: a crash must not lose a counted blob.
            with_timeout(writer.finish(Durability::Disk)).await.map_err(failed)?;
        } else {
            incoming.writer = Some(writer);
            self.blob = Some(incoming);
        }
        Ok(())
    }

    async fn spawn_blob(&mut self, start: BlobStart, bytes: Bytes) -> Result<()> {
        let stores = self.stores.clone();
        self.spawn(async move {
            let (blobs, start, bytes) = (&stores.blobs, &start, &bytes);
            let write = |_| async move {
                let mut writer = blobs.create(start.id, start.owner.clone()).await?;
                if !bytes.is_empty() {
                    writer.write(bytes.clone()).await?;
                }
                // On disk: the checkpoint of the segment will count the blob.
                writer.finish(Durability::Disk).await.map(drop)
            };
            with_retries(BLOB, write).await
        })
        .await
    }

    /// Starts a call once fewer than [`CALLS`] run.
    async fn spawn(&mut self, call: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
        // Bound: the calls in flight hold their rows in memory.
        while self.tasks.len() >= CALLS
            && let Some(done) = self.tasks.join_next().await
        {
            join_result("writing rows", done)?;
        }
        self.tasks.spawn(call);
        Ok(())
    }
}
