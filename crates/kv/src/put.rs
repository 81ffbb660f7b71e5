//! Writes an object: [`Kv::put`] reads as the list of its steps.

use bytes::Bytes;
use larder_core::blobs::release::ReferenceLease;
use larder_core::body::{ByteStream, PutBody, collect, next};
use larder_core::metrics::Event;
use larder_core::{Error, Result};
use larder_rows::Timestamp;
use larder_rows::address::Address;
use larder_rows::content::{BlobId, BlobRef, KvBody, KvContent};
use larder_rows::hash::Sha1Hasher;
use larder_rows::limits::{CONTEXT_AHEAD_MICROS_MAX, INDEX_BYTES_MAX, METADATA_BYTES_MAX};
use larder_store::{BlobOwner, BlobWriter, ConsistencyLevel, Durability, Partition};

use super::commit::{ConditionGuard, RowStamps, row_stamps};
use super::request_plan::{ReplicaPlan, RequestPlan};
use super::{FetchedObject, KvPut, Quorums};
use crate::Kv;
use crate::commit::WriteTarget;
use crate::datatypes::{may_hold_counter, object_context};
use crate::hooks::HookedWrite;
use crate::rules::causality::{
    CarriedVector, Conditions, ConflictPolicy, Context, ContextError, CurrentValue, FailedCondition, KeyVersions,
    KeyWrite, Slot,
};
use crate::rules::datatypes::DatatypeContext;
use crate::rules::index::index_bytes;
use crate::rules::object_row::ObjectRow;
use crate::slots::CausalBasis;

impl Kv {
    pub(super) async fn put_admitted(&self, request: KvPut) -> Result<Option<FetchedObject>> {
        let plan = self.plan_request(&request.address.bucket, request.timeout).await?;
        self.check_writable(&plan)?;
        let replicas = self.plan_write(&plan, &request.quorums)?;
        match plan.runs_hooks() {
            true => Box::pin(self.put_with_hooks(request, plan, replicas)).await,
            false => self.put_planned(request, plan, replicas, None).await,
        }
    }

    /// Writes an object as its plan says. Its precommit hooks ran before; the postcommit ones of `hooked` are queued.
    pub(super) async fn put_planned(
        &self,
        request: KvPut,
        plan: RequestPlan,
        replicas: ReplicaPlan,
        hooked: Option<Box<HookedWrite>>,
    ) -> Result<Option<FetchedObject>> {
        check_content(&request.content, &request.address.key)?;
        // Race: two puts with If-None-Match both read an absent key; only a compare-and-set refuses one [invariant 15].
        if plan.props.consistent {
            return Box::pin(self.put_consistent(request, plan, replicas, hooked)).await;
        }
        let KvPut { address, context, content, upload, return_body, .. } = request;
        let conditions = self.decode_conditions(request.conditions, request.if_not_modified.as_ref(), &address)?;
        let notices = hooked.as_ref().map(|hooked| &hooked.notices);
        let target = WriteTarget { address: &address, plan: &plan, replicas, notices, moved: None };
        let (context, counter) = self.split_context(target, context)?;
        let (basis, seen) = self.causal_basis(target, context.as_ref(), &conditions).await?;
        // Race: engines in this process check these rows again as they write: no condition goes stale [invariant 15].
        let guard = seen.map(|seen| ConditionGuard { conditions, seen });
        let (written, length) = self.commit_body(target, basis, guard, content, upload).await?;
        // Before the steps that may fail although the object is written [invariant 128].
        if let Some(hooked) = hooked {
            self.hooks.after(*hooked);
        }
        self.context.metrics.record_written(length, written.superseded.len(), self.context.monotonic());
        if let Some(context) = counter {
            // After the object: a failure in between leaves both, and never neither.
            Box::pin(self.delete_replaced_counter(&address, &plan, replicas, context)).await?;
        }
        match return_body && plan.policy != ConflictPolicy::WriteOnce {
            true => Box::pin(self.read_back(&address, &plan, replicas, &written)).await.map(Some),
            false => Ok(None),
        }
    }

