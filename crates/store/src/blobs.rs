//! Bodies too large for a row. A blob belongs to one row; it is written before the row that names it and removed after it.

use async_trait::async_trait;
use bytes::Bytes;

use larder_model::content::BlobId;

use crate::{Durability, Partition, Result};

/// The row a blob belongs to: without it the blob is waste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobOwner {
    /// Its partition.
    pub partition: Partition,
    /// Its name.
    pub row: Bytes,
}

/// A blob that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    /// Its name.
    pub id: BlobId,
    /// The row it belongs to.
    pub owner: BlobOwner,
    /// Whether somebody may be about to write that row, or this blob anew: a sweeper leaves it alone.
    pub leased: bool,
}

/// Where blobs are kept.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Begins a blob. Until its writer is dropped or its lease ends no sweeper takes it for waste.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`.
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>>;

    /// Opens a blob. It stays readable until the reader is dropped, whoever removes it.
    ///
    /// # Errors
    /// `NoSuchBlob`, `Damaged`, `Io`.
    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>>;

    /// Removes a blob; one that is not there is no error.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`; `TimedOut`: it may be removed nevertheless.
    async fn remove(&self, id: BlobId) -> Result<()>;

    /// Blobs that can be read, in the order of their ids. Whether one is leased is looked at after it was seen, so one that is
    /// not has its row, or never will.
    ///
    /// # Errors
    /// `Io`.
    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>>;

    /// Whether blobs are taken: false once poisoned.
    fn is_ready(&self) -> bool;
}

/// Writes one blob from front to back. Dropped without [`Self::finish`], nothing of it remains.
#[async_trait]
pub trait BlobWriter: Send {
    /// Says how many bytes will come, where that is known: an engine short of room refuses now rather than half way.
    ///
    /// # Errors
    /// `Full`: nothing can be written any more.
    async fn announce(&mut self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Appends bytes; returns when there is room for more.
    ///
    /// # Errors
    /// `Full`, `Io`.
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Makes the blob readable, with more than [`Durability::Buffered`] on disk. The lease answered keeps sweepers away until it is dropped:
    /// hold it until the row that names the blob is written.
    ///
    /// # Errors
    /// `Full`, `Poisoned`, `Io`; `TimedOut`: it may become readable nevertheless, as waste.
    async fn finish(self: Box<Self>, durability: Durability) -> Result<Box<dyn Send + Sync>>;
}

/// Reads one blob.
#[async_trait]
pub trait BlobReader: Send + Sync {
    /// Length in bytes.
    fn length(&self) -> u64;

    /// Bytes from `offset`: at least one unless at the end, at most `max`, checked against their checksum.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes>;
}
