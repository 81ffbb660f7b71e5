//! Reads the first pages of partitions before the scan asks for them.

use std::collections::VecDeque;

use larder_store::{Partition, ReadQuery, RowPage};
use tokio::task::JoinHandle;

use crate::cursor::ScanCursor;
use crate::retry::{join_result, read};
use crate::{Result, StorePair};

/// Most partitions read at once.
const PREFETCH_PARTITIONS: usize = 48;
/// Rows of a first page. Most partitions have few rows, but each may be 64 KiB.
const FIRST_ROWS: usize = 16;
/// The size of later pages, roughly.
const PAGE_BYTES: usize = 1024 * 1024;
const PAGE_ROWS_MAX: usize = 2048;

/// Running reads of the cursor's first partitions, in their order.
pub(super) struct RowPrefetch {
    stores: StorePair,
    pages: VecDeque<Option<JoinHandle<Result<RowPage>>>>,
    /// Rows of the next later page.
    limit: usize,
}

impl RowPrefetch {
    pub(super) fn new(stores: StorePair) -> Self {
        Self { stores, pages: VecDeque::new(), limit: FIRST_ROWS }
    }

    /// The next page of the cursor's first partition.
    pub(super) async fn page(&mut self, cursor: &ScanCursor) -> Result<RowPage> {
        self.fill(cursor);
        let page = match self.pages.front_mut().and_then(Option::take) {
            Some(reading) => join_result("reading rows", reading.await)?,
            None => {
                let Some(partition) = cursor.partition() else {
                    return Ok(RowPage { rows: Vec::new(), stopped: larder_store::Stopped::End });
                };
                let after = cursor.within.as_ref().map(|name| &name.0);
                read(&self.stores, &partition, &ReadQuery::after(after, self.limit)).await?
            }
        };
        let bytes: usize = page.rows.iter().map(|row| row.name.len() + row.value.len()).sum();
        let each = bytes / page.rows.len().max(1) + 1;
        // Bound: few large rows or many small ones make a page of about one size.
        self.limit = (PAGE_BYTES / each).clamp(FIRST_ROWS, PAGE_ROWS_MAX);
        Ok(page)
    }

    /// Drops the page of the first partition, which is finished.
    pub(super) fn pop(&mut self) {
        self.pages.pop_front();
        self.limit = FIRST_ROWS;
    }

    fn fill(&mut self, cursor: &ScanCursor) {
        while self.pages.len() < PREFETCH_PARTITIONS
            && let Some(pending) = cursor.rest.get(self.pages.len())
        {
            // A resumed scan may stand inside the first partition: its next page starts at the cursor, not at the beginning.
            let is_begun = self.pages.is_empty() && cursor.within.is_some();
            let reading =
                cursor.pending_partition(pending).filter(|_| !is_begun).map(|partition| self.spawn(partition));
            self.pages.push_back(reading);
        }
    }

    fn spawn(&self, partition: Partition) -> JoinHandle<Result<RowPage>> {
        let stores = self.stores.clone();
        tokio::spawn(async move { read(&stores, &partition, &ReadQuery::all(FIRST_ROWS)).await })
    }
}

impl Drop for RowPrefetch {
    fn drop(&mut self) {
        self.pages.iter().flatten().for_each(JoinHandle::abort);
    }
}
