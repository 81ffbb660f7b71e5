//! Pages of a partition.
//!
//! One page is one statement, so it is isolated. A second statement follows only where expired rows took places of the
//! page. A replica gives up a read over too many tombstones (100,000 by default). Then the range is bisected until each
//! part succeeds. Every page scans the tombstones again until compaction, but no page fails.

use bytes::Bytes;
use larder_store::cas_history::CasHistory;
use larder_store::range_bisect::RangeBisect;
use larder_store::{
    CallOptions, Error, Kind, Partition, Range, ReadOrder, ReadQuery, Result, Row, RowPage, Stopped, Timestamp,
    contract,
};
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use tokio::time::Instant;

use crate::client::{BoundStatement, ClusterClient, RequestFailure, check_deadline};
use crate::encoding::{BoundValue, decode_value};
use crate::errors;
use crate::metrics::count;
use crate::partitions::KnownHead;
use crate::statements::RowStatement;

/// Least rows of a further read of one page.
const READ_ON_MIN: usize = 64;

/// A stored row, live or expired.
#[derive(Debug, Clone)]
pub(crate) struct StoredRow {
    pub(crate) row: Row,
    /// Set on heads.
    pub(crate) history: Option<CasHistory>,
}

/// Partition, consistency and deadline of a read.
struct ReadContext<'a> {
    partition: &'a Partition,
    consistency: Consistency,
    deadline: Instant,
}

impl ClusterClient {
    /// Reads a page of live rows.
    pub(crate) async fn page(
        &self,
        partition: &Partition,
        query: &ReadQuery,
        options: &CallOptions,
    ) -> Result<RowPage> {
        contract::check_limit(query.limit)?;
        let what = partition.table.name();
        check_deadline(options, what)?;
        self.ensure(partition, options.deadline).await?;
        let consistency = self.consistency(partition, options.level, false);
        if let Some(name) = query.range.single_name() {
            let now = self.clock.now();
            let row = self.row(partition, &name, consistency, options.deadline).await?;
            let rows = row.map(|stored| stored.row).filter(|row| row.is_live(now)).into_iter().collect();
            return Ok(RowPage { rows, stopped: Stopped::End });
        }
        let context = ReadContext { partition, consistency, deadline: options.deadline };
        let mut remaining = ReadQuery { range: query.range.clone(), ..*query };
        let mut rows = Vec::new();
        while !is_empty(&remaining.range) {
            let page = self.read_pieces(&context, &remaining).await?;
            let last = page.rows.last().map(|row| row.name.clone());
            // The store's clock decides expiry; Cassandra's TTL only cleans up later [invariant 41].
            let now = self.clock.now();
            for row in page.rows.into_iter().filter(|row| row.is_live(now)) {
                if rows.len() == query.limit {
                    return Ok(RowPage { rows, stopped: Stopped::Limit });
                }
                rows.push(row);
            }
            match last {
                Some(last) if page.stopped == Stopped::Limit && rows.len() < query.limit => {
                    remaining.continue_after(&last)
                }
                _ => return Ok(RowPage { rows, stopped: page.stopped }),
            }
            // Bound: expired rows in a page must not cause many small reads.
            remaining.limit = (query.limit - rows.len()).max(READ_ON_MIN);
        }
        Ok(RowPage { rows, stopped: Stopped::End })
    }

