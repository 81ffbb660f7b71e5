//! Deletes an object: a tombstone replaces the versions that were seen; others survive.

use std::time::Duration;

use larder_core::Result;
use larder_core::clock_issuer::SKEW_MICROS_MAX;
use larder_core::config::DeleteMode;
use larder_rows::Timestamp;
use larder_store::{ConsistencyLevel, Durability, Partition, as_micros};

use super::commit::{ConditionGuard, row_stamps};
use super::request_plan::{ReplicaPlan, RequestPlan};
use super::{KvDelete, KvDeleteOutcome, Quorums};
use crate::Kv;
use crate::commit::WriteTarget;
use crate::datatypes::may_hold_counter;
use crate::rules::causality::{
    ConflictPolicy, IndexRemovals, KeyVersions, KeyWrite, Slot, SupersededRow, VersionVector,
};
use crate::rules::datatypes::DatatypeContext;
use crate::slots::CausalBasis;

impl Kv {
    pub(super) async fn delete_admitted(&self, request: KvDelete) -> Result<KvDeleteOutcome> {
        let plan = self.plan_request(&request.address.bucket, request.timeout).await?;
        self.check_clock()?;
        let quorums = with_rw(&request.quorums, &plan);
        let replicas = self.plan_write(&plan, &quorums)?.reclaiming();
        let waits = plan.props.consistent || replicas.options.durability != Durability::Buffered;
        let outcome = self.delete_planned(request, plan, quorums, replicas).await?;
        if waits && matches!(outcome, KvDeleteOutcome::NotFound(_)) {
            // Crash: another delete may have no sync yet, and a power cut would bring the object back [invariant 149].
            self.blobs.releases.await_sync().await?;
        }
        Ok(outcome)
    }

    async fn delete_planned(
        &self,
        request: KvDelete,
        plan: RequestPlan,
        quorums: Quorums,
        replicas: ReplicaPlan,
    ) -> Result<KvDeleteOutcome> {
        let reading = self.plan_read_before_delete(&plan, &quorums)?;
        if plan.props.datatype.is_some() || names_counter(&request, &plan) {
            self.check_datatype_hooks(&plan)?;
            return Box::pin(self.delete_datatype(&request, &plan, replicas)).await;
        }
        if plan.props.consistent {
            return Box::pin(self.delete_consistent(request, plan, replicas)).await;
        }
        let mut guard = None;
        let address = &request.address;
        let basis = match &request.context {
            Some(bytes) if request.conditions.is_empty() => {
                CausalBasis::from_context(self.decode_context(bytes, address)?)
            }
            _ => {
                // Race: a value written after this read is not named by the tombstone, so it survives.
                let rows = self.read_object_rows(address, &plan, reading).await?.rows;
                let rows_seen = row_stamps(&rows);
                let seen = self.resolve_rows(&plan, rows)?;
                let counter = Box::pin(self.counter_shown_for(&seen, address, &plan, reading)).await?;
                if counter.is_some() && request.context.is_none() {
                    self.check_datatype_hooks(&plan)?;
                    return Box::pin(self.delete_datatype(&request, &plan, replicas)).await;
                }
                self.check_conditions(&request.conditions, counter.as_ref().unwrap_or(&seen))?;
                if let Some(nothing) = nothing_to_delete(&request, &seen) {
                    return Ok(nothing);
                }
                if !request.conditions.is_empty() {
                    guard = Some(ConditionGuard { conditions: request.conditions.clone(), seen: rows_seen });
                }
                match &request.context {
                    Some(bytes) => CausalBasis::from_context(self.decode_context(bytes, address)?),
                    None => CausalBasis {
                        superseded: SupersededRow::from_versions(&seen),
                        vector: seen.context.vector,
                        context_hash: 0,
                    },
                }
            }
        };
        // After the read, as in Riak: a delete of nothing runs no hook.
        let hooked = match plan.runs_hooks() {
            true => Some(Box::pin(self.hooks_before_delete(&request, &plan)).await?),
            false => None,
        };
        let notices = hooked.as_ref().map(|hooked| &hooked.notices);
        let target = WriteTarget { address, plan: &plan, replicas, notices, moved: None };
        self.write_tombstone(target, basis, guard).await?;
        if let Some(hooked) = hooked {
            self.hooks.after(hooked);
        }
        if request.context.is_none() {
            // The counter would be seen again.
            Box::pin(self.delete_hidden_counter(address, &plan, replicas)).await?;
        }
        Ok(KvDeleteOutcome::Done)
    }

    async fn write_tombstone(
        &self,
        target: WriteTarget<'_>,
        basis: CausalBasis,
        guard: Option<ConditionGuard>,
    ) -> Result<()> {
        let WriteTarget { address, plan, .. } = target;
        let policy = plan.policy;
        let clock = self.issue_tombstone_clock(policy, &basis).await?;
        let partition = Partition::object(address, false, plan.props.copies);
        let slot = self.choose_slot(policy, clock, &partition, &basis);
        self.commit_tombstone(target, basis, guard, slot, clock).await?;
        if policy == ConflictPolicy::WriteOnce {
            // Race: a put after the answer through a late clock would be older than the tombstone, and lost [invariant 82].
            self.wait_out_clock_skew(clock).await;
        }
        Ok(())
    }

