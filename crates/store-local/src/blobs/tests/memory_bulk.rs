//! Bulk rows in memory, for tests.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;
use bytes::Bytes;
use larder_store::Result;
use parking_lot::Mutex;

use crate::bulk_store::BulkRows;

/// In-memory [`BulkRows`].
#[derive(Default)]
pub(super) struct MemoryBulk {
    rows: Mutex<BTreeMap<Bytes, Bytes>>,
}

#[async_trait]
impl BulkRows for MemoryBulk {
    async fn put(&self, key: Bytes, value: Bytes) -> Result<()> {
        self.rows.lock().insert(key, value);
        Ok(())
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.rows.lock().get(key).cloned())
    }

    async fn remove(&self, key: Bytes) -> Result<()> {
        self.rows.lock().remove(&key);
        Ok(())
    }

    async fn keys(&self, after: Option<Bytes>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows.lock();
        Ok(rows.range((from, Bound::Unbounded)).take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
