//! All partitions of a table: keyspace by keyspace, each in token order.
//!
//! A cursor is the number of copies and the last key. The cluster returns the first row of each partition from that key
//! on, and whether the row has a TTL: without one the partition is live; with one the partition is read.
//!
//! A cache of heads, and the ids of compare-and-sets.
//!
//! ```text
//! column w      id u64 · id u64 · …      of the last 32 writers of the head, the newest first
//! ```
//! A writer puts its id before the history of the head it replaces, see [`larder_store::cas_history`]. The cache saves
//! reading that history before each write.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use larder_store::cas_history::CasHistory;
use larder_store::{CallOptions, Error, Kind, Partition, PartitionPage, ReadQuery, Result, Table, Timestamp, contract};
use quick_cache::sync::Cache;

use crate::client::{BoundStatement, ClusterClient, check_deadline};
use crate::encoding::BoundValue;
use crate::errors;
use crate::levels::{TableAccess, consistency};
use crate::statements::{self, RowStatement};

/// Most partitions of one statement.
const ROWS_MAX: usize = 1000;

/// Keys requested beyond a page: the last key of the page before comes again, and keys that share its token.
const REPEATED_MAX: usize = 8;

impl ClusterClient {
    /// Lists a page of partitions with live rows.
    pub(crate) async fn list(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        contract::check_limit(limit)?;
        check_deadline(options, table.name())?;
        let (first, mut after) = after.map_or(Ok((0, None)), decode_cursor)?;
        let mut partitions = Vec::new();
        for n_val in self.table_keyspaces(table, options).await?.into_iter().filter(|n_val| *n_val >= first) {
            // The cursor's key belongs to its own keyspace; later keyspaces start at their first partition.
            let mut key = after.take().filter(|_| n_val == first);
            loop {
                let at = Partition { table, copies: n_val, key: key.clone().unwrap_or_default() };
                let asked = (limit - partitions.len()).min(ROWS_MAX);
                let (keys, more) = self.keys_after(&at, key.is_none(), asked, options).await?;
                let last = keys.last().map(|(key, _)| key.clone());
                for (key, expires) in keys {
                    let partition = Partition { key, ..at.clone() };
                    if !expires || self.has_live_rows(&partition, options).await? {
                        partitions.push(partition);
                    }
                }
                if partitions.len() >= limit {
                    // The last partition that was examined, live or not.
                    let next = last.map(|key| [&[n_val][..], &key].concat().into());
                    return Ok(PartitionPage { partitions, next });
                }
                match last {
                    Some(last) if more => key = Some(last),
                    _ => break,
                }
            }
        }
        Ok(PartitionPage { partitions, next: None })
    }

    /// Keys after that of `at`, or the first ones. Returns for each key whether its first row expires, and whether more
    /// may follow.
    async fn keys_after(
        &self,
        at: &Partition,
        is_first: bool,
        limit: usize,
        options: &CallOptions,
    ) -> Result<(Vec<(Bytes, bool)>, bool)> {
        let asked = if is_first { limit } else { limit + REPEATED_MAX };
        let count = BoundValue::Int(i32::try_from(asked).unwrap_or(i32::MAX));
        let (statement, values) = if is_first {
            (RowStatement::List, vec![count])
        } else {
            (RowStatement::ListFrom, vec![BoundValue::Blob(&at.key), count])
        };
        let what = at.table.name();
        let access = if at.table.is_guarded() { TableAccess::Guarded } else { TableAccess::Read };
        let level = consistency(options.level, access, self.copies(at.copies));
        let bound = BoundStatement { statement, partition: at, values };
        let answer = self.execute(&bound, level, options.deadline).await?;
        let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
        let rows = answer.rows::<(Bytes, Option<i32>)>().map_err(|error| errors::unreadable(what, error))?;
        let mut all = Vec::new();
        for row in rows {
            let (key, ttl) = row.map_err(|error| errors::unreadable(what, error))?;
            all.push((key, ttl.is_some()));
        }
        let full = all.len() >= asked;
        // `token(p) >= token(?)` returns the last key again, and keys that share its token.
        // The key may be gone since: then nothing comes again, and no key is skipped.
        if !is_first && let Some(at) = all.iter().position(|(key, _)| *key == at.key) {
            all.drain(..=at);
        }
        let more = full || all.len() > limit;
        all.truncate(limit);
        Ok((all, more))
    }

