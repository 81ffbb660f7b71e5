//! The batch of a put or a delete: one new row, and the removal of the rows that it supersedes.

use bytes::Bytes;
use larder_rows::content::{BlobId, Term};
use larder_rows::keyspace::Partition;
use larder_rows::{Change, Row, Timestamp};

use super::context::Context;
use super::dot::{DotFlags, SHARED_SLOT, Slot};
use super::version_vector::VersionVector;
use super::versions::KeyVersions;
use crate::rules::index::SupersededTerms;
use crate::rules::object_row::{ObjectRow, view_row_name};

/// How concurrent writes of a key resolve; the bucket's properties choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// `allow_mult`: concurrent writes are all kept and all shown.
    Siblings,
    /// None of the others: concurrent writes are all kept, and the newest is shown.
    Newest,
    /// `last_write_wins`: one fixed row, whose greatest clock stays.
    LastWriteWins,
    /// `write_once`: one row per content, and the smallest SHA-1 is shown.
    WriteOnce,
}

impl ConflictPolicy {
    /// Whether every write has a slot and its row is named by it.
    #[must_use]
    pub fn has_slots(self) -> bool {
        matches!(self, Self::Siblings | Self::Newest)
    }
}

/// A row that a write supersedes and removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededRow {
    /// The name of the row.
    pub name: Bytes,
    /// The clock of its write: a later write to the row stays.
    pub clock: Timestamp,
    /// Properties of its write.
    pub flags: DotFlags,
}

/// The rows of the `$key` index that a write removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexRemovals {
    /// Those of the superseded rows.
    SupersededRows,
    /// Those of these slots, whether or not their rows are already gone. Other index rows stay while the key lives: the
    /// version vector names their slots, so a later delete finds them.
    Slots(VersionVector),
}

/// A put or delete of a key, ready to become a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWrite {
    /// The policy of the bucket.
    pub policy: ConflictPolicy,
    /// The row to write.
    pub row: Option<Row>,
    /// Whether the row is a tombstone, which no index lists.
    pub tombstone: bool,
    /// The rows it supersedes. The write removes them, except one of its own name, which it overwrites.
    pub superseded: Vec<SupersededRow>,
    /// The index rows to remove.
    pub index_removals: IndexRemovals,
    /// The clock of the write.
    pub clock: Timestamp,
    /// The terms of the row.
    pub terms: Vec<Term>,
    /// The terms of superseded rows that have some: a read finds them, and the write removes their index rows.
    pub superseded_terms: Vec<SupersededTerms>,
}

impl SupersededRow {
    /// The rows that a context names.
    #[must_use]
    pub fn named_by(context: &Context) -> Vec<Self> {
        let mut dots = context.dots.clone();
        // A batch may name a row once only, and a client can send a context with two dots of one slot.
        dots.sort_unstable_by_key(|dot| (dot.slot, std::cmp::Reverse(dot.clock)));
        dots.dedup_by_key(|dot| dot.slot);
        dots.iter().map(|dot| Self { name: dot.slot.row_name(), clock: dot.clock, flags: dot.flags }).collect()
    }

    /// The rows that a read met. It knows the names of `write_once` rows, which no context can carry.
    #[must_use]
    pub fn all_of(versions: &KeyVersions) -> Vec<Self> {
        let mut superseded = Self::named_by(&versions.context);
        for sibling in versions.siblings.iter().filter(|sibling| sibling.name.len() != 16) {
            superseded.push(Self { name: sibling.name.clone(), clock: sibling.dot.clock, flags: sibling.dot.flags });
        }
        superseded
    }

    /// The blob of the row, if it has one and its name gives the blob's id. The name of a row that several actors write does
    /// not: the sweeper removes the blobs that such a row replaced.
    #[must_use]
    pub fn blob(&self, partition: &Partition) -> Option<BlobId> {
        let is_slot = self.name.len() == SHARED_SLOT.row_name().len() && self.name != SHARED_SLOT.row_name();
        (self.flags.blob && is_slot).then(|| BlobId::for_row(&partition.key, &self.name, self.clock))
    }
}

impl KeyWrite {
    /// A put of `row` into `slot` at `clock`. A policy without slots names the row itself.
    #[must_use]
    pub fn put(
        policy: ConflictPolicy,
        slot: Slot,
        clock: Timestamp,
        row: &ObjectRow,
        superseded: Vec<SupersededRow>,
    ) -> Self {
        let terms = row.content.terms.clone();
        let row = Row { name: Self::row_name(policy, slot, row), value: row.encode(), stamp: clock, expires: None };
        let index_removals = IndexRemovals::SupersededRows;
        let superseded_terms = Vec::new();
        Self { policy, row: Some(row), tombstone: false, superseded, index_removals, clock, terms, superseded_terms }
    }

