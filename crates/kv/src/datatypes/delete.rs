//! Deletes of data types, which come as deletes of key-value objects.

use bytes::Bytes;
use larder_core::node_context::internal_options;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::codec::{name_after, prefix_successor};
use larder_rows::limits::DATATYPE_PAGE_ROWS;
use larder_rows::{Batch, Change, Row};
use larder_store::{ConsistencyLevel, ReadQuery};

use super::batch_rows::ReadLimit;
use super::reader::{datatype_versions, read_head};
use super::writers::{DatatypeKey, DatatypeWriters};
use super::{DatatypeOutcome, DatatypeWork};
use crate::request_plan::{ReplicaPlan, RequestPlan};
use crate::rules::causality::{Conditions, CurrentValue};
use crate::rules::datatypes::{DatatypeContext, DatatypeError, DatatypeHead, DatatypeRowName, RemovalMarker};
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
    let versions = if head.exists() { datatype_versions(None, head, bytes::Bytes::new()) } else { Default::default() };
    let (etag, modified) = (versions.etag(), versions.modified().unwrap_or_default().as_secs());
    let current = CurrentValue { etag: etag.as_deref(), modified, context: &versions.context };
    // The time matters to conditions of reads alone.
    conditions.check(current, false, modified).map_err(Error::Condition)
}

impl DatatypeWriters {
    /// Cleans one page below the first marker; whether there is more to clean.
    ///
    /// # Errors
    /// The store's; markers stay, and hide what they cover.
    pub(super) async fn clean_page(&self, key: &DatatypeKey) -> Result<bool> {
        let options = internal_options(ConsistencyLevel::Quorum);
        let head = read_head(&self.context, &key.partition, &options).await?;
        let Some(marker) = head.markers.first() else { return Ok(false) };
        let mut range = ReadQuery::prefix(marker.path.prefix(), DATATYPE_PAGE_ROWS).range;
        loop {
            let rows = self.read_range(key, range.clone(), ReadLimit::rows(DATATYPE_PAGE_ROWS), &options).await?;
            let ended = rows.len() < DATATYPE_PAGE_ROWS;
            let last = rows.last().map(|row| row.name.clone());
            let mut changes = covered(&head, marker, rows)?;
            // Crash: the marker goes with the last page, or rows that it hid would be seen again [invariant 114].
            if ended {
                let name = DatatypeRowName::Marker(marker.path.clone(), marker.remover).encode();
                changes.push(Change::Remove { name, stamp: marker.stamp });
            }
            if !changes.is_empty() {
                self.context.apply_at_quorum(Batch::single(key.partition.clone(), changes)).await?;
                return Ok(!ended || head.markers.len() > 1);
            }
            // A page of live rows only: updates since the marker.
            range.from = last.map(|last| next_name(marker, &last));
        }
    }
}

/// The name to go on with after this one. Ids of requests expire by themselves, and a day may have left any number.
fn next_name(marker: &RemovalMarker, last: &Bytes) -> Bytes {
    let requests = marker.path.requests_prefix();
    let behind = prefix_successor(&requests).filter(|_| last.starts_with(&requests));
    behind.unwrap_or_else(|| name_after(last))
}

/// The removals of the rows that the marker covers.
fn covered(head: &DatatypeHead, marker: &RemovalMarker, rows: Vec<Row>) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for row in rows {
        let name = DatatypeRowName::decode(&row.name).map_err(DatatypeError::from)?;
        let DatatypeRowName::Data(path, leaf) = name else { continue };
        if marker.path.contains(&path) && head.is_dead(&path, &leaf, row.stamp) {
            changes.push(Change::Remove { name: row.name, stamp: row.stamp });
        }
    }
    Ok(changes)
}
