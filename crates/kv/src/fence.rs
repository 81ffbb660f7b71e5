//! The fence between the writers of key-value blobs and the sweeper: which blobs the rows name, and the writers' half. It
//! excludes no thread and orders no disk write.
//!
//! ```text
//! writer    bytes ──> younger than half a day? ──> row, at a quorum ──> marked? ── no ──> acknowledged
//!                          │ no: refused                                   │ yes: row undone, refused
//! sweeper   older than a day, not named ──> marked ──> still not named at any replica ──> bytes removed
//! ```
//! Undoing a row does not restore the row that it replaced, so the sweeper avoids live writers: beside other gateways it takes
//! no blob younger than a day. Objects of `consistent` types have a guarded head, and there the order is reversed: the writer
//! reads the head, looks for the mark, and swaps. [`larder_core::blobs::fence`] has the sweeper's half.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use larder_core::blobs::sweep::{BlobReferences, OwnedBlob, SweepPhase};
use larder_core::node_context::internal_options;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::content::{BlobId, KvBody};
use larder_rows::limits::DELETED_HEAD_MICROS;
use larder_rows::{Batch, Change, Row, Timestamp};
use larder_store::{CallOptions, CasResult, ConsistencyLevel, Kind, Partition, ReadQuery, Table};

use super::known_buckets::key_view_changes;
use crate::Kv;
use crate::commit::WriteTarget;
use crate::rules::causality::{ConflictPolicy, KeyWrite, SHARED_SLOT, VersionVector};
use crate::rules::object_row::{ObjectRow, view_row_name};

/// Least age of a blob that the sweeper takes beside other gateways: longer than any writer or late row takes.
const SWEEP_AGE_MIN: Duration = Duration::from_secs(24 * 60 * 60);
/// Greatest age of a blob whose row is still written: half of [`SWEEP_AGE_MIN`], so that clocks need not agree.
const COMMIT_AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Tries to rewrite a head that other writers keep changing.
const HEAD_FENCE_TRIES_MAX: usize = 20;

#[async_trait]
impl BlobReferences for Kv {
    fn owns_table(&self, table: Table) -> bool {
        matches!(table, Table::Objects | Table::Consistent)
    }

    /// A single gateway sees all leases: a blob that is not leased and not named will never be named.
    fn is_fenced(&self) -> bool {
        !self.context.config.single_process
    }

    async fn unnamed(
        &self,
        partition: &Partition,
        mut blobs: Vec<OwnedBlob>,
        phase: SweepPhase,
    ) -> Result<Vec<OwnedBlob>> {
        // Race: a writer that meets a mark takes its row back, but the value that the row replaced is gone [invariant 91].
        if phase == SweepPhase::Unfenced && !self.context.config.single_process {
            blobs.retain(|blob| self.blob_age(blob.id) >= SWEEP_AGE_MIN);
        }
        if blobs.is_empty() {
            return Ok(blobs);
        }
        // Race: a slow writer's row may be at one replica, in any datacenter, and only ALL finds it [invariant 90].
        let everywhere = phase == SweepPhase::Fenced && !partition.table.is_guarded();
        let named = self
            .blobs_named_in(partition, if everywhere { ConsistencyLevel::All } else { ConsistencyLevel::Quorum })
            .await?;
        blobs.retain(|blob| !named.contains(&blob.id));
        Ok(blobs)
    }

    /// Writes a deleted head where there is none, so that a writer that found none fails, too.
    async fn fence_head(&self, partition: &Partition) -> Result<()> {
        for _ in 0..HEAD_FENCE_TRIES_MAX {
            let options = internal_options(ConsistencyLevel::Quorum);
            let query = ReadQuery::one(SHARED_SLOT.row_name());
            let head = self.context.ports.store.read(partition, &query, &options).await?.rows.pop();
            let expected = head.as_ref().map(|row| row.stamp);
            // The new stamp differs from the one that a slow writer read, so that writer's compare-and-set fails.
            self.issuer.clock.observe(expected.map_or(Timestamp::ZERO, |stamp| stamp + 1));
            let stamp = self.issuer.issue().await?;
            let Some(touched) = head.map(|row| Row { stamp, ..row }).or_else(|| self.deleted_head(stamp)) else {
                break;
            };
            match self.context.ports.store.apply_if(partition, expected, touched.into(), Vec::new(), &options).await {
                Ok(CasResult::Applied) => return Ok(()),
                Ok(CasResult::Conflict(_)) => {}
                // The outcome is unknown: the next round reads the head again.
                Err(error) if error.kind == Kind::TimedOut => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Overloaded { retry_after: 1 })
    }
}

impl Kv {
    /// Blobs that the rows of a partition name.
    async fn blobs_named_in(&self, partition: &Partition, level: ConsistencyLevel) -> Result<HashSet<BlobId>> {
        let mut named = HashSet::new();
        for row in self.context.read_rows(partition, &internal_options(level)).await? {
            // A row that cannot be read may name any blob: the error keeps them all.
            let row = ObjectRow::decode(row.value).map_err(|error| Error::Damaged(error.to_string()))?;
            if let KvBody::Blob(blob) = row.content.body {
                named.insert(blob.id);
            }
        }
        Ok(named)
    }

