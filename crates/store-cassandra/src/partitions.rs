//! All partitions of a table: keyspace by keyspace, each in the order of tokens.
//!
//! A cursor is the number of copies and the last key. The cluster is asked for the first row of each partition from that key on,
//! and whether it has a TTL: without one it lives; with one the partition is read.

use bytes::Bytes;

use larder_store::{Error, Kind, Options, Partition, PartitionPage, ReadQuery, Result, Table};

use crate::cluster::{Bound, Cluster, Failure, in_time};
use crate::encoding::Value;
use crate::errors;
use crate::levels::{Deed, consistency};
use crate::statements::{self, Statement};

/// Partitions asked for at once.
const ROWS_MAX: usize = 1000;

/// Asked for beyond a page: the last of the page before comes again, and keys that share its token.
const AGAIN_MAX: usize = 8;

impl Cluster {
    /// A page of partitions with live rows.
    pub(crate) async fn list(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        if limit == 0 {
            return Err(Error::new(Kind::Misuse, "a page of no partitions"));
        }
        in_time(options, table.name())?;
        let (first, mut after) = after.map_or(Ok((0, None)), of_cursor)?;
        let mut partitions = Vec::new();
        for n_val in self.keyspaces_of(table, options).await?.into_iter().filter(|n_val| *n_val >= first) {
            let mut key = after.take().filter(|_| n_val == first);
            loop {
                let at = Partition { table, n_val, key: key.clone().unwrap_or_default() };
                let asked = (limit - partitions.len()).min(ROWS_MAX);
                let (found, more) = self.keys_behind(&at, key.is_none(), asked, options).await?;
                let last = found.last().map(|(key, _)| key.clone());
                for (key, expires) in found {
                    let partition = Partition { key, ..at.clone() };
                    if !expires || self.lives(&partition, options).await? {
                        partitions.push(partition);
                    }
                }
                if partitions.len() >= limit {
                    // The last one that was looked at, live or not.
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

    /// Keys behind that of `at`, or the first ones, each with whether its first row expires; and whether there may be more.
    async fn keys_behind(
        &self,
        at: &Partition,
        is_first: bool,
        limit: usize,
        options: &Options,
    ) -> Result<(Vec<(Bytes, bool)>, bool)> {
        let asked = if is_first { limit } else { limit + AGAIN_MAX };
        let count = Value::Int(i32::try_from(asked).unwrap_or(i32::MAX));
        let (statement, values) = if is_first {
            (Statement::List, vec![count])
        } else {
            (Statement::ListFrom, vec![Value::Blob(&at.key), count])
        };
        let what = at.table.name();
        let deed = if at.table.is_guarded() { Deed::Guarded } else { Deed::Read };
        let level = consistency(options.level, deed, self.copies(at.n_val));
        let bound = Bound { statement, partition: at, values };
        let answer = self.execute(&bound, level, options.deadline).await?;
        let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
        let rows = answer.rows::<(Bytes, Option<i32>)>().map_err(|error| errors::unreadable(what, error))?;
        let mut all = Vec::new();
        for row in rows {
            let (key, ttl) = row.map_err(|error| errors::unreadable(what, error))?;
            all.push((key, ttl.is_some()));
        }
        let full = all.len() >= asked;
        if !is_first && let Some(at) = all.iter().position(|(key, _)| *key == at.key) {
            all.drain(..=at);
        }
        let more = full || all.len() > limit;
        all.truncate(limit);
        Ok((all, more))
    }

    async fn lives(&self, partition: &Partition, options: &Options) -> Result<bool> {
        Ok(!self.page(partition, &ReadQuery::all(1), options).await?.rows.is_empty())
    }

    /// The numbers of copies for which there is a keyspace with this table.
    async fn keyspaces_of(&self, table: Table, options: &Options) -> Result<Vec<u8>> {
        let names = self.names(statements::KEYSPACES, None, options.deadline).await.map_err(Failure::into_error)?;
        let numbers = names.iter().filter_map(|name| statements::of_keyspace(&self.prefix, name));
        let mut numbers: Vec<u8> = numbers.filter(|n_val| statements::tables(*n_val).contains(&table)).collect();
        numbers.sort_unstable();
        for n_val in &numbers {
            let partition = Partition { table, n_val: *n_val, key: Bytes::new() };
            self.ensure(&partition, options.deadline).await?;
        }
        Ok(numbers)
    }
}

fn of_cursor(cursor: Bytes) -> Result<(u8, Option<Bytes>)> {
    let n_val = *cursor.first().ok_or_else(|| Error::new(Kind::Misuse, "an empty cursor"))?;
    Ok((n_val, Some(cursor.slice(1..))))
}
