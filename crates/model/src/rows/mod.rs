//! Rows and the changes made to them, and one versioned codec per table.
//!
//! A row has a name, a value (version byte first), a stamp and perhaps an expiry. Of two writes to one name the newer stamp
//! stays; a removal wins a tie and takes what is not newer; of two writes with one stamp the greater value stays.

mod buckets;
mod catalogue;
mod mark;
mod member;
mod object;

pub use buckets::BucketRow;
pub use catalogue::{CatalogueKey, CatalogueRow};
pub use mark::MarkRow;
pub use member::MemberRow;
pub use object::{ObjectRow, key_of_view_row, view_row_name, view_row_prefix};

use bytes::Bytes;

use crate::keyspace::Partition;

/// Microseconds since 1970; orders the writes of a row. Never zero in a stored row.
pub type Stamp = u64;

/// A point in time in microseconds since 1970.
pub type Micros = u64;

/// One row of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Name inside the partition; rows are kept in the order of their names.
    pub name: Bytes,
    /// Value, version byte first.
    pub value: Bytes,
    /// When it was written.
    pub stamp: Stamp,
    /// When it ceases to be there, whatever else happens.
    pub expires: Option<Micros>,
}

impl Row {
    /// Whether the row is still there at `now`.
    #[must_use]
    pub fn is_live(&self, now: Micros) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }

    /// Whether this write stays when both were made to one name: the greater stamp, then the greater value.
    #[must_use]
    pub fn supersedes(&self, other: &Self) -> bool {
        (self.stamp, &self.value) >= (other.stamp, &other.value)
    }
}

/// One change to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes a row.
    Put(Row),
    /// Removes the row of this name unless it is newer than the stamp.
    Remove {
        /// Which row.
        name: Bytes,
        /// What is not newer goes.
        stamp: Stamp,
    },
    /// Removes every row of the partition that is not newer than the stamp.
    Clear {
        /// What is not newer goes.
        stamp: Stamp,
    },
}

/// Changes to one partition: applied whole, seen whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionChanges {
    /// Which partition.
    pub partition: Partition,
    /// In order. A name appears in at most one of them.
    pub changes: Vec<Change>,
    /// Refuses the batch when the partition would hold more rows that never expire than this.
    pub rows_max: Option<usize>,
    /// Refuses the batch unless the partition holds these rows and no others, by name and stamp in the order of names. For
    /// packed tables; a replicated engine does not look at it, as no replica knows what the others hold.
    pub seen: Option<Vec<(Bytes, Stamp)>>,
}

/// What one `apply` writes: changes to one or more partitions of plain tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The partitions, the object's own first.
    pub partitions: Vec<PartitionChanges>,
}

impl Batch {
    /// A batch of one partition.
    #[must_use]
    pub fn of(partition: Partition, changes: Vec<Change>) -> Self {
        Self { partitions: vec![PartitionChanges { partition, changes, rows_max: None, seen: None }] }
    }

    /// Adds changes to another partition, if there are any.
    pub fn add(&mut self, partition: Partition, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.partitions.push(PartitionChanges { partition, changes, rows_max: None, seen: None });
        }
    }

    /// Bytes of names and values, for the engines' limits.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.partitions.iter().map(|one| one.partition.key.len() + changes_bytes(&one.changes)).sum()
    }
}

/// Bytes of names and values of `changes`.
#[must_use]
pub fn changes_bytes(changes: &[Change]) -> usize {
    changes
        .iter()
        .map(|change| match change {
            Change::Put(row) => row.name.len() + row.value.len() + 16,
            Change::Remove { name, .. } => name.len() + 16,
            Change::Clear { .. } => 16,
        })
        .sum()
}
