//! The queue of the committer: bounded in requests and bytes, with one reply per request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use larder_store::{Batch, CasResult, Change, Error, HeadWrite, Kind, Partition, Result, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::journal::JournalError;
use crate::threads::{receive_many, timeout_at};
use crate::tree_id::TreeId;

/// Most requests in the queue.
const REQUESTS_MAX: usize = 4096;
/// Most requests received at a time.
const RECEIVED_MAX: usize = 1024;
/// Most bytes of all requests from their submission to their reply.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// One write as the committer runs it.
#[derive(Debug)]
pub(crate) enum WriteCommand {
    /// Changes to plain tables.
    Apply(Batch),
    /// Changes to a guarded partition if its head has this stamp.
    CompareAndSet {
        /// The partition.
        partition: Partition,
        /// The stamp that the head row must have; `None`: there must be no head row.
        expected: Option<Timestamp>,
        /// The new head.
        head: Box<HeadWrite>,
        /// Changes written with the head.
        changes: Vec<Change>,
    },
    /// Writes or removes a bulk row.
    Bulk {
        /// Its key in the keyspace.
        key: Bytes,
        /// Its value; `None` removes it.
        value: Option<Bytes>,
    },
    /// Removes the rows of these entries that are expired by then.
    Purge(Vec<(TreeId, Bytes)>),
    /// Syncs all writes and ends the committer.
    Close,
}

/// The committer's reply.
#[derive(Debug)]
pub(crate) enum CommitReply {
    /// The write is committed.
    Written,
    /// Outcome of a compare-and-set.
    CompareAndSet(CasResult),
    /// The number of rows purged.
    Purged(usize),
}

/// One request on its way.
pub(crate) struct CommitRequest {
    pub(crate) work: WriteCommand,
    /// Whether the reply waits for a sync.
    pub(crate) durable: bool,
    pub(crate) caller: CommitCaller,
}

/// The way back to the caller of a request.
pub(crate) struct CommitCaller {
    sender: oneshot::Sender<Result<CommitReply>>,
    /// The request's bytes of the queue's bound, held until the reply.
    _permits: OwnedSemaphorePermit,
}

/// The outcome of a request, to be sent once its group is written.
pub(crate) struct PendingReply {
    caller: CommitCaller,
    outcome: Result<CommitReply>,
}

impl CommitRequest {
    /// Whether it ends writing.
    pub(crate) fn is_close(&self) -> bool {
        matches!(self.work, WriteCommand::Close)
    }
}

impl CommitCaller {
    /// Whether the caller gave up waiting.
    pub(crate) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// The reply with this outcome.
    pub(crate) fn reply(self, outcome: Result<CommitReply>) -> PendingReply {
        PendingReply { caller: self, outcome }
    }
}

impl PendingReply {
    /// Turns a success into this error; a request refused before keeps its own.
    pub(crate) fn refuse(&mut self, error: &Error) {
        if self.outcome.is_ok() {
            self.outcome = Err(error.clone());
        }
    }

    /// Sends the outcome. A caller that gave up waiting has dropped its receiver.
    pub(crate) fn send(self) {
        let _ = self.caller.sender.send(self.outcome);
    }
}

/// The committer's counters, and whether it still writes.
#[derive(Debug, Default)]
pub(crate) struct CommitterHealth {
    poisoned: AtomicBool,
    closed: AtomicBool,
    reason: OnceLock<String>,
    /// Groups committed.
    pub(crate) groups: AtomicU64,
    /// Requests written.
    pub(crate) batches: AtomicU64,
    /// Syncs.
    pub(crate) syncs: AtomicU64,
    /// Whether the data is larger than the cache, so that callers prefetch entries before they queue a write.
    pub(crate) is_cold: AtomicBool,
}

impl CommitterHealth {
    /// Whether writing has ended.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Ends writing after a failure; the first reason stays and is logged.
    pub(crate) fn poison(&self, reason: &str) {
        if self.end(reason) {
            tracing::error!("{reason}; the store refuses writes until the server is restarted");
        }
    }

    /// Ends writing; returns whether this was the first reason.
    fn end(&self, reason: &str) -> bool {
        // Later failures follow from the first one, so its reason stays.
        let is_first = self.reason.set(reason.to_owned()).is_ok();
        // Reason before flag: a writer that sees the flag must find the reason.
        self.poisoned.store(true, Ordering::Release);
        is_first
    }

    /// Ends writing after a failure of the journal; the error for the writers of this group.
    pub(crate) fn fail(&self, what: &str, error: &JournalError) -> Error {
        self.poison(&format!("{what}: {error}"));
        self.error()
    }

