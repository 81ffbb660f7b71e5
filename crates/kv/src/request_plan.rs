//! The plan of a request, made before its first read or write: bucket properties, replica counts, deadline, durability.
//!
//! ```text
//! w, dw, pw, node_confirms ──> consistency level, and its lowest downgrade
//! dw, sync_on_write        ──> Durability: with dw > 0 the embedded engine syncs before it answers, if the server syncs at all
//! ```
//! Methods of [`ReplicaPlan`] change a plan later: `at`, `never_below` (a row that names a blob), `raise_to_disk_if` (a write
//! whose removals release blobs), `without_downgrade` (`consistent` types, `sloppy_quorum=false`), `with_timeout`, `reclaiming` (deletes).
//! Over a cluster the level alone decides: the engine ignores `Durability`, and each node syncs by its `commitlog_sync`. `dw`
//! counts replicas there as `w` does, so `dw=all` is downgraded too: while no replica is up, a hint on one node acknowledges it.

use std::time::Duration;

use larder_core::downgrade::{DowngradableCall, READ_FLOOR, WRITE_FLOOR, replicas_required, weakest_level_for};
use larder_core::rules::props::{EffectiveProps, Quorum, SyncOnWrite};
use larder_core::{Error, QuorumParam, Result};
use larder_rows::address::BucketAddress;
use larder_store::{CallOptions, ConsistencyLevel, Durability, Kind};
use tokio::time::{Instant, timeout_at};

use super::Quorums;
use crate::Kv;
use crate::rules::causality::ConflictPolicy;

/// Properties and deadline of a request to an active bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestPlan {
    /// The bucket's properties.
    pub(crate) props: EffectiveProps,
    /// How concurrent writes resolve.
    pub(crate) policy: ConflictPolicy,
    /// Deadline of the request.
    pub(crate) deadline: Instant,
    /// Time of the engine after the body has arrived.
    pub(crate) timeout: Duration,
}

/// The consistency level of a request, how far it may be downgraded, and the parameters to name in a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaPlan {
    /// Options of the store calls.
    pub(crate) options: CallOptions,
    /// Copies of the partition.
    copies: u32,
    /// Fewest replicas after a downgrade.
    floor: u32,
    params: QuorumParams,
}

/// The counts of a read, none of them above its maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadCounts {
    r: u32,
    pr: u32,
    node_confirms: u32,
}

/// The replica counts that the client or the bucket set.
#[derive(Debug, Clone, Copy)]
struct QuorumParams {
    reading: bool,
    /// The parameter that may be downgraded.
    downgradable: (QuorumParam, u32),
    /// The parameter that may not, if set, and the replicas that it requires.
    primaries: Option<(QuorumParam, u32, u32)>,
    /// Machines that must answer.
    node_confirms: u32,
}

impl ReplicaPlan {
    /// This plan at another level.
    pub(crate) fn at(self, level: ConsistencyLevel) -> Self {
        let floor = self.floor.min(replicas_required(level, self.copies));
        Self { options: CallOptions { level, ..self.options }, floor, ..self }
    }

    /// This plan at `level` or above, never downgraded below it.
    pub(crate) fn never_below(self, level: ConsistencyLevel) -> Self {
        let floor = self.floor.max(replicas_required(level, self.copies));
        Self { options: CallOptions { level: self.options.level.max(level), ..self.options }, floor, ..self }
    }

    /// This plan without any downgrade.
    pub(crate) fn without_downgrade(self) -> Self {
        self.never_below(self.options.level)
    }

    /// This plan as the client's `sloppy_quorum` wants it: false is no downgrade.
    fn with_sloppy_quorum(self, sloppy: Option<bool>) -> Self {
        if sloppy == Some(false) { self.without_downgrade() } else { self }
    }