    /// The context of the object's versions, or that of a legacy counter, which a read showed as the object.
    fn split_context(
        &self,
        target: WriteTarget<'_>,
        context: Option<Bytes>,
    ) -> Result<(Option<Bytes>, Option<DatatypeContext>)> {
        let WriteTarget { address, plan, .. } = target;
        match context {
            Some(bytes) if DatatypeContext::is_one(&bytes) && may_hold_counter(&address.bucket, &plan.props) => {
                Ok((None, Some(self.decode_datatype_context(&bytes, address)?)))
            }
            context => Ok((context, None)),
        }
    }

    /// Decides which versions the write replaces: those that its context names; without a context none, or those that a read
    /// shows. Also returns the rows that its conditions were checked against, if it has any.
    async fn causal_basis(
        &self,
        target: WriteTarget<'_>,
        context: Option<&Bytes>,
        conditions: &Conditions,
    ) -> Result<(CausalBasis, Option<RowStamps>)> {
        let WriteTarget { address, plan, replicas, .. } = target;
        let (context, refused) = match context.map(|bytes| self.decode_context(bytes, address)).transpose() {
            // A context of another key names no version of this one: `if_not_modified` says so first, as in Riak.
            Err(error @ Error::Context(ContextError::OtherAddress)) if conditions.if_not_modified.is_some() => {
                (None, Some(error))
            }
            decoded => (decoded?, None),
        };
        // Race: a blind put through a slow clock would be older than the stored value, so it reads that first [invariant 5].
        let reads = plan.policy == ConflictPolicy::Newest && context.is_none();
        let mut seen = None;
        let versions = match reads || conditions.needs_read() {
            true => {
                let rows = self.read_object_rows(address, plan, self.plan_read_for_write(plan, replicas)).await?.rows;
                seen = conditions.needs_read().then(|| row_stamps(&rows));
                Some(self.resolve_rows(plan, rows)?)
            }
            false => None,
        };
        if let (Some(versions), true) = (&versions, conditions.needs_read()) {
            let counter = Box::pin(self.counter_shown_for(versions, address, plan, replicas)).await?;
            self.check_conditions(conditions, counter.as_ref().unwrap_or(versions))?;
        }
        if let Some(error) = refused {
            return Err(error);
        }
        let basis = match (context, versions) {
            (Some(context), _) => CausalBasis::from_context(context),
            (None, Some(versions)) if reads => CausalBasis::from_context(versions.context),
            _ => CausalBasis::default(),
        };
        Ok((basis, seen))
    }

    /// Writes the row, its removals and the views in one batch. A body in memory that fits into the row goes there at once; any
    /// other one is received first.
    async fn commit_body(
        &self,
        target: WriteTarget<'_>,
        basis: CausalBasis,
        guard: Option<ConditionGuard>,
        content: KvContent,
        upload: PutBody,
    ) -> Result<(KeyWrite, u64)> {
        let WriteTarget { address, plan, replicas, .. } = target;
        let partition = Partition::object(address, false, plan.props.copies);
        let policy = plan.policy;
        // Race: the clock is issued after the read of the basis, so it is above every version that the write replaces.
        let clock = self.issuer.issue().await?;
        // Race: the slot is reserved before the body arrives, so a second put with this context takes another [invariant 3].
        let slot = self.choose_slot(policy, clock, &partition, &basis);
        match upload {
            PutBody::Bytes(bytes) if bytes.len() <= self.context.ports.store.limits().inline_max => {
                let length = bytes.len() as u64;
                self.check_length(length)?;
                let content = KvContent { body: KvBody::Inline(bytes), ..content };
                let write = self.build_write(policy, slot, clock, basis, content);
                let target = WriteTarget { replicas: replicas.with_timeout(plan.timeout), ..target };
                let write = self.commit_guarded(target, &partition, write, Vec::new(), guard).await?;
                Ok((write, length))
            }
            upload => {
                let to = KvBlobPlacement { partition: &partition, slot, clock };
                // Boxed: its future is larger than that of all other puts, which would carry the room for it.
                Box::pin(self.receive_and_commit(target, to, basis, guard, ArrivingValue { content, upload })).await
            }
        }
    }

