//! Commits one batch of a key: the rows that its changes need, one clock, one `apply`, and an answer for each.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use larder_core::{Error, Result};
use larder_rows::codec::prefix_successor;
use larder_rows::limits::{DATATYPE_MAP_PAGE_ROWS, DATATYPE_REMOVAL_BYTES_MAX, REQUEST_ID_MICROS};
use larder_rows::{Batch, Change, Row, Timestamp};
use larder_store::{CallOptions, Purpose, Range, ReadOrder, ReadQuery, Stopped};
use tokio::time::Instant;

use super::delete::check_conditions;
use super::reader::read_head;
use super::writers::{DatatypeKey, DatatypeOutcome, DatatypeWork, DatatypeWriters, WaitingUpdate};
use crate::known_buckets::key_view_changes;
use crate::rules::datatypes::{
    DatatypeEditor, DatatypeError, DatatypeHead, DatatypeLeaf, DatatypePath, DatatypeRowName, EditorTerms, FieldName,
    NeededRows,
};
use crate::rules::object_row::view_row_name;

/// Time in which the engine has said whether a batch is stored. Clients wait as long as they asked for.
const FATE_TIMEOUT: Duration = Duration::from_secs(600);

/// A value of so many bytes is kept, whatever row it is of.
const KEPT_VALUE_BYTES: usize = 256;

/// Bytes of a batch that are left for clock, entry and listing.
const REST_BYTES: usize = 64 * 1024;

/// The rows that a batch is decided on.
pub(super) struct BatchRows {
    pub(super) head: DatatypeHead,
    rows: Vec<Row>,
    oversized: Vec<DatatypePath>,
}

impl DatatypeWriters {
    /// Commits changes that share a batch. Returns those that found no room, and whether the key has markers.
    pub(super) async fn commit_group(
        &self,
        key: &DatatypeKey,
        group: Vec<WaitingUpdate>,
    ) -> (Vec<WaitingUpdate>, bool) {
        let options = joint_options(&group);
        let needs = self.needed_rows(key, &group);
        let begun = async {
            let batch_rows = self.read_rows_for_batch(key, needs, &options).await?;
            // Race: an entry that the batch removes may be in an epoch that opened before these reads [invariant 135].
            self.catalogue.await_fresh().await?;
            // Race: after the reads, so that the batch is newer than every row that it was decided on [invariant 5].
            Ok((batch_rows, self.issuer.issue().await?))
        };
        let (batch_rows, clock) = match begun.await {
            Ok(begun) => begun,
            Err(error) => {
                answer_all(group, &Err(error));
                return (Vec::new(), false);
            }
        };
        let head = batch_rows.head.clone();
        let mut editor = self.editor(key, batch_rows, clock);
        let mut applied: Vec<(WaitingUpdate, DatatypeOutcome)> = Vec::new();
        let mut group = group.into_iter();
        let mut deferred = Vec::new();
        let room = self.context.ports.store.limits().batch_max.saturating_sub(REST_BYTES);
        for waiting in group.by_ref() {
            let mark = editor.mark();
            let result = edit(&mut editor, &head, &waiting).inspect_err(|_| editor.roll_back(mark));
            if result.is_ok() && editor.bytes() > room {
                editor.roll_back(mark);
                if applied.is_empty() {
                    waiting.answer(Err(DatatypeError::UpdateTooLarge { part: "the update", max: room }.into()));
                    continue;
                }
                // It goes first in the next batch.
                deferred.push(waiting);
                break;
            }
            match result {
                Ok(outcome) => applied.push((waiting, outcome)),
                Err(error) => waiting.answer(Err(error)),
            }
        }
        deferred.extend(group);
        let has_markers = editor.has_markers();
        let batch = self.key_batch(key, &head, editor, &applied, clock);
        let written = match applied.is_empty() {
            true => Ok(()),
            // Crash: an empty batch waits for the sync, too: what its updates found may not be on disk yet [invariant 149].
            // Race: the batch is awaited longer than its clients wait: the next one, decided without it, would write over what
            // it stores late [invariant 111].
            false => self.context.ports.store.apply(batch, &until_decided(options)).await.map_err(Error::from),
        };
        // An unanswered batch is never sent again: it would bring back rows that were removed since [invariant 112].
        for (waiting, outcome) in applied {
            waiting.answer(written.clone().map(|()| outcome));
        }
        (deferred, has_markers)
    }

