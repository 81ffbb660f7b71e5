//! Reads an object: one page of one partition, then the bodies that are blobs.

use std::sync::Arc;

use bytes::Bytes;
use larder_core::body::{GetBody, open};
use larder_core::downgrade::DowngradableCall;
use larder_core::metrics::{Event, RequestOutcome};
use larder_core::node_context::PAGE_ROWS;
use larder_core::{Error, Result};
use larder_rows::Row;
use larder_rows::address::Address;
use larder_rows::content::{BlobRef, KvBody, KvContent};
use larder_store::{ConsistencyLevel, Kind, Partition, ReadQuery, RowPage, Stopped};

use super::request_plan::{ReplicaPlan, RequestPlan};
use super::{FetchedObject, KvDeleteOutcome, KvGet, Quorums};
use crate::Kv;
use crate::rules::causality::{ConflictPolicy, Context, KeyVersions, KeyWrite, Sibling, SingleVersion};

/// Restarts of a read because a blob was removed between the read of its row and of its bytes.
const RETRIES_MAX: usize = 8;

/// Rows of a key, as the replicas answered.
pub(super) struct ReadRows {
    pub(super) rows: Vec<Row>,
    /// Whether fewer replicas answered than the request asked for.
    downgraded: bool,
}

impl Kv {
    pub(super) async fn get_admitted(&self, request: KvGet) -> Result<FetchedObject> {
        let plan = self.plan_request(&request.address.bucket, request.timeout).await?;
        let replicas = self.plan_read(&plan, &request.quorums)?;
        let mut object = self.fetch(&request.address, &plan, replicas, request.bodies, None).await?;
        if object.versions.siblings.is_empty() {
            object = self.retry_not_found(&request, &plan, replicas, object).await?;
        }
        if object.versions.siblings.is_empty() {
            // A data type is shown where there is no object.
            return Ok(Box::pin(self.datatype_as_object(&request, &plan, replicas)).await?.unwrap_or(object));
        }
        let bytes = object.versions.siblings.iter().map(|sibling| sibling.content.body.length()).sum();
        self.context.metrics.record_read(bytes, object.versions.siblings.len(), self.context.monotonic());
        Ok(object)
    }

    /// Repeats a read that found nothing where `notfound_ok` is false: not-found counts as no reply then, so all live replicas
    /// are asked; with `basic_quorum` a quorum of not-founds is enough.
    async fn retry_not_found(
        &self,
        request: &KvGet,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        object: FetchedObject,
    ) -> Result<FetchedObject> {
        let Quorums { notfound_ok, basic_quorum, .. } = request.quorums;
        let basic = basic_quorum.unwrap_or(plan.props.basic_quorum);
        let wider = if basic { ConsistencyLevel::Quorum } else { ConsistencyLevel::All };
        let enough = notfound_ok.unwrap_or(plan.props.notfound_ok) || plan.props.consistent;
        if enough || replicas.options.level >= wider {
            return Ok(object);
        }
        // This read may be downgraded: with a replica down, an absent key would otherwise be an error [invariant 24].
        match self.fetch(&request.address, plan, replicas.at(wider), request.bodies, None).await {
            // Race: the replicas of the first answer died in between; that answer stands.
            Err(Error::Unsatisfied { .. } | Error::TimedOut) => Ok(object),
            other => other,
        }
    }

    /// Fetches an object, with its bodies if wanted; with `written`, as it is after that write, even if the replicas that answer
    /// lack it.
    pub(super) async fn fetch(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        bodies: bool,
        written: Option<&KeyWrite>,
    ) -> Result<FetchedObject> {
        for _ in 0..RETRIES_MAX {
            // Race: an overwrite may remove the blob between its row and the open; the next round reads the new row.
            let (versions, downgraded) = self.read_versions_after_write(address, plan, replicas, written).await?;
            let bodies = if bodies { self.open_bodies(&versions).await? } else { Some(Vec::new()) };
            if let Some(bodies) = bodies {
                let context = (!versions.context.is_empty()).then(|| versions.context.encode(address));
                return Ok(FetchedObject { versions, bodies, context, downgraded });
            }
        }
        // Bound: overwrites would have to hit each round; the bytes are gone.
        Err(Error::Damaged("a value's bytes are missing".into()))
    }