    fn deleted_head(&self, stamp: Timestamp) -> Option<Row> {
        let expires = Some(self.context.now().saturating_add(DELETED_HEAD_MICROS));
        let (policy, vector) = (ConflictPolicy::LastWriteWins, VersionVector::default());
        KeyWrite::delete(policy, SHARED_SLOT, stamp, expires, vector, Vec::new()).row
    }

    /// Refuses to write a row whose body arrived for half a day: the sweeper may take its blob soon. Nothing remains.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(super) async fn check_blob_age(&self, blob: Option<BlobId>) -> Result<()> {
        // A single gateway sees its own leases: no sweeper takes a body that still arrives.
        let Some(blob) = blob.filter(|_| !self.context.config.single_process) else { return Ok(()) };
        // Race: a sweeper may be about to take an older blob, and its row would replace a whole value [invariant 92].
        if self.blob_age(blob) < COMMIT_AGE_MAX {
            return Ok(());
        }
        self.blobs.releases.remove_unnamed(blob).await;
        Err(Error::Overloaded { retry_after: 1 })
    }

    /// Checks after a write and before its answer that no sweeper marked its blob; otherwise undoes the row.
    ///
    /// # Errors
    /// [`Error::Overloaded`]: nothing remains of the write; [`Error::TimedOut`]: the row may remain.
    pub(super) async fn confirm_blob(
        &self,
        target: WriteTarget<'_>,
        partition: &Partition,
        write: &KeyWrite,
        blob: Option<BlobId>,
    ) -> Result<()> {
        let Some(blob) = blob.filter(|_| self.is_fenced()) else { return Ok(()) };
        let options = CallOptions { level: ConsistencyLevel::Quorum, ..target.replicas.options }.reclaiming();
        // Race: without a mark now, the row had its quorum before the mark was everywhere: the sweeper sees it [invariant 90].
        if !self.blobs.has_gc_mark(blob, &options).await.map_err(|_| Error::TimedOut)? {
            return Ok(());
        }
        // Crash: a writer that dies before this removal may leave a row without bytes, never acknowledged.
        self.undo_write(target.address, partition, write, &options).await.map_err(|_| Error::TimedOut)?;
        Err(Error::Overloaded { retry_after: 1 })
    }

    /// Refuses to name a blob that a sweeper marked. Call it between reading a head and swapping it.
    ///
    /// # Errors
    /// [`Error::Overloaded`], and the store's; the row is not written.
    pub(super) async fn check_gc_mark(&self, blob: Option<BlobId>, options: &CallOptions) -> Result<()> {
        let Some(blob) = blob.filter(|_| self.is_fenced()) else { return Ok(()) };
        match self.blobs.has_gc_mark(blob, options).await? {
            true => Err(Error::Overloaded { retry_after: 1 }),
            false => Ok(()),
        }
    }

    /// Removes the row of a write and its listing entry at the write's own stamp: later writes stay.
    async fn undo_write(
        &self,
        address: &Address,
        partition: &Partition,
        write: &KeyWrite,
        options: &CallOptions,
    ) -> Result<()> {
        let Some(row) = &write.row else { return Ok(()) };
        let mut batch =
            Batch::single(partition.clone(), vec![Change::Remove { name: row.name.clone(), stamp: row.stamp }]);
        let entry = view_row_name(&address.key, &row.name);
        let entry = vec![Change::Remove { name: entry, stamp: row.stamp }];
        // Its epochs are those that the write itself was made for, or more.
        batch.partitions.extend(key_view_changes(&self.catalogue, address, entry, false));
        batch.partitions.extend(self.undone_index_partitions(address, write));
        Ok(self.context.ports.store.apply(batch, options).await?)
    }

    fn blob_age(&self, blob: BlobId) -> Duration {
        Duration::from_micros(self.context.now().since(blob.stamp()))
    }
}
