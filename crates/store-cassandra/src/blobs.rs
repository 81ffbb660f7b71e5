//! Blobs in a cluster: rows of 256 KiB, 64 to a partition, and a record that says when they are a blob.
//!
//! ```text
//! create ── record, leased ──> write ── blocks, up to six at once ──> finish ── record: length ──> row ──> lease dropped
//! ```
//! - Records are spread over 256 partitions by the first byte of the id, so a listing is pages of ordered partitions.
//! - Every time that a blob is written is a *run* with blocks and a record of its own. Of several that were finished the one
//!   finished last is read; an abandoned one disturbs none.
//! - A lease is a column with an expiry, which every gateway sees; its holder renews it. So no sweeper anywhere lists a blob whose
//!   row is about to be written, unless its writer was silent for longer than a lease lasts: what then, the gateway decides.
//! - Removed blobs are gone at once, their blocks after a time of grace ([`CassandraBlobs::purge`]), for those who are reading.
//! - What is read at a quorum was written at a quorum, in the local datacenter.
//! - Memory is bounded: 2 MiB for a writer, two blocks for a reader.

pub mod cql;
mod format;
mod lease;
mod purge;
mod reader;
mod records;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt};
use larder_model::content::BlobId;
use larder_store::{BlobOwner, BlobReader, BlobWriter, Blobs, Clock, Error, Kind, ListedBlob, Result};
use scylla::client::session::Session;

use cql::{Cql, Statements};
use format::{BLOCK_BYTES, Head};
use lease::Lease;
use reader::Reader;
use records::{Name, Record, Records, SHARDS, current};
use writer::Writer;

/// How long removed blocks stay for those who read them.
pub const GRACE: Duration = Duration::from_secs(15 * 60);
/// How long a lease lasts that nobody renews.
pub const LEASE: Duration = Duration::from_secs(60);
/// How long one statement may take.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// Shards that a listing looks at together when one does not fill its page.
const SHARDS_AT_ONCE: usize = 8;

/// How blobs are kept.
#[derive(Clone)]
pub struct BlobOptions {
    /// How long removed blocks stay for those who read them: see [`GRACE`].
    pub grace: Duration,
    /// How long a lease lasts that nobody renews, a second at least: see [`LEASE`].
    pub lease: Duration,
    /// Judges the time of grace.
    pub clock: Arc<dyn Clock>,
    /// A number that no other process over this cluster has, nor had: the gateway's actor.
    pub process: u64,
}

/// The blobs of one keyspace.
pub struct CassandraBlobs {
    records: Arc<Records>,
}

impl CassandraBlobs {
    /// Opens the blobs of a keyspace that a [`CassandraStore`](crate::CassandraStore) has made, with the tables of
    /// [`cql::SCHEMA`].
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut`, `Io`; within a minute, also where there are no such tables.
    pub async fn open(session: Arc<Session>, keyspace: &str, options: BlobOptions) -> Result<Self> {
        let statements = Statements::open(session, keyspace, STATEMENT_MAX).await?;
        Ok(Self { records: Arc::new(Records::new(statements, &options)) })
    }

    /// Removes for good what was removed, or left behind by a writer that died, a time of grace ago; answers how many blobs.
    /// Call it now and then; any number of gateways may.
    ///
    /// # Errors
    /// As [`Blobs::list`].
    pub async fn purge(&self) -> Result<u64> {
        self.records.purge().await
    }

    /// Blocks that were missing or damaged when somebody read them, since the start.
    #[must_use]
    pub fn damaged_blocks(&self) -> u64 {
        self.records.damaged.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Blobs for CassandraBlobs {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let name = Name { id, run: self.records.new_run() };
        // Held before it can be seen; if this fails half way, dropping the lease removes what there is.
        let lease = Lease::hold(self.records.clone(), name);
        self.records.begin(name, &Head { block: BLOCK_BYTES, owner }).await?;
        Ok(Box::new(Writer::new(self.records.clone(), lease)))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        let records = self.records.find_to_read(id).await?;
        let found = current(&records).and_then(|record| Some((record.name, record.head.clone()?, record.readable()?)));
        let Some((name, head, (length, _))) = found else {
            return Err(Error::new(Kind::NoSuchBlob, format!("there is no blob {}", id.hex())));
        };
        Ok(Box::new(Reader::new(self.records.clone(), name, Head::decode(head)?.block, length)))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        for record in self.records.find(id).await?.iter().filter(|record| record.readable().is_some()) {
            self.records.mark(Cql::MarkRemoved, record.name).await?;
        }
        Ok(())
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        let first = after.map_or(0, |after| i32::from(after.0[0]));
        let behind = after.map_or_else(Vec::new, |after| after.0.to_vec());
        let mut found = list_shard(self.records.clone(), first, behind, limit).await?;
        if found.len() < limit {
            let shards = (first + 1..SHARDS).map(|shard| list_shard(self.records.clone(), shard, Vec::new(), limit));
            let mut shards = futures_util::stream::iter(shards).buffered(SHARDS_AT_ONCE);
            while let Some(more) = shards.try_next().await? {
                found.extend(more);
                if found.len() >= limit {
                    break;
                }
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// Up to `limit` blobs of one shard.
async fn list_shard(records: Arc<Records>, shard: i32, mut after: Vec<u8>, limit: usize) -> Result<Vec<ListedBlob>> {
    let mut found = Vec::new();
    loop {
        let (page, more) = records.page(shard, &after).await?;
        let Some(last) = page.last().map(|record| record.name.id) else { return Ok(found) };
        let blobs = page.chunk_by(|one, other| one.name.id == other.name.id);
        found.extend(blobs.filter_map(|blob| listed(&records, blob)));
        if !more || found.len() >= limit {
            return Ok(found);
        }
        after = last.0.to_vec();
    }
}

/// A blob as listed; `None` for one that is damaged.
fn listed(records: &Records, blob: &[Record]) -> Option<ListedBlob> {
    let current = current(blob)?;
    let head = Head::decode(current.head.clone()?);
    let head = head.inspect_err(|error| tracing::error!(blob = current.name.id.hex(), %error, "blob skipped"));
    let leased = blob.iter().any(|record| records.is_leased(record));
    Some(ListedBlob { id: current.name.id, owner: head.ok()?.owner, leased })
}
