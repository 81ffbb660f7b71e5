//! Removing blobs that no row names: leftovers of a crash, of a lost answer, of a blind overwrite.
//!
//! A blob being written, or whose row is not written yet, is leased and not listed. One process alone knows its leases for
//! certain: there a listed blob whose owner's partition does not name it will never be named again. Beside other gateways a
//! lease may end under a writer that is only slow:
//!
//! ```text
//! writer    bytes ──> younger than a day? ──> row, at a quorum ──> doomed? ── no ──> acknowledged
//!                          │ no: refused                              │ yes: row taken back, refused
//! sweeper   older than a day, not named ──> doomed ──> still not named at any replica ──> bytes removed
//! ```
//! Whoever writes first is seen by the other: whatever the pauses, one of the two gives way. A head is guarded, so for objects
//! of `consistent` types it is the other way round: the writer reads the head, looks for the mark, and swaps; the sweeper marks,
//! *touches* the head so that such a swap fails, and looks. `docs/decisions/0010` has the interleavings.

use std::time::Duration;

use bytes::Bytes;
use larder_model::address::Address;
use larder_model::causality::{ANY_SLOT, Mode, Write};
use larder_model::content::{BlobId, Body};
use larder_model::rows::{Batch, Change, Micros, ObjectRow, Row, view_row_name};
use larder_store::{BlobOwner, Kind, Level, ListedBlob, Options, Partition, ReadQuery, Swap, Table};

use super::consistent::DELETED_HEAD_MICROS;
use super::put::Target;
use crate::metrics::Event;
use crate::{Error, Gateway, Result, Rule};

const PAGE: usize = 256;
/// How old a blob is that the sweeper takes beside other gateways: no writer is that slow, nor a row that comes late.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);
/// How old a blob may be whose row is still written: half of the time, so that clocks need not agree.
const YOUNG: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a mark stays, in microseconds.
const MARK_MICROS: Micros = 24 * 60 * 60 * 1_000_000;
/// The value of a mark: a version byte, nothing else.
const MARK_VALUE: &[u8] = &[1];
/// How often a head is touched that others change meanwhile.
const TOUCHES_MAX: usize = 20;

impl Gateway {
    /// Looks at every blob once; answers how many were removed. Safe beside any traffic, of this gateway and of others. A blob
    /// of a partition that cannot be read is left alone.
    ///
    /// # Errors
    /// What the store answers; what was removed until then stays removed. `Unavailable` while a replica is down.
    pub async fn sweep_blobs(&self) -> Result<u64> {
        let mut swept = 0;
        let mut after = None;
        loop {
            let page = self.ports.blobs.list(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(swept) };
            after = Some(last.id);
            let ours = |owner: &BlobOwner| matches!(owner.partition.table, Table::Objects | Table::Consistent);
            for ListedBlob { id, owner, .. } in page.iter().filter(|blob| !blob.leased && ours(&blob.owner)) {
                match self.is_waste(*id, &owner.partition).await {
                    Ok(false) => {}
                    Ok(true) => {
                        self.ports.blobs.remove(*id).await?;
                        self.metrics.event(Event::BlobSwept);
                        swept += 1;
                    }
                    Err(Error::Damaged(why)) => {
                        tracing::warn!(blob = id.hex(), why, "a blob is left to the next sweep")
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Whether no row names a blob, nor ever will.
    async fn is_waste(&self, id: BlobId, owner: &Partition) -> Result<bool> {
        if self.config.alone {
            return Ok(!self.is_named(id, owner, Level::Quorum).await?);
        }
        if self.rule(Rule::SweepOldBlobs) && self.age(id) < OLD {
            return Ok(false);
        }
        if self.is_named(id, owner, Level::Quorum).await? {
            return Ok(false);
        }
        if !self.rule(Rule::FenceKvSweeper) {
            return Ok(true);
        }
        self.doom(id).await?;
        if owner.table.is_guarded() {
            self.touch(owner).await?;
        }
        // A row written at whatever level is at one of the replicas, in one of the datacenters. Named, the mark stays all the
        // same: another sweeper may rely on it.
        let everywhere = if owner.table.is_guarded() { Level::Quorum } else { Level::All };
        Ok(!self.is_named(id, owner, everywhere).await?)
    }

    async fn is_named(&self, id: BlobId, owner: &Partition, level: Level) -> Result<bool> {
        for row in self.read_rows(owner, &self.own(level)).await? {
            let row = ObjectRow::decode(row.value).map_err(|error| Error::Damaged(error.to_string()))?;
            if matches!(row.content.body, Body::Blob(blob) if blob.id == id) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Marks a blob at every replica: who looks at any of them sees it.
    async fn doom(&self, blob: BlobId) -> Result<()> {
        let stamp = self.issue().await?;
        let expires = Some(self.now().saturating_add(MARK_MICROS));
        let mark = Row { name: Bytes::new(), value: Bytes::from_static(MARK_VALUE), stamp, expires };
        let batch = Batch::of(Partition::doomed(blob), vec![Change::Put(mark)]);
        Ok(self.ports.store.apply(batch, &self.own(Level::All)).await?)
    }

    /// Rewrites a head as it is, with a greater stamp: a swap against what was read before fails. A head that was not there
    /// is there then, and says so.
    async fn touch(&self, partition: &Partition) -> Result<()> {
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
        self.release(blob).await;
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
        let is_doomed = self.is_doomed(blob, &options).await.map_err(|_| Error::TimedOut)?;
        if !is_doomed {
            return Ok(());
        }
        self.take_back(target.address, partition, write, &options).await.map_err(|_| Error::TimedOut)?;
        Err(Error::Overloaded { retry_after: 1 })
    }

    /// Asked between reading a head and swapping it: refuses to name a blob that a sweeper is about to take.
    ///
    /// # Errors
    /// [`Error::Overloaded`], and what the store answers; the row is not written.
    pub(super) async fn refuse_doomed(&self, blob: Option<BlobId>, options: &Options) -> Result<()> {
        let Some(blob) = blob.filter(|_| self.is_fenced()) else { return Ok(()) };
        match self.is_doomed(blob, options).await? {
            true => Err(Error::Overloaded { retry_after: 1 }),
            false => Ok(()),
        }
    }

    async fn is_doomed(&self, blob: BlobId, options: &Options) -> Result<bool> {
        let page = self.ports.store.read(&Partition::doomed(blob), &ReadQuery::all(1), options).await?;
        Ok(!page.rows.is_empty())
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

    /// Whether sweepers of other gateways have to be reckoned with.
    fn is_fenced(&self) -> bool {
        !self.config.alone && self.rule(Rule::FenceKvSweeper)
    }

    fn age(&self, blob: BlobId) -> Duration {
        Duration::from_micros(self.now().saturating_sub(blob.stamp()))
    }
}