    /// Reads a key as siblings and context.
    pub(super) async fn read_versions(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<KeyVersions> {
        Ok(self.read_versions_after_write(address, plan, replicas, None).await?.0)
    }

    /// As [`Self::read_versions`], with `written` merged in; also whether fewer replicas answered than the request asked for.
    async fn read_versions_after_write(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        written: Option<&KeyWrite>,
    ) -> Result<(KeyVersions, bool)> {
        let ReadRows { mut rows, downgraded } = self.read_object_rows(address, plan, replicas).await?;
        // Race: the replicas that answer may lack the write, and the context would not name its row [invariant 16].
        if let (Some(written), true) = (written, self.context.ports.store.limits().replicated) {
            merge_own_write(&mut rows, written);
        }
        Ok((self.resolve_rows(plan, rows)?, downgraded))
    }

    /// Reads the rows of a key for a client.
    pub(super) async fn read_object_rows(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<ReadRows> {
        let partition = Partition::object(address, plan.props.consistent, plan.props.copies);
        // A compare-and-set head is current only at a quorum.
        let replicas = if plan.props.consistent {
            replicas.never_below(ConsistencyLevel::Quorum).without_downgrade()
        } else {
            replicas
        };
        self.read_all_pages(replicas, &partition).await
    }

    /// Resolves rows into siblings and context.
    pub(super) fn resolve_rows(&self, plan: &RequestPlan, rows: Vec<Row>) -> Result<KeyVersions> {
        let policy = if plan.props.consistent { ConflictPolicy::Newest } else { plan.policy };
        // Race: a client repeats a put whose answer was lost; both rows become one value here [invariant 8].
        let versions = KeyVersions::from_rows(rows, policy).map_err(|error| Error::Damaged(error.to_string()))?;
        // Race: through a slow clock a write based on these rows would be older than them [invariant 5].
        self.issuer.clock.observe(versions.latest());
        Ok(versions)
    }

    /// Reads all rows of a key's partition for a client.
    async fn read_all_pages(&self, replicas: ReplicaPlan, partition: &Partition) -> Result<ReadRows> {
        let mut call = replicas.read_call();
        let first = call.options.level;
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
            let page = self.read_with_downgrade(replicas, &mut call, partition, &query).await?;
            rows.extend(page.rows);
            if page.stopped == Stopped::End {
                return Ok(ReadRows { rows, downgraded: call.options.level < first });
            }
        }
    }

    /// Reads one page for a client. Later pages start at the level of this one.
    ///
    /// # Errors
    /// The store's, translated by [`ReplicaPlan::to_client_error`].
    async fn read_with_downgrade(
        &self,
        replicas: ReplicaPlan,
        call: &mut DowngradableCall,
        partition: &Partition,
        query: &ReadQuery,
    ) -> Result<RowPage> {
        loop {
            match self.context.ports.store.read(partition, query, &self.context.next_options(call)).await {
                Ok(page) => return Ok(page),
                Err(error) => self.context.downgrade(call, error).map_err(|error| replicas.to_client_error(error))?,
            }
            self.context.metrics.count_event(Event::ReadDowngraded);
        }
    }

    /// Opens the bodies; `None` when the only one was removed after its row was read. Of several, large ones are opened one by
    /// one as they are sent, so a read of siblings holds one at a time.
    async fn open_bodies(&self, versions: &KeyVersions) -> Result<Option<Vec<GetBody>>> {
        if let [Sibling { content: KvContent { body: KvBody::Blob(blob), .. }, .. }] = versions.siblings.as_slice() {
            return self.open_body(blob).await.map(|body| body.map(|body| vec![body]));
        }
        let body = |sibling: &Sibling| match &sibling.content.body {
            KvBody::Inline(bytes) => GetBody::Bytes(bytes.clone()),
            KvBody::Blob(blob) => GetBody::Later(Arc::clone(&self.context.ports.blobs), *blob),
        };
        Ok(Some(versions.siblings.iter().map(body).collect()))
    }

    async fn open_body(&self, blob: &BlobRef) -> Result<Option<GetBody>> {
        match open(self.context.ports.blobs.as_ref(), blob).await {
            Ok(reader) => Ok(Some(GetBody::Blob(reader))),
            Err(error) if error.kind == Kind::NoSuchBlob => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Merges a write into rows of replicas that may lack it: drops the rows that it removed and adds its own. A newer row of the
/// same name, which replaced it, wins.
fn merge_own_write(rows: &mut Vec<Row>, written: &KeyWrite) {
    // Race: a row of this name with a newer stamp is a later write into the slot; this write did not remove it.
    let gone = |row: &Row| written.superseded.iter().any(|gone| gone.name == row.name && row.stamp <= gone.clock);
    rows.retain(|row| !gone(row));
    let Some(written_row) = &written.row else { return };
    match rows.iter_mut().find(|row| row.name == written_row.name) {
        Some(row) if written_row.supersedes(row) => *row = written_row.clone(),
        Some(_) => {}
        None => rows.push(written_row.clone()),
    }
}

impl KvDeleteOutcome {
    pub(super) fn outcome(&self) -> RequestOutcome {
        match self {
            Self::Done => RequestOutcome::Ok,
            Self::NotFound(_) => RequestOutcome::NotFound,
        }
    }
}

impl FetchedObject {
    /// The outcome that metrics count.
    pub(super) fn outcome(&self) -> RequestOutcome {
        if self.versions.siblings.is_empty() { RequestOutcome::NotFound } else { RequestOutcome::Ok }
    }
}

/// An object with one live value, which is in its row. Its parts share the memory of the engine.
#[derive(Debug)]
pub struct SingleObject {
    /// The value.
    pub sibling: Sibling,
    /// Its bytes, empty or not.
    pub value: Bytes,
    /// As in [`crate::rules::causality::KeyVersions`].
    pub context: Context,
    /// The context to send back with the next write.
    pub encoded_context: Bytes,
}

impl Kv {
    /// Reads an object at once, if the engine reads on the caller's thread and the object is one live value in a row of at most
    /// `row_max` bytes. `None` says nothing, and counts no request: the caller then uses [`Self::get`], which answers the same
    /// for such an object.
    ///
    /// The read is counted as one of [`Self::get`], but not as active: it ends before anyone can look.
    #[must_use]
    pub fn try_get(&self, request: &KvGet, row_max: usize) -> Option<SingleObject> {
        // A read that does not wait takes no permit; where none is left the other way refuses the request.
        if self.context.is_full() {
            return None;
        }
        let begun = self.context.monotonic();
        let props = self.catalogue.peek(begun)?.effective(&request.address.bucket)?;
        // A compare-and-set head has its own table, and rules that depend on the engine.
        if props.consistent || self.read_counts(&props, &request.quorums).is_err() {
            return None;
        }
        let partition = Partition::object(&request.address, false, props.copies);
        let row = self.context.ports.store.try_read_single_row(&partition).filter(|row| row.value.len() <= row_max)?;
        let SingleVersion { sibling, context } = SingleVersion::from_row(row).ok()??;
        // The bytes of a blob are read with a wait.
        let KvBody::Inline(value) = &sibling.content.body else { return None };
        let value = value.clone();
        // Race: through a slow clock a write based on this row would be older than it [invariant 5].
        self.issuer.clock.observe(context.latest());
        let encoded_context = context.encode(&request.address);
        self.context.metrics.record_single_get(begun, value.len() as u64, self.context.monotonic());
        Some(SingleObject { sibling, value, context, encoded_context })
    }
}
