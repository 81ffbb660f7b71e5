//! Last steps of every write: one batch of the object's rows and views, its conditions, the limit on rows, and the blobs
//! afterwards. Views are the `$key` entries of a bucket and the `$bucket` rows of a type.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_core::blobs::release::ReferenceLease;
use larder_core::config::DeleteMode;
use larder_core::metrics::Event;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::content::BlobId;
use larder_rows::{Batch, BucketEpochs, Change, EpochShard, PartitionChanges, Row, Timestamp};
use larder_store::{ConsistencyLevel, Partition};

use super::known_buckets::{key_shards, key_view_changes};
use super::request_plan::{ReplicaPlan, RequestPlan};
use crate::Kv;
use crate::import::MovedKeyWrite;
use crate::rules::causality::{Conditions, ConflictPolicy, KeyWrite, Slot, SupersededRow};
use crate::rules::index::{SupersededTerms, index_changes};
use crate::rules::object_row::ObjectRow;
use larder_core::outbox::PendingNotices;

/// Tries of a conditional write on a key that other writers keep changing; each one checks the conditions again.
const GUARDED_TRIES_MAX: usize = 16;

/// Names and stamps of rows.
pub(super) type RowStamps = Vec<(Bytes, Timestamp)>;

/// Address and plan of a write.
#[derive(Clone, Copy)]
pub(super) struct WriteTarget<'a> {
    pub(super) address: &'a Address,
    pub(super) plan: &'a RequestPlan,
    pub(super) replicas: ReplicaPlan,
    /// Its notices for webhooks.
    pub(super) notices: Option<&'a PendingNotices>,
    /// Of an import: the row of the moved key.
    pub(super) moved: Option<MovedKeyWrite<'a>>,
}

/// The conditions of a write, and the rows that they were checked against.
pub(super) struct ConditionGuard {
    pub(super) conditions: Conditions,
    pub(super) seen: RowStamps,
}

pub(super) fn row_stamps(rows: &[Row]) -> RowStamps {
    rows.iter().map(|row| (row.name.clone(), row.stamp)).collect()
}

impl Kv {
    /// Commits a write; returns it with all that it removed. A key with too many rows is read once: tombstones that no context
    /// named, and without `allow_mult` also losers, are removed with the write; siblings are not.
    ///
    /// `entry_removals` are changes to the `$key` view: entries of rows that are gone. `seen` names the rows that the conditions
    /// were checked against.
    ///
    /// # Errors
    /// [`Error::TooManySiblings`], and the store's.
    async fn commit(
        &self,
        target: WriteTarget<'_>,
        partition: &Partition,
        mut write: KeyWrite,
        entry_removals: Vec<Change>,
        seen: Option<&RowStamps>,
    ) -> Result<KeyWrite> {
        write.superseded_terms = self.find_superseded_terms(target, &write).await?;
        let full = match self.apply(target, partition, &write, entry_removals.clone(), seen).await {
            Err(full @ Error::TooManySiblings { .. }) => full,
            other => return other.map(|()| write),
        };
        let read = self.plan_read_for_write(target.plan, target.replicas);
        let shown = self.read_versions(target.address, target.plan, read).await?;
        // Race: a row of a later clock came after this write began; removing it would lose an acknowledged write.
        let is_removable = |gone: &SupersededRow| {
            (gone.flags.tombstone || write.policy == ConflictPolicy::Newest) && gone.clock < write.clock
        };
        let is_new = |gone: &SupersededRow| write.superseded.iter().all(|known| known.name != gone.name);
        let more: Vec<_> = SupersededRow::named_by(&shown.context)
            .into_iter()
            .filter(|gone| is_removable(gone) && is_new(gone))
            .collect();
        if more.is_empty() {
            self.context.metrics.count_event(Event::SiblingsRefused);
            return Err(full);
        }
        write.supersede_more(more, shown.context.vector);
        write.superseded_terms = self.find_superseded_terms(target, &write).await?;
        self.apply(target, partition, &write, entry_removals, seen).await.map(|()| write)
    }

