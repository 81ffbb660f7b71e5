//! The key-value side before the sweeper of blobs: what its rows name, and its writers' half of the fence.
//!
//! ```text
//! writer    bytes ──> younger than half a day? ──> row, at a quorum ──> marked? ── no ──> acknowledged
//!                          │ no: refused                                   │ yes: row taken back, refused
//! sweeper   older than a day, not named ──> marked ──> still not named at any replica ──> bytes removed
//! ```
//! A row that is taken back has replaced what was there before, so the sweeper keeps away from who may still write: beside other
//! gateways it takes no blob younger than a day. A head is guarded, so for objects of `consistent` types it is the other way
//! round: the writer reads the head, looks for the mark, and swaps. [`crate::blobs::fence`] has the sweeper's half.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use larder_model::address::Address;
use larder_model::causality::{ANY_SLOT, Mode, Write};
use larder_model::content::{BlobId, Body};
use larder_model::rows::{Batch, Change, ObjectRow, Row, view_row_name};
use larder_store::{Kind, Level, Options, Partition, ReadQuery, Swap, Table};

use super::consistent::DELETED_HEAD_MICROS;
use super::put::Target;
use crate::blobs::sweep::{BlobNames, Look, OwnedBlob};
use crate::{Error, Gateway, Result, Rule};

/// How old a blob is that the sweeper takes beside other gateways: no writer is that slow, nor a row that comes late.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);
/// How old a blob may be whose row is still written: half of the time, so that clocks need not agree.
const YOUNG: Duration = Duration::from_secs(12 * 60 * 60);
/// How often a head is touched that others change meanwhile.
const TOUCHES_MAX: usize = 20;

#[async_trait]
impl BlobNames for Gateway {
    fn owns(&self, table: Table) -> bool {
        matches!(table, Table::Objects | Table::Consistent)
    }

    /// Alone, a listed blob whose partition does not name it will never be named again: its lease was seen.
    fn is_fenced(&self) -> bool {
        !self.config.alone && self.rule(Rule::FenceKvSweeper)
    }

    async fn unnamed(&self, partition: &Partition, mut blobs: Vec<OwnedBlob>, look: Look) -> Result<Vec<OwnedBlob>> {
        if look == Look::First && !self.config.alone && self.rule(Rule::SweepOldBlobs) {
            blobs.retain(|blob| self.age(blob.id) >= OLD);
        }
        if blobs.is_empty() {
            return Ok(blobs);
        }
        // A row written at whatever level is at one of the replicas, in one of the datacenters.
        let everywhere = look == Look::Fenced && !partition.table.is_guarded();
        let named = self.named_in(partition, if everywhere { Level::All } else { Level::Quorum }).await?;
        blobs.retain(|blob| !named.contains(&blob.id));
        Ok(blobs)
    }

    /// A head that was not there is there then, and says so.
    async fn touch_head(&self, partition: &Partition) -> Result<()> {
        for _ in 0..TOUCHES_MAX {
            let options = self.own(Level::Quorum);
            let query = ReadQuery::one(ANY_SLOT.row_name());
            let head = self.ports.store.read(partition, &query, &options).await?.rows.pop();
            let expected = head.as_ref().map(|row| row.stamp);
            self.clock.pass(expected.map_or(0, |stamp| stamp + 1));
            let stamp = self.issue().await?;
            let Some(touched) = head.map(|row| Row { stamp, ..row }).or_else(|| self.deleted_head(stamp)) else {
                break;
            };
            match self.ports.store.apply_if(partition, expected, touched.into(), Vec::new(), &options).await {
                Ok(Swap::Applied) => return Ok(()),
                Ok(Swap::Conflict(_)) => {}
                Err(error) if error.kind == Kind::TimedOut => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Overloaded { retry_after: 1 })
    }
}

impl Gateway {
    /// The blobs that the rows of a partition name.
    async fn named_in(&self, partition: &Partition, level: Level) -> Result<HashSet<BlobId>> {
        let mut named = HashSet::new();
        for row in self.read_rows(partition, &self.own(level)).await? {
            let row = ObjectRow::decode(row.value).map_err(|error| Error::Damaged(error.to_string()))?;
            if let Body::Blob(blob) = row.content.body {
                named.insert(blob.id);
            }
        }
        Ok(named)
    }

    fn deleted_head(&self, stamp: u64) -> Option<Row> {
        let expires = Some(self.now().saturating_add(DELETED_HEAD_MICROS));
        Write::delete(Mode::LastWriteWins, ANY_SLOT, stamp, expires, Vec::new(), Vec::new()).row
    }

    /// Refuses to write a row whose blob the sweeper may take soon: its body was under way for half a day. Nothing remains.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(super) async fn refuse_old(&self, blob: Option<BlobId>) -> Result<()> {
        let Some(blob) = blob.filter(|_| !self.config.alone && self.rule(Rule::RefuseOldBlobs)) else { return Ok(()) };
        if self.age(blob) < YOUNG {
            return Ok(());
        }
        self.releases.discard(blob).await;
        Err(Error::Overloaded { retry_after: 1 })
    }

    /// Asked after a write and before its answer: whether its blob stays. If a sweeper is about to take it, the row is taken
    /// back.
    ///
    /// # Errors
    /// [`Error::Overloaded`]: nothing remains of the write; [`Error::TimedOut`]: perhaps something does.
    pub(super) async fn keep_blob(
        &self,
        target: Target<'_>,
        partition: &Partition,
        write: &Write,
        blob: Option<BlobId>,
    ) -> Result<()> {
        let Some(blob) = blob.filter(|_| self.is_fenced()) else { return Ok(()) };
        let options = Options { level: Level::Quorum, ..target.asked.options }.reclaiming();
        if !self.has_gc_mark(blob, &options).await.map_err(|_| Error::TimedOut)? {
            return Ok(());
        }
        self.take_back(target.address, partition, write, &options).await.map_err(|_| Error::TimedOut)?;
        Err(Error::Overloaded { retry_after: 1 })
    }

    /// Asked between reading a head and swapping it: refuses to name a blob that a sweeper is about to take.
    ///
    /// # Errors
    /// [`Error::Overloaded`], and what the store answers; the row is not written.
    pub(super) async fn refuse_marked(&self, blob: Option<BlobId>, options: &Options) -> Result<()> {
        let Some(blob) = blob.filter(|_| self.is_fenced()) else { return Ok(()) };
        match self.has_gc_mark(blob, options).await? {
            true => Err(Error::Overloaded { retry_after: 1 }),
            false => Ok(()),
        }
    }

    /// Removes the row of a write, and its entry, at the write's own stamp: what came later stays.
    async fn take_back(
        &self,
        address: &Address,
        partition: &Partition,
        write: &Write,
        options: &Options,
    ) -> Result<()> {
        let Some(row) = &write.row else { return Ok(()) };
        let mut batch = Batch::of(partition.clone(), vec![Change::Remove { name: row.name.clone(), stamp: row.stamp }]);
        let entry = view_row_name(&address.key, &row.name);
        batch.add(self.key_view(address), vec![Change::Remove { name: entry, stamp: row.stamp }]);
        Ok(self.ports.store.apply(batch, options).await?)
    }

    fn age(&self, blob: BlobId) -> Duration {
        Duration::from_micros(self.now().saturating_sub(blob.stamp()))
    }
}