    /// Receives a body that is a stream or too large for its row, then commits.
    pub(super) async fn receive_and_commit(
        &self,
        target: WriteTarget<'_>,
        to: KvBlobPlacement<'_>,
        basis: CausalBasis,
        guard: Option<ConditionGuard>,
        value: ArrivingValue,
    ) -> Result<(KeyWrite, u64)> {
        let WriteTarget { plan, replicas, .. } = target;
        let ArrivingValue { content, upload } = value;
        let KvBlobPlacement { partition, slot, clock } = to;
        let ReceivedValue { body, lease } = self.receive(upload, to).await?;
        let (length, blob) = (body.length(), body.blob());
        // Where the greatest clock wins, a put whose body took long would lose to puts that arrived during it: new clock.
        let clock = match plan.policy.has_slots() {
            true => clock,
            false => match self.issuer.issue().await {
                Ok(clock) => clock,
                Err(error) => {
                    self.clean_up_failed_write(&error, blob, ReferenceLease::new(lease)).await;
                    return Err(error);
                }
            },
        };
        let write = self.build_write(plan.policy, slot, clock, basis, KvContent { body, ..content });
        // The sweeper removes a blob that no quorum names, so its row needs a quorum.
        let replicas = if blob.is_some() { replicas.never_below(ConsistencyLevel::Quorum) } else { replicas };
        // Bound: the engine has its full time, however slowly the client sent the body.
        let target = WriteTarget { replicas: replicas.with_timeout(plan.timeout), ..target };
        // Before the row: undoing it later would not restore the value that it replaced [invariant 92].
        self.check_blob_age(blob).await?;
        // From here on the store may carry out the write even if the client leaves and this future is dropped.
        let lease = ReferenceLease::new(lease);
        match self.commit_guarded(target, partition, write, Vec::new(), guard).await {
            Ok(write) => {
                // Race: after the row, before the answer: a sweeper that missed the row has set its mark [invariant 90].
                let kept = self.confirm_blob(target, partition, &write, blob).await;
                if let Some(notices) = target.notices {
                    notices.withdraw_if_refused(&kept);
                }
                lease.end();
                kept.map(|()| (write, length))
            }
            Err(error) => {
                self.clean_up_failed_write(&error, blob, lease).await;
                Err(error)
            }
        }
    }

    /// The rows that a put changes: its own, and those that it supersedes.
    pub(super) fn build_write(
        &self,
        policy: ConflictPolicy,
        slot: Slot,
        clock: Timestamp,
        basis: CausalBasis,
        content: KvContent,
    ) -> KeyWrite {
        let CarriedVector { stored, dropped } = self.carried_vector(policy, slot, &basis);
        let row = ObjectRow { tombstone: false, context_hash: basis.context_hash, vector: stored, content };
        // A write_once row is named by its content, so a late retry of a losing put changes nothing [invariant 17].
        let mut write = KeyWrite::put(policy, slot, clock, &row, basis.superseded);
        write.index_removals = self.slots.index_removals_of_put(dropped);
        write
    }

    /// Chooses the slot of a write and reserves it.
    pub(super) fn choose_slot(
        &self,
        policy: ConflictPolicy,
        clock: Timestamp,
        partition: &Partition,
        basis: &CausalBasis,
    ) -> Slot {
        match policy.has_slots() {
            true => self.slots.allocate(self.context.ports.actor, clock, partition, basis),
            false => Slot { actor: self.context.ports.actor, birth: clock },
        }
    }

    /// The version vector of a write into `slot`; empty under a policy without slots.
    fn carried_vector(&self, policy: ConflictPolicy, slot: Slot, basis: &CausalBasis) -> CarriedVector {
        if policy.has_slots() { self.slots.carried_vector(slot, basis) } else { CarriedVector::default() }
    }

    /// Reads the object after the write, at the write's level or above: a context of the own write alone would name none of the
    /// siblings, and the client's next put would leave them.
    async fn read_back(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        written: &KeyWrite,
    ) -> Result<FetchedObject> {
        // Race: only a read finds the siblings of other writers, and the client's next put must name them [invariant 16].
        let read = self.plan_read_for_write(plan, replicas);
        self.fetch(address, plan, read, true, Some(written)).await
    }

