//! Imports of data types: the state of a key at the source of a move, merged into the rows of clients.
//!
//! ```text
//! import -> the key's queue: no update of this gateway comes between -> the head, then all rows of the value, shown to a plan
//!        -> one machine: one batch of rows, clocks, what imports have seen, and the row of the moved key
//!           replicas:    rows and clocks first, and what vouches for them once a quorum has them
//! ```
//! The rules are in [`crate::rules::datatypes::ImportPlan`].

use bytes::Bytes;
use larder_core::node_context::yield_after;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::keyspace::moved_shard;
use larder_rows::limits::{DATATYPE_MAP_PAGE_ROWS, DATATYPE_PAGE_ROWS};
use larder_rows::{ActorId, Batch, Change, MovedRow, MovedState, PartitionChanges, Row, Timestamp};
use larder_store::{CallOptions, ConsistencyLevel, Partition, Range, ReadOrder, ReadQuery, Stopped};

use super::progress::{KeyProgress, SentBatch};
use super::writers::{DatatypeKey, DatatypeOutcome, DatatypeWork, DatatypeWriters};
use crate::known_buckets::key_view_changes;
use crate::request_plan::RequestPlan;
use crate::rules::datatypes::{
    Datatype, DatatypeError, DatatypeHead, DatatypeRowName, ImportChanges, ImportDifference, ImportPlan, ImportTerms,
    SourceDatatype,
};
use crate::rules::import_result::{ImportComparison, ImportOutcome};
use crate::rules::object_row::view_row_name;
use crate::{Kv, Quorums};

/// The state of a data type at the source of a move.
#[derive(Debug, Clone)]
pub struct DatatypeImport {
    /// Its address.
    pub address: Address,
    /// Its state there; `None`: the source has no value.
    pub state: Option<SourceDatatype>,
    /// Whether it is the whole truth: what was imported and is not in it is gone. False: its own clock says what it has seen.
    pub is_whole: bool,
    /// Whether the source showed twice that it knows nothing of what was imported before: the value was deleted and made anew.
    pub is_doubted: bool,
    /// Whether what was imported before is dropped in any case.
    pub is_repair: bool,
    /// Whether the next look at the key reads it again.
    pub concurrent: bool,
    /// The clock that the source sent with it.
    pub clock: Bytes,
}

impl Kv {
    /// Merges the state of a key at its source into the value here. It may be given again, and states in any order.
    ///
    /// # Errors
    /// [`Error::Datatype`] for a state that rows here cannot hold, [`Error::NotDatatype`] for one of another type than the bucket's,
    /// and those of an update.
    pub async fn import_datatype(&self, import: DatatypeImport) -> Result<ImportOutcome> {
        let _admitted = self.context.admit()?;
        self.check_clock()?;
        let planned = self.plan_import(&import).await?;
        let outcome = if import.state.is_some() { ImportOutcome::Imported } else { ImportOutcome::Deleted };
        let replicas = self.plan_write(&planned, &Quorums::default())?;
        let address = import.address.clone();
        self.submit(&address, &planned, replicas, DatatypeWork::Import(Box::new(import))).await?;
        Ok(outcome)
    }

    /// Compares a key with its state at the source.
    ///
    /// # Errors
    /// As [`Self::import_datatype`].
    pub async fn compare_datatype(&self, import: &DatatypeImport) -> Result<ImportComparison> {
        let _admitted = self.context.admit()?;
        let planned = self.plan_import(import).await?;
        let replicas = self.plan_read(&planned, &Quorums::default())?.never_below(ConsistencyLevel::Quorum);
        let key = self.datatype_key(&import.address, &planned);
        let writers = &self.datatype_writers;
        let head = writers.read_batch_head(&key, None, &replicas.options).await?;
        let terms = ImportTerms { state: import.state.as_ref(), is_whole: true, is_anew: false };
        let changes = writers.plan_import(&key, &head, terms, &replicas.options).await?;
        Ok(match (changes.is_nothing(), changes.difference) {
            (true, ImportDifference::Nothing) => ImportComparison::Equal,
            (true, ImportDifference::Clients) => ImportComparison::ChangedHere,
            (true, ImportDifference::Newer) | (false, _) => ImportComparison::Differs,
        })
    }

