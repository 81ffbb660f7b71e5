//! A store whose engine sees sealed values only.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_store::{
    Batch, CallOptions, CasResult, Change, DerivedRow, EngineLimits, Error, HeadWrite, Kind, Partition,
    PartitionChanges, PartitionPage, ReadQuery, Result, Row, RowPage, Store, Table, Timestamp,
};
use tokio::time::Instant;

use super::data_keys::DataKeys;
use super::sealed_value::{DataKey, StoredValue};
use crate::secret_key::BadKey;

/// Seals the values of all rows but those of data keys, and opens them. Where its data keys seal nothing new, values pass as they
/// are.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    keys: Arc<DataKeys>,
}

impl SealedStore {
    /// A store over the engine `inner`, which holds the data keys.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, keys: Arc<DataKeys>) -> Self {
        Self { inner, keys }
    }

    /// The key for new values; `None`: they stay clear.
    async fn sealer(&self, options: &CallOptions) -> Result<Option<Arc<DataKey>>> {
        if self.keys.seals() { self.keys.current(options.deadline).await.map(Some) } else { Ok(None) }
    }

    async fn open_row(&self, partition: &Partition, row: Row, deadline: Instant) -> Result<Row> {
        let Row { name, value, .. } = &row;
        let stored = self.keys.known().open(partition, name, value.clone()).map_err(|bad| damaged(partition, bad))?;
        let value = match stored {
            StoredValue::Clear(value) => value,
            // Another gateway has started since.
            StoredValue::OtherKey(id) => {
                let key = self.keys.find(id, deadline).await?.ok_or_else(|| damaged(partition, BadKey))?;
                key.open(partition, name, value).map_err(|bad| damaged(partition, bad))?
            }
        };
        Ok(Row { value, ..row })
    }

    /// The row with its value opened; `None`: its reader asks again, and waits.
    fn open_at_once(&self, partition: &Partition, row: Row) -> Option<Row> {
        let value = self.keys.known().clear_value(partition, &row.name, row.value)?;
        Some(Row { value, ..row })
    }
}

fn damaged(partition: &Partition, _bad: BadKey) -> Error {
    Error::new(Kind::Damaged, format!("{}: an encrypted value does not open with its key", partition.describe()))
}

fn seal(key: &DataKey, partition: &Partition, name: &[u8], value: &mut Bytes) -> Result<()> {
    *value = key.seal(partition, name, value)?;
    Ok(())
}

fn seal_changes(key: &DataKey, partition: &Partition, changes: &mut [Change]) -> Result<()> {
    for change in changes {
        match change {
            Change::Put(Row { name, value, .. }) => seal(key, partition, name, value)?,
            Change::Remove { .. } | Change::Clear { .. } => {}
        }
    }
    Ok(())
}

#[async_trait]
impl Store for SealedStore {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        let page = self.inner.read(partition, query, options).await?;
        if partition.table == Table::DataKeys {
            return Ok(page);
        }
        let mut rows = Vec::with_capacity(page.rows.len());
        for row in page.rows {
            rows.push(self.open_row(partition, row, options.deadline).await?);
        }
        Ok(RowPage { rows, stopped: page.stopped })
    }

    fn try_read_single_row(&self, partition: &Partition) -> Option<Row> {
        self.open_at_once(partition, self.inner.try_read_single_row(partition)?)
    }

    fn try_read_row(&self, partition: &Partition, name: &Bytes) -> Option<Row> {
        self.open_at_once(partition, self.inner.try_read_row(partition, name)?)
    }

    async fn apply(&self, mut batch: Batch, options: &CallOptions) -> Result<()> {
        if !batch.partitions.is_empty()
            && let Some(key) = self.sealer(options).await?
        {
            let sealed = batch.partitions.iter_mut().filter(|part| part.partition.table != Table::DataKeys);
            for part in sealed {
                seal_changes(&key, &part.partition, &mut part.changes)?;
            }
        }
        self.inner.apply(batch, options).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        mut head: HeadWrite,
        mut changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        if let Some(key) = self.sealer(options).await? {
            // By all its fields: one that a later change adds must not stay clear.
            let HeadWrite { row, derived, beside } = &mut head;
            seal(&key, partition, &row.name, &mut row.value)?;
            if let Some(DerivedRow { partition, name, value: Some(value) }) = derived {
                seal(&key, partition, name, value)?;
            }
            if let Some(PartitionChanges { partition, changes, .. }) = beside {
                seal_changes(&key, partition, changes)?;
            }
            seal_changes(&key, partition, &mut changes)?;
        }
        match self.inner.apply_if(partition, expected, head, changes, options).await? {
            CasResult::Conflict(Some(row)) => {
                Ok(CasResult::Conflict(Some(self.open_row(partition, row, options.deadline).await?)))
            }
            done => Ok(done),
        }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        self.inner.partitions(table, after, limit, options).await
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}
