//! The memory engine: the reference of the simulation, and `--engine memory`.
//!
//! ```text
//! partition ──hash──> one of 16 shards ──lock──> partition -> name -> row
//!                                                expiry    -> partition, name
//! ```
//! A batch holds the locks of all its shards while the engine checks and applies it. So no reader sees half a batch,
//! and a refused batch writes nothing. Every call returns at once; a deadline matters only if it passed before the
//! call. The engine is strict: a call that breaks the contract is `Misuse`, even where another engine would let it
//! pass.

mod blobs;
mod rows;
mod shard;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::limits::BATCH_BYTES_MAX;
use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::time::Instant;

use crate::leases::BlobLeases;
use crate::{
    Batch, CallOptions, CasResult, Change, Clock, EngineLimits, Error, HeadWrite, Kind, Layout, Partition,
    PartitionChanges, PartitionPage, ReadQuery, Result, Row, RowPage, Store, Table, Timestamp, contract,
};
use blobs::BlobMap;

pub use rows::{RowMap, page};
use shard::MemoryShard;

/// Number of locks; a power of two above the cores of a small machine.
const SHARDS: usize = 16;

/// Largest body inside a row for [`MemoryStore::new`]: small, so that tests use blobs.
const INLINE_MAX: usize = 1024;

/// Partitions and blobs in memory; they end with the process.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    inline_max: usize,
    shards: Arc<[RwLock<MemoryShard>; SHARDS]>,
    blobs: Arc<BlobMap>,
    leases: BlobLeases,
}

impl MemoryStore {
    /// An empty store whose rows expire by `clock`; it keeps bodies up to 1 KiB in their rows.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_inline_max(clock, INLINE_MAX)
    }

    /// An empty store with another limit for bodies inside rows.
    #[must_use]
    pub fn with_inline_max(clock: Arc<dyn Clock>, inline_max: usize) -> Self {
        let shards = Arc::new(std::array::from_fn(|_| RwLock::default()));
        Self { clock, inline_max, shards, blobs: Arc::default(), leases: BlobLeases::default() }
    }

    /// The same rows and blobs as another process sees them: neither process sees the leases of the other.
    #[must_use]
    pub fn as_other_process(&self) -> Self {
        let Self { clock, inline_max, shards, blobs, .. } = self;
        Self {
            clock: clock.clone(),
            inline_max: *inline_max,
            shards: shards.clone(),
            blobs: blobs.clone(),
            leases: BlobLeases::default(),
        }
    }

    fn shard(&self, partition: &Partition) -> &RwLock<MemoryShard> {
        &self.shards[shard_index(partition)]
    }

    /// Locks the shards that `batch` changes, each with its part of the batch. Locks are taken in the order of shards,
    /// so two calls never deadlock.
    fn lock(&self, batch: Batch) -> Vec<(RwLockWriteGuard<'_, MemoryShard>, Vec<PartitionChanges>)> {
        let mut shares = BTreeMap::<usize, Vec<PartitionChanges>>::new();
        for part in batch.partitions {
            shares.entry(shard_index(&part.partition)).or_default().push(part);
        }
        shares.into_iter().map(|(place, share)| (self.shards[place].write(), share)).collect()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        check_deadline(options)?;
        contract::check_limit(query.limit)?;
        let shard = self.shard(partition).read();
        Ok(shard.page(partition, query, self.clock.now()))
    }

    fn try_read_single_row(&self, partition: &Partition) -> Option<Row> {
        if partition.table.layout() != Layout::Packed {
            return None;
        }
        self.shard(partition).read().single_row(partition, self.clock.now()).cloned()
    }

    fn try_read_row(&self, partition: &Partition, name: &Bytes) -> Option<Row> {
        let page = self.shard(partition).read().page(partition, &ReadQuery::one(name.clone()), self.clock.now());
        page.rows.into_iter().next()
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        check_deadline(options)?;
        contract::check_batch(&batch, BATCH_BYTES_MAX)?;
        let now = self.clock.now();
        let mut work = self.lock(batch);
        for (shard, share) in &mut work {
            shard.purge(now);
            // Every share is checked before any is changed: a refused batch writes nothing.
            shard.check_unchanged(share)?;
            shard.check_fresh_names(share)?;
            shard.check_row_count(share)?;
        }
        for (mut shard, share) in work {
            for part in share {
                shard.change(&part.partition, part.changes);
            }
        }
        Ok(())
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        mut changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        check_deadline(options)?;
        contract::check_compare_and_set(partition, expected, &head, &changes, BATCH_BYTES_MAX)?;
        // The head goes last, so that a `Clear` among the changes does not remove it.
        changes.push(Change::Put(head.row.clone()));
        let mut batch = Batch::single(partition.clone(), changes);
        if let Some((derived, change)) = head.derived_change() {
            batch.add(derived, vec![change]);
        }
        batch.partitions.extend(head.beside);
        let now = self.clock.now();
        // One lock over both partitions: a reader never sees a head without its derived row.
        let mut work = self.lock(batch);
        let mut current = None;
        for (shard, share) in &mut work {
            // Expired rows go first: they must not count as the current head.
            shard.purge(now);
            if share.iter().any(|part| part.partition == *partition) {
                current = shard.row(partition, &head.row.name).cloned();
            }
        }
        // The lock is held from this comparison to the last change, so no other writer comes between.
        if current.as_ref().map(|row| row.stamp) != expected {
            return Ok(CasResult::Conflict(current));
        }
        for (mut shard, share) in work {
            for part in share {
                shard.change(&part.partition, part.changes);
            }
        }
        Ok(CasResult::Applied)
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        check_deadline(options)?;
        contract::check_limit(limit)?;
        let now = self.clock.now();
        let mut after = after.map(|cursor| decode_cursor(table, &cursor)).transpose()?;
        let first = after.as_ref().map_or(0, shard_index);
        let mut partitions = Vec::new();
        for shard in &self.shards[first..] {
            // One more than the limit tells whether more follow.
            let room = limit.saturating_add(1) - partitions.len();
            partitions.extend(shard.read().partitions(table, after.take(), now).take(room));
            if partitions.len() > limit {
                break;
            }
        }
        let more = partitions.len() > limit;
        partitions.truncate(limit);
        let next = partitions.last().filter(|_| more).map(encode_cursor);
        Ok(PartitionPage { partitions, next })
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        check_deadline(options)?;
        Ok(self.clock.now())
    }

    fn limits(&self) -> EngineLimits {
        EngineLimits {
            inline_max: self.inline_max,
            batch_max: BATCH_BYTES_MAX,
            nodes: 1,
            replicated: false,
            syncs: false,
            tombstones_slow_reads: false,
            large_partitions_burden: false,
        }
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// The shard of a partition. It is the same in every run, so that listings have one order.
fn shard_index(partition: &Partition) -> usize {
    let mut hasher = DefaultHasher::new();
    partition.hash(&mut hasher);
    (hasher.finish() % SHARDS as u64) as usize
}

/// The cursor of a listing after a partition.
fn encode_cursor(partition: &Partition) -> Bytes {
    [&[partition.copies], &partition.key[..]].concat().into()
}

fn decode_cursor(table: Table, cursor: &Bytes) -> Result<Partition> {
    let copies = *cursor.first().ok_or_else(|| Error::new(Kind::Misuse, "an empty cursor"))?;
    Ok(Partition { table, copies, key: cursor.slice(1..) })
}

fn check_deadline(options: &CallOptions) -> Result<()> {
    if Instant::now() >= options.deadline {
        return Err(Error::new(Kind::TimedOut, "the deadline had passed before the call"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
