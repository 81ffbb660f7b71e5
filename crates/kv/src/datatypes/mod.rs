//! Data types: fetch, update, delete. Edges decode their requests into the types here; all protocols use the same ones.
//!
//! ```text
//! update -> plan: data type, replica counts -> writers: joins the key's next batch -> commit: reads what it needs,
//!           issues one clock, edits, applies one batch with the `$key` entry -> each joined request has its own answer
//! import -> the state of a key at the source of a move, in the key's queue, merged into its rows
//! fetch  -> plan -> reader: the head, then pages of rows -> pieces of the value, and at the end the context
//! ```
//! An update costs its own rows, whatever the size of the value. See [`crate::rules::datatypes`] for the rows. Key-value calls
//! come here too: a read and a delete of a key that holds a data type.

mod batch_rows;
mod commit;
mod delete;
mod import;
mod progress;
mod reader;
mod riak_body;
mod unanswered;
pub(crate) mod writers;

use std::time::Duration;

use bytes::Bytes;
use larder_core::metrics::{KvOp, RequestOutcome};
use larder_core::node_context::MeasuredRequest;
use larder_core::rules::props::EffectiveProps;
use larder_core::{Error, Result};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::limits::REQUEST_ID_BYTES_MAX;
use larder_store::{ConsistencyLevel, Partition};

use crate::request_plan::{ReplicaPlan, RequestPlan};
use crate::rules::causality::ContextError;
use crate::rules::datatypes::{Datatype, DatatypeContext, DatatypeError, DatatypeUpdate};
use crate::{Kv, Quorums};
use writers::{DatatypeKey, DatatypeOutcome, DatatypeWork, JoinedUpdate};

pub use commit::DatatypeBegin;
pub use import::DatatypeImport;
pub use reader::DatatypeReader;
pub(crate) use reader::object_context;

/// Reads a data type.
#[derive(Debug, Clone)]
pub struct DatatypeFetch {
    /// Its address.
    pub address: Address,
    /// Replica counts.
    pub quorums: Quorums,
    /// Whether the answer has a context. Without one the read may ask fewer replicas.
    pub include_context: bool,
    /// The first element or field that the read shows.
    pub begin: DatatypeBegin,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// Updates a data type.
#[derive(Debug, Clone)]
pub struct DatatypeChange {
    /// Its address.
    pub address: Address,
    /// The edits.
    pub update: DatatypeUpdate,
    /// The client's context; `None` removes what this gateway sees.
    pub context: Option<Bytes>,
    /// For counters: the increment is counted once for this id, however often the request is repeated within a day.
    pub request_id: Option<Bytes>,
    /// Replica counts.
    pub quorums: Quorums,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// The plan of a request to a data type, made before its first call.
pub(crate) struct DatatypePlan {
    pub(crate) plan: RequestPlan,
    pub(crate) datatype: Datatype,
}

impl Kv {
    /// The data type of a bucket's values. Buckets of the type `default` hold legacy counters.
    ///
    /// # Errors
    /// [`Error::UnknownType`], [`Error::NotDatatype`], [`Error::DatatypeNeedsSiblings`].
    pub async fn bucket_datatype(&self, bucket: &BucketAddress, timeout: Option<Duration>) -> Result<Datatype> {
        Ok(self.plan_datatype(bucket, timeout).await?.datatype)
    }

    /// Updates a data type; once this returns every reader sees it.
    ///
    /// # Errors
    /// [`Error::Datatype`] for a refused update, of which nothing remains; a timed-out one may or may not take effect.
    pub async fn update_datatype(&self, change: DatatypeChange) -> Result<()> {
        let mut measured = self.context.begin(KvOp::DatatypeUpdate)?;
        let result = self.submit_update(change, &mut measured).await;
        measured.end(result, |()| RequestOutcome::Ok)
    }