    /// Whether imports have brought a data type to this key.
    ///
    /// # Errors
    /// The store's.
    pub async fn has_imported_datatype(&self, address: &Address) -> Result<bool> {
        let plan = self.plan_request(&address.bucket, None).await?;
        let replicas = self.plan_read(&plan, &Quorums::default())?.never_below(ConsistencyLevel::Quorum);
        let key = self.datatype_key(address, &plan);
        let head = self.datatype_writers.read_batch_head(&key, None, &replicas.options).await?;
        Ok(head.import.is_some_and(|record| !record.clock.is_empty()))
    }

    async fn plan_import(&self, import: &DatatypeImport) -> Result<RequestPlan> {
        let planned = self.plan_datatype(&import.address.bucket, None).await?;
        if let Some(state) = &import.state {
            if state.datatype() != planned.datatype {
                return Err(Error::NotDatatype);
            }
            state.check(self.context.now())?;
        }
        Ok(planned.plan)
    }
}

impl DatatypeWriters {
    /// Makes an import, in the queue of its key.
    pub(super) async fn commit_import(
        &self,
        key: &DatatypeKey,
        import: &DatatypeImport,
        listing: Option<Change>,
        progress: &mut KeyProgress,
        options: CallOptions,
    ) -> Result<DatatypeOutcome> {
        if progress.has_unanswered() {
            // What a batch without an answer holds is to be seen by the reads below.
            self.settle(key, progress).await?;
        }
        let head = self.read_batch_head(key, None, &options).await?;
        let is_apart = |state| head.import.as_ref().is_some_and(|record| record.is_apart(state));
        let is_anew = import.is_repair || import.is_doubted && import.state.as_ref().is_some_and(is_apart);
        let terms = ImportTerms { state: import.state.as_ref(), is_whole: import.is_whole, is_anew };
        let changes = self.plan_import(key, &head, terms, &options).await?;
        // Race: an entry that the batch removes may be in an epoch that opened before these reads [invariant 135].
        self.catalogue.await_fresh().await?;
        // Race: through a slow clock the note of this import would be older than the one that it read [invariant 5].
        self.issuer.clock.observe(head.latest());
        let clock = self.issuer.issue().await?;
        if !head.exists() && !changes.clocks.is_empty() {
            self.index_growth.note_rows(&key.address.bucket, None, 1);
        }
        let confirmed = head.clocks.get(&self.actor()).copied().unwrap_or_default();
        let sent = SentBatch { clock, confirmed, actors: head.clocks.len() + changes.clocks.len() };
        let value = self.value_batch(key, &head, &changes, listing);
        let bytes = value.bytes();
        let max = self.context.ports.store.limits().batch_max;
        if bytes > max {
            return Err(DatatypeError::UpdateTooLarge { part: "the data type at the source", max }.into());
        }
        let record = self.record_batch(key, import, &head, &changes, clock);
        if !self.is_replicated() {
            // Crash: in one batch, so that no crash leaves rows that no import knows, or the reverse [invariant 199].
            self.write(key, joined(value, record), sent, progress, options).await?;
            return Ok(DatatypeOutcome::Done);
        }
        self.write(key, value, sent, progress, options).await?;
        // Race: once a quorum has the rows; an import that found this alone would take them for removed here [invariant 199].
        self.write(key, record, sent, progress, options).await?;
        Ok(DatatypeOutcome::Done)
    }