    async fn has_live_rows(&self, partition: &Partition, options: &CallOptions) -> Result<bool> {
        Ok(!self.page(partition, &ReadQuery::all(1), options).await?.rows.is_empty())
    }

    /// The numbers of copies whose keyspace exists and has this table.
    async fn table_keyspaces(&self, table: Table, options: &CallOptions) -> Result<Vec<u8>> {
        let names = self.query_names(statements::KEYSPACES, None, options.deadline).await?;
        let numbers = names.iter().filter_map(|name| statements::n_val_of_keyspace(&self.prefix, name));
        let mut numbers: Vec<u8> = numbers.filter(|n_val| statements::tables(*n_val).contains(&table)).collect();
        numbers.sort_unstable();
        // Another gateway may still be creating the tables of a listed keyspace.
        for n_val in &numbers {
            let partition = Partition { table, copies: *n_val, key: Bytes::new() };
            self.ensure(&partition, options.deadline).await?;
        }
        Ok(numbers)
    }
}

fn decode_cursor(cursor: Bytes) -> Result<(u8, Option<Bytes>)> {
    let n_val = *cursor.first().ok_or_else(|| Error::new(Kind::Misuse, "an empty cursor"))?;
    Ok((n_val, Some(cursor.slice(1..))))
}

/// Heads in the cache, about 400 bytes each.
const HEADS_MAX: usize = 20_000;

/// The parts of a head that a compare-and-set needs to replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownHead {
    pub(crate) stamp: Timestamp,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) history: CasHistory,
}

/// Heads as they were last read or written. A stale entry is harmless: the guard of the write fails, or the history
/// misses an id.
pub(crate) struct HeadCache {
    cache: Cache<(Partition, Bytes), KnownHead>,
}

impl Default for HeadCache {
    fn default() -> Self {
        Self { cache: Cache::new(HEADS_MAX) }
    }
}

impl HeadCache {
    pub(crate) fn get(&self, partition: &Partition, name: &Bytes) -> Option<KnownHead> {
        self.cache.get(&(partition.clone(), name.clone()))
    }

    pub(crate) fn put(&self, partition: &Partition, name: &Bytes, known: KnownHead) {
        // Copies, so that an entry does not keep the answer of a read alive.
        let partition = Partition { key: Bytes::copy_from_slice(&partition.key), ..*partition };
        self.cache.insert((partition, Bytes::copy_from_slice(name)), known);
    }
}

/// Ids of compare-and-sets, unique over all processes.
pub(crate) struct CasIds {
    next: AtomicU64,
}

impl Default for CasIds {
    fn default() -> Self {
        // A random start: ids of two processes, or of one process before and after a restart, do not overlap in
        // practice.
        Self { next: AtomicU64::new(RandomState::new().hash_one("swaps")) }
    }
}

impl CasIds {
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_head_belongs_to_one_partition() {
        let (heads, known) =
            (HeadCache::default(), KnownHead { stamp: Timestamp(5), expires: None, history: CasHistory::default() });
        let at = |copies| Partition { table: larder_store::Table::Heads, copies, key: "p".into() };
        heads.put(&at(3), &"".into(), known);
        assert_eq!(heads.get(&at(3), &"".into()), Some(known));
        assert_eq!(heads.get(&at(2), &"".into()), None);
        assert_eq!(heads.get(&at(3), &"h".into()), None);
    }
}