    fn row_name(policy: ConflictPolicy, slot: Slot, row: &ObjectRow) -> Bytes {
        match policy {
            ConflictPolicy::Siblings | ConflictPolicy::Newest => slot.row_name(),
            ConflictPolicy::LastWriteWins => SHARED_SLOT.row_name(),
            // A tombstone has no content: all deletions of a key share a row.
            ConflictPolicy::WriteOnce if row.tombstone => SHARED_SLOT.row_name(),
            // The content names the row, so a late retry writes the same row again [invariant 17].
            ConflictPolicy::WriteOnce => Bytes::copy_from_slice(&row.content.sha1()),
        }
    }

    /// A delete: a tombstone in `slot` that stores `vector`, expires at `expires` (`None`: never) and replaces `superseded`.
    #[must_use]
    pub fn delete(
        policy: ConflictPolicy,
        slot: Slot,
        clock: Timestamp,
        expires: Option<Timestamp>,
        vector: VersionVector,
        superseded: Vec<SupersededRow>,
    ) -> Self {
        let tombstone = ObjectRow { tombstone: true, context_hash: 0, vector, content: Default::default() };
        let name = Self::row_name(policy, slot, &tombstone);
        let row = Some(Row { name, value: tombstone.encode(), stamp: clock, expires });
        let index_removals = IndexRemovals::SupersededRows;
        let (terms, superseded_terms) = (Vec::new(), Vec::new());
        Self { policy, row, tombstone: true, superseded, index_removals, clock, terms, superseded_terms }
    }

    /// Supersedes further rows, found when the key had too many, and their index rows. `vector` is that of the further rows.
    pub fn supersede_more(&mut self, more: Vec<SupersededRow>, vector: VersionVector) {
        if let IndexRemovals::Slots(slots) = &mut self.index_removals {
            // These rows stored the vector: once they are gone, no row leads a later delete to the index rows of its slots.
            let dropped = more.iter().filter_map(SupersededRow::vector_entry).chain(vector);
            *slots = VersionVector::merge(slots.iter().chain(dropped));
        }
        self.superseded.extend(more);
    }

    /// The changes to the object's own partition.
    #[must_use]
    pub fn object_changes(&self) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.superseded.len() + 2);
        match self.policy {
            // One microsecond less: the clear must spare the row of this batch, and a concurrent put of the same clock.
            ConflictPolicy::LastWriteWins => changes.push(Change::Clear { stamp: self.clock - 1 }),
            ConflictPolicy::WriteOnce if self.tombstone => changes.push(Change::Clear { stamp: self.clock - 1 }),
            ConflictPolicy::WriteOnce => {}
            // Each removal stops at the clock that the client saw: a later write to a reused slot survives.
            ConflictPolicy::Siblings | ConflictPolicy::Newest => changes.extend(
                self.superseded
                    .iter()
                    // The row of this write overwrites its namesake, so only the others are removed.
                    .filter(|gone| !self.is_row(&gone.name))
                    .map(|gone| Change::Remove { name: gone.name.clone(), stamp: gone.clock }),
            ),
        }
        changes.extend(self.row.clone().map(Change::Put));
        changes
    }

    /// The changes to the key's shard of the `$key` index: the new row's entry, and the index removals. With a policy without
    /// slots a delete removes every entry of the key, and the caller has to find them.
    #[must_use]
    pub fn key_view_changes(&self, key: &[u8]) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.superseded.len() + 1);
        let is_listed = |name: &Bytes| !self.tombstone && self.is_row(name);
        let mut remove = |name: &Bytes, stamp| {
            if !is_listed(name) {
                changes.push(Change::Remove { name: view_row_name(key, name), stamp });
            }
        };
        match &self.index_removals {
            IndexRemovals::SupersededRows if self.policy.has_slots() || !self.tombstone => {
                let listed = self.superseded.iter().filter(|gone| !gone.flags.tombstone);
                listed.for_each(|gone| remove(&gone.name, gone.clock));
            }
            IndexRemovals::SupersededRows => {}
            IndexRemovals::Slots(slots) => slots.iter().for_each(|gone| remove(&gone.slot.row_name(), gone.clock)),
        }
        if let Some(row) = self.row.as_ref().filter(|_| !self.tombstone) {
            let name = view_row_name(key, &row.name);
            // The entry has the stamp of its row: an older delete does not remove it [invariant 29].
            changes.push(Change::Put(Row { name, value: Bytes::new(), stamp: row.stamp, expires: row.expires }));
        }
        changes
    }

    /// Whether the row that it writes has this name.
    fn is_row(&self, name: &Bytes) -> bool {
        self.row.as_ref().is_some_and(|row| row.name == *name)
    }
}
