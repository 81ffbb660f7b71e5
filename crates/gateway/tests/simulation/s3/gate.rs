//! Stops a gateway at a step of its choosing: one call to its store is held back, or its answer is, until it may go on.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::rows::{Batch, Change, Micros, Stamp};
use larder_store::{
    BlobOwner, BlobReader, BlobWriter, Blobs, Durability, EngineLimits, Head, ListedBlob, Options, Page, Partition,
    PartitionPage, ReadQuery, Result, Store, Swap, Table,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// How long a step may take to be reached, in virtual time.
const PATIENCE: Duration = Duration::from_secs(300);

/// A step: before a call, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    BeforeRead(Table),
    AfterRead(Table),
    BeforeSwap(Table),
    AfterSwap(Table),
    /// A batch whose first partition is in this table.
    BeforeApply(Table),
    AfterBlobFinished,
    BeforeBlobRemoved,
}

/// A gateway's way to the store, with a gate in it.
pub(crate) struct Gate<S: ?Sized> {
    armed: Arc<Mutex<Vec<Armed>>>,
    inner: Arc<S>,
}

/// A blob under way, and the steps somebody will be stopped at.
struct GatedWriter {
    armed: Arc<Mutex<Vec<Armed>>>,
    inner: Box<dyn BlobWriter>,
}

struct Armed {
    step: Step,
    reached: oneshot::Sender<()>,
    go: oneshot::Receiver<()>,
}

/// A step that somebody will be stopped at.
pub(crate) struct Stop {
    step: Step,
    reached: oneshot::Receiver<()>,
    go: oneshot::Sender<()>,
}

impl Stop {
    /// Waits until somebody is stopped there; answers what lets him go on.
    pub(crate) async fn reached(self) -> oneshot::Sender<()> {
        let reached = tokio::time::timeout(PATIENCE, self.reached).await;
        assert!(matches!(reached, Ok(Ok(()))), "{:?} is never reached", self.step);
        self.go
    }
}

impl<S: ?Sized> Gate<S> {
    pub(crate) fn new(inner: Arc<S>) -> Arc<Self> {
        Arc::new(Self { armed: Arc::default(), inner })
    }

    /// Stops the next call that comes to this step.
    pub(crate) fn stop(&self, step: Step) -> Stop {
        let (reached, is_reached) = oneshot::channel();
        let (go, may_go) = oneshot::channel();
        self.armed.lock().push(Armed { step, reached, go: may_go });
        Stop { step, reached: is_reached, go }
    }

    async fn pass(&self, step: Step) {
        pass(&self.armed, step).await;
    }
}

/// Stops here if this step is the one.
async fn pass(armed: &Mutex<Vec<Armed>>, step: Step) {
    let found = {
        let mut armed = armed.lock();
        armed.iter().position(|one| one.step == step).map(|at| armed.remove(at))
    };
    if let Some(Armed { reached, go, .. }) = found {
        let _ = reached.send(());
        let _ = go.await;
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Gate<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        self.pass(Step::BeforeRead(partition.table)).await;
        let page = self.inner.read(partition, query, options).await;
        self.pass(Step::AfterRead(partition.table)).await;
        page
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        if let Some(first) = batch.partitions.first() {
            self.pass(Step::BeforeApply(first.partition.table)).await;
        }
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
        self.pass(Step::BeforeSwap(partition.table)).await;
        let swap = self.inner.apply_if(partition, expected, head, changes, options).await;
        self.pass(Step::AfterSwap(partition.table)).await;
        swap
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
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

#[async_trait]
impl<S: Blobs + ?Sized> Blobs for Gate<S> {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let inner = self.inner.create(id, owner).await?;
        Ok(Box::new(GatedWriter { armed: self.armed.clone(), inner }))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        self.inner.open(id).await
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.pass(Step::BeforeBlobRemoved).await;
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
impl BlobWriter for GatedWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.inner.write(bytes).await
    }

    async fn finish(self: Box<Self>, durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let Self { armed, inner } = *self;
        let lease = inner.finish(durability).await;
        pass(&armed, Step::AfterBlobFinished).await;
        lease
    }
}
