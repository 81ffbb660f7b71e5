//! Removing blobs that no row names: leftovers of a crash, of a lost answer, of a blind overwrite.
//!
//! ```text
//! page of blobs ──> not leased, by partition ──> the owner's rows do not name them ──> fence ──┐
//!                                                              one sync barrier for the page ──┴──> bytes removed
//! ```
//! A blob that is being written, or whose row is not written yet, is leased. One process alone knows its leases for certain.
//! Beside other gateways a lease is a promise with an end, and [`super::fence`] finds the writer that is only slow. The looks
//! at rows may have seen changes that are not on disk, so nothing of a page is removed before its barrier.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::limits::LISTING_PAGE_ROWS;
use larder_store::{ListedBlob, Partition, Table};

use crate::metrics::Event;
use crate::{Gateway, Result};

/// So many failures of one pass are told one by one.
const FAILURES_TOLD: u64 = 10;

/// A blob of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedBlob {
    /// Its name.
    pub(crate) id: BlobId,
    /// The name of the row it was made for.
    pub(crate) row: Bytes,
}

/// Which look at the rows of a partition it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The first one: most blobs are named, or may not be swept yet.
    First,
    /// The one behind the fence: it decides.
    Fenced,
}

/// The rows that name the blobs of some tables. Each side of the gateway has its own.
#[async_trait]
pub(crate) trait BlobNames: Send + Sync {
    /// Whether its rows are in this table.
    fn owns(&self, table: Table) -> bool;

    /// Whether a writer may be about whose lease is not seen, so that a first look does not decide.
    fn is_fenced(&self) -> bool;

    /// Of `blobs`, all of one partition, those that its rows do not name. At the first look also without those that must not
    /// go yet for another reason.
    ///
    /// # Errors
    /// What the store answers; `Damaged` where a row cannot be read.
    async fn unnamed(&self, partition: &Partition, blobs: Vec<OwnedBlob>, look: Look) -> Result<Vec<OwnedBlob>>;

    /// Rewrites the head of a guarded partition as it is: a swap against what was read before fails.
    ///
    /// # Errors
    /// What the store answers; `Overloaded` when the head never rests.
    async fn touch_head(&self, partition: &Partition) -> Result<()>;

    /// Whether somebody reads the bytes of a blob by way of what once named it. Asked right before they are removed: who comes
    /// later finds that it is gone.
    fn is_read(&self, _blob: &OwnedBlob) -> bool {
        false
    }
}

/// What a pass over all blobs did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobSweep {
    /// Blobs removed.
    pub removed: u64,
    /// Partitions and blobs left to the next pass because something failed.
    pub failed: u64,
}

/// Blobs that may be removed after a sync, each with its owner.
type Waste<'a> = Vec<(&'a dyn BlobNames, OwnedBlob)>;

impl Gateway {
    /// Looks at every blob of the key-value side once. Safe beside any traffic, of this gateway and of others. What fails is
    /// told, counted and left to the next pass. With an S3 side [`crate::objects::Objects::sweep`] does this too.
    ///
    /// # Errors
    /// What the store answers to who asks which blobs there are; what was removed until then stays removed.
    pub async fn sweep_blobs(&self) -> Result<BlobSweep> {
        self.sweep_blobs_of(&[self]).await
    }

    /// As [`Self::sweep_blobs`], of the blobs of these owners.
    ///
    /// # Errors
    /// As [`Self::sweep_blobs`].
    pub(crate) async fn sweep_blobs_of(&self, owners: &[&dyn BlobNames]) -> Result<BlobSweep> {
        let (mut done, mut after) = (BlobSweep::default(), None);
        loop {
            let page = self.ports.blobs.list(after, LISTING_PAGE_ROWS).await?;
            let Some(last) = page.last() else { return Ok(done) };
            after = Some(last.id);
            let waste = self.waste_in(page, owners, &mut done).await;
            if let Err(error) = self.remove_waste(waste, &mut done).await {
                note_failure(&mut done.failed, "a sync before bytes are removed", &error);
                return Ok(done);
            }
        }
    }

    /// What of a page nothing names. What the page has of one partition is decided together.
    async fn waste_in<'a>(
        &self,
        page: Vec<ListedBlob>,
        owners: &[&'a dyn BlobNames],
        done: &mut BlobSweep,
    ) -> Waste<'a> {
        let mut partitions: BTreeMap<Partition, Vec<OwnedBlob>> = BTreeMap::new();
        for ListedBlob { id, owner, .. } in page.into_iter().filter(|blob| !blob.leased) {
            partitions.entry(owner.partition).or_default().push(OwnedBlob { id, row: owner.row });
        }
        let mut waste = Vec::new();
        for (partition, blobs) in partitions {
            let Some(owner) = owners.iter().find(|owner| owner.owns(partition.table)) else { continue };
            match self.waste_of(*owner, &partition, blobs).await {
                Ok(found) => waste.extend(found.into_iter().map(|blob| (*owner, blob))),
                Err(error) => note_failure(&mut done.failed, "the bodies of an object", &error),
            }
        }
        waste
    }

    async fn waste_of(
        &self,
        owner: &dyn BlobNames,
        partition: &Partition,
        blobs: Vec<OwnedBlob>,
    ) -> Result<Vec<OwnedBlob>> {
        let unnamed = owner.unnamed(partition, blobs, Look::First).await?;
        if unnamed.is_empty() || !owner.is_fenced() {
            return Ok(unnamed);
        }
        self.fence(owner, partition, unnamed).await
    }

    /// Removes what nothing names, after one barrier for all of it: a power cut must not bring a row back that did.
    async fn remove_waste(&self, waste: Waste<'_>, done: &mut BlobSweep) -> Result<()> {
        if waste.is_empty() {
            return Ok(());
        }
        let synced = self.releases.barrier().await?;
        for (owner, blob) in waste {
            if owner.is_read(&blob) {
                continue;
            }
            match self.releases.remove(blob.id, synced, Event::BlobSwept).await {
                Ok(()) => done.removed += 1,
                Err(error) => note_failure(&mut done.failed, "a body that nothing names", &error),
            }
        }
        Ok(())
    }
}

/// Counts a failure of a pass, and tells the first of them: the pass goes on.
pub(crate) fn note_failure(failed: &mut u64, what: &str, error: &dyn std::fmt::Display) {
    *failed += 1;
    if *failed <= FAILURES_TOLD {
        tracing::warn!(%error, "{what}: left to the next sweep");
    }
}
