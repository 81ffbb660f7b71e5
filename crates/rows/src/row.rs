//! Rows, and the changes to them.
//!
//! A row has a name, a value (version byte first), a stamp and perhaps an expiry. Of two writes to one name the newer stamp
//! stays, and with equal stamps the greater value. A removal takes every row that is not newer, so it wins a tie.

use bytes::Bytes;

use crate::Timestamp;
use crate::keyspace::Partition;

/// The version byte of a value that is sealed as a whole; no other form of a value has it. What was sealed is another value, with
/// a version byte of its own.
pub const SEALED_VERSION: u8 = 0xe5;
/// Bytes that sealing adds to a value.
pub const SEAL_BYTES: usize = 34;

/// One row of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Name inside the partition. Rows sort by name.
    pub name: Bytes,
    /// Value, version byte first.
    pub value: Bytes,
    /// The stamp of its write.
    pub stamp: Timestamp,
    /// The time from which it does not exist any more; `None` is never.
    pub expires: Option<Timestamp>,
}

impl Row {
    /// Whether the row has not expired at `now`.
    #[must_use]
    #[inline]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }

    /// Bytes of the row, as a batch counts them. What sealing adds does not count: bounds are those of clear values.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        let seal = if self.value.first() == Some(&SEALED_VERSION) { SEAL_BYTES } else { 0 };
        self.name.len() + self.value.len().saturating_sub(seal) + 16
    }

    /// Whether this write wins over another write to the same name: by the greater stamp, then by the greater value.
    #[must_use]
    #[inline]
    pub fn supersedes(&self, other: &Self) -> bool {
        // Of equal stamps the greater value wins: every replica decides alike [invariant 40].
        (self.stamp, &self.value) >= (other.stamp, &other.value)
    }
}

/// One change to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes a row.
    Put(Row),
    /// Removes the row of this name unless it is newer than `stamp`.
    Remove {
        /// The name of the row.
        name: Bytes,
        /// The stamp up to which the row is removed.
        stamp: Timestamp,
    },
    /// Removes every row of the partition that is not newer than `stamp`.
    Clear {
        /// The stamp up to which rows are removed.
        stamp: Timestamp,
    },
}

/// Changes to one partition. The store applies all or none, and a reader sees all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionChanges {
    /// The partition.
    pub partition: Partition,
    /// The changes in order. No two of them have the same name.
    pub changes: Vec<Change>,
    /// Most rows without expiry that the partition may hold after the batch; with more the store refuses the batch.
    pub rows_max: Option<usize>,
    /// The names and stamps, in the order of names, of exactly the rows that the partition must hold; with others the store
    /// refuses the batch. For packed tables only. A replicated engine ignores it: no replica knows the rows of the others.
    pub expected_rows: Option<Vec<(Bytes, Timestamp)>>,
    /// The writer's promise that no row was ever written under a name that these changes put, so that an engine need not look
    /// for an older one.
    pub fresh: bool,
}

impl PartitionChanges {
    /// Changes to a partition, without limits and conditions.
    #[must_use]
    #[inline]
    pub fn new(partition: Partition, changes: Vec<Change>) -> Self {
        Self { partition, changes, rows_max: None, expected_rows: None, fresh: false }
    }
}

/// The changes of one `apply`, to one or more partitions of plain tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The changes by partition, the object's own partition first.
    pub partitions: Vec<PartitionChanges>,
}

impl Batch {
    /// A batch of one partition.
    #[must_use]
    #[inline]
    pub fn single(partition: Partition, changes: Vec<Change>) -> Self {
        Self { partitions: vec![PartitionChanges::new(partition, changes)] }
    }

    /// Adds changes to another partition, if there are any.
    #[inline]
    pub fn add(&mut self, partition: Partition, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.partitions.push(PartitionChanges::new(partition, changes));
        }
    }

    /// Bytes of names and values, which engines limit.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.partitions.iter().map(|part| part.partition.key.len() + changes_bytes(&part.changes)).sum()
    }
}

/// Bytes of names and values of `changes`.
#[must_use]
#[inline]
pub fn changes_bytes(changes: &[Change]) -> usize {
    changes
        .iter()
        .map(|change| match change {
            Change::Put(row) => row.bytes(),
            Change::Remove { name, .. } => name.len() + 16,
            Change::Clear { .. } => 16,
        })
        .sum()
}
