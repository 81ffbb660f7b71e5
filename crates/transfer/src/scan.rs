//! A scan over everything in a store, as records.
//!
//! It prefetches partitions, many at once and in pages, and small blobs. A scan can stop and resume between two records, except
//! inside a guarded partition, whose head comes last, and inside a blob.

mod blobs;
mod prefetch;

use larder_store::{Row, RowPage, Stopped, Table};

use crate::catalogue::TypeCatalogue;
use crate::cursor::ScanCursor;
use crate::record::{GuardPosition, PartitionRows, SegmentRecord};
use crate::retry::with_retries;
use crate::scope::{ORDER, TransferMethod, transfer_method};
use crate::totals::Totals;
use crate::{Error, Result, StorePair};
use blobs::BlobWalk;
use prefetch::RowPrefetch;

/// Partitions per page of the list.
const PAGE_PARTITIONS: usize = 256;

/// A scan of a store.
pub(crate) struct StoreScan {
    stores: StorePair,
    copies: TypeCatalogue,
    cursor: ScanCursor,
    totals: Totals,
    prefetch: RowPrefetch,
    blobs: BlobWalk,
    /// The head of the guarded partition being read, and whether none of its rows was returned yet.
    head: Option<(Row, bool)>,
}

/// One step of a scan.
pub(crate) enum ScanStep {
    /// A record.
    Record(SegmentRecord),
    /// Rows that were counted, but are not copied.
    Counted,
    /// The end of the scan.
    End,
}

impl StoreScan {
    /// A scan from this cursor on, with the totals before it.
    ///
    /// # Errors
    /// The store's last error.
    pub(crate) async fn begin(stores: StorePair, cursor: ScanCursor, totals: Totals) -> Result<Self> {
        let copies = TypeCatalogue::read(&stores).await?;
        let (prefetch, blobs) = (RowPrefetch::new(stores.clone()), BlobWalk::new(stores.clone()));
        Ok(Self { stores, copies, cursor, totals, prefetch, blobs, head: None })
    }

    /// The cursor, if the scan may stop and resume here.
    pub(crate) fn safe_cursor(&self) -> Option<&ScanCursor> {
        (self.head.is_none() && !self.blobs.is_inside()).then_some(&self.cursor)
    }

    /// The totals so far.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The bucket types of the store.
    pub(crate) fn copies(&self) -> &TypeCatalogue {
        &self.copies
    }

    /// The name of the table being read, or `blobs`.
    pub(crate) fn table(&self) -> &'static str {
        ORDER.get(self.cursor.step).map_or("blobs", |table| table.name())
    }

    /// The next step.
    ///
    /// # Errors
    /// The store's last error.
    pub(crate) async fn next(&mut self) -> Result<ScanStep> {
        while let Some(&table) = ORDER.get(self.cursor.step) {
            if self.cursor.rest.is_empty() {
                self.list(table).await?;
            } else if let Some(step) = self.rows(table).await? {
                return Ok(step);
            }
        }
        if self.cursor.is_at_end() {
            return Ok(ScanStep::End);
        }
        match self.blobs.next(&mut self.cursor, &mut self.totals, &self.copies).await? {
            Some(record) => Ok(ScanStep::Record(record)),
            None => {
                self.cursor.begin_next_step();
                Ok(ScanStep::End)
            }
        }
    }

    /// Lists the next page of partitions, or moves on to the next table.
    async fn list(&mut self, table: Table) -> Result<()> {
        if self.cursor.listed && self.cursor.next.is_none() {
            self.cursor.begin_next_step();
            return Ok(());
        }
        let after = self.cursor.next.as_ref().map(|name| name.0.clone());
        let (store, after) = (&self.stores.store, &after);
        let list = |options| async move { store.partitions(table, after.clone(), PAGE_PARTITIONS, &options).await };
        let page = with_retries("listing partitions", list).await?;
        let partitions = page.partitions.into_iter().map(|partition| self.copies.with_copies(partition)).collect();
        self.cursor.take_page(partitions, page.next);
        Ok(())
    }

    /// The next page of rows of the cursor's first partition; `None` if it has none.
    async fn rows(&mut self, table: Table) -> Result<Option<ScanStep>> {
        let Some(partition) = self.cursor.partition() else { return Ok(None) };
        let RowPage { rows, stopped } = self.prefetch.page(&self.cursor).await?;
        // An empty page ends the partition even without a stop: the cursor could not move past it.
        let ended = stopped == Stopped::End || rows.is_empty();
        let last = rows.last().map(|row| row.name.clone());
        let (rows, guard) = match transfer_method(table) {
            TransferMethod::Guarded => self.guarded(table, rows, ended)?,
            TransferMethod::Rows | TransferMethod::Derived | TransferMethod::Skipped => (rows, None),
        };
        if ended {
            self.totals.partitions += 1;
            self.cursor.rest.pop_front();
            self.cursor.within = None;
            self.prefetch.pop();
        } else {
            self.cursor.within = last.map(crate::cursor::HexBytes);
        }
        if rows.is_empty() {
            return Ok(None);
        }
        rows.iter().for_each(|row| self.totals.row(&partition, row));
        Ok(Some(match transfer_method(table) {
            TransferMethod::Derived => ScanStep::Counted,
            TransferMethod::Rows | TransferMethod::Guarded | TransferMethod::Skipped => {
                ScanStep::Record(SegmentRecord::Rows(PartitionRows { partition, guard, rows }))
            }
        }))
    }

    /// Keeps the head of a guarded partition until its last rows, and puts it before them. An import then writes the head last.
    fn guarded(&mut self, table: Table, mut rows: Vec<Row>, ended: bool) -> Result<(Vec<Row>, Option<GuardPosition>)> {
        // The head sorts first and is held back: an import writes it last, in one step with the last rows.
        if self.head.is_none() && !rows.is_empty() {
            let head = rows.remove(0);
            if table != Table::Consistent && !head.name.is_empty() {
                return Err(Error::unreadable("reading rows", format_args!("{}: rows without a head", table.name())));
            }
            self.head = Some((head, true));
        }
        let Some((head, first)) = self.head.take() else { return Ok((rows, None)) };
        let guard = GuardPosition { head: head.stamp, first, last: ended };
        if ended {
            rows.insert(0, head);
        } else {
            let is_untouched = first && rows.is_empty();
            self.head = Some((head, is_untouched));
        }
        Ok((rows, Some(guard)))
    }
}
