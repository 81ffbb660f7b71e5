//! Reads one blob, with at most one block prefetched.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use larder_store::{BlobReader, Error, Kind, Result};
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use tokio::task::JoinHandle;

use super::cql::{BlobStatement, unreadable};
use super::format::{block_checksum, block_place};
use super::records::{BlobRecords, RecordName};

/// A reader of one blob. Its blocks stay for the grace period after the blob is removed; later they are missing.
pub(super) struct BlockReader {
    records: Arc<BlobRecords>,
    name: RecordName,
    /// Bytes in a full block.
    block: u64,
    length: u64,
    current: Option<(u64, Bytes)>,
    prefetched: Option<BlockPrefetch>,
}

/// The next block, being fetched.
struct BlockPrefetch {
    index: u64,
    task: JoinHandle<Result<Bytes>>,
}

impl Drop for BlockPrefetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BlockReader {
    /// A reader of a blob whose record was found.
    pub(super) fn new(records: Arc<BlobRecords>, name: RecordName, block: usize, length: u64) -> Self {
        Self { records, name, block: block as u64, length, current: None, prefetched: None }
    }

    /// Reads a block. Prefetches the next one after block 0, and after two blocks in sequence.
    async fn block_at(&mut self, index: u64) -> Result<Bytes> {
        if let Some((at, bytes)) = &self.current
            && *at == index
        {
            return Ok(bytes.clone());
        }
        let is_sequential = index > 0 && self.current.as_ref().is_some_and(|(at, _)| at + 1 == index);
        // A seek drops the prefetched block, and its task with it.
        let bytes = match self.prefetched.take() {
            Some(mut prefetch) if prefetch.index == index => match (&mut prefetch.task).await {
                Ok(answer) => answer?,
                Err(error) => return Err(Error::caused(Kind::Io, "reading a block", error)),
            },
            _ => self.fetch(index).await?,
        };
        self.current = Some((index, bytes.clone()));
        if (is_sequential || index == 0) && (index + 1) * self.block < self.length {
            let fetch = self.fetch(index + 1);
            self.prefetched = Some(BlockPrefetch { index: index + 1, task: tokio::spawn(fetch) });
        }
        Ok(bytes)
    }

    fn fetch(&self, index: u64) -> impl Future<Output = Result<Bytes>> + Send + use<> {
        let (records, name) = (self.records.clone(), self.name);
        let expected = self.length.saturating_sub(index * self.block).min(self.block);
        async move {
            let is_intact = |(stored, bytes): &(i32, Bytes)| {
                bytes.len() as u64 == expected && *stored == block_checksum(name.id, name.run, index, bytes)
            };
            let (_, id, run) = name.key();
            let (group, number) = block_place(index);
            // A block never changes, so one replica is enough if its bytes pass the check.
            let order = [Consistency::LocalOne, Consistency::LocalQuorum];
            let is_there =
                |answer: &QueryResult| matches!(decode_block(answer.clone()), Ok(Some(block)) if is_intact(&block));
            let values = (id, run, group, number);
            let answer = records.cql.read(BlobStatement::GetBlock, values, order, is_there).await?;
            match decode_block(answer)?.filter(is_intact) {
                Some((_, bytes)) => Ok(bytes),
                None => {
                    // Both the one replica and the quorum lack the block, or have other bytes.
                    records.damaged.fetch_add(1, Ordering::Relaxed);
                    let what = format!("blob {}: block {index} is missing or damaged", name.id.hex());
                    Err(Error::new(Kind::Damaged, what))
                }
            }
        }
    }
}

#[async_trait]
impl BlobReader for BlockReader {
    fn length(&self) -> u64 {
        self.length
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        if offset >= self.length || max == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.block_at(offset / self.block).await?;
        let from = (offset % self.block) as usize;
        Ok(bytes.slice(from..from.saturating_add(max).min(bytes.len())))
    }
}

/// Checksum and bytes of the block in an answer.
fn decode_block(answer: QueryResult) -> Result<Option<(i32, Bytes)>> {
    let rows = answer.into_rows_result().map_err(unreadable)?;
    rows.maybe_first_row::<(i32, Bytes)>().map_err(unreadable)
}
