//! Pauses a gateway at a chosen step: before a call to its store, or before the answer. Or refuses its batches to a table.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{
    BlobOwner, BlobReader, BlobWriter, Blobs, CallOptions, Durability, Error, Kind, ListedBlob, Partition, Result,
    Store, Table,
};
use larder_testkit::hooked::{MakeCall, StoreCall, StoreHook};
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
pub(crate) struct GatedStore<S> {
    armed: Arc<Mutex<Vec<ArmedStop>>>,
    refused: Mutex<Option<Table>>,
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

impl<S> GatedStore<S> {
    pub(crate) fn new(inner: Arc<S>) -> Arc<Self> {
        Arc::new(Self { armed: Arc::default(), refused: Mutex::default(), inner })
    }

    /// Pauses the next call at this step.
    pub(crate) fn stop(&self, step: StoreStep) -> Stop {
        let (reached, is_reached) = oneshot::channel();
        let (go, may_go) = oneshot::channel();
        self.armed.lock().push(ArmedStop { step, reached, go: may_go });
        Stop { step, reached: is_reached, go }
    }

    /// From now on, batches whose first partition is in this table fail and are not made.
    pub(crate) fn refuse(&self, table: Table) {
        *self.refused.lock() = Some(table);
    }

    fn refuses(&self, call: StoreCall<'_>) -> bool {
        let StoreCall::Apply(batch) = call else { return false };
        let refused = *self.refused.lock();
        refused.is_some() && batch.partitions.first().map(|first| first.partition.table) == refused
    }

    async fn stop_at(&self, step: Option<StoreStep>) {
        if let Some(step) = step {
            stop_at(&self.armed, step).await;
        }
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

impl<S: Store> StoreHook for GatedStore<S> {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        mut options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        if self.refuses(call) {
            return Err(Error::new(Kind::Unavailable { alive: 0, required: 1 }, "the table is refused"));
        }
        let (before, after) = steps(call);
        self.stop_at(before).await;
        if let StoreCall::ApplyIf(..) = call {
            // A delayed request still arrives, after its sender's deadline too.
            options.deadline = options.deadline.max(Instant::now() + ARRIVAL);
        }
        let answer = make(options).await;
        self.stop_at(after).await;
        answer
    }
}

/// The steps before and after a call.
fn steps(call: StoreCall<'_>) -> (Option<StoreStep>, Option<StoreStep>) {
    match call {
        StoreCall::Read(Partition { table, .. }) => {
            (Some(StoreStep::BeforeRead(*table)), Some(StoreStep::AfterRead(*table)))
        }
        StoreCall::ApplyIf(Partition { table, .. }, _) => {
            (Some(StoreStep::BeforeSwap(*table)), Some(StoreStep::AfterSwap(*table)))
        }
        StoreCall::Apply(batch) => {
            (batch.partitions.first().map(|first| StoreStep::BeforeApply(first.partition.table)), None)
        }
        StoreCall::Partitions | StoreCall::Now => (None, None),
    }
}

#[async_trait]
impl<S: Blobs> Blobs for GatedStore<S> {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let inner = self.inner.create(id, owner).await?;
        Ok(Box::new(GatedBlobWriter { armed: self.armed.clone(), inner }))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        self.inner.open(id).await
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.stop_at(Some(StoreStep::BeforeBlobRemoved)).await;
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