    fn editor(&self, key: &DatatypeKey, batch_rows: BatchRows, clock: Timestamp) -> DatatypeEditor {
        let forget = self.context.now().max(clock).saturating_add(REQUEST_ID_MICROS);
        let terms = EditorTerms { actor: self.actor(), clock, precision: key.precision, forget };
        DatatypeEditor::new(terms, batch_rows.head, batch_rows.rows, batch_rows.oversized)
    }

    fn needed_rows(&self, key: &DatatypeKey, group: &[WaitingUpdate]) -> BTreeSet<NeededRows> {
        let of_one = |waiting: &WaitingUpdate| match &waiting.joined.work {
            DatatypeWork::Update { update, request_id, .. } => {
                update.needs(self.actor(), key.precision, request_id.as_ref())
            }
            DatatypeWork::Delete { .. } => vec![NeededRows::to_remove(DatatypePath::root())],
        };
        group.iter().flat_map(of_one).collect()
    }

    async fn read_rows_for_batch(
        &self,
        key: &DatatypeKey,
        needs: BTreeSet<NeededRows>,
        options: &CallOptions,
    ) -> Result<BatchRows> {
        let head = read_head(&self.context, &key.partition, options).await?;
        let (mut rows, mut oversized) = (Vec::new(), Vec::new());
        let mut removal_bytes = DATATYPE_REMOVAL_BYTES_MAX;
        for needed in needs {
            let range = match needed.single {
                true => ReadQuery::one(needed.prefix.clone()).range,
                false => ReadQuery::prefix(needed.prefix.clone(), usize::MAX).range,
            };
            let bytes_max = if needed.removed.is_some() { removal_bytes } else { usize::MAX };
            let limit = ReadLimit { rows: needed.limit(), name_bytes: bytes_max };
            let range_rows = self.read_range(key, range, limit, options).await?;
            if let Some(path) = &needed.removed {
                let bytes = name_bytes(&range_rows);
                // Bound: a removal names each row that it takes; one that the batch has no room for leaves a marker.
                if !range_rows.is_empty() && (range_rows.len() >= limit.rows || bytes >= limit.name_bytes) {
                    oversized.push(path.clone());
                }
                removal_bytes = removal_bytes.saturating_sub(bytes);
            }
            rows.extend(range_rows);
        }
        let latest = rows.iter().map(|row| row.stamp).max().unwrap_or_default();
        self.issuer.clock.observe(latest.max(head.latest()));
        Ok(BatchRows { head, rows, oversized })
    }

    /// Reads the rows of a range up to a limit, in pages, without the values of large registers.
    pub(super) async fn read_range(
        &self,
        key: &DatatypeKey,
        range: Range,
        limit: ReadLimit,
        options: &CallOptions,
    ) -> Result<Vec<Row>> {
        let (mut rows, mut bytes): (Vec<Row>, usize) = (Vec::new(), 0);
        // At least one row: a removal has to see whether there is anything to remove.
        let page_max = if limit.name_bytes == 0 { 1 } else { DATATYPE_MAP_PAGE_ROWS };
        let mut query = ReadQuery { range, limit: page_max, order: ReadOrder::Forward };
        loop {
            query.limit = (limit.rows - rows.len()).min(page_max);
            let page = self.context.ports.store.read(&key.partition, &query, options).await?;
            // Reads from memory are never pending: without this a long one would keep its thread.
            tokio::task::consume_budget().await;
            bytes += name_bytes(&page.rows);
            rows.extend(page.rows.into_iter().map(without_register));
            match (page.stopped, rows.last()) {
                (Stopped::Limit, Some(last)) if rows.len() < limit.rows && bytes < limit.name_bytes => {
                    query.continue_after(&last.name);
                }
                _ => return Ok(rows),
            }
        }
    }

    /// The batch of the edits, with the entries of listings.
    fn key_batch(
        &self,
        key: &DatatypeKey,
        head: &DatatypeHead,
        editor: DatatypeEditor,
        applied: &[(WaitingUpdate, DatatypeOutcome)],
        clock: Timestamp,
    ) -> Batch {
        let changes = editor.finish();
        if changes.is_empty() {
            return Batch::default();
        }
        let entry = |actor: larder_rows::ActorId| view_row_name(&key.address.key, &actor.0.to_be_bytes());
        let deleted = applied.iter().find_map(|(waiting, _)| match &waiting.joined.work {
            DatatypeWork::Delete { context, .. } => Some(context.as_ref()),
            DatatypeWork::Update { .. } => None,
        });
        let entries: Vec<Change> = if let Some(context) = deleted {
            // Race: at the clocks that were read, so that a concurrent update keeps its entry [invariant 113].
            let gone = head.clocks_seen(context);
            gone.map(|(actor, stamp)| Change::Remove { name: entry(actor), stamp }).collect()
        } else {
            // Race: with every batch, or an update after another gateway's delete would not be listed [invariant 113].
            let value = Bytes::from_static(&[1]);
            vec![Change::Put(Row { name: entry(self.actor()), value, stamp: clock, expires: None })]
        };
        let mut batch = Batch::single(key.partition.clone(), changes);
        if deleted.is_none() && !head.exists() {
            self.index_growth.note_rows(&key.address.bucket, None, 1);
        }
        batch.partitions.extend(key_view_changes(&self.catalogue, &key.address, entries, false));
        let listing = applied.iter().find_map(|(waiting, _)| waiting.joined.listing.clone());
        batch.add(key.bucket_view.clone(), listing.into_iter().collect());
        batch
    }
}

