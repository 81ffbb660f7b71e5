//! The way to the committer: a bounded queue, bounded waiting, one answer per request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use larder_store::{Batch, Change, Error, Head, Kind, Partition, Result, Stamp, Swap};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::spaces::Space;

/// Requests waiting at most.
const REQUESTS_MAX: usize = 4096;
/// Bytes of all requests waiting or under way at most.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the committer is asked for.
#[derive(Debug)]
pub(crate) enum Work {
    /// Changes to plain tables.
    Apply(Batch),
    /// Changes to a guarded partition if its head has this stamp.
    Swap {
        /// The partition.
        partition: Partition,
        /// The stamp of the head row; `None`: is not there.
        expected: Option<Stamp>,
        /// The new head.
        head: Box<Head>,
        /// What is written with it.
        changes: Vec<Change>,
    },
    /// Writes or removes a bulk row.
    Bulk {
        /// Its key in the keyspace.
        key: Bytes,
        /// Its value; `None` removes it.
        value: Option<Bytes>,
    },
    /// Purges entries of expired rows, as far as they still are.
    Purge(Vec<(Space, Bytes)>),
    /// Syncs what was written, and ends.
    Close,
}

/// The committer's answer.
#[derive(Debug)]
pub(crate) enum Done {
    /// It is written.
    Written,
    /// Outcome of a swap.
    Swapped(Swap),
    /// So many rows were purged.
    Purged(usize),
}

/// One request on its way.
pub(crate) struct Request {
    pub(crate) work: Work,
    /// Whether the answer waits for the disk.
    pub(crate) durable: bool,
    /// Bytes it holds.
    pub(crate) bytes: usize,
    pub(crate) reply: oneshot::Sender<Result<Done>>,
    _room: OwnedSemaphorePermit,
}

/// What the committer counts, and whether it still writes.
#[derive(Debug, Default)]
pub(crate) struct Health {
    poisoned: AtomicBool,
    closed: AtomicBool,
    reason: OnceLock<String>,
    /// Groups committed.
    pub(crate) groups: AtomicU64,
    /// Requests written.
    pub(crate) batches: AtomicU64,
    /// Syncs.
    pub(crate) syncs: AtomicU64,
    /// Whether entries must often come from the disk, so that callers should fetch them before they queue.
    pub(crate) cold: AtomicBool,
}

impl Health {
    /// Whether writing has ended.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Ends writing; the first reason stays.
    pub(crate) fn poison(&self, reason: &str) {
        let _ = self.reason.set(reason.to_owned());
        self.poisoned.store(true, Ordering::Release);
    }

    /// Ends writing in order: what was written is on disk.
    pub(crate) fn close(&self) {
        if !self.is_poisoned() {
            self.closed.store(true, Ordering::Release);
        }
        self.poison("the store is closed");
    }

    /// Whether writing ended in order.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The error every write gets once poisoned.
    pub(crate) fn error(&self) -> Error {
        let reason = self.reason.get().map_or("the committer has ended", String::as_str);
        Error::new(Kind::Poisoned, format!("no writes until the server is restarted: {reason}"))
    }
}

/// Ends writing when the thread that holds it panics: what it was doing may be done in part.
pub(crate) struct PanicGuard {
    health: Arc<Health>,
    reason: &'static str,
}

impl PanicGuard {
    /// The guard of a thread, and what is said when it panics.
    pub(crate) fn new(health: Arc<Health>, reason: &'static str) -> Self {
        Self { health, reason }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.health.poison(self.reason);
        }
    }
}

/// Hands requests to the committer.
pub(crate) struct Queue {
    sender: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
    health: Arc<Health>,
}

impl Queue {
    /// The two ends of a queue.
    pub(crate) fn new(health: Arc<Health>) -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
        (Self { sender, room: Arc::new(Semaphore::new(BYTES_MAX)), health }, receiver)
    }

    /// Requests waiting.
    pub(crate) fn length(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Has work done, waiting for room and for the answer until the deadline at most.
    ///
    /// # Errors
    /// `TimedOut`: it may be done nevertheless. `Poisoned`, and what the committer answers.
    pub(crate) async fn run_until(&self, deadline: Instant, work: Work, bytes: usize, durable: bool) -> Result<Done> {
        let answer = timeout_at(deadline, self.run(work, bytes, durable)).await;
        answer.unwrap_or_else(|_| Err(Error::new(Kind::TimedOut, "waiting for the committer")))
    }

    /// Has work done, however long it takes.
    ///
    /// # Errors
    /// `Poisoned`, and what the committer answers.
    pub(crate) async fn run(&self, work: Work, bytes: usize, durable: bool) -> Result<Done> {
        if self.health.is_poisoned() {
            return Err(self.health.error());
        }
        let permits = u32::try_from(bytes.min(BYTES_MAX)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(permits).await.map_err(|_| self.health.error())?;
        let (reply, answer) = oneshot::channel();
        let request = Request { work, durable, bytes, reply, _room: room };
        self.sender.send(request).await.map_err(|_| self.health.error())?;
        answer.await.map_err(|_| self.health.error())?
    }
}
