//! Blobs, the bodies too large for a row of a table: up to 1 MiB a bulk row, above that a file.
//!
//! ```text
//! create ─ write … ─ finish ─ (row that names the blob) ─ drop the lease
//!             │         ├── up to 1 MiB: one bulk row, in the engine's journal
//!             │         └── file: sync, rename, sync of the folder
//!             └── past 1 MiB: tmp/<id>, a run of blocks written while the next is filled
//! ```
//! - A writer uses an id once, because the id carries the stamp of its row. Of two bodies, readers get the one finished last.
//! - A reader returns only bytes whose checksum passed; a truncated file is `Damaged` when it is opened.
//! - The writer takes a lease before the blob is visible and drops it after its row is written. [`Blobs::list`] reads leases
//!   after blobs, so it never shows a blob as free that is about to get its row.
//! - A file is on disk before its row is written, even for a buffered write: the row may reach the disk at any time, and would
//!   replace an older row by bytes that a power cut took.
//! - A removal takes effect at once and checks no row. Remove a blob after a sync of its row's removal, or a power cut may
//!   bring back a row without its blob.
//! - A file reserves its bytes before it writes them ([`DiskSpace`]): all of them when its length is announced, otherwise chunk
//!   by chunk. A refused or abandoned file is removed at once, and its reservation released.
//! - Memory is bounded: a row while it is small, then two runs of blocks; a reader holds a few blocks.

mod bulk_row;
mod disk;
mod files;
pub(crate) mod folders;
mod format;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::leases::BlobLeases;
use larder_store::{BlobOwner, BlobReader, BlobWriter, Blobs, ListedBlob, Purpose, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::bulk_store::BulkRows;
use crate::disk_space::DiskSpace;
use disk::{BlobDisk, SystemDisk, run_blocking};
use files::BlobFolder;
use reader::{BlobFileReader, BulkRowReader};
use writer::LocalBlobWriter;

pub(crate) use reader::{ids, row_owner, verify_file};

/// Longest body kept as a bulk row, in bytes.
pub const BULK_MAX: usize = 1024 * 1024;
/// Bytes of a body in a full block of a file.
pub const BLOCK_BYTES: u32 = 256 * 1024;
/// Blocks written at a time.
const RUN_BLOCKS: u64 = 2;
/// Bulk rows read at a time while listing: each may be 1 MiB.
const LIST_ROWS: usize = 16;

/// The length at which a body becomes a file, and the size of a file's blocks.
#[derive(Debug, Clone, Copy)]
struct BlobSizes {
    row_max: usize,
    block: u32,
}

/// The blobs of one data directory.
pub struct LocalBlobs {
    files: Arc<BlobFolder>,
    bulk: Arc<dyn BulkRows>,
    leases: BlobLeases,
    space: Arc<DiskSpace>,
    /// Files whose removal waits until a backup has links to them; `None`: none makes links.
    held: Arc<Mutex<Option<BTreeSet<BlobId>>>>,
    /// Held by a backup.
    backup: Mutex<()>,
}

/// Holds removals of files while it lives; then they are made up for.
pub(crate) struct HeldRemovals {
    files: Arc<BlobFolder>,
    held: Arc<Mutex<Option<BTreeSet<BlobId>>>>,
}

impl Drop for HeldRemovals {
    fn drop(&mut self) {
        loop {
            // Held for one file at a time: writers of bodies take it, too.
            let mut held = self.held.lock();
            let Some(id) = held.as_mut().and_then(BTreeSet::pop_first) else {
                *held = None;
                return;
            };
            // The sweeper finds what stays.
            if let Err(error) = self.files.remove(id) {
                tracing::warn!(%error, "removal of a body failed after a backup: the sweeper repeats it");
            }
        }
    }
}

impl LocalBlobs {
    /// The disk space that admits bodies.
    pub(crate) fn disk_space(&self) -> Arc<DiskSpace> {
        Arc::clone(&self.space)
    }

    /// The turn of the one backup that runs; `None`: another one runs.
    pub(crate) fn begin_backup(&self) -> Option<MutexGuard<'_, ()>> {
        self.backup.try_lock()
    }

    /// Lets removals of files wait until the result is dropped.
    pub(crate) fn hold_removals(&self) -> HeldRemovals {
        *self.held.lock() = Some(BTreeSet::new());
        HeldRemovals { files: self.files.clone(), held: Arc::clone(&self.held) }
    }

    /// Whether the removal of this file waits for a backup now.
    fn holds(&self, id: BlobId) -> bool {
        self.held.lock().as_mut().is_some_and(|held| {
            held.insert(id);
            true
        })
    }

    /// Opens or creates `<dir>/blobs` and removes the unfinished files of dead processes; the caller holds the lock of the data
    /// directory. `space` admits files, as it does bulk rows. Blocks the thread; a start needs no disk space once the folder
    /// exists.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn open(dir: &Path, bulk: Arc<dyn BulkRows>, space: Arc<DiskSpace>) -> Result<Self> {
        let sizes = BlobSizes { row_max: BULK_MAX, block: BLOCK_BYTES };
        Self::open_sized(dir, bulk, space, sizes, Box::new(SystemDisk))
    }

    /// Whether a sync failed, so that blobs take no more writes.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.files.is_poisoned()
    }

    fn open_sized(
        dir: &Path,
        bulk: Arc<dyn BulkRows>,
        space: Arc<DiskSpace>,
        sizes: BlobSizes,
        disk: Box<dyn BlobDisk>,
    ) -> Result<Self> {
        let files = Arc::new(BlobFolder::open(dir, sizes, disk)?);
        Ok(Self { files, bulk, leases: BlobLeases::default(), space, held: Arc::default(), backup: Mutex::default() })
    }

    /// Bulk rows as [`BlobFolder::list`] lists files.
    async fn list_rows(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        let mut blobs = Vec::new();
        let mut after = after.map(|after| Bytes::copy_from_slice(&after.0));
        while blobs.len() < limit {
            let rows = self.bulk.keys(after.clone(), LIST_ROWS.min(limit - blobs.len())).await?;
            let Some((last, _)) = rows.last() else { break };
            after = Some(Bytes::copy_from_slice(last));
            blobs.extend(rows.into_iter().filter_map(|(key, value)| self.listed_row(&key, value)));
        }
        Ok(blobs)
    }

    /// The list entry of a bulk row; `None` for a damaged row.
    fn listed_row(&self, key: &[u8], value: Bytes) -> Option<ListedBlob> {
        let listed = match key.try_into().map(BlobId) {
            Ok(id) => {
                bulk_row::owner(id, value).map(|owner| ListedBlob { id, owner, leased: self.leases.is_leased(&id) })
            }
            Err(_) => Err(format::damaged("a key that is no id")),
        };
        let left_out =
            |error: &_| tracing::error!(?key, %error, "listing of a blob row failed: it is damaged and left out");
        listed.inspect_err(left_out).ok()
    }
}