/// Applies one change in the editor.
fn edit(editor: &mut DatatypeEditor, head: &DatatypeHead, waiting: &WaitingUpdate) -> Result<DatatypeOutcome> {
    match &waiting.joined.work {
        DatatypeWork::Update { update, context, request_id } => {
            editor.update(update, context.as_ref(), request_id.as_ref())?;
            Ok(DatatypeOutcome::Done)
        }
        DatatypeWork::Delete { context, conditions } => {
            // Race: here, where no other batch of the key comes between the check and the removal [invariant 15].
            check_conditions(conditions, head)?;
            if !head.exists() {
                return Ok(DatatypeOutcome::NotFound);
            }
            editor.delete(context.as_ref())?;
            Ok(DatatypeOutcome::Done)
        }
    }
}

/// Where a read of rows ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimit {
    rows: usize,
    /// Ends after the page with which the names reach so many bytes.
    name_bytes: usize,
}

impl ReadLimit {
    /// A limit of so many rows.
    pub(super) fn rows(rows: usize) -> Self {
        Self { rows, name_bytes: usize::MAX }
    }
}

fn name_bytes(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.name.len()).sum()
}

/// The row; of a large register without its value, on which no update is decided.
fn without_register(row: Row) -> Row {
    // Most rows have a short value, or none: to decode their names here would be for nothing.
    if row.value.len() <= KEPT_VALUE_BYTES {
        return row;
    }
    match DatatypeRowName::decode(&row.name) {
        Ok(DatatypeRowName::Data(_, DatatypeLeaf::Register(_))) => Row { value: Bytes::new(), ..row },
        _ => row,
    }
}

/// The options of a batch, with the time after which its fate is given up as unknown.
fn until_decided(options: CallOptions) -> CallOptions {
    CallOptions { deadline: options.deadline.max(Instant::now() + FATE_TIMEOUT), ..options }
}

/// Options for all: the strictest level and durability, and the last deadline.
fn joint_options(group: &[WaitingUpdate]) -> CallOptions {
    let mut joint = group[0].joined.options;
    for options in group.iter().map(|waiting| waiting.joined.options) {
        joint.level = joint.level.max(options.level);
        joint.durability = joint.durability.max(options.durability);
        joint.deadline = joint.deadline.max(options.deadline);
        // A full disk takes a batch that only frees space.
        if options.purpose == Purpose::Data {
            joint.purpose = Purpose::Data;
        }
    }
    joint
}

fn answer_all(group: Vec<WaitingUpdate>, result: &Result<DatatypeOutcome>) {
    group.into_iter().for_each(|waiting| waiting.answer(result.clone()));
}

/// The begin of a read of a data type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DatatypeBegin {
    /// The first row of the value.
    #[default]
    First,
    /// This element of a set, or the next one.
    AtElement(Bytes),
    /// The element after this one, whether the set has it or not.
    AfterElement(Bytes),
    /// This field of a map, or the next one.
    AtField(FieldName),
    /// The field after this one, whether the map has it or not.
    AfterField(FieldName),
}

impl DatatypeBegin {
    /// The rows from there on. A field's rows lie together, so a read that begins between two fields misses no part of one.
    pub(super) fn range(&self) -> Range {
        let root = DatatypePath::root();
        let (prefix, after) = match self {
            Self::First => (DatatypeRowName::DATA, false),
            Self::AtElement(element) => (root.element_prefix(element), false),
            Self::AfterElement(element) => (root.element_prefix(element), true),
            Self::AtField(field) => (root.child(field).prefix(), false),
            Self::AfterField(field) => (root.child(field).prefix(), true),
        };
        let from = if after { prefix_successor(&prefix) } else { Some(prefix) };
        Range { from: Some(from.unwrap_or(DatatypeRowName::DATA)), to: None }
    }
}
