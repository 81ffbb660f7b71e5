//! The listing protocol: heads and their derived rows on a store that cannot write two partitions in one commit, such
//! as Cassandra.
//!
//! An object's *head* is a row of a guarded table; it changes by compare-and-set. Its listing entry is a *derived row*:
//! a row in another partition whose value the head decides, like the entry of a secondary index. A listing must never
//! show a stale entry, and a writer may crash or pause between any two writes. So the writer announces its change with
//! an *intent*, like a write intent of CockroachDB or a Percolator lock, and readers resolve the intents they meet:
//!
//! ```text
//!              derived row (plain table)             head (guarded table)
//!
//! writer  1    write intent        @stamp-1                                         names the head
//!         2                                     ──>  compare-and-set      @stamp    value, and value of the derived row
//!         3    write confirmed row @stamp       <──                                 may fail: readers resolve the intent
//!
//! reader of an intent @p reads the head:
//!         head newer than p                  the head has decided: return its value, write the confirmed row
//!         head not newer, intent is young    the writer may be between 1 and 2: return the head's value, write nothing
//!         head not newer, intent is old      fence the writer: rewrite the head unchanged with a greater stamp, so that its
//!                                            compare-and-set fails; then write the confirmed row at that stamp
//!         no head, intent is a day old       remove the intent
//! ```
//! Why this is correct:
//!
//! - **The head alone decides.** After step 2 every reader of the intent returns the new value, whether or not step 3
//!   happens. Before step 2 every reader returns the old value. The compare-and-set of the head is the commit point.
//! - **An intent hides the row it replaces, and the confirmed row hides the intent.** The intent has the stamp between
//!   the old head and the new one; a head with a derived row therefore grows by at least two.
//! - **Confirmed rows have the order of heads.** A confirmed row carries the stamp of its head. A writer that is late
//!   with step 3 loses to the confirmed row of a newer head, because the newer stamp wins in a plain table.
//! - **An intent is never just removed.** Its writer may be slow, not dead: if a reader removed the intent and step 2
//!   happened afterwards, the listing would lose the entry. The reader fences first. After the fence step 2 must fail,
//!   since its expected stamp is gone, and the writer reads the head again.
//! - **Without a head there is nothing to fence.** The intent of a first write that failed stays for a day, which
//!   stands for "no writer is that slow". Owners keep the heads of deleted objects for the same time.
//! - **An absent derived row is a row too**, with an expiry of a day. Engines differ in whether a removal outlives an
//!   older write; a row with a stamp hides older writes in all of them.
//!
//! A page of derived rows is not a snapshot: each row is as new as its head was at some moment during the read. A page
//! costs one read of the partition, and one read of a head for each intent in it; after a failure the first reader
//! pays, later ones do not.
//!
//! `format` has the stored bytes, `resolve` what a reader does. Mutations of `tests/mutants` break each rule and show the
//! entry that gets lost.

mod format;
mod resolve;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::{
    Batch, CallOptions, CasResult, Change, ConsistencyLevel, DerivedRow, Durability, EngineLimits, Error, HeadWrite,
    Kind, Partition, PartitionChanges, PartitionPage, ReadQuery, Result, Row, RowPage, Stopped, Store, Table,
    Timestamp, contract,
};

use format::{DerivedRowState, HeadName};
use resolve::Intent;

/// Least rows of a further read of one page: absent rows must not cause many small reads.
const READ_ON_MIN: usize = 64;
/// Intents of one page that are resolved at the same time.
const RESOLVED_AT_ONCE: usize = 16;
/// Bytes that the stored format may add to a compare-and-set, besides one byte for each row.
const FORMAT_BYTES_MAX: usize = 64;

/// A store that keeps derived rows by this protocol. It never passes a derived row to `S`.
pub struct DerivedRowStore<S: ?Sized> {
    inner: Arc<S>,
}

impl<S: ?Sized> DerivedRowStore<S> {
    /// Keeps derived rows in `inner`. Every access to one store must go through this wrapper.
    #[must_use]
    pub fn new(inner: Arc<S>) -> Self {
        Self { inner }
    }
}

impl<S: Store + ?Sized> DerivedRowStore<S> {
    /// Reads a page of derived rows: resolves intents, leaves absent rows out, and reads on until the page is full.
    async fn derived_page(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        contract::check_limit(query.limit)?;
        let mut rows = Vec::new();
        let mut page_query = query.clone();
        loop {
            // The page is read before the heads: a head that is written in between is newer than the row, so its value
            // counts.
            let page = self.inner.read(partition, &page_query, options).await?;
            let last = page.rows.last().map(|row| row.name.clone());
            let shown = page.rows.into_iter().map(|row| self.resolve_row(partition, row, options));
            // `buffered` keeps the order of names while several heads are read.
            let mut shown = stream::iter(shown).buffered(RESOLVED_AT_ONCE);
            while let Some(row) = shown.next().await {
                // One row more than the limit is present, so the page does not end here.
                if rows.len() == query.limit {
                    return Ok(RowPage { rows, stopped: Stopped::Limit });
                }
                rows.extend(row?);
            }
            match (page.stopped, last) {
                (Stopped::Limit, Some(last)) if rows.len() < query.limit => page_query.continue_after(&last),
                (stopped, _) => return Ok(RowPage { rows, stopped }),
            }
            page_query.limit = (query.limit - rows.len()).max(READ_ON_MIN);
            // Pages of absent rows could go on for ever, so the deadline is checked between them.
            check_deadline(options)?;
        }
    }