    /// Ends writing in good order: every write is on disk.
    pub(crate) fn close(&self) {
        // A poisoned store did not end in order: its last writes may be lost.
        if !self.is_poisoned() {
            self.closed.store(true, Ordering::Release);
        }
        self.end("the store is closed");
    }

    /// Whether writing ended in order.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The failure that ended writing; `None`: nothing did, or it ended in order.
    pub(crate) fn fault(&self) -> Option<String> {
        (self.is_poisoned() && !self.is_closed()).then(|| self.error().to_string())
    }

    /// The error every write gets once poisoned.
    pub(crate) fn error(&self) -> Error {
        let reason = self.reason.get().map_or("the committer has ended", String::as_str);
        Error::new(Kind::Poisoned, format!("no writes until the server is restarted: {reason}"))
    }
}

/// Ends writing when the thread that holds it panics: the thread's last step may be done in part.
pub(crate) struct PanicGuard {
    health: Arc<CommitterHealth>,
    reason: &'static str,
}

impl PanicGuard {
    /// The guard of a thread, with the reason that its panic gives to writers.
    pub(crate) fn new(health: Arc<CommitterHealth>, reason: &'static str) -> Self {
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

/// The committer's end of the queue.
pub(crate) struct CommitReceiver {
    requests: mpsc::Receiver<CommitRequest>,
    /// A close that arrived while a group was open; it is received next.
    close: Option<CommitRequest>,
}

impl CommitReceiver {
    /// The requests that have arrived, and those left behind by [`Self::receive_arrived`]; with `waits` at least one. `None`
    /// when there is none and the other end is gone.
    pub(crate) fn receive(&mut self, waits: bool) -> Option<Vec<CommitRequest>> {
        let mut requests = Vec::new();
        match self.close.take() {
            Some(close) => requests.push(close),
            None if waits && receive_many(&mut self.requests, &mut requests, RECEIVED_MAX) == 0 => return None,
            None if waits => {}
            None => requests = self.receive_arrived(),
        }
        Some(requests)
    }

    /// The requests that have arrived, up to a close: later ones must not be written before it is seen.
    pub(crate) fn receive_arrived(&mut self) -> Vec<CommitRequest> {
        let mut arrived = Vec::new();
        while self.close.is_none() && arrived.len() < RECEIVED_MAX {
            match self.requests.try_recv() {
                Ok(close) if close.is_close() => self.close = Some(close),
                Ok(request) => arrived.push(request),
                Err(_) => break,
            }
        }
        arrived
    }
}

/// Hands requests to the committer.
pub(crate) struct CommitQueue {
    sender: mpsc::Sender<CommitRequest>,
    byte_permits: Arc<Semaphore>,
    health: Arc<CommitterHealth>,
}

impl CommitQueue {
    /// The two ends of a queue.
    pub(crate) fn new(health: Arc<CommitterHealth>) -> (Self, CommitReceiver) {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let queue = Self { sender, byte_permits: Arc::new(Semaphore::new(BYTES_MAX)), health };
        (queue, CommitReceiver { requests, close: None })
    }

    /// Requests waiting.
    pub(crate) fn depth(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Submits a write and waits for its reply until the deadline.
    ///
    /// # Errors
    /// `TimedOut`: the write may still happen. `Poisoned`, and any error of the committer.
    pub(crate) async fn submit_until(
        &self,
        deadline: Instant,
        work: WriteCommand,
        bytes: usize,
        durable: bool,
    ) -> Result<CommitReply> {
        // Race: the request may be staged already when the deadline passes, so its write may still happen.
        let answer = timeout_at(deadline, self.submit(work, bytes, durable)).await;
        answer.unwrap_or_else(|_| Err(Error::new(Kind::TimedOut, "waiting for the committer")))
    }

    /// Submits a write and waits for its reply without a deadline.
    ///
    /// # Errors
    /// `Poisoned`, and any error of the committer.
    pub(crate) async fn submit(&self, work: WriteCommand, bytes: usize, durable: bool) -> Result<CommitReply> {
        if self.health.is_poisoned() {
            return Err(self.health.error());
        }
        // A request above the bound takes all of it: a wait for more permits than exist would never end.
        let permits = u32::try_from(bytes.min(BYTES_MAX)).unwrap_or(u32::MAX);
        // Writers wait for bytes before they queue, so a committer that waits for the disk does not fill the memory.
        let byte_permits =
            self.byte_permits.clone().acquire_many_owned(permits).await.map_err(|_| self.health.error())?;
        let (reply, answer) = oneshot::channel();
        let caller = CommitCaller { sender: reply, _permits: byte_permits };
        let request = CommitRequest { work, durable, caller };
        // The committer may end after the check above: the send fails then, or the reply is dropped.
        self.sender.send(request).await.map_err(|_| self.health.error())?;
        answer.await.map_err(|_| self.health.error())?
    }
}
