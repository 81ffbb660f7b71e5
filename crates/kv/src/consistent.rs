//! Objects of `consistent` types: one row, the head of a guarded partition. Its stamp is the context; only a writer that sends
//! the current context replaces it.

use bytes::Bytes;
use larder_core::blobs::release::ReferenceLease;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::content::{BlobId, KvContent};
use larder_rows::limits::DELETED_HEAD_MICROS;
use larder_rows::{Batch, Change, Row, Timestamp};
use larder_store::{CasResult, ConsistencyLevel, Kind, Partition, ReadQuery};

use super::delete::nothing_to_delete;
use super::known_buckets::key_view_changes;
use super::put::{KvBlobPlacement, ReceivedValue};
use super::request_plan::{ReplicaPlan, RequestPlan};
use super::{FetchedObject, KvDelete, KvDeleteOutcome, KvPut};
use crate::Kv;
use crate::commit::WriteTarget;
use crate::hooks::HookedWrite;
use crate::rules::causality::{ConflictPolicy, KeyVersions, KeyWrite, SHARED_SLOT, Slot, VersionVector};
use crate::rules::index::SupersededTerms;
use crate::rules::object_row::{ObjectRow, view_row_name};
use larder_core::outbox::PendingNotices;

impl Kv {
    pub(super) async fn put_consistent(
        &self,
        request: KvPut,
        plan: RequestPlan,
        replicas: ReplicaPlan,
        hooked: Option<Box<HookedWrite>>,
    ) -> Result<Option<FetchedObject>> {
        let KvPut { address, context, content, upload, return_body, .. } = request;
        let address = &address;
        let replicas = at_quorum_only(replicas).raise_to_disk_if(self.context.config.durable);
        let seen = self.read_versions(address, &plan, replicas).await?;
        let conditions = self.decode_conditions(request.conditions, request.if_not_modified.as_ref(), address)?;
        self.check_conditions(&conditions, &seen)?;
        // Race: the swap expects the stamp that the conditions were checked against, so of two puts one fails [invariant 15].
        let expected = self.expected_stamp(address, context.as_ref(), &seen)?;
        let partition = Partition::object(address, true, plan.props.copies);
        let slot = Slot { actor: self.context.ports.actor, birth: self.issuer.issue().await? };
        let to = KvBlobPlacement { partition: &partition, slot, clock: slot.birth };
        // Writers of a key queue in their gateway. The body arrives before that: a slow client must not hold back the others.
        let ReceivedValue { body, lease } = self.receive(upload, to).await?;
        let (blob, replicas) = (body.blob(), replicas.with_timeout(plan.timeout));
        let content = KvContent { body, ..content };
        // From here on the store may carry out the swap even if this future is dropped, so the lease outlives it.
        let lease = ReferenceLease::new(lease);
        let notices = hooked.as_ref().map(|hooked| &hooked.notices);
        let target = WriteTarget { address, plan: &plan, replicas, notices, moved: None };
        let write = match self.replace(target, &partition, expected, content).await {
            Ok(write) => write,
            Err(error) => {
                self.clean_up_failed_write(&error, blob, lease).await;
                return Err(error);
            }
        };
        // Before the steps that may fail although the object is written [invariant 128].
        if let Some(hooked) = hooked {
            self.hooks.after(*hooked);
        }
        lease.end();
        self.remove_replaced_terms(address, write, &seen, replicas).await;
        // Crash: only after the swap, since a crash before it leaves the old head, which needs its bytes [invariant 94].
        self.blobs.releases.release_replaced(seen_blobs(&seen)).await;
        match return_body {
            true => self.fetch(address, &plan, replicas, true, None).await.map(Some),
            false => Ok(None),
        }
    }

    /// Replaces the value by `content` if the head still has the stamp `expected`.
    async fn replace(
        &self,
        target: WriteTarget<'_>,
        partition: &Partition,
        expected: Option<Timestamp>,
        content: KvContent,
    ) -> Result<KeyWrite> {
        let WriteTarget { address, replicas, notices, .. } = target;
        // Race: mark after head. A sweeper that marks later rewrites the head, and the swap below fails [invariant 90].
        self.check_gc_mark(content.body.blob(), &replicas.options).await?;
        let clock = self.issue_above(expected).await?;
        let row = ObjectRow { tombstone: false, context_hash: 0, vector: VersionVector::default(), content };
        let write = KeyWrite::put(ConflictPolicy::LastWriteWins, SHARED_SLOT, clock, &row, Vec::new());
        // Crash: entry before head. A crash in between leaves an entry that listings check and hide [invariant 30].
        self.write_listing_entry(address, &write, replicas).await?;
        self.swap_with_notices(partition, expected, &write, replicas, notices).await?;
        Ok(write)
    }

