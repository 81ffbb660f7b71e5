//! Bulk rows on the third tree, which separates values from keys (WiscKey).

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::codec::name_after;
use larder_store::{Error, Kind, Purpose, ReadOrder, Result};
use tokio::time::Instant;

use crate::entry;
use crate::queue::WriteCommand;
use crate::store::{LocalStore, UNTIMED_WITHIN};
use crate::tree_id::TreeId;

#[async_trait]
impl BulkRows for LocalStore {
    async fn put(&self, key: Bytes, value: Bytes) -> Result<()> {
        self.write_bulk(&key, Some(value)).await
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.trees().get(TreeId::Bulk, &entry::bulk_key(key))
    }

    async fn remove(&self, key: Bytes) -> Result<()> {
        self.write_bulk(&key, None).await
    }

    async fn keys(&self, after: Option<Bytes>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let (first, end) = entry::bulk_bounds();
        let from = after.map_or(first, |after| entry::bulk_key(&name_after(&after)));
        let rows = self.trees().range(TreeId::Bulk, from, Some(end), ReadOrder::Forward);
        rows.take(limit).map(|row| row.map(|(key, value): (Bytes, Bytes)| (key.slice(1..), value))).collect()
    }
}

impl LocalStore {
    async fn write_bulk(&self, key: &[u8], value: Option<Bytes>) -> Result<()> {
        let key = entry::bulk_key(key);
        if key.len() > entry::KEY_BYTES_MAX {
            return Err(Error::new(Kind::TooLarge, "the key of a bulk row is too long"));
        }
        let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
        let deadline = Instant::now() + UNTIMED_WITHIN;
        if value.is_some() {
            self.wait_for_bulk_room(deadline).await;
        }
        let purpose = if value.is_some() { Purpose::Data } else { Purpose::Reclaim };
        // Buffered: the sync of the later row that names the blob covers this entry of the same journal.
        let done = self.queue().submit_until(deadline, WriteCommand::Bulk { key, value }, bytes, false);
        // The row that names a body waits for merges, under the deadline of its request; its body waits no second time.
        let wait_until = if purpose == Purpose::Data { Instant::now() } else { deadline };
        self.run_admitted(purpose, bytes, wait_until, done).await.map(drop)
    }
}

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
