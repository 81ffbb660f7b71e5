//! A store where tombstones slow reads; it records every row name and removal sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use larder_store::{Batch, CallOptions, Change, EngineLimits, Partition, Result, Row, Store, Table};
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use parking_lot::Mutex;

/// Traffic of all gateways together.
#[derive(Debug, Default)]
pub(crate) struct StoreTraffic {
    /// Names of rows ever written to a partition.
    pub(crate) names: BTreeMap<Partition, BTreeSet<Bytes>>,
    /// Logged batches: those with removals outside their first partition.
    pub(crate) logged: usize,
    /// Batches that asked for a count of rows.
    pub(crate) counted: usize,
}

/// One gateway's connection to the store.
pub(crate) struct RecordingStore {
    inner: Arc<dyn Store>,
    traffic: Arc<Mutex<StoreTraffic>>,
}

impl RecordingStore {
    pub(crate) fn new(inner: Arc<dyn Store>, traffic: Arc<Mutex<StoreTraffic>>) -> Arc<Hooked<Self>> {
        Arc::new(Hooked(Arc::new(Self { inner, traffic })))
    }
}

impl StoreTraffic {
    fn note(&mut self, batch: &Batch) {
        let removes = |change: &Change| !matches!(change, Change::Put(_));
        let behind = batch.partitions.iter().skip(1);
        self.logged += usize::from(behind.flat_map(|one| &one.changes).any(removes));
        self.counted += usize::from(batch.partitions.iter().any(|one| one.rows_max.is_some()));
        for one in &batch.partitions {
            for change in &one.changes {
                if let Change::Put(Row { name, .. }) = change {
                    self.names.entry(one.partition.clone()).or_default().insert(name.clone());
                }
            }
        }
    }

    /// The largest number of row names written to a partition of a table.
    pub(crate) fn names_max(&self, table: Table) -> usize {
        let of_table = self.names.iter().filter(|(partition, _)| partition.table == table);
        of_table.map(|(_, names)| names.len()).max().unwrap_or(0)
    }
}

impl StoreHook for RecordingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        if let StoreCall::Apply(batch) = call {
            self.traffic.lock().note(batch);
        }
        make(options).await
    }

    fn limits(&self) -> EngineLimits {
        EngineLimits { tombstones_slow_reads: true, ..self.inner.limits() }
    }
}