    /// This plan with a new deadline: the time in which a body arrived does not count.
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        Self { options: CallOptions { deadline: Instant::now() + timeout, ..self.options }, ..self }
    }

    /// This write, answered after a sync if the server syncs at all (`durable`): its removals are final then.
    pub(crate) fn raise_to_disk_if(self, durable: bool) -> Self {
        let durability = if durable { Durability::Disk } else { Durability::Buffered };
        Self { options: CallOptions { durability, ..self.options }, ..self }
    }

    /// This write as one that frees disk space, which a full disk accepts.
    pub(crate) fn reclaiming(self) -> Self {
        Self { options: self.options.reclaiming(), ..self }
    }

    /// A write call with this plan.
    pub(crate) fn write_call(self) -> DowngradableCall {
        DowngradableCall::new(self.options, self.copies, self.floor)
    }

    /// A read call with this plan, also for the read of a write.
    pub(crate) fn read_call(self) -> DowngradableCall {
        // A write may end with a hint alone; the read for it needs a replica.
        DowngradableCall::new(self.options, self.copies, self.floor.max(READ_FLOOR))
    }

    /// Translates a store error: names the first unmet parameter, in Riak's order.
    pub(crate) fn to_client_error(self, error: larder_store::Error) -> Error {
        let Kind::Unavailable { alive: got, required } = error.kind else { return error.into() };
        // Where n_val differs from the copies, more replicas than the parameter asks for may still be too few.
        let needed_count = |count: u32| if count > got { count } else { required };
        let QuorumParams { reading, downgradable, primaries, node_confirms } = self.params;
        match primaries {
            Some((which, count, replicas)) if got < replicas => {
                Error::Unsatisfied { which, got, wanted: needed_count(count) }
            }
            _ if got < node_confirms => Error::NodeConfirms { got, wanted: node_confirms, reading },
            _ => Error::Unsatisfied { which: downgradable.0, got, wanted: needed_count(downgradable.1) },
        }
    }
}

impl Kv {
    /// Looks up the bucket and sets the deadline.
    ///
    /// # Errors
    /// [`Error::UnknownType`]; [`Error::NotReady`] when the catalogue is too old to serve from.
    pub(crate) async fn plan_request(&self, bucket: &BucketAddress, timeout: Option<Duration>) -> Result<RequestPlan> {
        let timeout = timeout.unwrap_or(self.context.config.timeout);
        let deadline = Instant::now() + timeout;
        // Bound: a check of the catalogue may wait for dead replicas longer than the client waits.
        let known = timeout_at(deadline, self.catalogue.for_type(&bucket.bucket_type)).await;
        let catalogue = known.map_err(|_| Error::TimedOut)??;
        let props = catalogue.effective(bucket).ok_or_else(|| Error::UnknownType(bucket.bucket_type.clone()))?;
        Ok(RequestPlan { props, policy: conflict_policy(&props), deadline, timeout })
    }

    /// Refuses objects where the values are a data type, and what [`Self::check_clock`] refuses.
    pub(crate) fn check_writable(&self, plan: &RequestPlan) -> Result<()> {
        self.check_clock()?;
        // An object beside the rows of a data type would be a sibling that no read of the data type shows.
        if plan.props.datatype.is_some() { Err(Error::DatatypePut) } else { Ok(()) }
    }

    /// Refuses writes of a gateway whose clock is off.
    pub(crate) fn check_clock(&self) -> Result<()> {
        // Race: a write by a slow clock could be older than an acknowledged one, and never visible [invariant 5].
        if self.issuer.is_skewed() {
            return Err(Error::NotReady("this machine's clock is off the engine's by more than 500 ms".into()));
        }
        Ok(())
    }

    /// Plans the replicas of a read.
    ///
    /// # Errors
    /// [`Error::QuorumAboveN`], [`Error::NodeConfirms`].
    pub(crate) fn plan_read(&self, plan: &RequestPlan, quorums: &Quorums) -> Result<ReplicaPlan> {
        let props = &plan.props;
        let ReadCounts { r, pr, node_confirms } = self.read_counts(props, quorums)?;
        let params = QuorumParams {
            reading: true,
            downgradable: (QuorumParam::R, r),
            primaries: self.primaries_param(props, QuorumParam::Pr, pr),
            node_confirms,
        };
        let options = CallOptions::new(ConsistencyLevel::One, plan.deadline, Durability::Buffered);
        Ok(self.plan_replicas(props, options, params).with_sloppy_quorum(quorums.sloppy_quorum))
    }

    /// The counts of a read, checked.
    ///
    /// # Errors
    /// As [`Self::plan_read`].
    pub(crate) fn read_counts(&self, props: &EffectiveProps, quorums: &Quorums) -> Result<ReadCounts> {
        let r = resolve_count(props, quorums.r, props.r)?;
        let pr = resolve_count(props, quorums.pr, props.pr)?;
        Ok(ReadCounts { r, pr, node_confirms: self.check_node_confirms(props, quorums, true)? })
    }

