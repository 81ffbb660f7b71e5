//! Removal of blob bytes: the only caller of `Blobs::remove`.
//!
//! ```text
//! row names the blob ──> row replaced ──> row synced, and the bytes that it names ──> bytes removed
//! ```
//! A file system removes at once and no journal brings a file back, while a power cut takes back writes that were not synced:
//! the old row would return without its bytes. So every removal takes a [`SyncProof`].
//!
//! The fence between a sweeper and a writer that is only slow: a mark in the store that both look for, no lock of a thread.
//!
//! ```text
//! sweeper   not named ──> mark at every replica ──> head rewritten, if there is one ──> still not named ──> bytes removed
//! writer    (plain rows)   row, at a quorum ──> marked? ── no ──> acknowledged,  yes ──> row undone
//! writer    (heads)        head read ──> marked? ── no ──> swapped against that head,  yes ──> refused
//! ```
//! The first of the two to write is seen by the other, so one gives way whatever the pauses. The mark is at every replica, so a
//! writer in another datacenter sees it. A mark is never removed early: a second sweeper may rely on it, and would remove the
//! blob of a writer that finds no mark. It expires after a day. `docs/decisions/0010` and `0015` have the interleavings.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_rows::{Batch, Change, Row};
use larder_store::{Blobs, CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, Store};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::BlobCollector;
use super::sweep::{BlobReferences, OwnedBlob, SweepPhase};
use crate::Result;
use crate::metrics::{Event, Metrics};
use crate::node_context::internal_options;

/// How long removals are collected before one sync barrier.
const BATCH_WINDOW: Duration = Duration::from_secs(1);
/// Most removals in the queue; further ones are left to the sweeper.
const QUEUED_REMOVALS_MAX: usize = 16 * 1024;

/// Proof that no power cut brings back a row that names certain blobs.
#[derive(Debug, Clone, Copy)]
pub struct SyncProof(());

/// Removes blobs. Cheap to clone.
#[derive(Clone)]
pub struct BlobReleaser {
    inner: Arc<ReleaserState>,
}

struct ReleaserState {
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    metrics: Arc<Metrics>,
    durable: bool,
    /// Queue of the task that removes after a barrier; started with the first removal.
    queue: OnceLock<mpsc::Sender<Removal>>,
}

/// A removal that waits for a sync barrier.
type Removal = Box<dyn FnOnce(SyncProof) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

impl BlobReleaser {
    /// A releaser of blobs whose rows are in `store`; `durable`: whether writes are answered from disk.
    pub(crate) fn new(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>, metrics: Arc<Metrics>, durable: bool) -> Self {
        Self { inner: Arc::new(ReleaserState { store, blobs, metrics, durable, queue: OnceLock::new() }) }
    }

    /// Waits until every change that readers see now is on disk, whatever durability the server was started with. A cluster's
    /// nodes sync by their own settings, so over a cluster it returns at once.
    ///
    /// # Errors
    /// The store's; nothing may be removed then.
    pub async fn sync_barrier(&self) -> Result<SyncProof> {
        // Crash: a server that answers before the sync must still sync before bytes go [invariant 94].
        let options = CallOptions { durability: Durability::Forced, ..internal_options(ConsistencyLevel::Quorum) };
        self.inner.store.apply(Batch::default(), &options).await?;
        Ok(SyncProof(()))
    }

    /// Waits until every change that readers see now is on disk, where this server answers from disk. Call it before answering
    /// a change that was only read back: readers see a change before its sync, and a power cut may take it back.
    ///
    /// # Errors
    /// The store's; `TimedOut` when the disk stands still.
    pub async fn await_sync(&self) -> Result<()> {
        if self.inner.durable {
            self.sync_barrier().await?;
        }
        Ok(())
    }

    /// Proof for a change of this gateway that was answered just now: it is on disk, unless the server answers before the sync. Over
    /// a cluster the nodes' settings decide.
    pub fn proof_of_answered_write(&self) -> Option<SyncProof> {
        self.inner.durable.then_some(SyncProof(()))
    }

    /// Removes blobs that a change answered just now no longer names: at once where the change is on disk, otherwise in the
    /// background after a sync. A failure leaves them to the sweeper.
    pub async fn release_replaced(&self, blobs: Vec<BlobId>) {
        if blobs.is_empty() {
            return;
        }
        let releases = self.clone();
        let remove = move |synced| async move {
            for blob in blobs {
                releases.remove_or_leave(blob, synced).await;
            }
        };
        match self.proof_of_answered_write() {
            Some(synced) => remove(synced).await,
            None => self.remove_after_sync(remove),
        }
    }

    /// Removes a blob that no row ever named or will name. A failure leaves it to the sweeper.
    pub async fn remove_unnamed(&self, blob: BlobId) {
        // No power cut brings back a row that was never written, so this removal needs no sync.
        self.remove_or_leave(blob, SyncProof(())).await;
    }

