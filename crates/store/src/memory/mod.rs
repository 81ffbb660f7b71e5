//! The memory engine: the oracle of the simulation, and `--engine memory`.
//!
//! ```text
//! partition ──hash──> one of 16 shards ──lock──> partition -> name -> row
//!                                                expiry    -> partition, name
//! ```
//! A batch holds the locks of all its shards, taken in order, while it is judged and applied: nothing is seen half, nothing is
//! written of what is refused. Every call ends at once, so deadlines matter only when they had passed before. It also takes
//! the contract literally: what a caller may not do is `Misuse` here, even where another engine would let it pass.

mod blobs;
mod rows;
mod shard;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::time::Instant;

use larder_model::limits::BATCH_BYTES_MAX;

use crate::leases::Leases;
use crate::{
    Batch, Change, Clock, EngineLimits, Error, Head, Kind, Micros, Options, Page, Partition, PartitionChanges,
    PartitionPage, ReadQuery, Result, Stamp, Store, Swap, Table, contract,
};

use blobs::BlobMap;
pub(crate) use rows::{Rows, page};
use shard::Shard;

/// Locks; a power of two beyond the cores of a small machine.
const SHARDS: usize = 16;

/// What [`MemoryStore::new`] keeps inside a row: small, so that tests meet blobs.
const INLINE_MAX: usize = 1024;

/// Partitions and blobs in memory. Nothing outlives it.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    inline_max: usize,
    shards: Arc<[RwLock<Shard>; SHARDS]>,
    blobs: Arc<BlobMap>,
    leases: Leases,
}

impl MemoryStore {
    /// An empty store that judges expiry by `clock` and keeps bodies up to 1 KiB in their rows.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_inline_max(clock, INLINE_MAX)
    }

    /// An empty store with another boundary between rows and blobs.
    #[must_use]
    pub fn with_inline_max(clock: Arc<dyn Clock>, inline_max: usize) -> Self {
        let shards = Arc::new(std::array::from_fn(|_| RwLock::default()));
        Self { clock, inline_max, shards, blobs: Arc::default(), leases: Leases::default() }
    }

    /// The same rows and blobs as another process sees them: neither knows which blobs the other one is writing.
    #[must_use]
    pub fn apart(&self) -> Self {
        let Self { clock, inline_max, shards, blobs, .. } = self;
        Self {
            clock: clock.clone(),
            inline_max: *inline_max,
            shards: shards.clone(),
            blobs: blobs.clone(),
            leases: Leases::default(),
        }
    }

    fn shard(&self, partition: &Partition) -> &RwLock<Shard> {
        &self.shards[place(partition)]
    }

    /// The shards that `batch` changes, each locked and with its share. Locks are taken in order, so no two calls block each other.
    fn lock(&self, batch: Batch) -> Vec<(RwLockWriteGuard<'_, Shard>, Vec<PartitionChanges>)> {
        let mut shares = BTreeMap::<usize, Vec<PartitionChanges>>::new();
        for one in batch.partitions {
            shares.entry(place(&one.partition)).or_default().push(one);
        }
        shares.into_iter().map(|(place, share)| (self.shards[place].write(), share)).collect()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        in_time(options)?;
        contract::limit(query.limit)?;
        let shard = self.shard(partition).read();
        Ok(shard.page(partition, query, self.clock.now()))
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        in_time(options)?;
        contract::batch(&batch, BATCH_BYTES_MAX)?;
        let now = self.clock.now();
        let mut work = self.lock(batch);
        for (shard, share) in &mut work {
            shard.purge(now);
            shard.refuse_changed(share)?;
            shard.refuse_too_many_rows(share)?;
        }
        for (mut shard, share) in work {
            for one in share {
                shard.change(&one.partition, one.changes);
            }
        }
        Ok(())
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        mut changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        in_time(options)?;
        // Last, so that a clear among the changes spares it.
        changes.push(Change::Put(head.row.clone()));
        contract::swap(partition, expected, &head, &changes, BATCH_BYTES_MAX)?;
        let mut batch = Batch::of(partition.clone(), changes);
        if let Some((shadow, change)) = head.shadow_change() {
            batch.add(shadow, vec![change]);
        }
        let now = self.clock.now();
        let mut work = self.lock(batch);
        let mut current = None;
        for (shard, share) in &mut work {
            shard.purge(now);
            if share.iter().any(|one| one.partition == *partition) {
                current = shard.row(partition, &head.row.name).cloned();
            }
        }
        if current.as_ref().map(|row| row.stamp) != expected {
            return Ok(Swap::Conflict(current));
        }
        for (mut shard, share) in work {
            for one in share {
                shard.change(&one.partition, one.changes);
            }
        }
        Ok(Swap::Applied)
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        in_time(options)?;
        contract::limit(limit)?;
        let now = self.clock.now();
        let mut after = after.map(|cursor| of_cursor(table, &cursor)).transpose()?;
        let first = after.as_ref().map_or(0, place);
        let mut partitions = Vec::new();
        for shard in &self.shards[first..] {
            let room = limit.saturating_add(1) - partitions.len();
            partitions.extend(shard.read().partitions(table, after.take(), now).take(room));
            if partitions.len() > limit {
                break;
            }
        }
        let more = partitions.len() > limit;
        partitions.truncate(limit);
        let next = partitions.last().filter(|_| more).map(cursor_of);
        Ok(PartitionPage { partitions, next })
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        in_time(options)?;
        Ok(self.clock.now())
    }

    fn limits(&self) -> EngineLimits {
        EngineLimits {
            inline_max: self.inline_max,
            batch_max: BATCH_BYTES_MAX,
            nodes: 1,
            replicated: false,
            syncs: false,
            keeps_tombstones: false,
        }
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// The shard of a partition: the same in every run, so that listings are.
fn place(partition: &Partition) -> usize {
    let mut hasher = DefaultHasher::new();
    partition.hash(&mut hasher);
    (hasher.finish() % SHARDS as u64) as usize
}

/// Where a listing goes on behind a partition.
pub(crate) fn cursor_of(partition: &Partition) -> Bytes {
    [&[partition.n_val], &partition.key[..]].concat().into()
}

pub(crate) fn of_cursor(table: Table, cursor: &Bytes) -> Result<Partition> {
    let n_val = *cursor.first().ok_or_else(|| Error::new(Kind::Misuse, "an empty cursor"))?;
    Ok(Partition { table, n_val, key: cursor.slice(1..) })
}

fn in_time(options: &Options) -> Result<()> {
    if Instant::now() >= options.deadline {
        return Err(Error::new(Kind::TimedOut, "the deadline had passed before the call"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