    /// Plans a read for a write: at the write's level or the bucket's own r, whichever is higher. It may be downgraded like the
    /// write: a version that it misses is not named, so it survives as a sibling.
    pub(super) fn plan_read_for_write(&self, plan: &RequestPlan, replicas: ReplicaPlan) -> ReplicaPlan {
        // Fallback: the bucket's own r or pr may exceed its n_val, and the write did not ask for them.
        let level =
            self.plan_read(plan, &Quorums::default()).map_or(ConsistencyLevel::Quorum, |read| read.options.level);
        replicas.at(level.max(replicas.options.level))
    }

    /// Decodes a client's context and moves the clock past it.
    pub(super) fn decode_context(&self, bytes: &Bytes, address: &Address) -> Result<Context> {
        // A forged context would carry this clock far ahead, and its write would hide all later ones [invariant 7].
        let context = Context::decode(bytes, address, self.context_clock_limit()).inspect_err(|_: &ContextError| {
            self.context.metrics.count_event(Event::ContextRefused);
        })?;
        // Race: through a slow clock the put would be older than the versions that it replaces [invariant 5].
        self.issuer.clock.observe(context.latest());
        Ok(context)
    }

    /// The clock that bounds contexts. Contexts move the gateway's clock, so that alone is no bound: a client could push it
    /// further with every request.
    pub(crate) fn context_clock_limit(&self) -> Timestamp {
        let now = self.context.now();
        // A clock may lead wall time after a restart above its mark; contexts of its own writes must still be accepted.
        now.max(self.issuer.clock.current(now).saturating_sub(CONTEXT_AHEAD_MICROS_MAX))
    }

    /// Conditions of a write, with the context of `if_not_modified` decoded.
    ///
    /// # Errors
    /// The context is damaged or not this server's.
    pub fn decode_conditions(
        &self,
        conditions: Conditions,
        if_not_modified: Option<&Bytes>,
        address: &Address,
    ) -> Result<Conditions> {
        // A client may state no context, or that of another key: then any live value is one that it has not seen.
        let decode_any = |bytes: &Bytes| match DatatypeContext::is_one(bytes) {
            true => Ok(object_context(&self.decode_datatype_context(bytes, address)?)),
            false => self.decode_context(bytes, address),
        };
        let decode = |bytes: &Bytes| match bytes.is_empty() {
            true => Ok(Context::default()),
            false => match decode_any(bytes) {
                Err(Error::Context(ContextError::OtherAddress)) => Ok(Context::default()),
                decoded => decoded,
            },
        };
        let if_not_modified = if_not_modified.map(decode).transpose()?;
        Ok(Conditions { if_not_modified, ..conditions })
    }

    /// Checks the conditions of a write against the versions that a read shows.
    pub(super) fn check_conditions(&self, conditions: &Conditions, seen: &KeyVersions) -> Result<()> {
        let etag = seen.etag();
        let modified = seen.modified().unwrap_or_default().as_secs();
        let current = CurrentValue { etag: etag.as_deref(), modified, context: &seen.context };
        conditions
            .check(current, false, self.context.now().as_secs())
            .map_err(|failed: FailedCondition| Error::Condition(failed))
    }
}

/// Refuses metadata and terms that take too much room.
///
/// # Errors
/// [`Error::MetadataTooLarge`], [`Error::IndexTooLarge`].
pub(super) fn check_content(content: &KvContent, key: &[u8]) -> Result<()> {
    check_metadata(content)?;
    check_index(content, key)
}

/// Refuses terms that take too much room: those of one object are removed in one batch with it [invariant 125].
///
/// # Errors
/// [`Error::IndexTooLarge`].
fn check_index(content: &KvContent, key: &[u8]) -> Result<()> {
    let bytes = index_bytes(&content.terms, key);
    if bytes > INDEX_BYTES_MAX { Err(Error::IndexTooLarge { bytes, max: INDEX_BYTES_MAX }) } else { Ok(()) }
}

fn check_metadata(content: &KvContent) -> Result<()> {
    let bytes = content.metadata_bytes();
    if bytes > METADATA_BYTES_MAX { Err(Error::MetadataTooLarge { bytes, max: METADATA_BYTES_MAX }) } else { Ok(()) }
}

