//! An open store with its blobs.

use std::path::Path;

use bytes::Bytes;
use larder_store::{Batch, Blobs, CasResult, Durability, HeadWrite, Result, Store};
use larder_store_local::blobs::LocalBlobs;
use larder_store_local::{EngineSizes, LocalStore, OpenOptions};

use super::plan::PlannedWrite;
use crate::common;

/// A data directory, open.
pub struct OpenedStore {
    pub store: LocalStore,
    pub blobs: LocalBlobs,
}

impl OpenedStore {
    /// Opens a directory as a server does; the error is one line.
    pub fn open(dir: &Path) -> std::result::Result<Self, String> {
        // Small memtables make several tables, levels and journals of few bytes.
        let sizes = Some(EngineSizes::from_memtable(128 * 1024));
        let options = OpenOptions { cache_bytes: 4 << 20, sizes, ..common::options(dir, &common::clock()) };
        let store = LocalStore::open(options).map_err(|error| error.to_string())?;
        let blobs = LocalBlobs::open(dir, store.bulk_rows(), store.disk_space()).map_err(|error| error.to_string())?;
        Ok(Self { store, blobs })
    }

    /// Runs one write. `Err` in the inner result: a compare-and-set found another head than expected.
    pub async fn run(&self, op: &PlannedWrite) -> Result<std::result::Result<(), String>> {
        let call = common::call(Durability::Buffered);
        match op {
            PlannedWrite::Apply(batch) => self.store.apply(batch.clone(), &call).await?,
            PlannedWrite::Swap { partition, expected, head, changes } => {
                let swapped =
                    self.store.apply_if(partition, *expected, HeadWrite::clone(head), changes.clone(), &call).await?;
                if let CasResult::Conflict(found) = swapped {
                    return Ok(Err(format!(
                        "{partition:?}: expected {expected:?}, found {:?}",
                        found.map(|row| row.stamp)
                    )));
                }
            }
            PlannedWrite::PutBlob { id, owner, bytes } => {
                let mut writer = self.blobs.create(*id, owner.clone()).await?;
                for from in (0..bytes.len()).step_by(64 * 1024) {
                    writer.write(bytes.slice(from..bytes.len().min(from + 64 * 1024))).await?;
                }
                drop(writer.finish(Durability::Disk).await?);
            }
            PlannedWrite::RemoveBlob(id) => self.blobs.remove(*id).await?,
            PlannedWrite::Reopen => {}
        }
        Ok(Ok(()))
    }

    /// Waits until all writes are on disk.
    pub async fn sync(&self) -> Result<()> {
        self.store.apply(Batch::default(), &common::call(Durability::Disk)).await
    }

    /// All bytes of a blob.
    pub async fn blob(&self, id: larder_rows::content::BlobId) -> Result<Bytes> {
        let mut reader = self.blobs.open(id).await?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < reader.length() {
            let more = reader.read(bytes.len() as u64, 512 * 1024).await?;
            assert!(!more.is_empty(), "a reader answers at least one byte before the end");
            bytes.extend_from_slice(&more);
        }
        Ok(bytes.into())
    }

    /// Closes the store.
    pub async fn close(self) -> Result<()> {
        // Blobs write through the store, so only the store is closed.
        self.store.close().await
    }
}

/// Runs all writes of a plan and syncs them; returns the open store.
pub async fn write_all(dir: &Path, ops: &[PlannedWrite]) -> OpenedStore {
    let mut opened = OpenedStore::open(dir).unwrap();
    for (number, op) in ops.iter().enumerate() {
        if matches!(op, PlannedWrite::Reopen) {
            opened.close().await.unwrap();
            opened = OpenedStore::open(dir).unwrap();
        }
        opened.run(op).await.unwrap().unwrap();
        if number % 100 == 0 {
            opened.sync().await.unwrap();
        }
    }
    opened.sync().await.unwrap();
    opened
}
