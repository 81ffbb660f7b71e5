//! Where records go: many calls at once, few bytes waiting.

use bytes::Bytes;
use larder_store::{Batch, BlobWriter, Durability, Micros, Partition, Row, Table};
use tokio::task::JoinSet;

use crate::calls::{bounded, landed, patiently};
use crate::guarded::{self, in_parts};
use crate::record::{BlobStart, PIECE_BYTES_MAX, Record, Rows};
use crate::{Ends, Error, Result, users};

const BLOB: &str = "writing a large body";
/// Calls at once.
const CALLS: usize = 32;
/// Partitions and bytes written with one call: enough to spare calls, little enough to be spread over machines.
const BATCH_PARTITIONS: usize = 32;
const BATCH_BYTES: usize = 256 * 1024;

/// Takes the records of an export.
pub(crate) struct Sink {
    ends: Ends,
    batch_max: usize,
    /// Rows that expired before are left out.
    pub(crate) now: Micros,
    tasks: JoinSet<Result<()>>,
    batch: Batch,
    bytes: usize,
    blob: Option<Incoming>,
}

/// A blob on its way.
struct Incoming {
    start: BlobStart,
    taken: u64,
    /// Of a blob of several pieces.
    writer: Option<Box<dyn BlobWriter>>,
}

impl Sink {
    pub(crate) fn new(ends: Ends, now: Micros) -> Self {
        let batch_max = ends.store.limits().batch_max;
        Self { ends, batch_max, now, tasks: JoinSet::new(), batch: Batch::default(), bytes: 0, blob: None }
    }

    /// Takes a record. What fails may be told by a later call.
    pub(crate) async fn take(&mut self, record: Record) -> Result<()> {
        match record {
            Record::Rows(rows) => self.rows(rows).await,
            Record::Blob(start) if start.length == 0 => self.spawn_blob(start, Bytes::new()).await,
            Record::Blob(start) => {
                self.blob = Some(Incoming { start, taken: 0, writer: None });
                Ok(())
            }
            Record::Piece(bytes) => self.piece(bytes).await,
        }
    }

    /// Waits until everything taken so far is written.
    pub(crate) async fn drain(&mut self) -> Result<()> {
        self.flush().await?;
        while let Some(done) = self.tasks.join_next().await {
            landed("writing rows", done)?;
        }
        if self.blob.is_some() {
            return Err(Error::unreadable(BLOB, "its bytes end too early"));
        }
        Ok(())
    }

    async fn rows(&mut self, mut record: Rows) -> Result<()> {
        let now = self.now;
        let is_live = |row: &Row| row.is_live(now);
        let Some(guard) = record.guard else {
            record.rows.retain(is_live);
            return self.plain(record.partition, record.rows).await;
        };
        if guard.last && !record.rows.first().is_some_and(is_live) {
            return Ok(());
        }
        record.rows.retain(is_live);
        if !guard.first || record.partition.table == Table::Users {
            self.drain().await?;
        }
        let (ends, batch_max) = (self.ends.clone(), self.batch_max);
        self.spawn(async move {
            match record.partition.table {
                Table::Users => users::put(&ends, record, batch_max).await,
                _ => guarded::put(&ends, record, batch_max).await,
            }
        })
        .await
    }

    async fn plain(&mut self, partition: Partition, rows: Vec<Row>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        for changes in in_parts(rows, BATCH_BYTES.min(self.batch_max / 2)) {
            let part = Batch::of(partition.clone(), changes);
            let more = part.bytes();
            let is_full = self.bytes + more > BATCH_BYTES || self.batch.partitions.len() >= BATCH_PARTITIONS;
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
        let (batch, ends) = (std::mem::take(&mut self.batch), self.ends.clone());
        self.bytes = 0;
        self.spawn(async move {
            let (store, batch) = (&ends.store, &batch);
            patiently("writing rows", |options| async move { store.apply(batch.clone(), &options).await }).await
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
            None => bounded(self.ends.blobs.create(incoming.start.id, incoming.start.owner.clone()))
                .await
                .map_err(failed)?,
        };
        bounded(writer.write(bytes)).await.map_err(failed)?;
        if incoming.taken == length {
            bounded(writer.finish(Durability::Disk)).await.map_err(failed)?;
        } else {
            incoming.writer = Some(writer);
            self.blob = Some(incoming);
        }
        Ok(())
    }

    async fn spawn_blob(&mut self, start: BlobStart, bytes: Bytes) -> Result<()> {
        let ends = self.ends.clone();
        self.spawn(async move {
            let (blobs, start, bytes) = (&ends.blobs, &start, &bytes);
            let write = |_| async move {
                let mut writer = blobs.create(start.id, start.owner.clone()).await?;
                if !bytes.is_empty() {
                    writer.write(bytes.clone()).await?;
                }
                writer.finish(Durability::Disk).await.map(drop)
            };
            patiently(BLOB, write).await
        })
        .await
    }

    /// Begins a call once there is room for it.
    async fn spawn(&mut self, call: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
        while self.tasks.len() >= CALLS
            && let Some(done) = self.tasks.join_next().await
        {
            landed("writing rows", done)?;
        }
        self.tasks.spawn(call);
        Ok(())
    }
}
