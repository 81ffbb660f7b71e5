//! The sweeper: removes blobs that no row names, as a crash, a lost answer or a blind overwrite leaves them.
//!
//! ```text
//! page of blobs ──> not leased, by partition ──> the owner's rows do not name them ──> fence ──┐
//!                                                              one sync barrier for the page ──┴──> bytes removed
//! ```
//! A blob that is being written, or whose row is not written yet, is leased. One process alone knows its leases exactly. Beside
//! other gateways a lease is a promise that expires, and [`super::fence`] catches the slow writer. The checks of rows may have
//! seen changes that are not on disk, so nothing of a page is removed before its barrier.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_store::{ListedBlob, Partition, Table};

use super::BlobCollector;
use crate::Result;
use crate::metrics::Event;

/// Failures of one pass that are logged one by one.
const FAILURES_LOGGED_MAX: u64 = 10;

/// A blob of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedBlob {
    /// Its name.
    pub id: BlobId,
    /// The name of the row it was made for.
    pub row: Bytes,
}

/// The two checks of a partition's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepPhase {
    /// Before the fence: drops the many blobs that are named, or too young to sweep.
    Unfenced,
    /// After the fence: decides.
    Fenced,
}

/// The rows that name the blobs of some tables. Each side of the gateway has its own.
#[async_trait]
pub trait BlobReferences: Send + Sync {
    /// Whether its rows are in this table.
    fn owns_table(&self, table: Table) -> bool;

    /// Whether a writer may hold a lease that is not seen here, so that the first check cannot decide.
    fn is_fenced(&self) -> bool;

    /// The blobs, all of one partition, that its rows do not name. The first check also drops blobs that must stay for another
    /// reason.
    ///
    /// # Errors
    /// The store's; `Damaged` where a row cannot be read.
    async fn unnamed(&self, partition: &Partition, blobs: Vec<OwnedBlob>, phase: SweepPhase) -> Result<Vec<OwnedBlob>>;

    /// Rewrites the head of a guarded partition unchanged, with a new stamp: a compare-and-set of an earlier reader fails.
    ///
    /// # Errors
    /// The store's; `Overloaded` when other writers keep changing the head.
    async fn fence_head(&self, partition: &Partition) -> Result<()>;

    /// Whether a reader that saw an earlier row still reads the bytes. Asked right before removal: later readers find no row.
    fn has_readers(&self, _blob: &OwnedBlob) -> bool {
        false
    }
}

/// Result of a pass over all blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobSweep {
    /// Blobs removed.
    pub removed: u64,
    /// Partitions and blobs left to the next pass because something failed.
    pub failed: u64,
}

/// Blobs that may be removed after a sync, each with its owner.
type Garbage<'a> = Vec<(&'a dyn BlobReferences, OwnedBlob)>;

impl BlobCollector {
    /// Checks every blob of these owners once. Safe beside any traffic of this gateway and others. Failures are logged, counted
    /// and left to the next pass.
    ///
    /// # Errors
    /// The store's when it cannot list blobs; blobs removed before stay removed.
    pub async fn sweep(&self, owners: &[&dyn BlobReferences]) -> Result<BlobSweep> {
        let (mut done, mut after) = (BlobSweep::default(), None);
        loop {
            let page = self.context.ports.blobs.list(after, LISTING_PAGE_ROWS).await?;
            let Some(last) = page.last() else { return Ok(done) };
            after = Some(last.id);
            let garbage = self.garbage_in_page(page, owners, &mut done).await;
            if let Err(error) = self.remove_garbage(garbage, &mut done).await {
                // Without a barrier nothing may go, and the next page would fail in the same way.
                count_failure(&mut done.failed, "sync before blob removals", &error);
                return Ok(done);
            }
        }
    }

    /// Blobs of a page that no row names. Blobs of one partition are decided together.
    async fn garbage_in_page<'a>(
        &self,
        page: Vec<ListedBlob>,
        owners: &[&'a dyn BlobReferences],
        done: &mut BlobSweep,
    ) -> Garbage<'a> {
        let mut partitions: BTreeMap<Partition, Vec<OwnedBlob>> = BTreeMap::new();
        // Race: the row of a leased blob may still be in the store's queue [invariant 96].
        for ListedBlob { id, owner, .. } in page.into_iter().filter(|blob| !blob.leased) {
            partitions.entry(owner.partition).or_default().push(OwnedBlob { id, row: owner.row });
        }
        let mut garbage = Vec::new();
        for (partition, blobs) in partitions {
            // The blobs of a side that takes no part in this pass stay.
            let Some(owner) = owners.iter().find(|owner| owner.owns_table(partition.table)) else { continue };
            match self.owned_garbage(*owner, &partition, blobs).await {
                Ok(owned_garbage) => garbage.extend(owned_garbage.into_iter().map(|blob| (*owner, blob))),
                Err(error) => count_failure(&mut done.failed, "blobs of an object", &error),
            }
        }
        garbage
    }

    async fn owned_garbage(
        &self,
        owner: &dyn BlobReferences,
        partition: &Partition,
        blobs: Vec<OwnedBlob>,
    ) -> Result<Vec<OwnedBlob>> {
        // A blind overwrite removes no blob: the row that named it is gone, so this finds it [invariant 34].
        let unnamed = owner.unnamed(partition, blobs, SweepPhase::Unfenced).await?;
        // Where leases are exact, a blob without lease and without name will never be named.
        if unnamed.is_empty() || !owner.is_fenced() {
            return Ok(unnamed);
        }
        self.fence(owner, partition, unnamed).await
    }

    /// Removes garbage after one sync barrier for all of it.
    async fn remove_garbage(&self, garbage: Garbage<'_>, done: &mut BlobSweep) -> Result<()> {
        if garbage.is_empty() {
            return Ok(());
        }
        // Crash: the checks may have seen an unsynced overwrite; a power cut brings its old row back [invariant 94].
        let synced = self.releases.sync_barrier().await?;
        for (owner, blob) in garbage {
            // Race: a reader of an older version keeps its bytes until it ends; the next pass removes them [invariant 63].
            if owner.has_readers(&blob) {
                continue;
            }
            match self.releases.remove(blob.id, synced, Event::BlobSwept).await {
                Ok(()) => done.removed += 1,
                Err(error) => count_failure(&mut done.failed, "blob that no row names", &error),
            }
        }
        Ok(())
    }
}

/// Counts a failure of a pass and logs the first ones; the pass goes on.
pub fn count_failure(failed: &mut u64, what: &str, error: &dyn std::fmt::Display) {
    *failed += 1;
    if *failed <= FAILURES_LOGGED_MAX {
        tracing::warn!(%error, "{what}: sweep failed, left to the next pass");
    }
}
