//! All partitions of a table: keyspace by keyspace, each in token order.
//!
//! A cursor is the number of copies and the last key. The cluster returns the first row of each partition from that key
//! on, and whether the row has a TTL: without one the partition is live; with one the partition is read.

use bytes::Bytes;

use larder_store::{CallOptions, Error, Kind, Partition, PartitionPage, ReadQuery, Result, Table, contract};

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
        for n_val in self.keyspaces_of(table, options).await?.into_iter().filter(|n_val| *n_val >= first) {
            // The cursor's key belongs to its own keyspace; later keyspaces start at their first partition.
            let mut key = after.take().filter(|_| n_val == first);
            loop {
                let at = Partition { table, copies: n_val, key: key.clone().unwrap_or_default() };
                let asked = (limit - partitions.len()).min(ROWS_MAX);
                let (found, more) = self.keys_after(&at, key.is_none(), asked, options).await?;
                let last = found.last().map(|(key, _)| key.clone());
                for (key, expires) in found {
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
    async fn keyspaces_of(&self, table: Table, options: &CallOptions) -> Result<Vec<u8>> {
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