    /// Swaps the head after its notices are stored: a swap has one partition alone.
    async fn swap_with_notices(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        write: &KeyWrite,
        replicas: ReplicaPlan,
        notices: Option<&PendingNotices>,
    ) -> Result<()> {
        let rows = notices.and_then(|notices| notices.changes(write.clock));
        let (Some(notices), Some(rows)) = (notices, rows) else {
            return self.compare_and_set(partition, expected, write, replicas).await;
        };
        // Crash: before the head, so that no swapped head lacks its notice [invariant 136].
        let stored = self.context.ports.store.apply(Batch { partitions: vec![rows] }, &replicas.options).await;
        let stored = stored.map_err(|error| replicas.to_client_error(error));
        notices.note_result(&stored);
        if stored.is_err() {
            // The head is not swapped: rows that are stored later, all the same, tell of nothing.
            notices.withdraw();
        }
        stored?;
        let swapped = self.compare_and_set(partition, expected, write, replicas).await;
        notices.withdraw_if_refused(&swapped);
        swapped
    }

    pub(super) async fn delete_consistent(
        &self,
        request: KvDelete,
        plan: RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<KvDeleteOutcome> {
        let address = &request.address;
        let replicas = at_quorum_only(replicas).raise_to_disk_if(self.context.config.durable);
        let seen = self.read_versions(address, &plan, replicas).await?;
        self.check_conditions(&request.conditions, &seen)?;
        if let Some(nothing) = nothing_to_delete(&request, &seen) {
            return Ok(nothing);
        }
        let expected = match &request.context {
            Some(_) => self.expected_stamp(address, request.context.as_ref(), &seen)?,
            None => head_stamp(&seen),
        };
        let hooked = match plan.runs_hooks() {
            true => Some(Box::pin(self.hooks_before_delete(&request, &plan)).await?),
            false => None,
        };
        let partition = Partition::object(address, true, plan.props.copies);
        let clock = self.issue_above(expected).await?;
        // Race: without its head the next put, by a slower clock, would stamp its entry below the removal.
        let expiry = Some(self.context.now() + DELETED_HEAD_MICROS);
        let (policy, vector) = (ConflictPolicy::LastWriteWins, VersionVector::default());
        let write = KeyWrite::delete(policy, SHARED_SLOT, clock, expiry, vector, Vec::new());
        let notices = hooked.as_ref().map(|hooked| &hooked.notices);
        self.swap_with_notices(&partition, expected, &write, replicas, notices).await?;
        if let Some(hooked) = hooked {
            self.hooks.after(hooked);
        }
        // Crash: entry after head. A crash in between leaves an entry that listings check and hide [invariant 30].
        self.remove_replaced_terms(address, write, &seen, replicas).await;
        let gone = Change::Remove { name: view_row_name(&address.key, &SHARED_SLOT.row_name()), stamp: clock };
        self.catalogue.await_fresh().await?;
        let partitions = key_view_changes(&self.catalogue, address, vec![gone], false);
        self.context.ports.store.apply(Batch { partitions }, &replicas.options).await?;
        self.blobs.releases.release_replaced(seen_blobs(&seen)).await;
        Ok(KvDeleteOutcome::Done)
    }

    /// The stamp the head must have: the context's; without one the key must not live.
    fn expected_stamp(
        &self,
        address: &Address,
        context: Option<&Bytes>,
        seen: &KeyVersions,
    ) -> Result<Option<Timestamp>> {
        let stamp = match context {
            Some(bytes) => {
                Some(self.decode_context(bytes, address)?.latest()).filter(|&stamp| stamp != Timestamp::ZERO)
            }
            None if seen.siblings.is_empty() => head_stamp(seen),
            None => return Err(Error::Superseded),
        };
        if stamp == head_stamp(seen) { Ok(stamp) } else { Err(Error::Superseded) }
    }

    async fn issue_above(&self, expected: Option<Timestamp>) -> Result<Timestamp> {
        self.issuer.clock.observe(expected.map_or(Timestamp::ZERO, |stamp| stamp + 1));
        self.issuer.issue().await
    }

    async fn compare_and_set(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        write: &KeyWrite,
        replicas: ReplicaPlan,
    ) -> Result<()> {
        let Some(head) = write.row.clone() else { return Ok(()) };
        let writer = self.context.writer_queues.wait_for_turn(partition, replicas.options.deadline).await?;
        // Another writer of this gateway went first: one read is cheaper than a compare-and-set that fails.
        if writer.waited && self.read_head_stamp(partition, replicas).await? != expected {
            return Err(Error::Superseded);
        }
        let swap =
            self.context.ports.store.apply_if(partition, expected, head.into(), Vec::new(), &replicas.options).await;
        match swap {
            Ok(CasResult::Applied) => Ok(()),
            Ok(CasResult::Conflict(_)) => Err(Error::Superseded),
            Err(error) if error.kind == Kind::TimedOut => self.resolve_lost_answer(partition, write, replicas).await,
            Err(error) => Err(replicas.to_client_error(error)),
        }
    }

    /// The current stamp of the head.
    async fn read_head_stamp(&self, partition: &Partition, replicas: ReplicaPlan) -> Result<Option<Timestamp>> {
        Ok(self.context.read_rows(partition, &replicas.options).await?.first().map(|row| row.stamp))
    }

    /// Resolves a lost answer: the head tells whether it holds this write. Readers see the head before its sync, and the
    /// replaced blob is removed after the answer, so a sync comes in between.
    async fn resolve_lost_answer(&self, partition: &Partition, write: &KeyWrite, replicas: ReplicaPlan) -> Result<()> {
        // The store may hold the write: an error of this read says nothing about it, so the outcome stays unknown.
        let read = self.context.ports.store.read(partition, &ReadQuery::all(1), &replicas.options).await;
        let page = read.map_err(|_| Error::TimedOut)?;
        let is_ours = |row: &Row| row.stamp == write.clock && Some(row) == write.row.as_ref();
        if !page.rows.first().is_some_and(is_ours) {
            return Err(Error::TimedOut);
        }
        self.blobs.releases.await_sync().await.map_err(|_| Error::TimedOut)
    }

    /// Removes the index rows of the versions that a swap replaced. They may stay: a query checks each hit of such a bucket.
    async fn remove_replaced_terms(
        &self,
        address: &Address,
        mut write: KeyWrite,
        seen: &KeyVersions,
        replicas: ReplicaPlan,
    ) {
        let replaced = seen.siblings.iter().filter(|sibling| sibling.dot.flags.terms);
        write.superseded_terms = replaced.map(SupersededTerms::from_sibling).collect();
        if self.catalogue.await_fresh().await.is_err() {
            return;
        }
        let mut partitions = self.index_partitions(address, &write);
        // The swap is done: its own rows were written before it.
        partitions.iter_mut().for_each(|part| part.changes.retain(|change| matches!(change, Change::Remove { .. })));
        partitions.retain(|part| !part.changes.is_empty());
        if partitions.is_empty() {
            return;
        }
        if let Err(error) = self.context.ports.store.apply(Batch { partitions }, &replicas.options).await {
            tracing::warn!(%error, "removal of replaced index rows failed: they stay until an index repair");
        }
    }

    async fn write_listing_entry(&self, address: &Address, write: &KeyWrite, replicas: ReplicaPlan) -> Result<()> {
        self.catalogue.await_fresh().await?;
        let entries = write.key_view_changes(&address.key);
        self.index_growth.note(&address.bucket, None, write, &entries);
        let mut batch = Batch { partitions: key_view_changes(&self.catalogue, address, entries, false) };
        batch.partitions.extend(self.index_partitions(address, write));
        let listed = self.known_buckets.bucket_row_change(&address.bucket);
        batch.add(
            Partition::buckets(&address.bucket.bucket_type, self.catalogue.copies(&address.bucket)),
            listed.into_iter().collect(),
        );
        self.context
            .ports
            .store
            .apply(batch, &replicas.options)
            .await
            .map_err(|error| replicas.to_client_error(error))?;
        self.known_buckets.note_written(&address.bucket);
        Ok(())
    }
}

/// Blobs of the versions that were read.
fn seen_blobs(seen: &KeyVersions) -> Vec<BlobId> {
    seen.siblings.iter().filter_map(|sibling| sibling.content.body.blob()).collect()
}

/// Calls to guarded tables never go below a quorum.
fn at_quorum_only(replicas: ReplicaPlan) -> ReplicaPlan {
    replicas.never_below(ConsistencyLevel::Quorum).without_downgrade()
}

fn head_stamp(seen: &KeyVersions) -> Option<Timestamp> {
    Some(seen.latest()).filter(|&stamp| stamp != Timestamp::ZERO)
}
