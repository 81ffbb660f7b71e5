//! Heads and their shadows on a store that cannot write two partitions in one commit, as Cassandra cannot.
//!
//! ```text
//! writer    1  plain write     shadow @stamp-1   pending: ask the head (which row it is stands there)
//!           2  apply_if        head @stamp       holds its value and what its shadow reads as
//!           3  plain write     shadow @stamp     confirmed
//!
//! reader of a pending shadow @p asks the head:
//!           head newer than p                    it says what the shadow is; confirm that at the head's stamp
//!           head not newer, p is young           a writer may be between 1 and 2: answer what the head says, change nothing
//!           head not newer, p is old             touch the head (same value, greater stamp), so that the writer's guard fails;
//!                                                confirm at the new stamp
//!           no head, p is a day old              remove it
//! ```
//! The head alone decides: once step 2 is done the shadow reads as it says, whatever becomes of step 3; before that it reads as
//! the old head says. The order of confirmations is that of heads, because they carry the heads' stamps: a late one loses. A
//! pending shadow that nobody confirmed is never just dropped: its writer may only be slow. What has no head cannot be touched;
//! there a day stands for "no writer is that slow", as it does for deleted heads, which their owners keep so long.
//!
//! A shadow that is not there is kept as a row that says so and expires after a day, since engines differ in whether a removal
//! keeps an older write away. A page of shadows is not of one moment: each of its rows is as new as its head was during the read.

mod form;
mod resolve;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::traits::name_behind;
use crate::{
    Batch, Change, Durability, EngineLimits, Error, Head, Kind, Level, Micros, Options, Order, Page, Partition,
    PartitionPage, ReadQuery, Result, Row, Shadow, Stamp, Stopped, Store, Swap, Table, contract,
};

use form::{Entry, HeadName};
use resolve::Pending;

/// Rows read at least when a page goes on: rows that are not there must not make many small reads.
const READ_ON_MIN: usize = 64;
/// Pending shadows of a page whose heads are asked at a time.
const RESOLVED_AT_ONCE: usize = 16;
/// What forms may add to the bytes of a swap, beside one byte for each row.
const FORM_BYTES_MAX: usize = 64;

/// The rules that a schedule proves necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A head that may come is announced at its shadow before it is written.
    AnnounceFirst,
    /// A confirmation carries the stamp of its head, not that of its own moment.
    ConfirmAtHeadStamp,
    /// A head is touched before a pending shadow that it does not confirm is discarded.
    TouchBeforeDiscard,
}

/// A store whose shadows are kept by protocol. `S` is only asked for swaps without shadows.
pub struct Shadowed<S: ?Sized> {
    #[cfg(any(test, feature = "rules"))]
    off: Option<Rule>,
    inner: Arc<S>,
}

impl<S: ?Sized> Shadowed<S> {
    /// Keeps shadows in `inner`. All ways to one store must be wrapped.
    #[must_use]
    pub fn new(inner: Arc<S>) -> Self {
        Self {
            #[cfg(any(test, feature = "rules"))]
            off: None,
            inner,
        }
    }

    /// As [`Self::new`], with one rule switched off.
    #[cfg(any(test, feature = "rules"))]
    #[must_use]
    pub fn without(inner: Arc<S>, rule: Rule) -> Self {
        Self { off: Some(rule), inner }
    }

    #[cfg(any(test, feature = "rules"))]
    fn has(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    #[cfg(not(any(test, feature = "rules")))]
    fn has(&self, _: Rule) -> bool {
        true
    }
}

impl<S: Store + ?Sized> Shadowed<S> {
    /// A page of shadows: pending ones are resolved, absent ones left out, and the page goes on until it is full.
    async fn shadows(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        contract::limit(query.limit)?;
        let mut rows = Vec::new();
        let mut rest = query.clone();
        loop {
            let page = self.inner.read(partition, &rest, options).await?;
            let last = page.rows.last().map(|row| row.name.clone());
            let shown = page.rows.into_iter().map(|row| self.shown(partition, row, options));
            let mut shown = stream::iter(shown).buffered(RESOLVED_AT_ONCE);
            while let Some(row) = shown.next().await {
                if rows.len() == query.limit {
                    return Ok(Page { rows, stopped: Stopped::Limit });
                }
                rows.extend(row?);
            }
            match (page.stopped, last) {
                (Stopped::Limit, Some(last)) if rows.len() < query.limit => go_on(&mut rest, &last),
                (stopped, _) => return Ok(Page { rows, stopped }),
            }
            rest.limit = (query.limit - rows.len()).max(READ_ON_MIN);
            in_time(options)?;
        }
    }