    /// Writes a tombstone into `slot` at `clock`, in place of the rows of `basis`.
    pub(super) async fn commit_tombstone(
        &self,
        target: WriteTarget<'_>,
        basis: CausalBasis,
        guard: Option<ConditionGuard>,
        slot: Slot,
        clock: Timestamp,
    ) -> Result<()> {
        let WriteTarget { address, plan, replicas, .. } = target;
        let policy = plan.policy;
        let partition = Partition::object(address, false, plan.props.copies);
        let (vector, index_removals) = match policy.has_slots() {
            true => (self.slots.carried_vector(slot, &basis).stored, self.slots.index_removals_of_delete(&basis)),
            false => (VersionVector::default(), IndexRemovals::SupersededRows),
        };
        // Race: without a tombstone a read has no context, and a put after it would be a sibling of the delete [invariant 11].
        let mut write = KeyWrite::delete(policy, slot, clock, self.tombstone_expiry(), vector, basis.superseded);
        write.index_removals = index_removals;
        let forget = match policy.has_slots() {
            true => self.removals_of_stale_entries(address, &write, &replicas.options).await,
            // Race: a put in the microsecond of the tombstone keeps its row, so it must keep its entry [invariant 80].
            false => self.removals_of_all_entries(address, clock - 1, &replicas.options).await?,
        };
        self.commit_guarded(target, &partition, write, forget, guard).await.map(drop)
    }

    /// Issues the clock of a tombstone. In `write_once` a tombstone removes all older rows, also those of later puts through a
    /// gateway with a late clock: so its clock is just above the rows that it removes.
    async fn issue_tombstone_clock(&self, policy: ConflictPolicy, basis: &CausalBasis) -> Result<Timestamp> {
        let latest = basis.superseded.iter().map(|gone| gone.clock).max();
        match latest
            .filter(|_| policy == ConflictPolicy::WriteOnce && self.context.ports.store.limits().tombstones_slow_reads)
        {
            Some(latest) => Ok(latest + 1),
            None => self.issuer.issue().await,
        }
    }

    /// Waits until every gateway's clock is past `clock`: a put after the answer is then newer than the tombstone. It waits
    /// only for values written just before. A gateway whose clock is further off refuses writes.
    async fn wait_out_clock_skew(&self, clock: Timestamp) {
        if self.context.ports.store.limits().tombstones_slow_reads {
            // Two clocks may be off in opposite directions.
            let apart = 2 * SKEW_MICROS_MAX;
            let past = clock.saturating_add(apart).since(self.context.now()).min(apart);
            tokio::time::sleep(Duration::from_micros(past)).await;
        }
    }

    /// Expiry of a tombstone written now.
    fn tombstone_expiry(&self) -> Option<Timestamp> {
        match self.context.config.delete_mode {
            DeleteMode::Keep => None,
            DeleteMode::After(time) => Some(self.context.now().saturating_add(as_micros(time))),
        }
    }

    /// Plans the read of a delete: at a quorum unless the client asked for less. A read below it may miss a value that some
    /// replicas hold; the value would return when they are back.
    fn plan_read_before_delete(&self, plan: &RequestPlan, quorums: &Quorums) -> Result<ReplicaPlan> {
        let read = self.plan_read(plan, quorums)?;
        Ok(match quorums.r {
            Some(_) => read,
            // Race: a stale replica names no version, so the answered delete would remove nothing [invariant 14].
            None => read.never_below(ConsistencyLevel::Quorum),
        })
    }
}

/// Uses `rw` for `w` and `r` where a delete gives neither.
fn with_rw(quorums: &Quorums, plan: &RequestPlan) -> Quorums {
    if quorums.r.is_some() || quorums.w.is_some() {
        return *quorums;
    }
    let rw = quorums.rw.or(Some(plan.props.rw));
    Quorums { w: rw, r: quorums.rw, ..*quorums }
}

/// Whether the context is that of a legacy counter, which a read showed as an object.
fn names_counter(request: &KvDelete, plan: &RequestPlan) -> bool {
    let is_of_datatype = request.context.as_ref().is_some_and(|context| DatatypeContext::is_one(context));
    is_of_datatype && may_hold_counter(&request.address.bucket, &plan.props)
}

pub(super) fn nothing_to_delete(request: &KvDelete, seen: &KeyVersions) -> Option<KvDeleteOutcome> {
    let absent = request.context.is_none() && seen.siblings.is_empty();
    absent.then(|| KvDeleteOutcome::NotFound(seen.deleted.then(|| seen.context.encode(&request.address))))
}

#[cfg(test)]
mod tests {
    use crate::rules::causality::Conditions;
    use larder_core::rules::props::quorum::Quorum;
    use larder_rows::address::{Address, BucketAddress};

    use super::*;
    use crate::testing::gateway_over;
    use larder_testkit::VolatileStore;

    #[tokio::test(start_paused = true)]
    async fn a_delete_of_nothing_was_answered_before_the_delete_that_it_saw_was_on_disk() {
        for durable in [true, false] {
            let store = VolatileStore::new(durable);
            let gateway = gateway_over(&store).await;
            for (dw, waits) in [(None, durable), (Some(Quorum::Count(0)), false)] {
                let before = store.state().barriers;
                let bucket = BucketAddress::new("default".into(), "b".into()).unwrap();
                let request = KvDelete {
                    address: Address::new(bucket, "none".into()).unwrap(),
                    context: None,
                    conditions: Conditions::default(),
                    quorums: Quorums { dw, ..Quorums::default() },
                    timeout: None,
                };
                let outcome = gateway.kv.delete(request).await.unwrap();
                assert!(matches!(outcome, KvDeleteOutcome::NotFound(None)));
                assert_eq!(store.state().barriers - before, usize::from(waits), "durable {durable}, {dw:?}");
            }
        }
    }
}
