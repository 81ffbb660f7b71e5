//! A store that runs code of a test around its calls.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use larder_store::{
    Batch, CallOptions, CasResult, Change, EngineLimits, HeadWrite, Partition, PartitionPage, ReadQuery, Result, Row,
    RowPage, Store, Table, Timestamp,
};

/// A call of a store, as a hook sees it.
#[derive(Debug, Clone, Copy)]
pub enum StoreCall<'a> {
    /// [`Store::read`].
    Read(&'a Partition),
    /// [`Store::apply`].
    Apply(&'a Batch),
    /// [`Store::apply_if`].
    ApplyIf(&'a Partition, &'a HeadWrite),
    /// [`Store::partitions`].
    Partitions,
    /// [`Store::now`].
    Now,
}

/// Makes the call of the inner store, with these options.
pub type MakeCall<'a, T> =
    Box<dyn FnOnce(CallOptions) -> Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>> + Send + 'a>;

/// The code that runs around the calls of a store.
pub trait StoreHook: Send + Sync {
    /// The store that carries the calls out.
    fn inner(&self) -> &dyn Store;

    /// Answers a call: usually awaits `make`, between the test's own steps.
    ///
    /// # Errors
    /// Errors of the inner store, and those of the hook.
    fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> impl Future<Output = Result<T>> + Send;

    /// Answers [`Store::try_read_single_row`]: by default nothing, so that every read goes through [`Self::around`].
    fn read_at_once(&self, _partition: &Partition) -> Option<Row> {
        None
    }

    /// Answers [`Store::try_read_row`]: by default nothing, too.
    fn read_row_at_once(&self, _partition: &Partition, _name: &Bytes) -> Option<Row> {
        None
    }

    /// The limits that callers see: those of the inner store.
    fn limits(&self) -> EngineLimits {
        self.inner().limits()
    }
}

/// The store of a hook.
pub struct Hooked<H>(pub Arc<H>);

impl StoreCall<'_> {
    /// Whether it writes.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Apply(_) | Self::ApplyIf(..))
    }
}

#[async_trait]
impl<H: StoreHook> Store for Hooked<H> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        let inner = self.0.inner();
        let make: MakeCall<'_, _> =
            Box::new(move |options| Box::pin(async move { inner.read(partition, query, &options).await }));
        self.0.around(StoreCall::Read(partition), *options, make).await
    }

    fn try_read_single_row(&self, partition: &Partition) -> Option<Row> {
        self.0.read_at_once(partition)
    }

    fn try_read_row(&self, partition: &Partition, name: &Bytes) -> Option<Row> {
        self.0.read_row_at_once(partition, name)
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        let (inner, made) = (self.0.inner(), batch.clone());
        let make: MakeCall<'_, _> = Box::new(move |options| Box::pin(async move { inner.apply(made, &options).await }));
        self.0.around(StoreCall::Apply(&batch), *options, make).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        let (inner, made) = (self.0.inner(), head.clone());
        let make: MakeCall<'_, _> = Box::new(move |options| {
            Box::pin(async move { inner.apply_if(partition, expected, made, changes, &options).await })
        });
        self.0.around(StoreCall::ApplyIf(partition, &head), *options, make).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        let inner = self.0.inner();
        let make: MakeCall<'_, _> =
            Box::new(move |options| Box::pin(async move { inner.partitions(table, after, limit, &options).await }));
        self.0.around(StoreCall::Partitions, *options, make).await
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        let inner = self.0.inner();
        let make: MakeCall<'_, _> = Box::new(move |options| Box::pin(async move { inner.now(&options).await }));
        self.0.around(StoreCall::Now, *options, make).await
    }

    fn limits(&self) -> EngineLimits {
        self.0.limits()
    }

    fn is_ready(&self) -> bool {
        self.0.inner().is_ready()
    }
}
