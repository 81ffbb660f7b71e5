//! Garbage collection after failures: unreferenced bytes, parts of ended uploads, uploads of deleted buckets.
//!
//! ```text
//! bucket closing, deleter dead       -> deleted or reopened          upload of a deleted bucket      -> aborted
//! upload completing, writer dead     -> taken back                   part rows of an ended upload    -> removed
//! manifest, blob                     -> removed, if no version of its key references it
//! ```
//! The last row works with a fence ([`larder_core::blobs::fence`]): the sweeper marks the blob, *fences* the key's head, and
//! then scans the versions. A writer that read the head before fails; a later one sees the mark or finds its upload ended
//! (see [`super::commit`]).

mod blobs;
mod references;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larder_core::Core;
use larder_core::blobs::sweep::{BlobReferences, BlobSweep, count_failure};
use larder_store::{Partition, PartitionPage, Table};

use super::buckets::Buckets;
use super::commit::HeadStore;
use super::uploads::Uploads;
use super::{Error, Result};

/// Partitions per page of a table.
const PAGE_PARTITIONS: usize = 500;

/// Counts of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Blobs removed.
    pub blobs: u64,
    /// Parts and manifests removed.
    pub rows: u64,
    /// Uploads ended or taken back.
    pub uploads: u64,
    /// Items left to the next pass after an error.
    pub failed: u64,
}

impl SweepReport {
    /// Counts and logs a failure: the pass goes on.
    fn record_failure(&mut self, what: &str, error: &Error) {
        count_failure(&mut self.failed, what, error);
    }
}

/// Removes the remains of failures: bytes, rows and uploads.
pub struct ObjectSweeper {
    pub(super) gateway: Arc<Core>,
    pub(super) buckets: Arc<Buckets>,
    pub(super) heads: Arc<HeadStore>,
    pub(super) uploads: Arc<Uploads>,
    /// The other products, whose rows name blobs too.
    pub(super) others: Vec<Arc<dyn BlobReferences>>,
}

impl ObjectSweeper {
    /// Runs one pass over everything, the blobs of the other products included. Safe next to any traffic of any
    /// gateway. Failures are logged, counted and left to the next pass.
    ///
    /// # Errors
    /// Any error of the store while listing; the other steps still run.
    pub async fn sweep(&self) -> Result<SweepReport> {
        let mut report = SweepReport::default();
        // Buckets first: the uploads of a bucket deleted now are aborted in the same pass.
        let closing = self.buckets.settle_all_closing().await;
        let uploads = self.sweep_uploads(&mut report).await;
        let parts = self.sweep_rows(Table::Parts, "the parts of an upload", &mut report).await;
        let manifests = self.sweep_rows(Table::Manifests, "the manifest of an object", &mut report).await;
        // One listing serves the blobs of all products.
        let others = self.others.iter().map(|other| &**other as &dyn BlobReferences);
        let owners: Vec<&dyn BlobReferences> = others.chain([self as &dyn BlobReferences]).collect();
        let blobs = self.gateway.blobs().sweep(&owners).await;
        // All steps have run by now: a failure of one must not keep the others from freeing space.
        closing.and(uploads).and(parts).and(manifests)?;
        let BlobSweep { removed, failed } = blobs?;
        Ok(SweepReport { blobs: removed, failed: report.failed + failed, ..report })
    }

    /// Removes the unneeded rows of one of two tables: parts, or manifests.
    async fn sweep_rows(&self, table: Table, what: &str, report: &mut SweepReport) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.partitions(table, after).await?;
            for partition in page.partitions {
                let removed = match table {
                    Table::Parts => self.sweep_parts(partition).await,
                    _ => self.sweep_manifest(partition).await,
                };
                match removed {
                    Ok(removed) => report.rows += removed,
                    Err(error) => report.record_failure(what, &error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// A page of the partitions of a table, and the start of the next page.
    async fn partitions(&self, table: Table, after: Option<bytes::Bytes>) -> Result<PartitionPage> {
        tokio::task::yield_now().await; // Lets other requests run.
        let store = &self.gateway.context().ports.store;
        Ok(store.partitions(table, after, PAGE_PARTITIONS, &self.heads.options()).await?)
    }
}

/// The 16-byte id that names a partition.
fn partition_id(partition: &Partition) -> Result<[u8; 16]> {
    let damaged = |_| larder_core::Error::Damaged(format!("a partition of the table {}", partition.table.name()));
    Ok(partition.key.as_ref().try_into().map_err(damaged)?)
}
