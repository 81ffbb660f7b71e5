//! Bytes nobody names any more, and those that are being read.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use larder_model::content::BlobId;
use larder_model::objects::part::decode_manifest_row;
use larder_model::objects::{Release, UploadId, VersionId};
use larder_model::rows::Change;
use larder_store::{Batch, Level, Order, Partition, ReadQuery};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Error, Objects, Result};
use crate::blobs::release::Synced;
use crate::metrics::Event;
use crate::{Gateway, Rule};

/// Manifests removed at once behind the backs of requests; when there are as many, the next request removes its own.
const DRAINS_MAX: usize = 4;

/// Manifests that are being read, each by how many: their blobs are not removed meanwhile. Single blobs are kept readable
/// by the engine.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    readers: Arc<Mutex<Readers>>,
    drains: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Readers {
    manifests: HashMap<VersionId, usize>,
    uploads: HashMap<UploadId, usize>,
}

/// Keeps the bytes of a manifest until dropped.
#[derive(Debug)]
pub(super) struct Pin {
    pins: Pins,
    manifest: VersionId,
    upload: Option<UploadId>,
}

impl Default for Pins {
    fn default() -> Self {
        Self { readers: Arc::default(), drains: Arc::new(Semaphore::new(DRAINS_MAX)) }
    }
}

impl Pins {
    /// Pins a manifest and the parts of the upload that made it. Look afterwards whether the version is still there: what was
    /// released before may be gone.
    pub(super) fn pin(&self, manifest: VersionId, upload: Option<UploadId>) -> Pin {
        let mut readers = self.readers.lock();
        *readers.manifests.entry(manifest).or_default() += 1;
        if let Some(upload) = upload {
            *readers.uploads.entry(upload).or_default() += 1;
        }
        Pin { pins: self.clone(), manifest, upload }
    }

    /// Whether a manifest is being read.
    pub(super) fn holds(&self, manifest: &VersionId) -> bool {
        self.readers.lock().manifests.contains_key(manifest)
    }

    /// Whether an object made by this upload is being read.
    pub(super) fn holds_upload(&self, upload: &UploadId) -> bool {
        self.readers.lock().uploads.contains_key(upload)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut readers = self.pins.readers.lock();
        leave(&mut readers.manifests, &self.manifest);
        if let Some(upload) = &self.upload {
            leave(&mut readers.uploads, upload);
        }
    }
}

fn leave<K: std::hash::Hash + Eq>(readers: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = readers.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            readers.remove(key);
        }
    }
}

impl Objects {
    /// Removes what a head that was committed just now does not name any more: at once where that is on disk, otherwise behind
    /// the caller's back. What fails, or is being read, is left to whoever changes the key next and to the sweeper.
    pub(super) async fn drain(&self, releases: Vec<Release>) {
        if releases.is_empty() {
            return;
        }
        let (gateway, pins) = (Arc::clone(&self.gateway), self.pins.clone());
        match self.gateway.releases.answered() {
            Some(synced) => drain(gateway, pins, releases, synced).await,
            None => self.gateway.releases.later(move |synced| drain(gateway, pins, releases, synced)),
        }
    }

    /// After a change that failed: the blob it brought goes at once if no head can name it any more; otherwise, when the
    /// change may still happen, the sweeper decides.
    pub(super) async fn discard(&self, error: &Error, blob: Option<BlobId>) {
        let unknown = matches!(error, Error::Gateway(failed) if failed.is_outcome_unknown());
        if let Some(blob) = blob.filter(|_| !unknown) {
            self.gateway.releases.discard(blob).await;
        }
    }
}

/// Removes what is released. Manifests go behind the caller's back, a few at once.
async fn drain(gateway: Arc<Gateway>, pins: Pins, releases: Vec<Release>, synced: Synced) {
    for release in releases {
        match release {
            Release::Blob(blob) => gateway.releases.remove_or_leave(blob, synced).await,
            Release::Parts(manifest) if gateway.rule(Rule::PinReaders) && pins.holds(&manifest) => {}
            Release::Parts(manifest) => {
                let gateway = Arc::clone(&gateway);
                match Arc::clone(&pins.drains).try_acquire_owned() {
                    Ok(turn) => {
                        tokio::spawn(async move {
                            drain_manifest(&gateway, manifest, synced).await;
                            drop(turn);
                        });
                    }
                    Err(_) => drain_manifest(&gateway, manifest, synced).await,
                }
            }
        }
    }
}

async fn drain_manifest(gateway: &Gateway, manifest: VersionId, synced: Synced) {
    if let Err(error) = remove_manifest(gateway, manifest, synced).await {
        tracing::debug!(%error, "a manifest is left to the sweeper");
    }
}

/// Removes the blobs a manifest names, then its rows. A row goes after its blobs: whoever comes next finds the rest.
///
/// # Errors
/// What the store answers; the rest stays.
async fn remove_manifest(gateway: &Gateway, manifest: VersionId, synced: Synced) -> Result<()> {
    let partition = Partition::manifest(manifest);
    loop {
        let query = ReadQuery { order: Order::Reverse, ..ReadQuery::all(1) };
        let page = gateway.ports.store.read(&partition, &query, &gateway.own(Level::Quorum)).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(()) };
        // The row that says whose it is goes last.
        let parts = if row.name.is_empty() { Vec::new() } else { decode_manifest_row(&row.name, row.value)?.2 };
        for blob in parts.iter().filter_map(|part| part.blob) {
            gateway.releases.remove(blob, synced, Event::BlobRemoved).await?;
        }
        let gone = Change::Remove { name: row.name, stamp: row.stamp };
        gateway.ports.store.apply(Batch::of(partition.clone(), vec![gone]), &gateway.own(Level::Quorum)).await?;
    }
}
