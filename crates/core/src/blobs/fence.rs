//! The fence between a sweeper and a writer that is only slow: a mark in the store that both look for, no lock of a thread.
//!
//! ```text
//! sweeper   not named ──> mark at every replica ──> head rewritten, if there is one ──> still not named ──> bytes removed
//! writer    (plain rows)   row, at a quorum ──> marked? ── no ──> acknowledged,  yes ──> row undone
//! writer    (heads)        head read ──> marked? ── no ──> swapped against that head,  yes ──> refused
//! ```
//! The first of the two to write is seen by the other, so one gives way whatever the pauses. The mark is at every replica, so a
//! writer in another datacenter sees it. A mark is never removed early: a second sweeper may rely on it, and would remove the
//! blob of a writer that finds no mark. It expires after a day. `docs/decisions/0010` and `0015` have the interleavings.

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_rows::{Batch, Change, Row};
use larder_store::{CallOptions, ConsistencyLevel, Partition, ReadQuery};

use super::BlobCollector;
use super::sweep::{BlobReferences, OwnedBlob, SweepPhase};
use crate::Result;
use crate::gateway_core::internal_options;

/// Lifetime of a mark in microseconds: longer than any write takes.
const GC_MARK_MICROS: u64 = 24 * 60 * 60 * 1_000_000;
/// The value of a mark: a version byte, nothing else.
const GC_MARK_VALUE: &[u8] = &[1];

impl BlobCollector {
    /// Marks blobs of one partition; returns those that no row names and no row can come to name.
    ///
    /// # Errors
    /// The store's; `Unavailable` while a replica is down.
    pub(super) async fn fence(
        &self,
        owner: &dyn BlobReferences,
        partition: &Partition,
        unnamed: Vec<OwnedBlob>,
    ) -> Result<Vec<OwnedBlob>> {
        // Race: the mark comes before the second check; a writer that the check misses finds the mark [invariant 90].
        for blob in &unnamed {
            self.set_gc_mark(blob.id).await?;
        }
        // Race: a writer that read the head before the mark fails against the new stamp [invariant 57].
        if partition.table.is_guarded() {
            owner.fence_head(partition).await?;
        }
        owner.unnamed(partition, unnamed, SweepPhase::Fenced).await
    }

    /// Whether a sweeper is about to remove a blob.
    ///
    /// # Errors
    /// The store's.
    pub async fn has_gc_mark(&self, blob: BlobId, options: &CallOptions) -> Result<bool> {
        let page = self.core.ports.store.read(&Partition::gc_mark(blob), &ReadQuery::all(1), options).await?;
        Ok(!page.rows.is_empty())
    }

    /// Marks a blob at every replica, so that a reader of any of them sees the mark.
    async fn set_gc_mark(&self, blob: BlobId) -> Result<()> {
        let stamp = self.issuer.issue().await?;
        // Race: a second sweeper may rely on this mark, so it is never removed and only expires [invariant 93].
        let expires = Some(self.core.now().saturating_add(GC_MARK_MICROS));
        let mark = Row { name: Bytes::new(), value: Bytes::from_static(GC_MARK_VALUE), stamp, expires };
        let batch = Batch::single(Partition::gc_mark(blob), vec![Change::Put(mark)]);
        Ok(self.core.ports.store.apply(batch, &internal_options(ConsistencyLevel::All)).await?)
    }
}