    /// As [`Self::commit`], for a write with conditions: it is applied only if the key still has the rows that the conditions
    /// were checked against. If not, the conditions are checked again. A replicated engine applies it in any case.
    ///
    /// # Errors
    /// [`Error::Condition`], [`Error::Overloaded`] when other writers keep changing the key, and those of [`Self::commit`].
    pub(super) async fn commit_guarded(
        &self,
        target: WriteTarget<'_>,
        partition: &Partition,
        write: KeyWrite,
        entry_removals: Vec<Change>,
        guard: Option<ConditionGuard>,
    ) -> Result<KeyWrite> {
        let Some(mut guard) = guard else { return self.commit(target, partition, write, entry_removals, None).await };
        for _ in 0..GUARDED_TRIES_MAX {
            match self.commit(target, partition, write.clone(), entry_removals.clone(), Some(&guard.seen)).await {
                // Race: another put came after the check; a stale check would let two If-None-Match puts win [invariant 15].
                Err(Error::Changed) => self.recheck_conditions(target, &mut guard).await?,
                other => return other,
            }
        }
        Err(Error::Overloaded { retry_after: 1 })
    }

    /// Checks the conditions of a write against the current rows, after another writer changed them.
    ///
    /// # Errors
    /// [`Error::Condition`], and the store's.
    async fn recheck_conditions(&self, target: WriteTarget<'_>, guard: &mut ConditionGuard) -> Result<()> {
        let WriteTarget { address, plan, replicas, .. } = target;
        let rows = self.read_object_rows(address, plan, self.plan_read_for_write(plan, replicas)).await?.rows;
        guard.seen = row_stamps(&rows);
        let seen = self.resolve_rows(plan, rows)?;
        let counter = Box::pin(self.counter_shown_for(&seen, address, plan, replicas)).await?;
        self.check_conditions(&guard.conditions, counter.as_ref().unwrap_or(&seen))
    }

    /// Applies a write with its views, then releases the blobs of the rows it removed.
    async fn apply(
        &self,
        target: WriteTarget<'_>,
        partition: &Partition,
        write: &KeyWrite,
        entry_removals: Vec<Change>,
        seen: Option<&RowStamps>,
    ) -> Result<()> {
        let address = target.address;
        // Bound: puts without contexts read nothing, so only the engine's count stops endless siblings [invariant 9].
        let counted = self.is_limited(write) && self.slots.needs_row_count(partition);
        let mut batch = Batch {
            partitions: vec![PartitionChanges {
                rows_max: counted.then_some(self.context.config.siblings_max),
                expected_rows: seen.cloned(),
                ..PartitionChanges::new(partition.clone(), write.object_changes())
            }],
        };
        // Race: an entry has its row's slot and clock, so a newer delete that missed the row leaves it [invariant 29].
        let mut in_view = write.key_view_changes(&address.key);
        in_view.extend(entry_removals);
        // Race: a row that this write removes may be in an epoch that opened since its plan; so the epochs are taken here, after
        // all that it knows of the key, and from a catalogue that is not stale [invariant 135].
        self.catalogue.await_fresh().await?;
        self.index_growth.note(&address.bucket, None, write, &in_view);
        let fresh = self.has_fresh_name(write);
        batch.partitions.extend(key_view_changes(&self.catalogue, address, in_view, fresh));
        let (before, within) = self.split_index_partitions(address, write);
        if !before.is_empty() {
            self.write_with_downgrade(target.replicas, Batch { partitions: before }).await?;
        }
        batch.partitions.extend(within);
        let listed = (!write.tombstone).then(|| self.known_buckets.bucket_row_change(&address.bucket)).flatten();
        let lists = listed.is_some();
        batch.add(
            Partition::buckets(&address.bucket.bucket_type, target.plan.props.copies),
            listed.into_iter().collect(),
        );
        // The context names the blobs of its dots; the sweeper finds those that a blind overwrite leaves [invariant 34].
        let blobs: Vec<_> = write.superseded.iter().filter_map(|gone| gone.blob(partition)).collect();
        // Crash: bytes go after this batch; unsynced, a power cut would bring back the row that names them [invariant 94].
        let replicas = if blobs.is_empty() {
            target.replicas
        } else {
            target.replicas.raise_to_disk_if(self.context.config.durable)
        };
        // Crash: in the batch of its object, so that no object is written whose receivers get no notice [invariant 136].
        batch.partitions.extend(target.notices.and_then(|notices| notices.changes(write.clock)));
        // Crash: in the batch of its value, or a second import would bring back what a client replaced [invariant 169].
        batch.partitions.extend(target.moved.map(|moved| moved.changes(write.clock)));
        let written = self.write_with_downgrade(replicas, batch).await;
        if let Some(notices) = target.notices {
            notices.note_result(&written);
        }
        let level = written?;
        // A tombstone's clock comes from the rows that it removes, so it may be above this gateway's clock.
        self.issuer.clock.observe(write.clock);
        self.slots.note_acknowledged(partition, write, counted);
        if lists {
            // Noted after the write: a bucket noted before a failed one would never be listed.
            self.known_buckets.note_written(&address.bucket);
        }
        // Below a quorum, readers of other replicas still see the removed rows and open their blobs: the sweeper takes those.
        let is_gone = level >= ConsistencyLevel::Quorum || !self.context.ports.store.limits().replicated;
        if !blobs.is_empty() && is_gone {
            self.blobs.releases.release_replaced(blobs).await;
        }
        Ok(())
    }

