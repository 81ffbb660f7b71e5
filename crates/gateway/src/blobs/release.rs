//! The one way the bytes of a blob are removed.
//!
//! ```text
//! row names the blob ──> row replaced ──> row synced, and the bytes that it names ──> bytes removed
//! ```
//! A file system removes at once and no journal brings a file back, while a power cut takes back what was not synced: the old
//! row would be there again, and its bytes gone. So bytes are removed only with [`Synced`] in hand.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use larder_model::content::BlobId;
use larder_store::{Batch, Blobs, Durability, Level, Options, Store};
use tokio::sync::mpsc;

use crate::gateway::own_options;
use crate::metrics::{Event, Metrics};
use crate::{Gateway, Result};

/// How long removals gather that wait for one sync barrier.
const GATHER: Duration = Duration::from_secs(1);
/// Removals waiting at most; what comes beyond them is left to the sweeper.
const WAITING_MAX: usize = 16 * 1024;

/// Evidence that no power cut brings back a row that names certain blobs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Synced(());

/// Removes blobs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Releases {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    metrics: Arc<Metrics>,
    durable: bool,
    /// The way to the task that carries out what waits; it is there from the first on.
    queue: OnceLock<mpsc::Sender<Removal>>,
}

/// A removal that waits for a sync barrier.
type Removal = Box<dyn FnOnce(Synced) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

impl Releases {
    /// Releases for blobs whose rows are in `store`; `durable`: whether writes are answered from disk.
    pub(crate) fn new(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>, metrics: Arc<Metrics>, durable: bool) -> Self {
        Self { inner: Arc::new(Inner { store, blobs, metrics, durable, queue: OnceLock::new() }) }
    }

    /// Waits until all that readers see now is on disk, however the server was started.
    ///
    /// # Errors
    /// What the store answers; nothing may be removed then.
    pub(crate) async fn barrier(&self) -> Result<Synced> {
        let options = Options { durability: Durability::Forced, ..own_options(Level::Quorum) };
        self.inner.store.apply(Batch::default(), &options).await?;
        Ok(Synced(()))
    }

    /// Evidence for a change that this gateway made and that was answered just now: it is on disk, unless the server answers
    /// before that.
    pub(crate) fn answered(&self) -> Option<Synced> {
        self.inner.durable.then_some(Synced(()))
    }

    /// Removes blobs whose names went with a change that was answered just now: at once where it is on disk, otherwise behind
    /// the caller's back. A failure leaves them to the sweeper.
    pub(crate) async fn replaced(&self, blobs: Vec<BlobId>) {
        if blobs.is_empty() {
            return;
        }
        let releases = self.clone();
        let remove = move |synced| async move {
            for blob in blobs {
                releases.remove_or_leave(blob, synced).await;
            }
        };
        match self.answered() {
            Some(synced) => remove(synced).await,
            None => self.later(remove),
        }
    }

    /// Removes a blob that no row ever named, nor will. A failure leaves it to the sweeper.
    pub(crate) async fn discard(&self, blob: BlobId) {
        self.remove_or_leave(blob, Synced(())).await;
    }

    /// Removes the bytes of a blob, counted as `event`.
    ///
    /// # Errors
    /// What the store answers.
    pub(crate) async fn remove(&self, blob: BlobId, _: Synced, event: Event) -> Result<()> {
        self.inner.blobs.remove(blob).await?;
        self.inner.metrics.event(event);
        Ok(())
    }

    /// As [`Self::remove`]; a failure leaves the blob to the sweeper.
    pub(crate) async fn remove_or_leave(&self, blob: BlobId, synced: Synced) {
        if let Err(error) = self.remove(blob, synced, Event::BlobRemoved).await {
            tracing::debug!(%error, "a blob is left to the sweeper");
        }
    }

    /// Carries a removal out behind the caller's back, after a sync barrier that it shares with others. Nothing is done when
    /// the barrier fails or too many wait: the sweeper finds the rest.
    pub(crate) fn later<F>(&self, removal: impl FnOnce(Synced) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let queue = self.inner.queue.get_or_init(|| {
            let (queue, waiting) = mpsc::channel(WAITING_MAX);
            tokio::spawn(serve(Arc::downgrade(&self.inner), waiting));
            queue
        });
        if queue.try_send(Box::new(move |synced| Box::pin(removal(synced)))).is_err() {
            tracing::debug!("too many removals wait for a sync: one is left to the sweeper");
        }
    }
}

/// Carries out what waits, a batch after each barrier. Ends with the gateway.
async fn serve(inner: Weak<Inner>, mut waiting: mpsc::Receiver<Removal>) {
    while let Some(first) = waiting.recv().await {
        tokio::time::sleep(GATHER).await;
        let mut batch = vec![first];
        while let Ok(removal) = waiting.try_recv() {
            batch.push(removal);
        }
        let Some(inner) = inner.upgrade() else { return };
        match (Releases { inner }).barrier().await {
            Ok(synced) => {
                for removal in batch {
                    removal(synced).await;
                }
            }
            Err(error) => tracing::debug!(%error, count = batch.len(), "removals are left to the sweeper"),
        }
    }
}

impl Gateway {
    /// Waits until all that readers see now is on disk, where this server answers from disk. Ask this before a change is
    /// answered that was only read back: readers see a change earlier, and a power cut may take it back.
    ///
    /// # Errors
    /// What the store answers; `TimedOut` when the disk stands still.
    pub(crate) async fn on_disk(&self) -> Result<()> {
        if self.config.durable {
            self.releases.barrier().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