    /// Removes the bytes of a blob, counted as `event`.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove(&self, blob: BlobId, _: SyncProof, event: Event) -> Result<()> {
        self.inner.blobs.remove(blob).await?;
        self.inner.metrics.count_event(event);
        Ok(())
    }

    /// As [`Self::remove`]; a failure leaves the blob to the sweeper.
    pub async fn remove_or_leave(&self, blob: BlobId, synced: SyncProof) {
        if let Err(error) = self.remove(blob, synced, Event::BlobRemoved).await {
            tracing::debug!(%error, "blob removal failed: the sweeper retries it");
        }
    }

    /// Runs a removal in the background, after a sync barrier that it shares with others. The removal is dropped when the
    /// barrier fails or the queue is full: the sweeper finds the blobs.
    pub fn remove_after_sync<F>(&self, removal: impl FnOnce(SyncProof) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let queue = self.inner.queue.get_or_init(|| {
            let (queue, waiting) = mpsc::channel(QUEUED_REMOVALS_MAX);
            tokio::spawn(run_removals(Arc::downgrade(&self.inner), waiting));
            queue
        });
        if queue.try_send(Box::new(move |synced| Box::pin(removal(synced)))).is_err() {
            tracing::debug!("queue of blob removals full: one removal is left to the sweeper");
        }
    }
}

/// Runs queued removals, a batch after each barrier. Ends with the gateway.
async fn run_removals(inner: Weak<ReleaserState>, mut waiting: mpsc::Receiver<Removal>) {
    while let Some(first) = waiting.recv().await {
        tokio::time::sleep(BATCH_WINDOW).await;
        let mut batch = vec![first];
        while let Ok(removal) = waiting.try_recv() {
            batch.push(removal);
        }
        // The queue keeps no ended gateway alive; the sweeper finds what it leaves.
        let Some(inner) = inner.upgrade() else { return };
        // Crash: the barrier comes after the batch is complete, so it covers all its changes [invariant 94].
        match (BlobReleaser { inner }).sync_barrier().await {
            Ok(synced) => {
                for removal in batch {
                    removal(synced).await;
                }
            }
            Err(error) => {
                tracing::debug!(%error, count = batch.len(), "sync before blob removals failed: left to the sweeper")
            }
        }
    }
}

/// Lifetime of a mark in microseconds: longer than any write takes.
const GC_MARK_MICROS: u64 = 24 * 60 * 60 * 1_000_000;
/// The value of a mark: a version byte, nothing else.
const GC_MARK_VALUE: &[u8] = &[1];

impl BlobCollector {
    /// Marks blobs of one partition; returns those that no row names and no row can come to name.
    ///
    /// # Errors
    /// The store's; `Unavailable` while a replica is down.
    pub(super) async fn fence(
        &self,
        owner: &dyn BlobReferences,
        partition: &Partition,
        unnamed: Vec<OwnedBlob>,
    ) -> Result<Vec<OwnedBlob>> {
        // Race: the mark comes before the second check; a writer that the check misses finds the mark [invariant 90].
        for blob in &unnamed {
            self.set_gc_mark(blob.id).await?;
        }
        // Race: a writer that read the head before the mark fails against the new stamp [invariant 57].
        if partition.table.is_guarded() {
            owner.fence_head(partition).await?;
        }
        owner.unnamed(partition, unnamed, SweepPhase::Fenced).await
    }

    /// Whether a sweeper is about to remove a blob.
    ///
    /// # Errors
    /// The store's.
    pub async fn has_gc_mark(&self, blob: BlobId, options: &CallOptions) -> Result<bool> {
        let page = self.context.ports.store.read(&Partition::gc_mark(blob), &ReadQuery::all(1), options).await?;
        Ok(!page.rows.is_empty())
    }

    /// Marks a blob at every replica, so that a reader of any of them sees the mark.
    async fn set_gc_mark(&self, blob: BlobId) -> Result<()> {
        let stamp = self.issuer.issue().await?;
        // Race: a second sweeper may rely on this mark, so it is never removed and only expires [invariant 93].
        let expires = Some(self.context.now().saturating_add(GC_MARK_MICROS));
        let mark = Row { name: Bytes::new(), value: Bytes::from_static(GC_MARK_VALUE), stamp, expires };
        let batch = Batch::single(Partition::gc_mark(blob), vec![Change::Put(mark)]);
        Ok(self.context.ports.store.apply(batch, &internal_options(ConsistencyLevel::All)).await?)
    }
}

/// How long a write whose outcome is unknown may still take effect.
const UNKNOWN_OUTCOME_LEASE: Duration = Duration::from_secs(300);

/// Keeps sweepers away from a blob while a row that names it may be written: until the write is answered, and five minutes more
/// when the outcome is unknown. That is so when the answer was lost, and when the client is gone: the write's future is
/// dropped then, while the store may still carry out the batch.
pub struct ReferenceLease(Option<Box<dyn Send + Sync>>);

impl ReferenceLease {
    /// Takes over the lease of a blob that a row is about to name; `None` for a body without a blob.
    pub fn new(lease: Option<Box<dyn Send + Sync>>) -> Self {
        Self(lease)
    }

    /// Ends the lease: the row is written, or will never be.
    pub fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for ReferenceLease {
    fn drop(&mut self) {
        // Race: the store may still hold the batch, and a sweep now could remove the bytes of a live row [invariant 96].
        // Without a runtime the process is about to end, and its leases with it.
        if let (Some(lease), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                tokio::time::sleep(UNKNOWN_OUTCOME_LEASE).await;
                drop(lease);
            });
        }
    }
}
