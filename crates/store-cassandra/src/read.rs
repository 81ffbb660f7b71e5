//! Pages of a partition.
//!
//! A page is one statement, so that it is of one moment; it goes on with another only where rows that have expired took the place
//! of others. Replicas give a read up that meets too many removals (100,000 by default): then its range is halved, again and
//! again, until each part is answered. What there is to skip must be skipped once for every page until the engine has compacted
//! it, but no page fails.

use bytes::Bytes;
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use tokio::time::Instant;

use larder_store::halving::Halving;
use larder_store::writers::Writers;
use larder_store::{Error, Kind, Micros, Options, Order, Page, Partition, Range, ReadQuery, Result, Row, Stopped};

use crate::cluster::{Bound, Cluster, Failure, in_time};
use crate::encoding::{Value, of_stored};
use crate::errors;
use crate::figures::count;
use crate::statements::Statement;
use crate::writers::Known;

/// Rows asked for at least when a page goes on.
const READ_ON_MIN: usize = 64;

/// A row as it is stored, live or not.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) row: Row,
    /// Of heads.
    pub(crate) writers: Option<Writers>,
}

/// One read on its way.
struct Reading<'a> {
    partition: &'a Partition,
    consistency: Consistency,
    deadline: Instant,
}

impl Cluster {
    /// A page of live rows.
    pub(crate) async fn page(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        if query.limit == 0 {
            return Err(Error::new(Kind::Misuse, "a page of no rows"));
        }
        let what = partition.table.name();
        in_time(options, what)?;
        self.ensure(partition, options.deadline).await?;
        let consistency = self.consistency(partition, options.level, false);
        if let Some(name) = query.range.only() {
            let now = self.clock.now();
            let row = self.row(partition, &name, consistency, options.deadline).await?;
            let rows = row.map(|stored| stored.row).filter(|row| row.is_live(now)).into_iter().collect();
            return Ok(Page { rows, stopped: Stopped::End });
        }
        let reading = Reading { partition, consistency, deadline: options.deadline };
        let mut rest = ReadQuery { range: query.range.clone(), ..*query };
        let mut rows = Vec::new();
        while !is_empty(&rest.range) {
            let found = self.gather(&reading, &rest).await?;
            let last = found.rows.last().map(|row| row.name.clone());
            let now = self.clock.now();
            for row in found.rows.into_iter().filter(|row| row.is_live(now)) {
                if rows.len() == query.limit {
                    return Ok(Page { rows, stopped: Stopped::Limit });
                }
                rows.push(row);
            }
            match last {
                Some(last) if found.stopped == Stopped::Limit && rows.len() < query.limit => go_on(&mut rest, &last),
                _ => return Ok(Page { rows, stopped: found.stopped }),
            }
            rest.limit = (query.limit - rows.len()).max(READ_ON_MIN);
        }
        Ok(Page { rows, stopped: Stopped::End })
    }

