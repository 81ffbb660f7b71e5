//! Blobs in a cluster: rows of 256 KiB, 64 to a partition, and a record for each blob.
//!
//! ```text
//! create ── record, leased ──> write ── blocks, up to six at once ──> finish ── record: length ──> row ──> lease dropped
//! ```
//! - Records are spread over 256 partitions by the first byte of the id, so a listing reads ordered partitions page by
//!   page.
//! - Each writing of a blob is a *run*, with blocks and a record of its own. The run that finished last is read; an
//!   abandoned run disturbs no other.
//! - A lease is a column with an expiry that every gateway sees; its holder renews it. So no sweeper lists a blob as
//!   free while its row may still be written, unless the writer was silent for longer than a lease; the gateway handles
//!   that case.
//! - Removed blobs are absent at once. Their blocks stay for a grace period ([`CassandraBlobs::purge`]) for running
//!   readers.
//! - Writes use a quorum in the local datacenter. A reader asks a quorum for a record, and one replica if the quorum is slow; it
//!   asks one replica for a block, and a quorum if that one lacks the block or the bytes fail their check.
//! - Memory is bounded: 2 MiB for a writer, two blocks for a reader.

pub mod cql;
mod format;
mod purge;
mod reader;
mod records;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, BlobReader, BlobWriter, Blobs, Clock, Error, Kind, ListedBlob, Result};

use crate::session::ClusterSession;
use cql::{BlobStatement, PreparedBlobStatements};
use format::{BLOCK_BYTES, RecordHeader};
use reader::BlockReader;
use records::{BlobRecord, BlobRecords, RecordName, SHARDS, current_record};
use writer::{BlockWriter, RecordLease};

/// How long removed blocks stay for running readers.
pub const GRACE: Duration = Duration::from_secs(15 * 60);
/// How long a lease lasts without a renewal.
pub const LEASE: Duration = Duration::from_secs(60);
/// How long one statement may take.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// Shards that a listing reads concurrently when one does not fill its page.
const SHARDS_AT_ONCE: usize = 8;

/// Options of blobs.
#[derive(Clone)]
pub struct BlobOptions {
    /// How long removed blocks stay for running readers: see [`GRACE`].
    pub grace: Duration,
    /// How long a lease lasts without a renewal, at least a second: see [`LEASE`].
    pub lease: Duration,
    /// Clock of the grace period.
    pub clock: Arc<dyn Clock>,
    /// A number that no other process on this cluster has or had: the gateway's actor.
    pub process: u64,
}

/// The blobs of one keyspace.
pub struct CassandraBlobs {
    records: Arc<BlobRecords>,
}

impl CassandraBlobs {
    /// Opens the blobs of a keyspace that a [`CassandraStore`](crate::CassandraStore) has created, with the tables of
    /// [`cql::SCHEMA`].
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut`, `Io`; within a minute, also if the tables are missing.
    pub async fn open(session: ClusterSession, keyspace: &str, options: BlobOptions) -> Result<Self> {
        let statements = PreparedBlobStatements::open(session, keyspace, STATEMENT_MAX).await?;
        Ok(Self { records: Arc::new(BlobRecords::new(statements, &options)) })
    }

    /// Removes for good blobs that were removed, or left by a dead writer, a grace period ago; returns their number.
    /// Call it regularly; any number of gateways may.
    ///
    /// # Errors
    /// As [`Blobs::list`].
    pub async fn purge(&self) -> Result<u64> {
        self.records.purge().await
    }

    /// Blocks that readers found missing or damaged since the start.
    #[must_use]
    pub fn damaged_blocks(&self) -> u64 {
        self.records.damaged.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Blobs for CassandraBlobs {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let name = RecordName { id, run: self.records.new_run() };
        // The lease is taken before the record is visible: a sweeper never sees the record without it. If `begin` fails
        // half way, dropping the lease removes the record.
        let lease = RecordLease::hold(self.records.clone(), name);
        self.records.begin(name, &RecordHeader { block: BLOCK_BYTES, owner }).await?;
        Ok(Box::new(BlockWriter::new(self.records.clone(), lease)))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        let records = self.records.find_to_read(id).await?;
        let readable =
            current_record(&records).and_then(|record| Some((record.name, record.head.clone()?, record.readable()?)));
        let Some((name, head, (length, _))) = readable else {
            return Err(Error::new(Kind::NoSuchBlob, format!("there is no blob {}", id.hex())));
        };
        Ok(Box::new(BlockReader::new(self.records.clone(), name, RecordHeader::decode(head)?.block, length)))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        // Only marked: running readers keep the blocks until a purge after the grace period.
        for record in self.records.find(id).await?.iter().filter(|record| record.readable().is_some()) {
            self.records.mark(BlobStatement::MarkRemoved, record.name).await?;
        }
        Ok(())
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        let first = after.map_or(0, |after| i32::from(after.0[0]));
        let id_after = after.map_or_else(Vec::new, |after| after.0.to_vec());
        let mut blobs = list_shard(self.records.clone(), first, id_after, limit).await?;
        if blobs.len() < limit {
            let shards = (first + 1..SHARDS).map(|shard| list_shard(self.records.clone(), shard, Vec::new(), limit));
            let mut shards = futures_util::stream::iter(shards).buffered(SHARDS_AT_ONCE);
            while let Some(more) = shards.try_next().await? {
                blobs.extend(more);
                if blobs.len() >= limit {
                    break;
                }
            }
        }
        blobs.truncate(limit);
        Ok(blobs)
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// Lists up to `limit` blobs of one shard.
async fn list_shard(
    records: Arc<BlobRecords>,
    shard: i32,
    mut after: Vec<u8>,
    limit: usize,
) -> Result<Vec<ListedBlob>> {
    let mut shard_blobs = Vec::new();
    loop {
        let (page, more) = records.page(shard, &after).await?;
        let Some(last) = page.last().map(|record| record.name.id) else { return Ok(shard_blobs) };
        let blobs = page.chunk_by(|record, other| record.name.id == other.name.id);
        shard_blobs.extend(blobs.filter_map(|blob| listed(&records, blob)));
        if !more || shard_blobs.len() >= limit {
            return Ok(shard_blobs);
        }
        after = last.0.to_vec();
    }
}

/// A blob as listed; `None` for a blob with a damaged record.
fn listed(records: &BlobRecords, blob: &[BlobRecord]) -> Option<ListedBlob> {
    let current = current_record(blob)?;
    let head = RecordHeader::decode(current.head.clone()?);
    let head = head.inspect_err(
        |error| tracing::error!(blob = current.name.id.hex(), %error, "blob record unreadable; listing skips it"),
    );
    // A lease of any run counts: its writer may be about to name the blob.
    let leased = blob.iter().any(|record| records.is_leased(record));
    Some(ListedBlob { id: current.name.id, owner: head.ok()?.owner, leased })
}
