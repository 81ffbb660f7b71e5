//! Pages of a partition.
//!
//! A page is one statement, so that it is of one moment; it goes on with another only where rows that have expired took the place
//! of others. Replicas give a read up that meets too many removals (100,000 by default): then its range is halved, again and
//! again, until each part is answered. What there is to skip must be skipped once for every page until the engine has compacted
//! it, but no page fails.

use bytes::Bytes;
use scylla::statement::Consistency;
use tokio::time::Instant;

use larder_store::{Error, Kind, Micros, Options, Order, Page, Partition, ReadQuery, Result, Row, Stopped};

use crate::cluster::{Bound, Cluster, Failure, in_time};
use crate::encoding::{Value, of_stored};
use crate::errors;
use crate::figures::count;
use crate::statements::Statement;
use crate::writers::{Known, Writers};

/// Rows asked for at least when a page goes on.
const READ_ON_MIN: usize = 64;

/// How often a range is halved: what is still refused then is refused for another reason.
const HALVINGS_MAX: usize = 256;

/// A row as it is stored, live or not.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) row: Row,
    /// Of heads.
    pub(crate) writers: Option<Writers>,
}

/// Names from one on, up to another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    from: Bytes,
    to: Option<Bytes>,
}

/// One read on its way.
struct Reading<'a> {
    partition: &'a Partition,
    order: Order,
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
        let reading = Reading { partition, order: query.order, consistency, deadline: options.deadline };
        let mut rest = Span { from: query.range.from.clone().unwrap_or_default(), to: query.range.to.clone() };
        let (mut rows, mut asked) = (Vec::new(), query.limit);
        while !rest.is_empty() {
            let found = self.gather(&reading, &rest, asked).await?;
            let (count, last) = (found.len(), found.last().map(|stored| stored.row.name.clone()));
            let now = self.clock.now();
            for stored in found.into_iter().filter(|stored| stored.row.is_live(now)) {
                if rows.len() == query.limit {
                    return Ok(Page { rows, stopped: Stopped::Limit });
                }
                rows.push(stored.row);
            }
            match last {
                Some(last) if count >= asked && rows.len() < query.limit => rest.go_on(query.order, &last),
                _ => {
                    let stopped = if count >= asked { Stopped::Limit } else { Stopped::End };
                    return Ok(Page { rows, stopped });
                }
            }
            asked = (query.limit - rows.len()).max(READ_ON_MIN);
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

    /// The first `limit` rows of a range, live or not; in as many parts as replicas can answer.
    async fn gather(&self, reading: &Reading<'_>, span: &Span, limit: usize) -> Result<Vec<Stored>> {
        let (mut rows, mut spans) = (Vec::new(), vec![(span.clone(), 0)]);
        while let Some((span, halvings)) = spans.pop() {
            match self.fetch(reading, &span, limit - rows.len()).await {
                Ok(found) => rows.extend(found),
                Err(failure) if failure.is_read_failure() && halvings < HALVINGS_MAX => {
                    let Some(middle) = middle(&span.from, span.to.as_deref()) else { return Err(failure.into()) };
                    count(&self.counters.ranges_halved);
                    let low = Span { from: span.from, to: Some(middle.clone()) };
                    let high = Span { from: middle, to: span.to };
                    let (first, second) = match reading.order {
                        Order::Forward => (low, high),
                        Order::Reverse => (high, low),
                    };
                    spans.push((second, halvings + 1));
                    spans.push((first, halvings + 1));
                }
                Err(failure) => return Err(failure.into()),
            }
            if rows.len() >= limit {
                break;
            }
        }
        Ok(rows)
    }

    /// What one statement answers.
    async fn fetch(
        &self,
        reading: &Reading<'_>,
        span: &Span,
        limit: usize,
    ) -> std::result::Result<Vec<Stored>, Failure> {
        let statement = match (reading.order, &span.to) {
            (Order::Forward, None) => Statement::Forward,
            (Order::Forward, Some(_)) => Statement::ForwardTo,
            (Order::Reverse, None) => Statement::Reverse,
            (Order::Reverse, Some(_)) => Statement::ReverseTo,
        };
        let mut values = vec![Value::Blob(&reading.partition.key), Value::Blob(&span.from)];
        values.extend(span.to.as_ref().map(|to| Value::Blob(to)));
        values.push(Value::Int(i32::try_from(limit).unwrap_or(i32::MAX)));
        let bound = Bound { statement, partition: reading.partition, values };
        self.select(bound, reading.consistency, reading.deadline).await
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
        let answer = self.execute(&bound, consistency, deadline).await?;
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

impl Span {
    /// Whether there is no name in it.
    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Leaves out what comes up to `last`.
    fn go_on(&mut self, order: Order, last: &Bytes) {
        match order {
            Order::Forward => self.from = [last, &[0][..]].concat().into(),
            Order::Reverse => self.to = Some(last.clone()),
        }
    }
}

/// A name between two others, about half way; `None` when there is none.
fn middle(low: &[u8], high: Option<&[u8]>) -> Option<Bytes> {
    const WINDOW: usize = 16;
    let same = high.map_or(0, |high| low.iter().zip(high).take_while(|(a, b)| a == b).count());
    let number = |bytes: &[u8]| {
        let mut window = [0; WINDOW];
        let rest = bytes.get(same..).unwrap_or_default();
        let length = rest.len().min(WINDOW);
        window[..length].copy_from_slice(&rest[..length]);
        u128::from_be_bytes(window)
    };
    let from = number(low);
    let half = match high {
        Some(high) => number(high).checked_sub(from)? / 2,
        None => (u128::MAX - from) / 2,
    };
    let mut name = low[..same.min(low.len())].to_vec();
    name.extend((from + half).to_be_bytes());
    if half == 0 {
        // The two differ further behind.
        let behind = low.get(same + WINDOW..).unwrap_or_default();
        name.extend_from_slice(&middle(behind, None)?);
    } else {
        name.truncate(name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    }
    let between = |name: &[u8]| *name > *low && high.is_none_or(|high| *name < *high);
    let next = [low, &[0]].concat();
    [name, next].into_iter().find(|name| between(name)).map(Bytes::from)
}

/// Whether a row has expired: for those who look at rows that are perhaps not live.
pub(crate) fn live(stored: Option<&Stored>, now: Micros) -> Option<&Row> {
    stored.map(|stored| &stored.row).filter(|row| row.is_live(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_middle_is_between(low: Vec<u8>, more: Vec<u8>, other: Vec<u8>) {
            for high in [Some([&low[..], &more].concat()), Some(other), None] {
                let middle = middle(&low, high.as_deref());
                if let Some(middle) = &middle {
                    prop_assert!(middle[..] > low[..] && high.as_ref().is_none_or(|high| middle[..] < high[..]));
                }
                prop_assert!(middle.is_some() || high.is_some(), "there is always one behind");
            }
        }

        #[test]
        fn halving_comes_to_an_end_at_single_names(names in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..20), 2..40)) {
            // A range with one name at most is answered, others are not: as if every name weighed too much.
            let (mut spans, mut singles) = (vec![(Vec::new(), None::<Vec<u8>>, 0)], 0);
            while let Some((from, to, halvings)) = spans.pop() {
                let inside = names.iter().filter(|name| **name >= from && to.as_ref().is_none_or(|to| *name < to)).count();
                if inside <= 1 {
                    singles += inside;
                    continue;
                }
                prop_assert!(halvings < HALVINGS_MAX);
                let half = middle(&from, to.as_deref()).expect("there is one, since two names differ").to_vec();
                spans.push((from, Some(half.clone()), halvings + 1));
                spans.push((half, to, halvings + 1));
            }
            prop_assert_eq!(singles, names.len());
        }
    }

    #[test]
    fn halves_are_about_even() {
        let middle = |low: &'static [u8], high: Option<&'static [u8]>| middle(low, high);
        assert_eq!(middle(b"", None).unwrap()[0], 0x7f);
        assert_eq!(middle(b"", Some(b"\x80")).unwrap(), &b"\x40"[..]);
        assert_eq!(middle(b"ab", Some(b"ad")).unwrap(), &b"ac"[..]);
        assert_eq!(middle(b"user1", Some(b"user3")).unwrap(), &b"user2"[..]);
        for (low, high) in [(&b"a"[..], &b"a\0"[..]), (b"a", b"a"), (b"b", b"a"), (b"", b"")] {
            assert_eq!(middle(low, Some(high)), None, "{low:?} {high:?}");
        }
    }
}
