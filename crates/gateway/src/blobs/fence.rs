//! The fence between a sweeper and a writer that is only slow.
//!
//! ```text
//! sweeper   not named ──> mark at every replica ──> head touched, if there is one ──> still not named ──> bytes removed
//! writer    (plain rows)   row, at a quorum ──> marked? ── no ──> acknowledged,  yes ──> row taken back
//! writer    (heads)        head read ──> marked? ── no ──> swapped against that head,  yes ──> refused
//! ```
//! Whoever writes first is seen by the other: whatever the pauses, one of the two gives way. A mark is at every replica, so a
//! writer in another datacenter sees it. It is never taken back: a second sweeper may rely on it, and would remove what a writer
//! acknowledges that finds it gone. It goes by itself after a day. `docs/decisions/0010` and `0015` have the interleavings.

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::rows::{Batch, Change, Micros, Row};
use larder_store::{Level, Options, Partition, ReadQuery};

use super::sweep::{BlobNames, Look, OwnedBlob};
use crate::{Gateway, Result};

/// How long a mark stays, in microseconds: longer than any write takes.
const GC_MARK_MICROS: Micros = 24 * 60 * 60 * 1_000_000;
/// The value of a mark: a version byte, nothing else.
const GC_MARK_VALUE: &[u8] = &[1];

impl Gateway {
    /// Of the blobs of one partition those that nothing names nor can come to name.
    ///
    /// # Errors
    /// What the store answers; `Unavailable` while a replica is down.
    pub(super) async fn fence(
        &self,
        owner: &dyn BlobNames,
        partition: &Partition,
        unnamed: Vec<OwnedBlob>,
    ) -> Result<Vec<OwnedBlob>> {
        for blob in &unnamed {
            self.set_gc_mark(blob.id).await?;
        }
        if partition.table.is_guarded() {
            owner.touch_head(partition).await?;
        }
        owner.unnamed(partition, unnamed, Look::Fenced).await
    }

    /// Whether a sweeper is about to remove a blob.
    ///
    /// # Errors
    /// What the store answers.
    pub(crate) async fn has_gc_mark(&self, blob: BlobId, options: &Options) -> Result<bool> {
        let page = self.ports.store.read(&Partition::doomed(blob), &ReadQuery::all(1), options).await?;
        Ok(!page.rows.is_empty())
    }

    /// Marks a blob at every replica: who looks at any of them sees it.
    async fn set_gc_mark(&self, blob: BlobId) -> Result<()> {
        let stamp = self.issue().await?;
        let expires = Some(self.now().saturating_add(GC_MARK_MICROS));
        let mark = Row { name: Bytes::new(), value: Bytes::from_static(GC_MARK_VALUE), stamp, expires };
        let batch = Batch::of(Partition::doomed(blob), vec![Change::Put(mark)]);
        Ok(self.ports.store.apply(batch, &self.own(Level::All)).await?)
    }
}
