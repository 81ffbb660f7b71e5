//! Deletes of data types, which come as deletes of key-value objects.

use larder_core::{Error, Result};
use larder_rows::address::Address;

use super::as_object::versions_of;
use super::{DatatypeOutcome, DatatypeWork};
use crate::request_plan::{ReplicaPlan, RequestPlan};
use crate::rules::causality::{Conditions, CurrentValue};
use crate::rules::datatypes::{DatatypeContext, DatatypeHead};
use crate::{Kv, KvDelete, KvDeleteOutcome};

impl Kv {
    /// Deletes what the key holds now, or what the context of the request covers; a concurrent update survives with its own
    /// content.
    ///
    /// # Errors
    /// [`Error::Condition`], and those of an update.
    pub(crate) async fn delete_datatype(
        &self,
        request: &KvDelete,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<KvDeleteOutcome> {
        self.check_engine_has_datatypes()?;
        let context = request.context.as_ref();
        let context = context.map(|bytes| self.decode_datatype_context(bytes, &request.address)).transpose()?;
        let work = DatatypeWork::Delete { context, conditions: request.conditions.clone() };
        match self.submit(&request.address, plan, replicas, work).await? {
            DatatypeOutcome::Done => Ok(KvDeleteOutcome::Done),
            DatatypeOutcome::NotFound => Ok(KvDeleteOutcome::NotFound(None)),
        }
    }

    /// Deletes the legacy counter that an object of the key hid, if there is one.
    pub(crate) async fn delete_hidden_counter(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<()> {
        if self.datatype_head(address, plan, replicas).await?.is_none() {
            return Ok(());
        }
        let work = DatatypeWork::Delete { context: None, conditions: Conditions::default() };
        self.submit(address, plan, replicas, work).await.map(drop)
    }

    /// Deletes of the legacy counter what an object replaces that was put with this context.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the object is there, and the counter may be.
    pub(crate) async fn delete_replaced_counter(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        context: DatatypeContext,
    ) -> Result<()> {
        let work = DatatypeWork::Delete { context: Some(context), conditions: Conditions::default() };
        match self.submit(address, plan, replicas.reclaiming(), work).await {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "removal of a replaced counter failed: the put is answered as timed out");
                Err(Error::TimedOut)
            }
        }
    }
}

/// Checks the conditions of a delete against the value that the key has.
pub(super) fn check_conditions(conditions: &Conditions, head: &DatatypeHead) -> Result<()> {
    if conditions.is_empty() {
        return Ok(());
    }
    let versions = if head.exists() { versions_of(None, head, bytes::Bytes::new()) } else { Default::default() };
    let (etag, modified) = (versions.etag(), versions.modified().unwrap_or_default().as_secs());
    let current = CurrentValue { etag: etag.as_deref(), modified, context: &versions.context };
    // The time matters to conditions of reads alone.
    conditions.check(current, false, modified).map_err(Error::Condition)
}
