//! The rows that a batch of a key is decided on: the head, what its changes need, and over them what an earlier batch may have
//! stored.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::future::{try_join, try_join_all};
use larder_core::Result;
use larder_core::node_context::yield_after;
use larder_rows::Row;
use larder_rows::codec::name_after;
use larder_rows::limits::{DATATYPE_EDITS_MAX, DATATYPE_MAP_PAGE_ROWS, DATATYPE_REMOVAL_BYTES_MAX};
use larder_store::{CallOptions, Range, ReadOrder, ReadQuery, Stopped};

use super::unanswered::UnansweredBatch;
use super::writers::{DatatypeKey, DatatypeWriters};
use crate::rules::datatypes::{
    ActorClocks, DatatypeContext, DatatypeError, DatatypeHead, DatatypeLeaf, DatatypePath, DatatypeRowName, NeededRows,
};

/// A value of so many bytes is kept, whatever row it is of.
const KEPT_VALUE_BYTES: usize = 256;

/// What the changes of a batch need to be decided.
#[derive(Debug)]
pub(super) struct BatchNeeds<'a> {
    pub(super) rows: BTreeSet<NeededRows>,
    /// The contexts of its removals.
    pub(super) contexts: Vec<&'a DatatypeContext>,
}

/// The rows that a batch is decided on.
#[derive(Debug, Default)]
pub(super) struct BatchRows {
    pub(super) head: DatatypeHead,
    pub(super) rows: Vec<Row>,
    /// The parts to remove that have more rows than were read.
    pub(super) oversized: Vec<DatatypePath>,
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

impl DatatypeWriters {
    /// Reads the head and the rows that changes need; `unanswered` is the batch before, which the engine may not show.
    pub(super) async fn read_rows_for_batch(
        &self,
        key: &DatatypeKey,
        needs: BatchNeeds<'_>,
        unanswered: Option<&UnansweredBatch>,
        options: &CallOptions,
    ) -> Result<BatchRows> {
        let (removals, others): (Vec<_>, Vec<_>) = needs.rows.into_iter().partition(|needed| needed.removed.is_some());
        // At the same time: what a read shows is removed or written over at its own stamp, whichever of them was first.
        let (head, mut rows) = try_join(
            self.read_batch_head(key, unanswered, options),
            try_join_all(others.iter().map(|needed| self.read_needed(key, needed, unanswered, options))),
        )
        .await
        .map(|(head, rows)| (head, rows.concat()))?;
        let mut oversized = Vec::new();
        let mut removal_bytes = DATATYPE_REMOVAL_BYTES_MAX;
        for needed in removals {
            let Some(path) = &needed.removed else { continue };
            let range = range_of(&needed);
            let limit = ReadLimit { rows: needed.limit(), name_bytes: removal_bytes };
            let read = self.read_range(key, range.clone(), limit, options).await?;
            let bytes = name_bytes(&read);
            // Bound: a removal names each row that it takes; one that the batch has no room for leaves a marker.
            if !read.is_empty() && (read.len() >= limit.rows || bytes >= limit.name_bytes) {
                oversized.push(path.clone());
                if let Some(last) = read.last().filter(|_| self.is_replicated()) {
                    let mut range = ReadQuery::prefix(path.prefix(), usize::MAX).range;
                    range.from = Some(name_after(&last.name));
                    let is_single = |row: &Row| is_single(row, &head.confirmed, &needs.contexts);
                    rows.extend(self.read_single_rows(key, range, is_single, options).await?);
                }
            }
            removal_bytes = removal_bytes.saturating_sub(bytes);
            rows.extend(shown_with(unanswered, key, &range, read));
        }
        let latest = rows.iter().map(|row| row.stamp).max().unwrap_or_default();
        self.issuer.clock.observe(latest.max(head.latest()));
        Ok(BatchRows { head, rows, oversized })
    }