/// A value whose body has yet to arrive.
pub(super) struct ArrivingValue {
    /// The value with an empty body.
    pub(super) content: KvContent,
    /// The body.
    pub(super) upload: PutBody,
}

/// A body that arrived to its end.
pub(super) struct ReceivedValue {
    /// The bytes, or the blob that holds them.
    pub(super) body: KvBody,
    /// Keeps sweepers away from the blob until the row that names it is written.
    pub(super) lease: Option<Box<dyn Send + Sync>>,
}

/// The row that will name a large body.
#[derive(Clone, Copy)]
pub(super) struct KvBlobPlacement<'a> {
    /// Partition of the row that will name it.
    pub(super) partition: &'a Partition,
    /// The slot of the write; its row's, where rows are named by slots.
    pub(super) slot: Slot,
    /// The clock of the write, unique in this slot: the blob's stamp.
    pub(super) clock: Timestamp,
}

impl Kv {
    /// Receives a body, holding a few MiB in memory at most.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::BrokenBody`], [`Error::DiskFull`]: nothing remains of the body.
    pub(super) async fn receive(&self, upload: PutBody, to: KvBlobPlacement<'_>) -> Result<ReceivedValue> {
        // Bound: as a row, a larger body would exceed the largest mutation of the cluster [invariant 18].
        let inline_max = self.context.ports.store.limits().inline_max;
        match upload {
            PutBody::Bytes(bytes) if bytes.len() <= inline_max => {
                self.check_length(bytes.len() as u64)?;
                Ok(ReceivedValue { body: KvBody::Inline(bytes), lease: None })
            }
            PutBody::Bytes(bytes) => {
                let length = Some(bytes.len() as u64);
                self.receive_blob(bytes, length, None, to).await
            }
            PutBody::Stream { mut stream, length } => {
                self.check_length(length.unwrap_or(0))?;
                let first = collect(stream.as_mut(), inline_max).await?;
                if first.len() <= inline_max {
                    return Ok(ReceivedValue { body: KvBody::Inline(first), lease: None });
                }
                self.receive_blob(first, length, Some(stream), to).await
            }
        }
    }

    async fn receive_blob(
        &self,
        first: Bytes,
        announced: Option<u64>,
        stream: Option<Box<dyn ByteStream>>,
        to: KvBlobPlacement<'_>,
    ) -> Result<ReceivedValue> {
        let id = BlobId::for_row(&to.partition.key, &to.slot.row_name(), to.clock);
        let owner = BlobOwner { partition: to.partition.clone(), row: to.slot.row_name() };
        let mut writer = self.context.ports.blobs.create(id, owner).await?;
        // A full disk refuses the body here, before gigabytes of it arrive.
        writer.announce(announced.unwrap_or(first.len() as u64)).await?;
        let mut length = 0;
        let mut digest = Sha1Hasher::default();
        self.append(writer.as_mut(), first, &mut length, &mut digest).await?;
        if let Some(mut stream) = stream {
            while let Some(piece) = next(stream.as_mut()).await? {
                self.append(writer.as_mut(), piece, &mut length, &mut digest).await?;
            }
        }
        // Any later sync makes the row durable, and a power cut then must find its bytes: they are synced first, whatever dw
        // is.
        let durability = if self.context.config.durable { Durability::Disk } else { Durability::Buffered };
        let lease = writer.finish(durability).await?;
        self.context.metrics.count_event(Event::BlobWritten);
        Ok(ReceivedValue { body: KvBody::Blob(BlobRef { id, length, digest: digest.finish() }), lease: Some(lease) })
    }

    async fn append(
        &self,
        writer: &mut dyn BlobWriter,
        piece: Bytes,
        length: &mut u64,
        digest: &mut Sha1Hasher,
    ) -> Result<()> {
        *length += piece.len() as u64;
        // Bound: a stream may send more than it announces, or announce nothing.
        self.check_length(*length)?;
        digest.update(&piece);
        Ok(writer.write(piece).await?)
    }

    pub(super) fn check_length(&self, bytes: u64) -> Result<()> {
        let max = self.context.config.object_bytes_max;
        if bytes > max { Err(Error::TooLarge { bytes, max }) } else { Ok(()) }
    }
}
