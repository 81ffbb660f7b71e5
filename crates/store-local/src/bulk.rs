//! Bulk rows: the port through which blobs use the engine.

use async_trait::async_trait;
use bytes::Bytes;

/// Rows of up to 1 MiB beside the tables, written through the same journal: the sync of a later row makes them durable, too.
#[async_trait]
pub trait BulkRows: Send + Sync {
    /// Writes or replaces a row. Returns once readers see it.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`; `TimedOut`: the write may still happen.
    async fn put(&self, key: Bytes, value: Bytes) -> larder_store::Result<()>;

    /// Reads a row.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    async fn get(&self, key: &[u8]) -> larder_store::Result<Option<Bytes>>;

    /// Removes a row; an absent row is no error.
    ///
    /// # Errors
    /// `Poisoned`, `Full`, `Io`; `TimedOut`: the removal may still happen.
    async fn remove(&self, key: Bytes) -> larder_store::Result<()>;

    /// Whole rows with keys after `after`, sorted by key; none at the end.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    async fn keys(&self, after: Option<Bytes>, limit: usize) -> larder_store::Result<Vec<(Bytes, Bytes)>>;
}
