//! Release of unreferenced bytes, and pins that delay it for readers.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use larder_core::Core;
use larder_core::blobs::release::SyncProof;
use larder_core::metrics::Event;
use larder_rows::Change;
use larder_store::{Batch, Partition, ReadOrder, ReadQuery};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::Result;
use crate::rules::part::decode_manifest_row;
use crate::rules::{Release, UploadId, VersionId};

/// Most manifests removed in the background at once; beyond that a request removes its own.
const DRAINS_MAX: usize = 4;

/// Pinned manifests, each with its number of readers: their blobs are not removed. The engine keeps single blobs readable
/// by itself.
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
    /// Pins a manifest and the parts of its upload. The caller rereads the version afterwards: a release before the pin
    /// may have removed it.
    pub(super) fn pin(&self, manifest: VersionId, upload: Option<UploadId>) -> Pin {
        let mut readers = self.readers.lock();
        *readers.manifests.entry(manifest).or_default() += 1;
        if let Some(upload) = upload {
            *readers.uploads.entry(upload).or_default() += 1;
        }
        Pin { pins: self.clone(), manifest, upload }
    }

    /// Removes bytes that a just committed head no longer references: now if the head is on disk, otherwise in the
    /// background after a sync. The next writer of the key and the sweeper retry what fails or is pinned.
    pub(super) async fn release(&self, gateway: &Arc<Core>, releases: Vec<Release>) {
        if releases.is_empty() {
            return;
        }
        let (shared, pins) = (Arc::clone(gateway), self.clone());
        match gateway.blobs().releases.proof_of_answered_write() {
            Some(synced) => drain(shared, pins, releases, synced).await,
            None => gateway.blobs().releases.remove_after_sync(move |synced| drain(shared, pins, releases, synced)),
        }
    }

    /// Whether a manifest is being read.
    pub(super) fn is_pinned(&self, manifest: &VersionId) -> bool {
        self.readers.lock().manifests.contains_key(manifest)
    }

    /// Whether an object of this upload is being read.
    pub(super) fn is_upload_pinned(&self, upload: &UploadId) -> bool {
        self.readers.lock().uploads.contains_key(upload)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut readers = self.pins.readers.lock();
        decrement(&mut readers.manifests, &self.manifest);
        if let Some(upload) = &self.upload {
            decrement(&mut readers.uploads, upload);
        }
    }
}

fn decrement<K: std::hash::Hash + Eq>(readers: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = readers.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            readers.remove(key);
        }
    }
}

/// Removes released bytes. A few manifests at once go in the background.
async fn drain(gateway: Arc<Core>, pins: Pins, releases: Vec<Release>, synced: SyncProof) {
    for release in releases {
        match release {
            // A client that streams this blob has it open, and the engine keeps open blobs readable.
            Release::Blob(blob) => gateway.blobs().releases.remove_or_leave(blob, synced).await,
            // Race: a client is reading these parts; the next writer or the sweeper removes them [invariant 63].
            Release::Parts(manifest) if pins.is_pinned(&manifest) => {}
            Release::Parts(manifest) => {
                let gateway = Arc::clone(&gateway);
                match Arc::clone(&pins.drains).try_acquire_owned() {
                    Ok(permit) => {
                        tokio::spawn(async move {
                            drain_manifest(&gateway, manifest, synced).await;
                            drop(permit);
                        });
                    }
                    Err(_) => drain_manifest(&gateway, manifest, synced).await,
                }
            }
        }
    }
}

async fn drain_manifest(gateway: &Core, manifest: VersionId, synced: SyncProof) {
    if let Err(error) = remove_manifest(gateway, manifest, synced).await {
        tracing::debug!(%error, "removal of a manifest failed; the sweeper retries");
    }
}

/// Removes the blobs of a manifest, then its rows, each row after its blobs: a crash leaves the rest findable.
///
/// # Errors
/// Any error of the store; the rest stays.
async fn remove_manifest(gateway: &Core, manifest: VersionId, synced: SyncProof) -> Result<()> {
    let partition = Partition::manifest(manifest);
    loop {
        let query = ReadQuery { order: ReadOrder::Reverse, ..ReadQuery::all(1) };
        let page = gateway.context().read_at_quorum(&partition, &query).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(()) };
        // Crash: the owner row goes last, so the sweeper can attribute the rest.
        let parts = if row.name.is_empty() { Vec::new() } else { decode_manifest_row(&row.name, row.value)?.2 };
        for blob in parts.iter().filter_map(|part| part.blob) {
            // Crash: `synced` proves that the head without these bytes survives a power cut.
            gateway.blobs().releases.remove(blob, synced, Event::BlobRemoved).await?;
        }
        let gone = Change::Remove { name: row.name, stamp: row.stamp };
        gateway.context().apply_at_quorum(Batch::single(partition.clone(), vec![gone])).await?;
    }
}