    /// The row as a reader sees it, if it is present.
    async fn resolve_row(&self, partition: &Partition, row: Row, options: &CallOptions) -> Result<Option<Row>> {
        match format::decode_derived(row.value)? {
            DerivedRowState::Confirmed(value) => Ok(Some(Row { value, ..row })),
            DerivedRowState::Absent => Ok(None),
            DerivedRowState::Intent(head) => {
                self.resolve(&Intent { partition, name: &row.name, stamp: row.stamp, head: &head }, options).await
            }
        }
    }

    /// Writes the rows before a head with this stamp: its intent (step 1), and the rows beside it.
    async fn announce(
        &self,
        derived: Option<(&DerivedRow, HeadName)>,
        beside: Option<PartitionChanges>,
        stamp: Timestamp,
        options: &CallOptions,
    ) -> Result<()> {
        let mut batch = Batch::default();
        if let Some((derived, head)) = derived {
            // The stamp between the old head and the new one: the intent hides the old confirmed row, and the new one hides
            // the intent.
            let row = format::intent_row(derived.name.clone(), &head, stamp - 1);
            batch.add(derived.partition.clone(), vec![Change::Put(row)]);
        }
        batch.partitions.extend(beside);
        if batch.partitions.is_empty() {
            return Ok(());
        }
        // At least at a quorum, so that every quorum read of the listing meets the intent.
        let options = CallOptions { level: options.level.max(ConsistencyLevel::Quorum), ..*options };
        self.inner.apply(batch, &options).await
    }

    /// Writes the confirmed row of a head (step 3). A failure is ignored: until the write succeeds, readers ask the
    /// head.
    async fn confirm(&self, derived: &DerivedRow, stamp: Timestamp, options: &CallOptions) {
        // Losing this write in a crash is harmless: the intent is still there.
        let options = CallOptions { durability: Durability::Buffered, ..*options };
        // Race: the head's stamp makes a late confirmation lose to the row of a newer head [invariant 52].
        let row = format::confirmed_row(derived.name.clone(), derived.value.as_ref(), stamp);
        let _ = self.inner.apply(Batch::single(derived.partition.clone(), vec![Change::Put(row)]), &options).await;
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for DerivedRowStore<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        if holds_derived_rows(partition.table) {
            return self.derived_page(partition, query, options).await;
        }
        let mut page = self.inner.read(partition, query, options).await?;
        if partition.table.is_guarded() {
            page.rows = page.rows.into_iter().map(strip_format).collect::<Result<_>>()?;
        }
        Ok(page)
    }

    async fn apply(&self, mut batch: Batch, options: &CallOptions) -> Result<()> {
        contract::check_batch(&batch, self.limits().batch_max)?;
        for part in batch.partitions.iter_mut().filter(|part| holds_derived_rows(part.partition.table)) {
            let changes = std::mem::take(&mut part.changes).into_iter();
            part.changes = changes.map(|change| format::map_value(change, format::encode_confirmed)).collect();
        }
        self.inner.apply(batch, options).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        contract::check_compare_and_set(partition, expected, &head, &changes, self.limits().batch_max)?;
        let HeadWrite { row, derived, beside } = head;
        let (name, stamp) = (row.name.clone(), row.stamp);
        // Crash: the head carries the derived value, so any reader can confirm it for a writer that died.
        let row = Row { value: format::encode_guarded(&row.value, derived.as_ref()), ..row };
        let changes =
            changes.into_iter().map(|change| format::map_value(change, |value| format::encode_guarded(value, None)));
        let named = derived.as_ref().map(|derived| (derived, HeadName { partition: partition.clone(), row: name }));
        // Before the head: if this process dies right after the head is written, readers find the intent and ask the head
        // [invariant 54], and no head lacks the rows beside it [invariant 172].
        self.announce(named, beside, stamp, options).await?;
        // If this fails or its answer is lost, the intent makes readers ask the head, which decides.
        match self.inner.apply_if(partition, expected, row.into(), changes.collect(), options).await? {
            CasResult::Applied => {
                // A crash here leaves the intent; the first reader writes the confirmed row.
                if let Some(derived) = &derived {
                    self.confirm(derived, stamp, options).await;
                }
                Ok(CasResult::Applied)
            }
            CasResult::Conflict(head) => Ok(CasResult::Conflict(head.map(strip_format).transpose()?)),
        }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        let PartitionPage { partitions, next } = self.inner.partitions(table, after, limit, options).await?;
        if !holds_derived_rows(table) {
            return Ok(PartitionPage { partitions, next });
        }
        let mut live = Vec::new();
        for partition in partitions {
            // A partition of intents and absent rows is empty for its readers.
            if !self.derived_page(&partition, &ReadQuery::all(1), options).await?.rows.is_empty() {
                live.push(partition);
            }
        }
        Ok(PartitionPage { partitions: live, next })
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        let inner = self.inner.limits();
        // A row counts for at least 17 bytes with its format byte, for 16 without.
        EngineLimits { batch_max: (inner.batch_max / 17 * 16).saturating_sub(FORMAT_BYTES_MAX), ..inner }
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

fn holds_derived_rows(table: Table) -> bool {
    DerivedRow::TABLES.contains(&table)
}

/// A row of a guarded table without the stored format.
fn strip_format(row: Row) -> Result<Row> {
    let (value, _) = format::decode_guarded(row.value)?;
    Ok(Row { value, ..row })
}

fn check_deadline(options: &CallOptions) -> Result<()> {
    if Instant::now() >= options.deadline {
        return Err(Error::new(Kind::TimedOut, "the deadline passed between the reads of a page"));
    }
    Ok(())
}
