//! Rows beside the tables: what the blobs ask of the engine.

use async_trait::async_trait;
use bytes::Bytes;

/// Rows of up to 1 MiB beside the tables, written through the same journal, so that a row synced later makes them durable too.
#[async_trait]
pub trait BulkRows: Send + Sync {
    /// Writes a row, or replaces it. Answered once readers see it.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`; `TimedOut`: it may be done nevertheless.
    async fn put(&self, key: Bytes, value: Bytes) -> larder_store::Result<()>;

    /// Reads a row.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    async fn get(&self, key: &[u8]) -> larder_store::Result<Option<Bytes>>;

    /// Removes a row; one that is not there is no error.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`; `TimedOut`: it may be done nevertheless.
    async fn remove(&self, key: Bytes) -> larder_store::Result<()>;

    /// Rows with keys behind `after`, in the order of keys, whole; none at the end.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    async fn keys(&self, after: Option<Bytes>, limit: usize) -> larder_store::Result<Vec<(Bytes, Bytes)>>;
}