    async fn read_needed(
        &self,
        key: &DatatypeKey,
        needed: &NeededRows,
        unanswered: Option<&UnansweredBatch>,
        options: &CallOptions,
    ) -> Result<Vec<Row>> {
        let rows = self.read_range(key, range_of(needed), ReadLimit::rows(needed.limit()), options).await?;
        Ok(shown_with(unanswered, key, &range_of(needed), rows))
    }

    /// Reads the head as a batch is decided on it.
    pub(super) async fn read_batch_head(
        &self,
        key: &DatatypeKey,
        unanswered: Option<&UnansweredBatch>,
        options: &CallOptions,
    ) -> Result<DatatypeHead> {
        let range = Range { from: None, to: Some(DatatypeRowName::DATA) };
        let rows = self.read_range(key, range.clone(), ReadLimit::rows(usize::MAX), options).await?;
        let rows = shown_with(unanswered, key, &range, rows);
        let mut head = DatatypeHead::default();
        rows.iter().try_for_each(|row| head.add(row)).map_err(DatatypeError::from)?;
        Ok(if self.is_replicated() { head } else { head.all_confirmed() })
    }

    /// On replicas: the rest of the rows in an oversized part that its marker does not take.
    async fn read_single_rows(
        &self,
        key: &DatatypeKey,
        range: Range,
        is_single: impl Fn(&Row) -> Result<bool>,
        options: &CallOptions,
    ) -> Result<Vec<Row>> {
        let mut single = Vec::new();
        let mut query = ReadQuery { range, limit: DATATYPE_MAP_PAGE_ROWS, order: ReadOrder::Forward };
        loop {
            let page = self.context.ports.store.read(&key.partition, &query, options).await?;
            yield_after(page.stopped).await;
            let next = page.rows.last().map(|row| row.name.clone());
            for row in page.rows.into_iter().map(without_register) {
                if is_single(&row)? {
                    single.push(row);
                }
            }
            // Bound: these rows are in memory, and the batch names each of them.
            if single.len() > DATATYPE_EDITS_MAX {
                let part = "counters and recent updates in a removed part";
                return Err(DatatypeError::TooMany { part, max: DATATYPE_EDITS_MAX }.into());
            }
            match (page.stopped, next) {
                (Stopped::Limit, Some(next)) => query.continue_after(&next),
                _ => return Ok(single),
            }
        }
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
            yield_after(page.stopped).await;
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
}

/// The rows to read.
fn range_of(needed: &NeededRows) -> Range {
    match needed.single {
        true => ReadQuery::one(needed.prefix.clone()).range,
        false => ReadQuery::prefix(needed.prefix.clone(), usize::MAX).range,
    }
}

/// The rows of a range as they are once the batch before is stored.
fn shown_with(unanswered: Option<&UnansweredBatch>, key: &DatatypeKey, range: &Range, rows: Vec<Row>) -> Vec<Row> {
    match unanswered {
        Some(unanswered) => unanswered.shown_over(&key.partition, range, rows),
        None => rows,
    }
}

/// Whether a removal takes this row one by one, whatever the size of its part: shares of counters, rows that a quorum is not known to
/// have, and those that a context names.
fn is_single(row: &Row, confirmed: &ActorClocks, contexts: &[&DatatypeContext]) -> Result<bool> {
    let DatatypeRowName::Data(_, leaf) = DatatypeRowName::decode(&row.name).map_err(DatatypeError::from)? else {
        return Ok(false);
    };
    let is_within = |actor, clock| confirmed.get(&actor).is_some_and(|last| clock <= *last);
    Ok(match leaf {
        DatatypeLeaf::Counter(_) | DatatypeLeaf::Increment(_) | DatatypeLeaf::Resets(_) => true,
        // Race: the row was confirmed after the read whose context names it; the marker has the clocks of that read [invariant 165].
        _ if contexts.iter().any(|context| context.names(&row.name, row.stamp)) => true,
        _ => leaf.actor().is_some_and(|actor| !is_within(actor, row.stamp)),
    })
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