    /// Writes for a client; returns the level that succeeded.
    ///
    /// # Errors
    /// The store's, translated by [`ReplicaPlan::to_client_error`].
    async fn write_with_downgrade(&self, replicas: ReplicaPlan, batch: Batch) -> Result<ConsistencyLevel> {
        let mut call = replicas.write_call();
        while !call.is_last_try() {
            // Race: some replicas may have taken the first try; under new names its rows would be siblings [invariant 23].
            match self.context.ports.store.apply(batch.clone(), &self.context.next_options(&call)).await {
                Ok(()) => return Ok(call.options.level),
                Err(error) => {
                    self.context.downgrade(&mut call, error).map_err(|error| replicas.to_client_error(error))?
                }
            }
            self.context.metrics.count_event(Event::WriteDowngraded);
            if call.options.level == ConsistencyLevel::Any {
                self.context.metrics.count_event(Event::WriteAtAny);
            }
        }
        // The last try takes the batch itself: a copy of it costs an embedded engine, which has one try, a tenth of a put.
        let written = self.context.ports.store.apply(batch, &call.options).await;
        written.map_err(|error| replicas.to_client_error(call.final_error(error)))?;
        Ok(call.options.level)
    }

    /// Whether no row or entry was ever written under the name of this write. Imports write a value under the same name again.
    fn has_fresh_name(&self, write: &KeyWrite) -> bool {
        let own = self.context.ports.actor;
        let slot = write.row.as_ref().and_then(|row| Slot::from_row_name(&row.name).ok());
        self.slots.are_names_fresh(write.policy) && slot.is_some_and(|slot| slot.actor == own)
    }

    /// Whether the write adds a row that counts: one that stays until a later write removes it.
    fn is_limited(&self, write: &KeyWrite) -> bool {
        // An expiring tombstone frees its row, and a last_write_wins key has one row only.
        let stays = !write.tombstone || self.context.config.delete_mode == DeleteMode::Keep;
        stays && write.policy != ConflictPolicy::LastWriteWins
    }

    /// Cleans up after a failed write. The blob of a refused row is removed at once, so that a full disk has its space back. A
    /// row of unknown outcome may still be written, so its blob stays leased.
    pub(super) async fn clean_up_failed_write(&self, error: &Error, blob: Option<BlobId>, lease: ReferenceLease) {
        if error.is_outcome_unknown() {
            return drop(lease);
        }
        if let (true, Some(blob)) = (error.has_written_nothing(), blob) {
            self.blobs.releases.remove_unnamed(blob).await;
        }
        lease.end();
    }
}

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
        rows.into_iter().filter(|row| removes(write, row)).map(row_terms).collect()
    }

    /// The changes to the indexes of a bucket, one of each shard that a write touches.
    pub(super) fn index_partitions(&self, address: &Address, write: &KeyWrite) -> Vec<PartitionChanges> {
        let changes = index_changes(write, &address.key);
        for (field, changes) in &changes {
            self.index_growth.note(&address.bucket, Some(field), write, changes);
        }
        self.spread_over_shards(address, changes, self.has_fresh_name(write))
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
        let removes = |part: &PartitionChanges| part.changes.iter().any(|change| !matches!(change, Change::Put(_)));
        if !self.context.ports.store.limits().replicated || !partitions.iter().any(removes) {
            return (Vec::new(), partitions);
        }
        let only = |puts: bool| {
            let mut share = partitions.clone();
            share.iter_mut().for_each(|part| part.changes.retain(|change| matches!(change, Change::Put(_)) == puts));
            share.retain(|part| !part.changes.is_empty());
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
    let shard = |epoch_shard: EpochShard| {
        Partition::index(&address.bucket, field, epoch_shard.epoch, epoch_shard.shard, copies)
    };
    epochs.key_shards(&address.key).map(shard).collect()
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

pub(super) fn row_terms(row: Row) -> Result<SupersededTerms> {
    let content = ObjectRow::decode(row.value).map_err(|error| Error::Damaged(error.to_string()))?.content;
    Ok(SupersededTerms { name: row.name, clock: row.stamp, terms: content.terms })
}
