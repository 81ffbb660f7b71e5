//! The terms that a write replaces: a context says which of its rows have terms, and only those are read.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::{BucketEpochs, Change, EpochShard, PartitionChanges, Row};
use larder_store::{ConsistencyLevel, Partition};

use super::key_shards::key_shards;
use crate::Kv;
use crate::commit::WriteTarget;
use crate::rules::causality::{ConflictPolicy, KeyWrite};
use crate::rules::index::{SupersededTerms, index_changes};
use crate::rules::object_row::ObjectRow;

impl Kv {
    /// The terms of the rows that a write removes. It reads the key only if one of these rows has terms, or may have some: a
    /// blind put of `last_write_wins` names no row, so one with terms reads those that it replaces.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn find_superseded_terms(
        &self,
        target: WriteTarget<'_>,
        write: &KeyWrite,
    ) -> Result<Vec<SupersededTerms>> {
        let is_flagged = write.superseded.iter().any(|gone| gone.flags.terms);
        let is_blind = write.policy == ConflictPolicy::LastWriteWins && !write.terms.is_empty();
        if !is_flagged && !is_blind || write.policy == ConflictPolicy::WriteOnce && !write.tombstone {
            return Ok(Vec::new());
        }
        let replicas = self.plan_read_for_write(target.plan, target.replicas);
        let level = replicas.options.level.max(ConsistencyLevel::Quorum);
        let rows = self.read_object_rows(target.address, target.plan, replicas.at(level)).await?.rows;
        rows.into_iter().filter(|row| removes(write, row)).map(terms_of).collect()
    }

    /// The changes to the indexes of a bucket, one of each shard that a write touches.
    pub(super) fn index_partitions(&self, address: &Address, write: &KeyWrite) -> Vec<PartitionChanges> {
        let changes = index_changes(write, &address.key);
        for (field, changes) in &changes {
            self.index_growth.note(&address.bucket, Some(field), write, changes);
        }
        self.spread_over_shards(address, changes, self.slots.are_names_fresh(write.policy))
    }

    fn spread_over_shards(
        &self,
        address: &Address,
        changes: BTreeMap<Bytes, Vec<Change>>,
        fresh: bool,
    ) -> Vec<PartitionChanges> {
        if changes.is_empty() {
            return Vec::new();
        }
        let (copies, epochs) = (self.catalogue.copies(&address.bucket), self.catalogue.epochs(&address.bucket));
        let of_field = |(field, changes): (Bytes, Vec<Change>)| {
            let shard = |epoch, shard| Partition::index(&address.bucket, &field, epoch, shard, copies);
            key_shards(epochs, &address.key, changes, fresh, shard)
        };
        changes.into_iter().flat_map(of_field).collect()
    }

    /// The same as two batches: one before the object, one with it. Where a batch with removals is limited, the additions go
    /// first: a crash in between leaves index rows without an object, which no query shows.
    pub(super) fn split_index_partitions(
        &self,
        address: &Address,
        write: &KeyWrite,
    ) -> (Vec<PartitionChanges>, Vec<PartitionChanges>) {
        let partitions = self.index_partitions(address, write);
        let removes = |one: &PartitionChanges| one.changes.iter().any(|change| !matches!(change, Change::Put(_)));
        if !self.core.ports.store.limits().replicated || !partitions.iter().any(removes) {
            return (Vec::new(), partitions);
        }
        let only = |puts: bool| {
            let mut share = partitions.clone();
            share.iter_mut().for_each(|one| one.changes.retain(|change| matches!(change, Change::Put(_)) == puts));
            share.retain(|one| !one.changes.is_empty());
            share
        };
        (only(true), only(false))
    }

    /// The removal of the index rows that a write added.
    pub(super) fn undone_index_partitions(&self, address: &Address, write: &KeyWrite) -> Vec<PartitionChanges> {
        let undo = |change| match change {
            Change::Put(row) => Some(Change::Remove { name: row.name, stamp: row.stamp }),
            Change::Remove { .. } | Change::Clear { .. } => None,
        };
        let mut changes = index_changes(write, &address.key);
        for of_field in changes.values_mut() {
            *of_field = std::mem::take(of_field).into_iter().filter_map(undo).collect();
        }
        changes.retain(|_, of_field| !of_field.is_empty());
        // Race: as removals they reach every epoch; those that are written may have changed since the write.
        self.spread_over_shards(address, changes, false)
    }
}

/// The shards of the index of `field` that have, or may have, the rows of this object, the oldest epoch first.
pub(crate) fn index_shards(epochs: BucketEpochs, address: &Address, field: &[u8], copies: u8) -> Vec<Partition> {
    let shard = |one: EpochShard| Partition::index(&address.bucket, field, one.epoch, one.shard, copies);
    epochs.shards_of(&address.key).map(shard).collect()
}

/// Whether a write removes this row: without slots it clears all that are older.
fn removes(write: &KeyWrite, row: &Row) -> bool {
    match write.policy.has_slots() {
        // A row of a later stamp is another write to the slot, whose writer removed the terms that it replaced. The removal
        // takes every row up to the clock of a context, which is the client's, so the terms of all those go.
        true => write.superseded.iter().any(|gone| gone.name == row.name && gone.clock >= row.stamp),
        false => row.stamp < write.clock,
    }
}

pub(super) fn terms_of(row: Row) -> Result<SupersededTerms> {
    let content = ObjectRow::decode(row.value).map_err(|error| Error::Damaged(error.to_string()))?.content;
    Ok(SupersededTerms { name: row.name, clock: row.stamp, terms: content.terms })
}