    /// The row as its reader sees it, if there is one.
    async fn shown(&self, partition: &Partition, row: Row, options: &Options) -> Result<Option<Row>> {
        match form::of_entry(row.value)? {
            Entry::Confirmed(value) => Ok(Some(Row { value, ..row })),
            Entry::Absent => Ok(None),
            Entry::Pending(head) => {
                self.resolve(&Pending { partition, name: &row.name, stamp: row.stamp, head: &head }, options).await
            }
        }
    }

    /// Announces that a head with this stamp may come.
    async fn announce(&self, shadow: &Shadow, head: HeadName, stamp: Stamp, options: &Options) -> Result<()> {
        // One between the old head and the new one: later than the old confirmation, earlier than the new one.
        let row = form::pending(shadow.name.clone(), &head, stamp - 1);
        let options = Options { level: options.level.max(Level::Quorum), ..*options };
        self.inner.apply(Batch::of(shadow.partition.clone(), vec![Change::Put(row)]), &options).await
    }

    /// Writes down what a head says. Whether this succeeds matters to nobody: until then readers ask the head.
    async fn confirm(&self, shadow: &Shadow, stamp: Stamp, options: &Options) {
        let options = Options { durability: Durability::Buffered, ..*options };
        let stamp = if self.has(Rule::ConfirmAtHeadStamp) { stamp } else { self.now(&options).await.unwrap_or(stamp) };
        let row = form::settled(shadow.name.clone(), shadow.value.as_ref(), stamp);
        let _ = self.inner.apply(Batch::of(shadow.partition.clone(), vec![Change::Put(row)]), &options).await;
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Shadowed<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        if holds_shadows(partition.table) {
            return self.shadows(partition, query, options).await;
        }
        let mut page = self.inner.read(partition, query, options).await?;
        if partition.table.is_guarded() {
            page.rows = page.rows.into_iter().map(without_form).collect::<Result<_>>()?;
        }
        Ok(page)
    }

    async fn apply(&self, mut batch: Batch, options: &Options) -> Result<()> {
        contract::batch(&batch, self.limits().batch_max)?;
        for one in batch.partitions.iter_mut().filter(|one| holds_shadows(one.partition.table)) {
            let changes = std::mem::take(&mut one.changes).into_iter();
            one.changes = changes.map(|change| form::reformed(change, form::confirmed)).collect();
        }
        self.inner.apply(batch, options).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        mut changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        changes.push(Change::Put(head.row.clone()));
        contract::swap(partition, expected, &head, &changes, self.limits().batch_max)?;
        changes.pop();
        let Head { row, shadow } = head;
        let (name, stamp) = (row.name.clone(), row.stamp);
        let row = Row { value: form::guarded(&row.value, shadow.as_ref()), ..row };
        let changes = changes.into_iter().map(|change| form::reformed(change, |value| form::guarded(value, None)));
        if let Some(shadow) = shadow.as_ref().filter(|_| self.has(Rule::AnnounceFirst)) {
            let head = HeadName { partition: partition.clone(), row: name };
            self.announce(shadow, head, stamp, options).await?;
        }
        // Should this answer an error, the head tells whoever reads the pending shadow what has happened.
        match self.inner.apply_if(partition, expected, row.into(), changes.collect(), options).await? {
            Swap::Applied => {
                if let Some(shadow) = &shadow {
                    self.confirm(shadow, stamp, options).await;
                }
                Ok(Swap::Applied)
            }
            Swap::Conflict(head) => Ok(Swap::Conflict(head.map(without_form).transpose()?)),
        }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        let PartitionPage { partitions, next } = self.inner.partitions(table, after, limit, options).await?;
        if !holds_shadows(table) {
            return Ok(PartitionPage { partitions, next });
        }
        let mut live = Vec::new();
        for partition in partitions {
            if !self.shadows(&partition, &ReadQuery::all(1), options).await?.rows.is_empty() {
                live.push(partition);
            }
        }
        Ok(PartitionPage { partitions: live, next })
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        let inner = self.inner.limits();
        // A row counts for 17 bytes at least with its form, for 16 without.
        EngineLimits { batch_max: (inner.batch_max / 17 * 16).saturating_sub(FORM_BYTES_MAX), ..inner }
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

fn holds_shadows(table: Table) -> bool {
    Shadow::TABLES.contains(&table)
}

/// A row of a guarded table as callers know it.
fn without_form(row: Row) -> Result<Row> {
    let (value, _) = form::of_guarded(row.value)?;
    Ok(Row { value, ..row })
}

/// Lets a query begin behind the last row seen.
fn go_on(query: &mut ReadQuery, last: &Bytes) {
    match query.order {
        Order::Forward => query.range.from = Some(name_behind(last)),
        Order::Reverse => query.range.to = Some(last.clone()),
    }
}

fn in_time(options: &Options) -> Result<()> {
    if Instant::now() >= options.deadline {
        return Err(Error::new(Kind::TimedOut, "the deadline passed between the reads of a page"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