    async fn submit_update(&self, change: DatatypeChange, measured: &mut MeasuredRequest<'_>) -> Result<()> {
        let planned = self.plan_datatype(&change.address.bucket, change.timeout).await?;
        measured.becomes(KvOp::update_operation(planned.datatype));
        if !planned.plan.props.allow_mult {
            return Err(Error::DatatypeNeedsSiblings);
        }
        self.check_clock()?;
        self.check_datatype_hooks(&planned.plan)?;
        let replicas = self.plan_write(&planned.plan, &change.quorums)?;
        let DatatypeChange { address, update, context, request_id, .. } = change;
        let (given, bucket) = (update.datatype(), planned.datatype);
        if given != bucket {
            return Err(DatatypeError::WrongOperation { update: given, bucket }.into());
        }
        update.check()?;
        check_request_id(request_id.as_ref(), given, self.datatype_writers.is_replicated())?;
        // The others remove nothing, and ignore a context as Riak does.
        let context = context.filter(|_| matches!(given, Datatype::Set | Datatype::Map));
        let context = context.map(|bytes| self.decode_datatype_context(&bytes, &address)).transpose();
        let context = context.map_err(DatatypeError::from)?;
        let work = DatatypeWork::Update { update, context, request_id };
        self.submit(&address, &planned.plan, replicas, work).await.map(drop)
    }

    /// The plan of a request to a data type.
    pub(crate) async fn plan_datatype(
        &self,
        bucket: &BucketAddress,
        timeout: Option<Duration>,
    ) -> Result<DatatypePlan> {
        let plan = self.plan_request(bucket, timeout).await?;
        let datatype = match plan.props.datatype {
            Some(datatype) => datatype,
            None if bucket.is_default_type() => Datatype::Counter,
            None => return Err(Error::NotDatatype),
        };
        // Riak looks at this property of the type `default` in updates alone.
        if !plan.props.allow_mult && !bucket.is_default_type() {
            return Err(Error::DatatypeNeedsSiblings);
        }
        Ok(DatatypePlan { plan, datatype })
    }

    /// Joins the next batch of the key, and waits for its answer.
    pub(crate) async fn submit(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        work: DatatypeWork,
    ) -> Result<DatatypeOutcome> {
        let bucket = &address.bucket;
        // Race: a write below a quorum may be missing where the next batch reads [invariant 109].
        let options = replicas.never_below(ConsistencyLevel::Quorum).options;
        let key = self.datatype_key(address, plan);
        let listing = match work {
            DatatypeWork::Update { .. } => self.known_buckets.bucket_row_change(bucket),
            DatatypeWork::Import(ref import) if import.state.is_some() => self.known_buckets.bucket_row_change(bucket),
            DatatypeWork::Delete { .. } | DatatypeWork::Import(_) => None,
        };
        let lists = listing.is_some();
        let outcome = self.datatype_writers.submit(key, JoinedUpdate { work, options, listing }).await?;
        if lists {
            // Noted after the write: a bucket noted before a failed one would never be listed.
            self.known_buckets.note_written(bucket);
        }
        Ok(outcome)
    }

    /// The partitions of a key.
    fn datatype_key(&self, address: &Address, plan: &RequestPlan) -> DatatypeKey {
        DatatypeKey {
            partition: Partition::datatype(address, plan.props.copies),
            bucket_view: Partition::buckets(&address.bucket.bucket_type, plan.props.copies),
            precision: plan.props.hll_precision,
            address: address.clone(),
        }
    }

    /// Decodes a client's context, and moves the clock past it.
    pub(crate) fn decode_datatype_context(
        &self,
        bytes: &Bytes,
        address: &Address,
    ) -> std::result::Result<DatatypeContext, ContextError> {
        let context = DatatypeContext::decode(bytes, address, self.context_clock_limit())
            .inspect_err(|_| self.context.metrics.count_event(larder_core::metrics::Event::ContextRefused))?;
        // Race: through a slow clock the update would be older than what its client saw [invariant 5].
        self.issuer.clock.observe(context.latest());
        Ok(context)
    }
}

/// Whether a key of this bucket may hold a legacy counter beside objects. One that was made while the bucket had `allow_mult`
/// stays when it has it no more.
pub(crate) fn may_hold_counter(bucket: &BucketAddress, props: &EffectiveProps) -> bool {
    bucket.is_default_type() && !props.consistent
}

fn check_request_id(id: Option<&Bytes>, datatype: Datatype, is_replicated: bool) -> Result<()> {
    let Some(id) = id else { return Ok(()) };
    // Race: over replicas the id of a map's update may be at a replica without the rest of its batch.
    let counts = datatype == Datatype::Counter || datatype == Datatype::Map && !is_replicated;
    if !counts || id.is_empty() || id.len() > REQUEST_ID_BYTES_MAX {
        return Err(DatatypeError::RequestId.into());
    }
    Ok(())
}