#[async_trait]
impl Blobs for LocalBlobs {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        self.files.check_poison()?;
        // Race: a sweeper that lists the blob must find its lease, so the lease comes before the first byte.
        let lease = self.leases.acquire(id);
        // The file of this id would go with the one before.
        if let Some(held) = self.held.lock().as_mut() {
            held.remove(&id);
        }
        let reservation = self.space.admit(Purpose::Data, 0)?;
        Ok(Box::new(LocalBlobWriter::new(self.files.clone(), self.bulk.clone(), reservation, lease, id, owner)))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        // The row first: a later, shorter body of this id leaves the file of the earlier one in place.
        if let Some(value) = self.bulk.get(&id.0).await? {
            return Ok(Box::new(BulkRowReader(bulk_row::body(id, value)?)));
        }
        let files = self.files.clone();
        Ok(Box::new(run_blocking(move || BlobFileReader::open(&files, id)).await?))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.files.check_poison()?;
        if self.holds(id) {
            return writer::remove_stale_row(&*self.bulk, id).await;
        }
        let files = self.files.clone();
        // Row and file of one id may both exist: removing the file alone would bring the row's body back.
        if run_blocking(move || files.remove(id)).await? {
            return writer::remove_stale_row(&*self.bulk, id).await;
        }
        self.bulk.remove(Bytes::copy_from_slice(&id.0)).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        let (files, leases) = (self.files.clone(), self.leases.clone());
        let files = run_blocking(move || files.list(after, limit, &leases)).await?;
        let rows = self.list_rows(after, limit).await?;
        Ok(merged(files, rows, limit))
    }

    fn is_ready(&self) -> bool {
        !self.is_poisoned()
    }
}

/// Merges two lists that are sorted by id; each id once.
fn merged(mut files: Vec<ListedBlob>, rows: Vec<ListedBlob>, limit: usize) -> Vec<ListedBlob> {
    files.extend(rows);
    files.sort_by_key(|blob| blob.id);
    files.dedup_by_key(|blob| blob.id);
    files.truncate(limit);
    files
}
