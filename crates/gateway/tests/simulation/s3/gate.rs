//! Pauses a gateway at a chosen step: before a call to its store, or before the answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::rows::{Batch, Change, Micros, Stamp};
use larder_store::{
    BlobOwner, BlobReader, BlobWriter, Blobs, CallOptions, CasResult, Durability, EngineLimits, HeadWrite, ListedBlob,
    Partition, PartitionPage, ReadQuery, Result, RowPage, Store, Table,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Longest wait for a step, in virtual time.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time of a delayed call once it goes on.
const ARRIVAL: Duration = Duration::from_secs(5);

/// A step: before a call, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreStep {
    BeforeRead(Table),
    AfterRead(Table),
    BeforeSwap(Table),
    AfterSwap(Table),
    /// A batch whose first partition is in this table.
    BeforeApply(Table),
    AfterBlobFinished,
    BeforeBlobRemoved,
}

/// A gateway's store with pauses.
pub(crate) struct GatedStore<S: ?Sized> {
    armed: Arc<Mutex<Vec<ArmedStop>>>,
    inner: Arc<S>,
}

/// A blob writer with pauses.
struct GatedBlobWriter {
    armed: Arc<Mutex<Vec<ArmedStop>>>,
    inner: Box<dyn BlobWriter>,
}

struct ArmedStop {
    step: StoreStep,
    reached: oneshot::Sender<()>,
    go: oneshot::Receiver<()>,
}

/// A step at which the next call pauses.
pub(crate) struct Stop {
    step: StoreStep,
    reached: oneshot::Receiver<()>,
    go: oneshot::Sender<()>,
}

impl Stop {
    /// Waits until a call pauses there; returns the sender that resumes it.
    pub(crate) async fn reached(self) -> oneshot::Sender<()> {
        let reached = tokio::time::timeout(PATIENCE, self.reached).await;
        assert!(matches!(reached, Ok(Ok(()))), "{:?} is never reached", self.step);
        self.go
    }
}

impl<S: ?Sized> GatedStore<S> {
    pub(crate) fn new(inner: Arc<S>) -> Arc<Self> {
        Arc::new(Self { armed: Arc::default(), inner })
    }

    /// Pauses the next call at this step.
    pub(crate) fn stop(&self, step: StoreStep) -> Stop {
        let (reached, is_reached) = oneshot::channel();
        let (go, may_go) = oneshot::channel();
        self.armed.lock().push(ArmedStop { step, reached, go: may_go });
        Stop { step, reached: is_reached, go }
    }

    async fn stop_at(&self, step: StoreStep) {
        stop_at(&self.armed, step).await;
    }
}

/// Pauses here if this is the step.
async fn stop_at(armed: &Mutex<Vec<ArmedStop>>, step: StoreStep) {
    let found = {
        let mut armed = armed.lock();
        armed.iter().position(|one| one.step == step).map(|at| armed.remove(at))
    };
    if let Some(ArmedStop { reached, go, .. }) = found {
        let _ = reached.send(());
        let _ = go.await;
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for GatedStore<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        self.stop_at(StoreStep::BeforeRead(partition.table)).await;
        let page = self.inner.read(partition, query, options).await;
        self.stop_at(StoreStep::AfterRead(partition.table)).await;
        page
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        if let Some(first) = batch.partitions.first() {
            self.stop_at(StoreStep::BeforeApply(first.partition.table)).await;
        }
        self.inner.apply(batch, options).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        self.stop_at(StoreStep::BeforeSwap(partition.table)).await;
        // A delayed request still arrives, after its sender's deadline too.
        let options = CallOptions { deadline: options.deadline.max(Instant::now() + ARRIVAL), ..*options };
        let swap = self.inner.apply_if(partition, expected, head, changes, &options).await;
        self.stop_at(StoreStep::AfterSwap(partition.table)).await;
        swap
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

    async fn now(&self, options: &CallOptions) -> Result<Micros> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

#[async_trait]
impl<S: Blobs + ?Sized> Blobs for GatedStore<S> {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let inner = self.inner.create(id, owner).await?;
        Ok(Box::new(GatedBlobWriter { armed: self.armed.clone(), inner }))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        self.inner.open(id).await
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.stop_at(StoreStep::BeforeBlobRemoved).await;
        self.inner.remove(id).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        self.inner.list(after, limit).await
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

#[async_trait]
impl BlobWriter for GatedBlobWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.inner.write(bytes).await
    }

    async fn finish(self: Box<Self>, durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let Self { armed, inner } = *self;
        let lease = inner.finish(durability).await;
        stop_at(&armed, StoreStep::AfterBlobFinished).await;
        lease
    }
}
