//! Bodies too large for a row. Each blob belongs to one row: a writer creates the blob before the row, and removes it
//! after.

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;

use crate::{Durability, Partition, Result};

/// The row that a blob belongs to: without that row the blob is garbage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobOwner {
    /// Partition of the row.
    pub partition: Partition,
    /// Name of the row.
    pub row: Bytes,
}

/// A blob that a row names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobReference {
    /// Its id.
    pub id: BlobId,
    /// Its length in bytes.
    pub length: u64,
}

/// The blobs that a row names, from its partition, name and value. A row that does not decode names none.
pub type RowBlobs = Box<dyn Fn(&Partition, &[u8], Bytes) -> Vec<BlobReference>>;

/// A readable blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    /// Id of the blob.
    pub id: BlobId,
    /// The row that the blob belongs to.
    pub owner: BlobOwner,
    /// Whether a writer may be about to write that row, or this blob again: a sweeper skips the blob.
    pub leased: bool,
}

/// Storage of blobs.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Starts a blob. No sweeper removes it until its writer is dropped or its lease ends.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`.
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>>;

    /// Opens a blob. It stays readable until the reader is dropped, even if it is removed.
    ///
    /// # Errors
    /// `NoSuchBlob`, `Damaged`, `Io`.
    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>>;

    /// Removes a blob; an absent blob is no error.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`; `TimedOut`: the blob may be removed nevertheless.
    async fn remove(&self, id: BlobId) -> Result<()>;

    /// Lists readable blobs in the order of their ids. The engine looks for leases after it has seen the blob. So the
    /// row of a blob without a lease exists, or never will.
    ///
    /// # Errors
    /// `Io`.
    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>>;

    /// Whether the engine accepts blobs; `false` once poisoned.
    fn is_ready(&self) -> bool;
}

/// Writes one blob from front to back. A writer dropped without [`Self::finish`] leaves nothing.
#[async_trait]
pub trait BlobWriter: Send {
    /// Announces the number of bytes to come, where it is known. An engine short of space refuses here rather than half
    /// way.
    ///
    /// # Errors
    /// `Full`: the engine accepts no more bytes.
    async fn announce(&mut self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Appends bytes; returns when the writer can take more.
    ///
    /// # Errors
    /// `Full`, `Io`.
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Makes the blob readable; with [`Durability::Disk`] or stronger it is on disk. The returned lease keeps sweepers
    /// away until dropped. Hold it until the row that names the blob is written.
    ///
    /// # Errors
    /// `Full`, `Poisoned`, `Io`; `TimedOut`: the blob may become readable nevertheless, as garbage.
    async fn finish(self: Box<Self>, durability: Durability) -> Result<Box<dyn Send + Sync>>;
}

/// Reads one blob.
#[async_trait]
pub trait BlobReader: Send + Sync {
    /// Length in bytes.
    fn length(&self) -> u64;

    /// Reads from `offset` at most `max` bytes, and at least one unless at the end. The bytes passed their checksum.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes>;
}

/// The bytes of a body in memory from `offset`, at most `max`; empty at the end.
#[must_use]
pub fn body_slice(body: &Bytes, offset: u64, max: usize) -> Bytes {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
    body.slice(from..from.saturating_add(max).min(body.len()))
}
