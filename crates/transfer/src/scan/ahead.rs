//! First pages of partitions, read before they are asked for.

use std::collections::VecDeque;

use larder_store::{Page, Partition, ReadQuery};
use tokio::task::JoinHandle;

use crate::calls::{landed, read};
use crate::cursor::Cursor;
use crate::{Ends, Result};

/// Partitions read at once.
const AHEAD: usize = 48;
/// Rows of a first page: most partitions have few, and any of them may be 64 KiB.
const FIRST_ROWS: usize = 16;
/// About so many bytes has a further page.
const PAGE_BYTES: usize = 1024 * 1024;
const PAGE_ROWS_MAX: usize = 2048;

/// Reads under way for the first partitions of a cursor, in their order.
pub(super) struct Ahead {
    ends: Ends,
    pages: VecDeque<Option<JoinHandle<Result<Page>>>>,
    /// Rows of the next further page.
    limit: usize,
}

impl Ahead {
    pub(super) fn new(ends: Ends) -> Self {
        Self { ends, pages: VecDeque::new(), limit: FIRST_ROWS }
    }

    /// The next page of the cursor's first partition.
    pub(super) async fn page(&mut self, cursor: &Cursor) -> Result<Page> {
        self.fill(cursor);
        let page = match self.pages.front_mut().and_then(Option::take) {
            Some(reading) => landed("reading rows", reading.await)?,
            None => {
                let Some(partition) = cursor.partition() else {
                    return Ok(Page { rows: Vec::new(), stopped: larder_store::Stopped::End });
                };
                let after = cursor.within.as_ref().map(|name| &name.0);
                read(&self.ends, &partition, &ReadQuery::after(after, self.limit)).await?
            }
        };
        let bytes: usize = page.rows.iter().map(|row| row.name.len() + row.value.len()).sum();
        let each = bytes / page.rows.len().max(1) + 1;
        self.limit = (PAGE_BYTES / each).clamp(FIRST_ROWS, PAGE_ROWS_MAX);
        Ok(page)
    }

    /// The first partition is done with.
    pub(super) fn pop(&mut self) {
        self.pages.pop_front();
        self.limit = FIRST_ROWS;
    }

    fn fill(&mut self, cursor: &Cursor) {
        while self.pages.len() < AHEAD
            && let Some(place) = cursor.rest.get(self.pages.len())
        {
            let is_begun = self.pages.is_empty() && cursor.within.is_some();
            let reading = cursor.partition_of(place).filter(|_| !is_begun).map(|partition| self.spawn(partition));
            self.pages.push_back(reading);
        }
    }

    fn spawn(&self, partition: Partition) -> JoinHandle<Result<Page>> {
        let ends = self.ends.clone();
        tokio::spawn(async move { read(&ends, &partition, &ReadQuery::all(FIRST_ROWS)).await })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.pages.iter().flatten().for_each(JoinHandle::abort);
    }
}
