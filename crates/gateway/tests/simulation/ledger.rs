//! A store that keeps tombstones, and a note of every row name and every removal ever sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_store::{
    Batch, Change, EngineLimits, Head, Micros, Options, Page, Partition, PartitionPage, ReadQuery, Result, Row, Stamp,
    Store, Swap, Table,
};
use parking_lot::Mutex;

/// What was sent, by all gateways together.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Names of rows ever written to a partition.
    pub(crate) names: BTreeMap<Partition, BTreeSet<Bytes>>,
    /// Batches that removed something outside their first partition: logged ones.
    pub(crate) logged: usize,
    /// Batches that asked for a count of rows.
    pub(crate) counted: usize,
}

/// One gateway's way to the store.
pub(crate) struct Ledger {
    inner: Arc<dyn Store>,
    notes: Arc<Mutex<Notes>>,
}

impl Ledger {
    pub(crate) fn new(inner: Arc<dyn Store>, notes: Arc<Mutex<Notes>>) -> Arc<Self> {
        Arc::new(Self { inner, notes })
    }
}

impl Notes {
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

    /// How many names were written to the partition of a table that has most.
    pub(crate) fn names_max(&self, table: Table) -> usize {
        let of_table = self.names.iter().filter(|(partition, _)| partition.table == table);
        of_table.map(|(_, names)| names.len()).max().unwrap_or(0)
    }
}

#[async_trait]
impl Store for Ledger {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        self.inner.read(partition, query, options).await
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        self.notes.lock().note(&batch);
        self.inner.apply(batch, options).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        self.inner.apply_if(partition, expected, head, changes, options).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        self.inner.partitions(table, after, limit, options).await
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        EngineLimits { keeps_tombstones: true, ..self.inner.limits() }
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}
