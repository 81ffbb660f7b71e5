//! The partitions under one lock, and the expiries of their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use super::rows::{self, ChangeEffect, RowMap, page};
use crate::{
    Change, Error, Kind, Partition, PartitionChanges, ReadQuery, Result, Row, RowPage, Stopped, Table, Timestamp,
};

/// A part of the partitions. `expiries` has an entry for each stored row that expires, and no other.
#[derive(Default)]
pub(super) struct MemoryShard {
    partitions: BTreeMap<Partition, RowMap>,
    expiries: BTreeSet<(Timestamp, Partition, Bytes)>,
}

impl MemoryShard {
    /// A page of live rows.
    pub(super) fn page(&self, partition: &Partition, query: &ReadQuery, now: Timestamp) -> RowPage {
        let nothing = RowPage { rows: Vec::new(), stopped: Stopped::End };
        self.partitions.get(partition).map_or(nothing, |rows| page(rows, query, now))
    }

    /// One row; after [`Self::purge`] it is live.
    pub(super) fn row(&self, partition: &Partition, name: &Bytes) -> Option<&Row> {
        self.partitions.get(partition)?.get(name)
    }

    /// The row of a partition that has one row, if it is live.
    pub(super) fn single_row(&self, partition: &Partition, now: Timestamp) -> Option<&Row> {
        let rows = self.partitions.get(partition)?;
        rows.values().next().filter(|row| rows.len() == 1 && row.is_live(now))
    }

    /// The partitions of `table` after `after` that have live rows, ascending.
    pub(super) fn partitions(
        &self,
        table: Table,
        after: Option<Partition>,
        now: Timestamp,
    ) -> impl Iterator<Item = Partition> + '_ {
        let first = Partition { table, copies: 0, key: Bytes::new() };
        let from = after.map_or(Bound::Included(first), Bound::Excluded);
        let following = self.partitions.range((from, Bound::Unbounded));
        following
            .take_while(move |(partition, _)| partition.table == table)
            .filter(move |(_, rows)| rows.values().any(|row| row.is_live(now)))
            .map(|(partition, _)| partition.clone())
    }

    /// Removes expired rows. Each expiry is visited once, so the cost per write is constant.
    pub(super) fn purge(&mut self, now: Timestamp) {
        // `expiries` is sorted by time, so the loop ends at the first live row.
        while self.expiries.first().is_some_and(|(expires, ..)| *expires <= now) {
            let Some((_, partition, name)) = self.expiries.pop_first() else { return };
            if let Some(rows) = self.partitions.get_mut(&partition) {
                rows.remove(&name);
            }
            self.drop_empty(&partition);
        }
    }

    /// Refuses changes to a partition that holds other rows than the caller saw.
    pub(super) fn check_unchanged(&self, share: &[PartitionChanges]) -> Result<()> {
        for part in share {
            let Some(expected) = &part.expected_rows else { continue };
            let rows = self.partitions.get(&part.partition);
            let held = rows.into_iter().flatten().map(|(name, row)| (name, row.stamp));
            if !held.eq(expected.iter().map(|(name, stamp)| (name, *stamp))) {
                return Err(Error::new(Kind::Changed, "the partition holds other rows"));
            }
        }
        Ok(())
    }

    /// Refuses rows under names that exist, where the caller promised fresh ones.
    pub(super) fn check_fresh_names(&self, share: &[PartitionChanges]) -> Result<()> {
        for part in share.iter().filter(|part| part.fresh) {
            let Some(rows) = self.partitions.get(&part.partition) else { continue };
            if part.changes.iter().any(|change| matches!(change, Change::Put(row) if rows.contains_key(&row.name))) {
                return Err(Error::new(Kind::Misuse, "a fresh row has a name that exists"));
            }
        }
        Ok(())
    }

    /// Refuses changes after which a partition would hold more rows without expiry than the batch allows.
    pub(super) fn check_row_count(&self, share: &[PartitionChanges]) -> Result<()> {
        for part in share {
            let Some(rows_max) = part.rows_max else { continue };
            let rows = self.rows_after(&part.partition, share);
            if rows > rows_max {
                let context = format!("{rows} rows in a partition of {} rows at most", rows_max);
                return Err(Error::new(Kind::TooManyRows { rows }, context));
            }
        }
        Ok(())
    }

    /// Applies changes that passed the checks.
    pub(super) fn change(&mut self, partition: &Partition, changes: Vec<Change>) {
        let rows = self.partitions.entry(partition.clone()).or_default();
        for change in changes {
            // Both maps change together: a stale expiry would later remove a newer row.
            let ChangeEffect { removed, added } = rows::change(rows, change);
            for row in removed {
                if let Some(expires) = row.expires {
                    self.expiries.remove(&(expires, partition.clone(), row.name));
                }
            }
            if let Some(Row { name, expires: Some(expires), .. }) = added {
                self.expiries.insert((expires, partition.clone(), name));
            }
        }
        self.drop_empty(partition);
    }

    /// Rows without expiry that the partition would hold after all changes in `share`.
    fn rows_after(&self, partition: &Partition, share: &[PartitionChanges]) -> usize {
        let mut rows = self.partitions.get(partition).cloned().unwrap_or_default();
        for change in share.iter().filter(|part| part.partition == *partition).flat_map(|part| &part.changes) {
            rows::change(&mut rows, change.clone());
        }
        // Tombstones expire and do not count: the limit is for live siblings [invariant 9].
        rows.values().filter(|row| row.expires.is_none()).count()
    }

    fn drop_empty(&mut self, partition: &Partition) {
        if self.partitions.get(partition).is_some_and(RowMap::is_empty) {
            self.partitions.remove(partition);
        }
    }

    /// Stored rows, live or not.
    #[cfg(test)]
    pub(super) fn stored_rows(&self) -> usize {
        assert!(self.partitions.values().all(|rows| !rows.is_empty()), "empty partitions are dropped");
        self.partitions.values().map(RowMap::len).sum()
    }

    /// Stored expiries.
    #[cfg(test)]
    pub(super) fn expiring(&self) -> usize {
        self.expiries.len()
    }
}
