//! Deletes of data types, which come as deletes of key-value objects.

use larder_model::causality::FailedCondition;

use super::{DatatypeOutcome, DatatypeWork, may_hold_counter};
use crate::kv::request_plan::{ReplicaPlan, RequestPlan};
use crate::kv::{Kv, KvDelete, KvDeleteOutcome};
use crate::{Error, Result};

impl Kv {
    /// Deletes what the key holds now, or what the context of the request covers; a concurrent update survives with its own
    /// content.
    ///
    /// # Errors
    /// [`Error::Condition`] for conditions, which a data type has nothing to check against, and those of an update.
    pub(crate) async fn delete_datatype(
        &self,
        request: &KvDelete,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<KvDeleteOutcome> {
        self.check_engine_has_datatypes()?;
        if !request.conditions.is_empty() {
            return Err(Error::Condition(FailedCondition::Precondition));
        }
        let context = request.context.as_ref();
        let context = context.map(|bytes| self.decode_datatype_context(bytes, &request.address)).transpose()?;
        match self.submit(&request.address, plan, replicas, DatatypeWork::Delete { context }).await? {
            DatatypeOutcome::Done => Ok(KvDeleteOutcome::Done),
            DatatypeOutcome::NotFound => Ok(KvDeleteOutcome::NotFound(None)),
        }
    }

    /// Deletes the legacy counter of a key, if there is one.
    pub(crate) async fn delete_legacy_counter(
        &self,
        request: &KvDelete,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<KvDeleteOutcome> {
        let is_possible = may_hold_counter(&request.address.bucket, &plan.props) && request.conditions.is_empty();
        match is_possible && self.check_engine_has_datatypes().is_ok() {
            true => self.delete_datatype(request, plan, replicas).await,
            false => Ok(KvDeleteOutcome::NotFound(None)),
        }
    }
}
