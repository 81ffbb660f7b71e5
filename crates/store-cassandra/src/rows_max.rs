//! Row limits of partitions: a read counts the rows before a batch is written.
//!
//! Another writer may write between the read and the write, so the limit is approximate: there is no lock.

use std::collections::BTreeMap;

use bytes::Bytes;

use larder_store::{Batch, CallOptions, Change, Error, Kind, ReadQuery, Result, Row, Stopped, Timestamp};

use crate::client::ClusterClient;
use crate::write::PartitionShare;

/// Rows of one read.
const PAGE_ROWS: usize = 1000;

impl ClusterClient {
    /// Refuses a batch after which a partition would hold more rows without expiry than the batch allows.
    pub(crate) async fn check_row_count(
        &self,
        batch: &Batch,
        shares: &[PartitionShare<'_>],
        options: &CallOptions,
    ) -> Result<()> {
        for part in &batch.partitions {
            let Some(rows_max) = part.rows_max else { continue };
            let Some(share) = shares.iter().find(|share| *share.partition == part.partition) else { continue };
            // Race: another writer may come between this count and the batch, so the limit is approximate [invariant 9].
            let rows = self.rows_after(share, options).await?;
            if rows > rows_max {
                let context = format!("{rows} rows in a partition of {rows_max} rows at most");
                return Err(Error::new(Kind::TooManyRows { rows }, context));
            }
        }
        Ok(())
    }

    /// Rows without expiry that the partition would hold after the batch.
    async fn rows_after(&self, share: &PartitionShare<'_>, options: &CallOptions) -> Result<usize> {
        let mut count = RowCounter::new(&share.changes);
        let mut after = None;
        loop {
            // The pages are not isolated: rows written in between may be counted or missed.
            let page = self.page(share.partition, &ReadQuery::after(after.as_ref(), PAGE_ROWS), options).await?;
            after = page.rows.last().map(|row| row.name.clone());
            page.rows.into_iter().for_each(|row| count.add(row));
            if page.stopped == Stopped::End || after.is_none() {
                return Ok(count.finish());
            }
        }
    }
}

/// Counts the rows that a partition would hold, from its current rows one by one.
struct RowCounter<'a> {
    changes: &'a [&'a Change],
    named: BTreeMap<&'a Bytes, Option<Row>>,
    cleared: Timestamp,
    others: usize,
}

impl<'a> RowCounter<'a> {
    fn new(changes: &'a [&'a Change]) -> Self {
        let (mut named, mut cleared) = (BTreeMap::new(), Timestamp::ZERO);
        for change in changes {
            match change {
                Change::Put(Row { name, .. }) | Change::Remove { name, .. } => {
                    named.insert(name, None);
                }
                Change::Clear { stamp } => cleared = cleared.max(*stamp),
            }
        }
        Self { changes, named, cleared, others: 0 }
    }

    fn add(&mut self, row: Row) {
        if let Some(named) = self.named.get_mut(&row.name) {
            *named = Some(row);
        } else if row.expires.is_none() && row.stamp > self.cleared {
            self.others += 1;
        }
    }

    fn finish(self) -> usize {
        let mut rows = self.named;
        for change in self.changes {
            match change {
                Change::Put(new) => {
                    let row = rows.entry(&new.name).or_default();
                    if row.as_ref().is_none_or(|present| new.supersedes(present)) {
                        *row = Some(new.clone());
                    }
                }
                Change::Remove { name, stamp } => take(rows.entry(name).or_default(), *stamp),
                Change::Clear { stamp } => rows.values_mut().for_each(|row| take(row, *stamp)),
            }
        }
        self.others + rows.into_values().flatten().filter(|row| row.expires.is_none()).count()
    }
}

fn take(row: &mut Option<Row>, stamp: Timestamp) {
    row.take_if(|row| row.stamp <= stamp);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, stamp: Timestamp, expires: Option<u64>) -> Row {
        Row { name: Bytes::copy_from_slice(name.as_bytes()), value: "v".into(), stamp, expires: expires.map(Timestamp) }
    }

    #[track_caller]
    fn check(current: &[Row], changes: &[Change], expected: usize) {
        let changes: Vec<&Change> = changes.iter().collect();
        let mut count = RowCounter::new(&changes);
        current.iter().cloned().for_each(|row| count.add(row));
        assert_eq!(count.finish(), expected);
    }

    #[test]
    fn rows_are_counted_as_after_the_batch() {
        let current = [row("a", Timestamp(5), None), row("b", Timestamp(5), None), row("soon", Timestamp(5), Some(9))];
        let put = |name, stamp| Change::Put(row(name, stamp, None));
        let remove = |name: &'static str, stamp| Change::Remove { name: name.into(), stamp };
        check(&current, &[], 2);
        check(&current, &[put("a", Timestamp(6)), put("c", Timestamp(1))], 3);
        check(&current, &[remove("a", Timestamp(4)), remove("b", Timestamp(5)), remove("x", Timestamp(9))], 1);
        check(&current, &[Change::Clear { stamp: Timestamp(5) }, put("c", Timestamp(6))], 1);
        check(&current, &[Change::Clear { stamp: Timestamp(4) }], 2);
        check(&current, &[put("soon", Timestamp(6))], 3);
        check(&current, &[put("soon", Timestamp(4))], 2);
        check(&current, &[Change::Put(row("a", Timestamp(6), Some(9)))], 1);
    }
}