    /// Reads one row, live or expired.
    pub(crate) async fn row(
        &self,
        partition: &Partition,
        name: &Bytes,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<Option<StoredRow>, RequestFailure> {
        let values = vec![BoundValue::Blob(&partition.key), BoundValue::Blob(name)];
        let rows = self
            .select_rows(BoundStatement { statement: RowStatement::One, partition, values }, consistency, deadline)
            .await?;
        let Some(mut stored) = rows.into_iter().next() else { return Ok(None) };
        stored.row.name = name.clone();
        Ok(Some(stored))
    }

    /// Reads a page of rows, live or expired, in as many pieces as the replicas need.
    async fn read_pieces(&self, context: &ReadContext<'_>, query: &ReadQuery) -> Result<RowPage> {
        let mut bisect = RangeBisect::new(query);
        while let Some(piece) = bisect.next_piece() {
            match self.read_piece(context, &piece).await {
                Ok(page) => bisect.add_page(page),
                // A smaller limit would scan the same tombstones; half of the range has half of them [invariant 27].
                Err(failure) if failure.is_read_failure() => {
                    bisect.split(&piece, failure.into())?;
                    count(&self.counters.ranges_bisected);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(bisect.into_page())
    }

    /// Reads one piece with one statement.
    async fn read_piece(
        &self,
        context: &ReadContext<'_>,
        piece: &ReadQuery,
    ) -> std::result::Result<RowPage, RequestFailure> {
        let ReadQuery { range, limit, order } = piece;
        let statement = match (order, &range.to) {
            (ReadOrder::Forward, None) => RowStatement::Forward,
            (ReadOrder::Forward, Some(_)) => RowStatement::ForwardTo,
            (ReadOrder::Reverse, None) => RowStatement::Reverse,
            (ReadOrder::Reverse, Some(_)) => RowStatement::ReverseTo,
        };
        let from = range.from.as_deref().unwrap_or_default();
        let mut values = vec![BoundValue::Blob(&context.partition.key), BoundValue::Blob(from)];
        values.extend(range.to.as_ref().map(|to| BoundValue::Blob(to)));
        values.push(BoundValue::Int(i32::try_from(*limit).unwrap_or(i32::MAX)));
        let bound = BoundStatement { statement, partition: context.partition, values };
        let rows = self.select_rows(bound, context.consistency, context.deadline).await?;
        let stopped = if rows.len() >= *limit { Stopped::Limit } else { Stopped::End };
        Ok(RowPage { rows: rows.into_iter().map(|stored| stored.row).collect(), stopped })
    }

    /// Sends a read, at SERIAL for a partition in doubt, which settles the partition.
    async fn execute_read(
        &self,
        bound: &BoundStatement<'_>,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<QueryResult, RequestFailure> {
        let partition = bound.partition;
        let guarded = partition.table.is_guarded() && is_decisive(consistency);
        // The number is read before the statement is sent: a write that becomes in doubt during the read stays so.
        let Some(write) = self.in_doubt.last(partition).filter(|_| guarded) else {
            return self.execute(bound, consistency, deadline).await;
        };
        let answer = self.execute(bound, Consistency::Serial, deadline).await?;
        // Only a SERIAL read that succeeded settles the partition: it finished the write or ruled it out [invariant 85].
        self.in_doubt.settle(partition, write);
        Ok(answer)
    }

    /// Reads rows; puts heads among them into the cache.
    async fn select_rows(
        &self,
        bound: BoundStatement<'_>,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<Vec<StoredRow>, RequestFailure> {
        let partition = bound.partition;
        let what = partition.table.name();
        let answer = self.execute_read(&bound, consistency, deadline).await?;
        let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
        let unreadable = |error| RequestFailure::Store(errors::unreadable(what, error));
        let mut all = Vec::with_capacity(answer.rows_num());
        if !partition.table.is_guarded() {
            let rows = answer.rows::<(Bytes, Option<Bytes>, Option<i64>)>();
            for row in rows.map_err(|error| errors::unreadable(what, error))? {
                let (name, value, stamp) = row.map_err(unreadable)?;
                all.extend(decode_row(name, value, stamp, None)?);
            }
            return Ok(all);
        }
        let rows = answer.rows::<(Bytes, Option<Bytes>, Option<i64>, Option<Bytes>)>();
        for row in rows.map_err(|error| errors::unreadable(what, error))? {
            let (name, value, stamp, history) = row.map_err(unreadable)?;
            let Some(stored) = decode_row(name, value, stamp, history)? else { continue };
            // Heads of quorum reads may be old; the guard of a write that uses one then fails, and reads again.
            if let Some(history) = stored.history {
                let known = KnownHead { stamp: stored.row.stamp, expires: stored.row.expires, history };
                self.heads.put(partition, &stored.row.name, known);
            }
            all.push(stored);
        }
        Ok(all)
    }
}

/// The row of these columns; `None` without a value, which a removed row has.
fn decode_row(
    name: Bytes,
    value: Option<Bytes>,
    stamp: Option<i64>,
    history: Option<Bytes>,
) -> Result<Option<StoredRow>> {
    let (Some(value), Some(stamp)) = (value, stamp) else { return Ok(None) };
    let (value, expires) = decode_value(value)?;
    let stamp = u64::try_from(stamp).map_err(|_| Error::new(Kind::Damaged, "a stamp below zero"))?;
    Ok(Some(StoredRow {
        row: Row { name, value, stamp: Timestamp(stamp), expires },
        history: history.map(CasHistory::decode),
    }))
}

/// Whether a range holds no name.
fn is_empty(range: &Range) -> bool {
    range.to.as_ref().is_some_and(|to| *to <= range.from.clone().unwrap_or_default())
}

/// Whether a read at this consistency must show every finished write, so that it must not miss one in doubt. Lower
/// levels are used while most copies are down, and promise less.
fn is_decisive(consistency: Consistency) -> bool {
    matches!(consistency, Consistency::Quorum | Consistency::All | Consistency::Serial)
}

/// The row, unless it has expired.
pub(crate) fn live_row(stored: Option<&StoredRow>, now: Timestamp) -> Option<&Row> {
    stored.map(|stored| &stored.row).filter(|row| row.is_live(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_empty_if_its_end_is_not_after_its_start() {
        let range = |from: Option<&'static str>, to: Option<&'static str>| Range {
            from: from.map(Bytes::from),
            to: to.map(Bytes::from),
        };
        for (from, to) in [(Some("a"), Some("a")), (Some("b"), Some("a")), (None, Some(""))] {
            assert!(is_empty(&range(from, to)), "{from:?} {to:?}");
        }
        for (from, to) in [(Some("a"), Some("a\0")), (None, Some("a")), (Some("a"), None), (None, None)] {
            assert!(!is_empty(&range(from, to)), "{from:?} {to:?}");
        }
    }
}
