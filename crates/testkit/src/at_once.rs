//! A store in memory whose reads at once are counted, or left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Partition, Result, Row, Store};

use crate::hooked::{MakeCall, StoreCall, StoreHook};

/// A store that counts its reads at once, or makes none: two servers over one store answer alike only if both ways of reading
/// do.
pub struct ReadsAtOnce {
    /// The store that is read.
    pub inner: Arc<MemoryStore>,
    /// The number of reads at once; `None`: it makes none.
    pub reads: Option<Arc<AtomicUsize>>,
}

impl ReadsAtOnce {
    fn count(&self, read: impl FnOnce(&MemoryStore) -> Option<Row>) -> Option<Row> {
        let reads = self.reads.as_ref()?;
        let row = read(&self.inner)?;
        reads.fetch_add(1, Ordering::Relaxed);
        Some(row)
    }
}

impl StoreHook for ReadsAtOnce {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        _call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        make(options).await
    }

    fn read_at_once(&self, partition: &Partition) -> Option<Row> {
        self.count(|store| store.try_read_single_row(partition))
    }

    fn read_row_at_once(&self, partition: &Partition, name: &Bytes) -> Option<Row> {
        self.count(|store| store.try_read_row(partition, name))
    }
}
