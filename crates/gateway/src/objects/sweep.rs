//! Removing what failures left behind: bytes nobody names, parts of ended uploads, uploads of deleted buckets.
//!
//! ```text
//! bucket closing, its deleter gone   -> deleted or open again        upload of a bucket that is gone -> aborted
//! upload completing, nobody is       -> taken back                   rows of parts, upload ended     -> removed
//! manifest, blob                     -> removed, if no version of its key names it
//! ```
//! The last is decided behind a fence ([`crate::blobs::fence`]): the blob is marked, the key's head *touched*, and then looked
//! at. A writer that read the head before fails; one that reads it later meets the mark, or finds its upload ended (see
//! [`super::commit`]).

mod blobs;
mod manifests;
mod named;
#[cfg(test)]
mod tests;
mod uploads;

use larder_store::{Partition, PartitionPage, Table};

use super::{Error, Objects, Result};
use crate::blobs::sweep::{BlobSweep, note_failure};

/// Partitions looked at between two reads of the list of all.
const PAGE_PARTITIONS: usize = 500;

/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Blobs removed.
    pub blobs: u64,
    /// Parts and manifests removed.
    pub rows: u64,
    /// Uploads ended or taken back.
    pub uploads: u64,
    /// Things left to the next pass because something failed.
    pub failed: u64,
}

impl Sweep {
    /// Notes a failure: the pass goes on.
    fn fails(&mut self, what: &str, error: &Error) {
        note_failure(&mut self.failed, what, error);
    }
}

impl Objects {
    /// Looks at everything once, the blobs of the key-value side included. Safe beside any traffic, of this gateway and of others. What fails is told, counted and left
    /// to the next pass.
    ///
    /// # Errors
    /// What the store answers to who asks what there is; the rest is done nevertheless.
    pub async fn sweep(&self) -> Result<Sweep> {
        let mut done = Sweep::default();
        let closing = self.settle_all_closing().await;
        let uploads = self.sweep_uploads(&mut done).await;
        let parts = self.sweep_parts(&mut done).await;
        let manifests = self.sweep_manifests(&mut done).await;
        // The blobs of both sides are listed once.
        let blobs = self.gateway.sweep_blobs_of(&[&*self.gateway, self]).await;
        closing.and(uploads).and(parts).and(manifests)?;
        let BlobSweep { removed, failed } = blobs?;
        Ok(Sweep { blobs: removed, failed: done.failed + failed, ..done })
    }

    /// A page of the partitions of a table, and where the next page begins.
    async fn partitions(&self, table: Table, after: Option<bytes::Bytes>) -> Result<PartitionPage> {
        tokio::task::yield_now().await; // Other requests have their turn.
        let store = &self.gateway.ports.store;
        Ok(store.partitions(table, after, PAGE_PARTITIONS, &self.options()).await?)
    }
}

/// The 16 bytes a partition is named by.
fn id_of(partition: &Partition) -> Result<[u8; 16]> {
    let damaged = |_| crate::Error::Damaged(format!("a partition of the table {}", partition.table.name()));
    Ok(partition.key.as_ref().try_into().map_err(damaged)?)
}