    /// One row, live or not.
    pub(crate) async fn row(
        &self,
        partition: &Partition,
        name: &Bytes,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<Option<Stored>, Failure> {
        let values = vec![Value::Blob(&partition.key), Value::Blob(name)];
        let found = self.select(Bound { statement: Statement::One, partition, values }, consistency, deadline).await?;
        let Some(mut stored) = found.into_iter().next() else { return Ok(None) };
        stored.row.name = name.clone();
        Ok(Some(stored))
    }

    /// A page of rows, live or not; in as many pieces as replicas can answer.
    async fn gather(&self, reading: &Reading<'_>, query: &ReadQuery) -> Result<Page> {
        let mut halving = Halving::of(query);
        while let Some(piece) = halving.next() {
            match self.fetch(reading, &piece).await {
                Ok(page) => halving.answered(page),
                Err(failure) if failure.is_read_failure() => {
                    halving.gave_up(&piece, failure.into())?;
                    count(&self.counters.ranges_halved);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(halving.page())
    }

    /// What one statement answers.
    async fn fetch(&self, reading: &Reading<'_>, piece: &ReadQuery) -> std::result::Result<Page, Failure> {
        let ReadQuery { range, limit, order } = piece;
        let statement = match (order, &range.to) {
            (Order::Forward, None) => Statement::Forward,
            (Order::Forward, Some(_)) => Statement::ForwardTo,
            (Order::Reverse, None) => Statement::Reverse,
            (Order::Reverse, Some(_)) => Statement::ReverseTo,
        };
        let from = range.from.as_deref().unwrap_or_default();
        let mut values = vec![Value::Blob(&reading.partition.key), Value::Blob(from)];
        values.extend(range.to.as_ref().map(|to| Value::Blob(to)));
        values.push(Value::Int(i32::try_from(*limit).unwrap_or(i32::MAX)));
        let bound = Bound { statement, partition: reading.partition, values };
        let found = self.select(bound, reading.consistency, reading.deadline).await?;
        let stopped = if found.len() >= *limit { Stopped::Limit } else { Stopped::End };
        Ok(Page { rows: found.into_iter().map(|stored| stored.row).collect(), stopped })
    }

    /// Sends a read: at SERIAL where a swap is undecided, which decides it.
    async fn look_at(
        &self,
        bound: &Bound<'_>,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<QueryResult, Failure> {
        let partition = bound.partition;
        let guarded = partition.table.is_guarded() && is_decisive(consistency);
        let Some(swap) = self.undecided.last(partition).filter(|_| guarded) else {
            return self.execute(bound, consistency, deadline).await;
        };
        let answer = self.execute(bound, Consistency::Serial, deadline).await?;
        self.undecided.decided(partition, swap);
        Ok(answer)
    }

    /// Rows of an answer; heads among them are remembered.
    async fn select(
        &self,
        bound: Bound<'_>,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<Vec<Stored>, Failure> {
        let partition = bound.partition;
        let what = partition.table.name();
        let answer = self.look_at(&bound, consistency, deadline).await?;
        let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
        let unreadable = |error| Failure::Store(errors::unreadable(what, error));
        let mut all = Vec::with_capacity(answer.rows_num());
        if !partition.table.is_guarded() {
            let rows = answer.rows::<(Bytes, Option<Bytes>, Option<i64>)>();
            for row in rows.map_err(|error| errors::unreadable(what, error))? {
                let (name, value, stamp) = row.map_err(unreadable)?;
                all.extend(stored(name, value, stamp, None)?);
            }
            return Ok(all);
        }
        let rows = answer.rows::<(Bytes, Option<Bytes>, Option<i64>, Option<Bytes>)>();
        for row in rows.map_err(|error| errors::unreadable(what, error))? {
            let (name, value, stamp, writers) = row.map_err(unreadable)?;
            let Some(stored) = stored(name, value, stamp, writers)? else { continue };
            if let Some(writers) = stored.writers {
                let known = Known { stamp: stored.row.stamp, expires: stored.row.expires, writers };
                self.heads.put(partition, &stored.row.name, known);
            }
            all.push(stored);
        }
        Ok(all)
    }
}

/// A row of its columns; without a value it is not there.
fn stored(name: Bytes, value: Option<Bytes>, stamp: Option<i64>, writers: Option<Bytes>) -> Result<Option<Stored>> {
    let (Some(value), Some(stamp)) = (value, stamp) else { return Ok(None) };
    let (value, expires) = of_stored(value)?;
    let stamp = u64::try_from(stamp).map_err(|_| Error::new(Kind::Damaged, "a stamp below zero"))?;
    Ok(Some(Stored { row: Row { name, value, stamp, expires }, writers: writers.map(Writers::decode) }))
}

/// Whether there is no name in a range.
fn is_empty(range: &Range) -> bool {
    range.to.as_ref().is_some_and(|to| *to <= range.from.clone().unwrap_or_default())
}

/// Leaves out what comes up to `last`.
fn go_on(query: &mut ReadQuery, last: &Bytes) {
    match query.order {
        Order::Forward => query.range.from = Some([last, &[0][..]].concat().into()),
        Order::Reverse => query.range.to = Some(last.clone()),
    }
}

/// Whether a read at this consistency tells what a swap has done, so that it must not miss one that is undecided. Others are
/// asked for where most copies may be down, and promise less.
fn is_decisive(consistency: Consistency) -> bool {
    matches!(consistency, Consistency::Quorum | Consistency::All | Consistency::Serial)
}

/// Whether a row has expired: for those who look at rows that are perhaps not live.
pub(crate) fn live(stored: Option<&Stored>, now: Micros) -> Option<&Row> {
    stored.map(|stored| &stored.row).filter(|row| row.is_live(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_goes_on_behind_what_it_has() {
        for (order, from, to) in [(Order::Forward, "m\0", "z"), (Order::Reverse, "a", "m")] {
            let range = Range { from: Some("a".into()), to: Some("z".into()) };
            let mut query = ReadQuery { range, limit: 1, order };
            go_on(&mut query, &"m".into());
            assert_eq!(query.range, Range { from: Some(from.into()), to: Some(to.into()) });
        }
    }

    #[test]
    fn a_range_is_empty_when_its_end_is_not_behind_its_beginning() {
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