    /// Plans the replicas of a write; with dw > 0 it waits for the disk, if this server syncs.
    ///
    /// # Errors
    /// As [`Self::plan_read`].
    pub(crate) fn plan_write(&self, plan: &RequestPlan, quorums: &Quorums) -> Result<ReplicaPlan> {
        let props = &plan.props;
        let w = resolve_count(props, quorums.w, props.w)?;
        let pw = resolve_count(props, quorums.pw, props.pw)?;
        // `sync_on_write` waits for the disk even where the client asks for dw=0.
        let dw =
            resolve_count(props, quorums.dw, props.dw)?.max(u32::from(props.sync_on_write != SyncOnWrite::Backend));
        let node_confirms = self.check_node_confirms(props, quorums, false)?;
        let downgradable = if dw > w { (QuorumParam::Dw, dw) } else { (QuorumParam::W, w) };
        let params = QuorumParams {
            reading: false,
            downgradable,
            primaries: self.primaries_param(props, QuorumParam::Pw, pw),
            node_confirms,
        };
        let durability = if dw > 0 && self.context.config.durable { Durability::Disk } else { Durability::Buffered };
        let options = CallOptions::new(ConsistencyLevel::One, plan.deadline, durability);
        Ok(self.plan_replicas(props, options, params).with_sloppy_quorum(quorums.sloppy_quorum))
    }

    /// The level that meets all parameters, and its lowest downgrade.
    fn plan_replicas(&self, props: &EffectiveProps, options: CallOptions, params: QuorumParams) -> ReplicaPlan {
        let copies = self.replica_count(props);
        let least = if params.reading { READ_FLOOR } else { WRITE_FLOOR };
        let primaries = params.primaries.map_or(least, |(_, _, replicas)| replicas);
        // `node_confirms` counts machines, not parts of n_val: every copy is on a machine of its own.
        let floor = primaries.max(if params.node_confirms > 1 { params.node_confirms.min(copies) } else { least });
        let level = weakest_level_for(scaled(params.downgradable.1, props.n_val, copies).max(floor), copies);
        // An engine on one machine keeps no tombstones: repeating a write after a lost answer would bring back rows that
        // another writer replaced in between.
        let floor = if self.context.ports.store.limits().replicated { floor } else { replicas_required(level, copies) };
        ReplicaPlan { options: CallOptions { level, ..options }, copies, floor, params }
    }

    /// A parameter of primaries with the replicas that its level requires; `None` for 0.
    fn primaries_param(
        &self,
        props: &EffectiveProps,
        which: QuorumParam,
        count: u32,
    ) -> Option<(QuorumParam, u32, u32)> {
        let copies = self.replica_count(props);
        let replicas = replicas_required(weakest_level_for(scaled(count, props.n_val, copies), copies), copies);
        (count > 0).then_some((which, count, replicas))
    }

    /// Replicas that a level counts: the copies of the bucket's type. One machine stands for n_val replicas.
    fn replica_count(&self, props: &EffectiveProps) -> u32 {
        // Data stays where the n_val of its creation placed it; a later one does not count here [invariant 26].
        if self.context.ports.store.limits().replicated { props.copies.into() } else { props.n_val }
    }

    /// Machines that must confirm; refused at once if there are fewer.
    fn check_node_confirms(&self, props: &EffectiveProps, quorums: &Quorums, reading: bool) -> Result<u32> {
        let confirms = resolve_count(props, quorums.node_confirms, props.node_confirms)?;
        let got = self.context.ports.store.limits().nodes;
        if confirms > got { Err(Error::NodeConfirms { got, wanted: confirms, reading }) } else { Ok(confirms) }
    }
}

/// How concurrent writes of a bucket resolve.
pub(crate) fn conflict_policy(props: &EffectiveProps) -> ConflictPolicy {
    if props.write_once {
        ConflictPolicy::WriteOnce
    } else if props.last_write_wins {
        ConflictPolicy::LastWriteWins
    } else if props.allow_mult {
        ConflictPolicy::Siblings
    } else {
        ConflictPolicy::Newest
    }
}

/// The number of replicas of a parameter; refused above n_val.
fn resolve_count(props: &EffectiveProps, replicas: Option<Quorum>, default: Quorum) -> Result<u32> {
    let count = replicas.unwrap_or(default).resolve(props.n_val);
    if count > props.n_val { Err(Error::QuorumAboveN { n_val: props.n_val }) } else { Ok(count) }
}

/// Scales `count` of n_val to the copies, rounded up. n_val may have changed after the copies were placed; reads and writes
/// that overlap in n_val replicas then still overlap in the copies [invariant 26].
fn scaled(count: u32, n_val: u32, copies: u32) -> u32 {
    let scaled = (u64::from(count) * u64::from(copies)).div_ceil(u64::from(n_val.max(1)));
    u32::try_from(scaled).unwrap_or(copies)
}

#[cfg(test)]
mod tests;