    /// Shows all rows of a key to the plan of an import.
    pub(super) async fn plan_import(
        &self,
        key: &DatatypeKey,
        head: &DatatypeHead,
        terms: ImportTerms<'_>,
        options: &CallOptions,
    ) -> Result<ImportChanges> {
        let mut plan = ImportPlan::new(terms, head);
        let range = Range { from: Some(DatatypeRowName::DATA), to: None };
        // Registers may be large, so a page of a map has few rows.
        let is_flat = terms.state.is_some_and(|state| state.datatype() != Datatype::Map);
        let limit = if is_flat { DATATYPE_PAGE_ROWS } else { DATATYPE_MAP_PAGE_ROWS };
        let mut query = ReadQuery { range, limit, order: ReadOrder::Forward };
        loop {
            let page = self.context.ports.store.read(&key.partition, &query, options).await?;
            yield_after(page.stopped).await;
            let next = page.rows.last().map(|row| row.name.clone());
            page.rows.into_iter().try_for_each(|row| plan.see(row))?;
            match (page.stopped, next) {
                (Stopped::Limit, Some(next)) => query.continue_after(&next),
                _ => return Ok(plan.finish()),
            }
        }
    }

    /// The rows of the value, its clocks, and its entries in listings.
    fn value_batch(
        &self,
        key: &DatatypeKey,
        head: &DatatypeHead,
        changes: &ImportChanges,
        listing: Option<Change>,
    ) -> Batch {
        let confirmed = |actor: ActorId, clock| match self.is_replicated() {
            true => head.confirmed.get(&actor).copied().unwrap_or_default(),
            false => clock,
        };
        let mut rows = changes.rows.clone();
        rows.extend(changes.clock_rows(confirmed));
        rows.extend(changes.gone_rows());
        let mut batch = Batch::default();
        batch.add(key.partition.clone(), rows);
        batch.partitions.extend(key_view_changes(&self.catalogue, &key.address, entries(key, changes), false));
        batch.add(key.bucket_view.clone(), listing.into_iter().collect());
        batch
    }

    /// What imports have seen, and the row of the moved key; over replicas also that a quorum has the rows.
    fn record_batch(
        &self,
        key: &DatatypeKey,
        import: &DatatypeImport,
        head: &DatatypeHead,
        changes: &ImportChanges,
        clock: Timestamp,
    ) -> Batch {
        let mut rows = Vec::new();
        if head.import.as_ref() != Some(&changes.record) {
            rows.push(changes.record_row(clock));
        }
        if self.is_replicated() {
            // Race: at the stamp that the clock has: of equal stamps the greater value wins, and a removal over both [invariant 152].
            rows.extend(changes.clock_rows(|_, clock| clock));
        }
        let mut batch = Batch::default();
        batch.add(key.partition.clone(), rows);
        let moved = moved_changes(import, clock);
        batch.add(moved.partition, moved.changes);
        batch
    }
}

/// One batch of both.
fn joined(mut batch: Batch, other: Batch) -> Batch {
    for part in other.partitions {
        match batch.partitions.iter_mut().find(|known| known.partition == part.partition) {
            Some(known) => known.changes.extend(part.changes),
            None => batch.partitions.push(part),
        }
    }
    batch
}

/// The entries of listings: one for each clock, which a delete removes with it.
fn entries(key: &DatatypeKey, changes: &ImportChanges) -> Vec<Change> {
    let entry = |actor: ActorId| view_row_name(&key.address.key, &actor.0.to_be_bytes());
    let value = Bytes::from_static(&[1]);
    let put = |(actor, stamp): (&ActorId, &Timestamp)| {
        Change::Put(Row { name: entry(*actor), value: value.clone(), stamp: *stamp, expires: None })
    };
    let gone = |(actor, stamp): (&ActorId, &Timestamp)| Change::Remove { name: entry(*actor), stamp: *stamp };
    changes.clocks.iter().map(put).chain(changes.gone.iter().map(gone)).collect()
}

/// The row of the moved key.
fn moved_changes(import: &DatatypeImport, clock: Timestamp) -> PartitionChanges {
    let row = MovedRow {
        state: if import.state.is_some() { MovedState::Here } else { MovedState::Deleted },
        concurrent: import.concurrent,
        complete: true,
        written: u32::from(import.state.is_some()),
        stamp: clock,
        clock: import.clock.clone(),
    };
    let address = &import.address;
    let row = Row { name: address.key.clone(), value: row.encode(), stamp: clock, expires: None };
    PartitionChanges::new(Partition::moved(&address.bucket, moved_shard(&address.key)), vec![Change::Put(row)])
}
