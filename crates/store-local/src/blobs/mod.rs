//! Bodies too large for a row of a table: up to 1 MiB a bulk row, above that a file.
//!
//! ```text
//! create ─ write … ─ finish ─ (row that names the blob) ─ drop the lease
//!             │         ├── up to 1 MiB: one bulk row, in the engine's journal
//!             │         └── file: sync, rename, sync of the folder
//!             └── past 1 MiB: tmp/<id>, a run of blocks written while the next is filled
//! ```
//! - An id is meant to be written once: it carries the stamp of its row. Of two bodies the one finished last is read.
//! - No byte is answered whose check did not pass; a file cut off anywhere is `Damaged` when it is opened.
//! - A lease is taken before the blob can be seen and given up after its row is written, so [`Blobs::list`], which asks for
//!   leases after having seen a blob, never shows one that is about to get its row.
//! - A file is on disk before its row is written, even where the write is not asked to be: the row may reach the disk at any
//!   time, and would replace an older one by bytes that are not there.
//! - Removing is at once, and no row is asked: remove the blob of a row when the row's removal is on disk, or a power loss may
//!   bring back a row without its blob.
//! - A file reserves its bytes before they are written ([`DiskSpace`]): all of them when its length is announced, else a chunk at
//!   a time. One that is refused or given up is removed at once, and what it reserved is free again.
//! - Memory is bounded: a row while it is small, then two runs of blocks; a reader holds one run.

mod disk;
mod files;
pub(crate) mod folders;
mod format;
mod frames;
mod reader;
mod row;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::content::BlobId;
use larder_store::leases::Leases;
use larder_store::{BlobOwner, BlobReader, BlobWriter, Blobs, ListedBlob, Purpose, Result};

use crate::bulk::BulkRows;
use crate::disk_space::DiskSpace;
use disk::{Disk, RealDisk, blocking};
use files::Files;
use reader::{FileReader, RowReader};
use writer::Writer;

/// Longest body kept as a bulk row, in bytes.
pub const BULK_MAX: usize = 1024 * 1024;
/// Bytes of a body in a full block of a file.
pub const BLOCK_BYTES: u32 = 256 * 1024;
/// Blocks read or written at once.
const RUN_BLOCKS: u64 = 2;
/// Bulk rows looked at in one go while listing: each may be 1 MiB.
const LIST_ROWS: usize = 16;

/// When a body becomes a file, and how that is cut.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    row_max: usize,
    block: u32,
}

/// The blobs of one data directory.
pub struct LocalBlobs {
    files: Arc<Files>,
    bulk: Arc<dyn BulkRows>,
    leases: Leases,
    space: Arc<DiskSpace>,
}

impl LocalBlobs {
    /// Opens or makes `<dir>/blobs` and removes what dead processes left unfinished. One at a time: the caller holds the lock
    /// of the data directory. Files are admitted by `space`, as the bulk rows are. Blocks the thread; meant for the start,
    /// which needs no room on the disk once the folder is there.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn open(dir: &Path, bulk: Arc<dyn BulkRows>, space: Arc<DiskSpace>) -> Result<Self> {
        let sizes = Sizes { row_max: BULK_MAX, block: BLOCK_BYTES };
        Self::open_sized(dir, bulk, space, sizes, Box::new(RealDisk))
    }

    /// Whether a sync failed, so that no blobs are written any more.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.files.is_poisoned()
    }

    fn open_sized(
        dir: &Path,
        bulk: Arc<dyn BulkRows>,
        space: Arc<DiskSpace>,
        sizes: Sizes,
        disk: Box<dyn Disk>,
    ) -> Result<Self> {
        let files = Arc::new(Files::open(dir, sizes, disk)?);
        Ok(Self { files, bulk, leases: Leases::default(), space })
    }

    /// Bulk rows as [`Files::list`] lists files.
    async fn list_rows(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        let mut found = Vec::new();
        let mut after = after.map(|after| Bytes::copy_from_slice(&after.0));
        while found.len() < limit {
            let rows = self.bulk.keys(after.clone(), LIST_ROWS.min(limit - found.len())).await?;
            let Some((last, _)) = rows.last() else { break };
            after = Some(Bytes::copy_from_slice(last));
            found.extend(rows.into_iter().filter_map(|(key, value)| self.listed_row(&key, value)));
        }
        Ok(found)
    }

    /// A bulk row as listed; `None` for one that is damaged.
    fn listed_row(&self, key: &[u8], value: Bytes) -> Option<ListedBlob> {
        let listed = match key.try_into().map(BlobId) {
            Ok(id) => row::owner(id, value).map(|owner| ListedBlob { id, owner, leased: self.leases.holds(&id) }),
            Err(_) => Err(format::damaged("a key that is no id")),
        };
        listed.inspect_err(|error| tracing::error!(?key, %error, "blob row skipped: it is damaged")).ok()
    }
}

#[async_trait]
impl Blobs for LocalBlobs {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        self.files.check_poison()?;
        let lease = self.leases.hold(id);
        let room = self.space.admit(Purpose::Data, 0)?;
        Ok(Box::new(Writer::new(self.files.clone(), self.bulk.clone(), room, lease, id, owner)))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        if let Some(value) = self.bulk.get(&id.0).await? {
            return Ok(Box::new(RowReader(row::body(id, value)?)));
        }
        let files = self.files.clone();
        Ok(Box::new(blocking(move || FileReader::open(&files, id)).await?))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.files.check_poison()?;
        let files = self.files.clone();
        if blocking(move || files.remove(id)).await? {
            return writer::remove_stale_row(&*self.bulk, id).await;
        }
        self.bulk.remove(Bytes::copy_from_slice(&id.0)).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        let (files, leases) = (self.files.clone(), self.leases.clone());
        let files = blocking(move || files.list(after, limit, &leases)).await?;
        let rows = self.list_rows(after, limit).await?;
        Ok(merged(files, rows, limit))
    }

    fn is_ready(&self) -> bool {
        !self.is_poisoned()
    }
}

/// Two lists in the order of ids as one; each id once.
fn merged(mut files: Vec<ListedBlob>, rows: Vec<ListedBlob>, limit: usize) -> Vec<ListedBlob> {
    files.extend(rows);
    files.sort_by_key(|blob| blob.id);
    files.dedup_by_key(|blob| blob.id);
    files.truncate(limit);
    files
}
