//! The partitions behind one lock, and when their rows expire.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use super::rows::{self, Outcome, Rows, page};
use crate::{Change, Error, Kind, Micros, Page, Partition, PartitionChanges, ReadQuery, Result, Row, Stopped, Table};

/// Some of the partitions. `expiries` names each stored row that expires, and no other.
#[derive(Default)]
pub(super) struct Shard {
    partitions: BTreeMap<Partition, Rows>,
    expiries: BTreeSet<(Micros, Partition, Bytes)>,
}

impl Shard {
    /// A page of live rows.
    pub(super) fn page(&self, partition: &Partition, query: &ReadQuery, now: Micros) -> Page {
        let nothing = Page { rows: Vec::new(), stopped: Stopped::End };
        self.partitions.get(partition).map_or(nothing, |rows| page(rows, query, now))
    }

    /// One row; after [`Self::purge`] it is live.
    pub(super) fn row(&self, partition: &Partition, name: &Bytes) -> Option<&Row> {
        self.partitions.get(partition)?.get(name)
    }

    /// The partitions of `table` with live rows, behind `after`, ascending.
    pub(super) fn partitions(
        &self,
        table: Table,
        after: Option<Partition>,
        now: Micros,
    ) -> impl Iterator<Item = Partition> + '_ {
        let first = Partition { table, n_val: 0, key: Bytes::new() };
        let from = after.map_or(Bound::Included(first), Bound::Excluded);
        let behind = self.partitions.range((from, Bound::Unbounded));
        behind
            .take_while(move |(partition, _)| partition.table == table)
            .filter(move |(_, rows)| rows.values().any(|row| row.is_live(now)))
            .map(|(partition, _)| partition.clone())
    }

    /// Forgets rows that have expired. Each is met once, so this costs a write no more than writing did.
    pub(super) fn purge(&mut self, now: Micros) {
        while self.expiries.first().is_some_and(|(expires, ..)| *expires <= now) {
            let Some((_, partition, name)) = self.expiries.pop_first() else { return };
            if let Some(rows) = self.partitions.get_mut(&partition) {
                rows.remove(&name);
            }
            self.drop_empty(&partition);
        }
    }

    /// Refuses changes to partitions that hold other rows than were seen.
    pub(super) fn refuse_changed(&self, share: &[PartitionChanges]) -> Result<()> {
        for one in share {
            let Some(seen) = &one.seen else { continue };
            let rows = self.partitions.get(&one.partition);
            let held = rows.into_iter().flatten().map(|(name, row)| (name, row.stamp));
            if !held.eq(seen.iter().map(|(name, stamp)| (name, *stamp))) {
                return Err(Error::new(Kind::Changed, "the partition holds other rows"));
            }
        }
        Ok(())
    }

    /// Refuses changes after which one of their partitions would hold more rows without expiry than they allow.
    pub(super) fn refuse_too_many_rows(&self, share: &[PartitionChanges]) -> Result<()> {
        for one in share {
            let Some(rows_max) = one.rows_max else { continue };
            let rows = self.rows_after(&one.partition, share);
            if rows > rows_max {
                let context = format!("{rows} rows in a partition of {} rows at most", rows_max);
                return Err(Error::new(Kind::TooManyRows { rows }, context));
            }
        }
        Ok(())
    }

    /// Makes changes that nobody refused.
    pub(super) fn change(&mut self, partition: &Partition, changes: Vec<Change>) {
        let rows = self.partitions.entry(partition.clone()).or_default();
        for change in changes {
            let Outcome { gone, came } = rows::change(rows, change);
            for row in gone {
                if let Some(expires) = row.expires {
                    self.expiries.remove(&(expires, partition.clone(), row.name));
                }
            }
            if let Some(Row { name, expires: Some(expires), .. }) = came {
                self.expiries.insert((expires, partition.clone(), name));
            }
        }
        self.drop_empty(partition);
    }

    /// Rows without expiry that the partition would hold after everything that `share` does to it.
    fn rows_after(&self, partition: &Partition, share: &[PartitionChanges]) -> usize {
        let mut rows = self.partitions.get(partition).cloned().unwrap_or_default();
        for change in share.iter().filter(|one| one.partition == *partition).flat_map(|one| &one.changes) {
            rows::change(&mut rows, change.clone());
        }
        rows.values().filter(|row| row.expires.is_none()).count()
    }

    fn drop_empty(&mut self, partition: &Partition) {
        if self.partitions.get(partition).is_some_and(Rows::is_empty) {
            self.partitions.remove(partition);
        }
    }

    /// Rows kept, live or not.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        assert!(self.partitions.values().all(|rows| !rows.is_empty()), "empty partitions are dropped");
        self.partitions.values().map(Rows::len).sum()
    }

    /// Expiries remembered.
    #[cfg(test)]
    pub(super) fn expiring(&self) -> usize {
        self.expiries.len()
    }
}
