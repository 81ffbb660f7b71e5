//! A walk over everything a store keeps, as records.
//!
//! Partitions are read ahead, many at once and in pages; blobs too, the small ones whole. Between two records the walk can be
//! cut and gone on with, but not inside a guarded partition, whose head comes last, nor inside a blob.

mod ahead;
mod blobs;

use larder_store::{Page, Row, Stopped, Table};

use crate::calls::patiently;
use crate::catalogue::Copies;
use crate::cursor::Cursor;
use crate::record::{Guard, Record, Rows};
use crate::scope::{How, ORDER, how};
use crate::totals::Totals;
use crate::{Ends, Error, Result};

use ahead::Ahead;
use blobs::BlobWalk;

/// Partitions asked for at once.
const PAGE_PARTITIONS: usize = 256;

/// A walk.
pub(crate) struct Scan {
    ends: Ends,
    copies: Copies,
    cursor: Cursor,
    totals: Totals,
    ahead: Ahead,
    blobs: BlobWalk,
    /// The head of the guarded partition that is being read, and whether nothing of it was answered yet.
    head: Option<(Row, bool)>,
}

/// One step of a walk.
pub(crate) enum Step {
    /// A record.
    Record(Record),
    /// Rows that are looked at, but not copied.
    Counted,
    /// There is nothing more.
    End,
}

impl Scan {
    /// A walk from this place on, with what was met before it.
    ///
    /// # Errors
    /// What the store answers to who asks for the catalogue.
    pub(crate) async fn begin(ends: Ends, cursor: Cursor, totals: Totals) -> Result<Self> {
        let copies = Copies::read(&ends).await?;
        let (ahead, blobs) = (Ahead::new(ends.clone()), BlobWalk::new(ends.clone()));
        Ok(Self { ends, copies, cursor, totals, ahead, blobs, head: None })
    }

    /// Where it stands, if it can be cut here.
    pub(crate) fn cut(&self) -> Option<&Cursor> {
        (self.head.is_none() && !self.blobs.is_inside()).then_some(&self.cursor)
    }

    /// What was met so far.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The bucket types of the store.
    pub(crate) fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The name of what is being read.
    pub(crate) fn table(&self) -> &'static str {
        ORDER.get(self.cursor.step).map_or("blobs", |table| table.name())
    }

    /// The next step.
    ///
    /// # Errors
    /// What the store answers.
    pub(crate) async fn next(&mut self) -> Result<Step> {
        while let Some(&table) = ORDER.get(self.cursor.step) {
            if self.cursor.rest.is_empty() {
                self.list(table).await?;
            } else if let Some(step) = self.rows(table).await? {
                return Ok(step);
            }
        }
        if self.cursor.is_at_the_end() {
            return Ok(Step::End);
        }
        match self.blobs.next(&mut self.cursor, &mut self.totals, &self.copies).await? {
            Some(record) => Ok(Step::Record(record)),
            None => {
                self.cursor.step_on();
                Ok(Step::End)
            }
        }
    }

    /// The next page of partitions, or the next table.
    async fn list(&mut self, table: Table) -> Result<()> {
        if self.cursor.listed && self.cursor.next.is_none() {
            self.cursor.step_on();
            return Ok(());
        }
        let after = self.cursor.next.as_ref().map(|name| name.0.clone());
        let (store, after) = (&self.ends.store, &after);
        let list = |options| async move { store.partitions(table, after.clone(), PAGE_PARTITIONS, &options).await };
        let page = patiently("listing partitions", list).await?;
        let partitions = page.partitions.into_iter().map(|one| self.copies.place(one)).collect();
        self.cursor.take_page(partitions, page.next);
        Ok(())
    }

    /// The next page of rows of the first partition of the cursor; `None` if there are none.
    async fn rows(&mut self, table: Table) -> Result<Option<Step>> {
        let Some(partition) = self.cursor.partition() else { return Ok(None) };
        let Page { rows, stopped } = self.ahead.page(&self.cursor).await?;
        let ended = stopped == Stopped::End || rows.is_empty();
        let last = rows.last().map(|row| row.name.clone());
        let (rows, guard) = match how(table) {
            How::Guarded => self.guarded(table, rows, ended)?,
            How::Rows | How::Shadow | How::Left => (rows, None),
        };
        if ended {
            self.totals.partitions += 1;
            self.cursor.rest.pop_front();
            self.cursor.within = None;
            self.ahead.pop();
        } else {
            self.cursor.within = last.map(crate::cursor::Name);
        }
        if rows.is_empty() {
            return Ok(None);
        }
        rows.iter().for_each(|row| self.totals.row(&partition, row));
        Ok(Some(match how(table) {
            How::Shadow => Step::Counted,
            How::Rows | How::Guarded | How::Left => Step::Record(Record::Rows(Rows { partition, guard, rows })),
        }))
    }

    /// Keeps the head of a guarded partition back until its last rows, and then puts it in front of them.
    fn guarded(&mut self, table: Table, mut rows: Vec<Row>, ended: bool) -> Result<(Vec<Row>, Option<Guard>)> {
        if self.head.is_none() && !rows.is_empty() {
            let head = rows.remove(0);
            if table != Table::Consistent && !head.name.is_empty() {
                return Err(Error::unreadable("reading rows", format_args!("{}: rows without a head", table.name())));
            }
            self.head = Some((head, true));
        }
        let Some((head, first)) = self.head.take() else { return Ok((rows, None)) };
        let guard = Guard { head: head.stamp, first, last: ended };
        if ended {
            rows.insert(0, head);
        } else {
            let nothing_yet = first && rows.is_empty();
            self.head = Some((head, nothing_yet));
        }
        Ok((rows, Some(guard)))
    }
}
