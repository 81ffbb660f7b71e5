//! The writers of data types in one gateway: for each key at most one batch is in flight, and requests that come meanwhile join
//! the next one.

use std::collections::HashMap;
use std::sync::Arc;

use larder_core::clock_issuer::ClockIssuer;
use larder_core::node_context::NodeContext;
use larder_core::types::CatalogueCopy;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::{ActorId, Change};
use larder_store::{CallOptions, Partition, RateLimitedLog};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::import::DatatypeImport;
use super::progress::KeyProgress;
use super::unanswered::{ConfirmedClocks, UnansweredMemory};
use crate::epochs::IndexGrowth;
use crate::rules::causality::Conditions;
use crate::rules::datatypes::{DatatypeContext, DatatypeUpdate};

static UNSETTLED: RateLimitedLog = RateLimitedLog::new();

/// Most requests that wait for the next batch of one key.
const WAITING_MAX: usize = 4096;

/// The partitions of a key.
#[derive(Debug, Clone)]
pub(crate) struct DatatypeKey {
    pub(crate) partition: Partition,
    pub(crate) address: Address,
    pub(crate) bucket_view: Partition,
    /// The precision of a HyperLogLog there.
    pub(crate) precision: u8,
}

/// A change of one key.
#[derive(Debug)]
pub(crate) enum DatatypeWork {
    /// A client's update.
    Update { update: DatatypeUpdate, context: Option<DatatypeContext>, request_id: Option<bytes::Bytes> },
    /// The removal of the whole value, or of the part of it that a context covers, if the conditions hold.
    Delete { context: Option<DatatypeContext>, conditions: Conditions },
    /// The state of the key at the source of a move.
    Import(Box<DatatypeImport>),
}

/// A change with the terms of its request.
#[derive(Debug)]
pub(crate) struct JoinedUpdate {
    pub(crate) work: DatatypeWork,
    pub(crate) options: CallOptions,
    /// The row that lists the bucket, if it may be missing.
    pub(crate) listing: Option<Change>,
}

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatatypeOutcome {
    /// It was made.
    Done,
    /// There was nothing to delete.
    NotFound,
}

/// A change that waits for its batch.
pub(super) struct WaitingUpdate {
    pub(super) joined: JoinedUpdate,
    answer: oneshot::Sender<Result<DatatypeOutcome>>,
}

/// Writes the data types of one gateway.
pub(crate) struct DatatypeWriters {
    pub(super) context: Arc<NodeContext>,
    pub(super) issuer: Arc<ClockIssuer>,
    pub(super) catalogue: Arc<CatalogueCopy>,
    pub(super) index_growth: Arc<IndexGrowth>,
    /// Keys with a running task, and what waits for it.
    queues: Mutex<HashMap<Partition, KeyQueue>>,
    pub(super) unanswered: UnansweredMemory,
    pub(super) confirmed: ConfirmedClocks,
}

/// What waits for the task of a key.
#[derive(Default)]
struct KeyQueue {
    waiting: Vec<WaitingUpdate>,
    /// Wakes a task that waits for the key to be at rest.
    arrival: Arc<Notify>,
}

impl WaitingUpdate {
    pub(super) fn answer(self, result: Result<DatatypeOutcome>) {
        // A client that left needs no answer.
        let _ = self.answer.send(result);
    }

    pub(super) fn is_delete(&self) -> bool {
        matches!(self.joined.work, DatatypeWork::Delete { .. })
    }

    /// Whether it shares its batch with no other change.
    fn is_alone(&self) -> bool {
        matches!(self.joined.work, DatatypeWork::Delete { .. } | DatatypeWork::Import(_))
    }

    /// Whether its client waits no more.
    fn is_late(&self) -> bool {
        self.joined.options.deadline <= Instant::now() || self.answer.is_closed()
    }
}

impl DatatypeWriters {
    /// Logs that a batch without an answer is not at a quorum yet, though its key is at rest.
    fn log_unsettled(&self, key: &DatatypeKey, error: &Error) {
        if let Some(line) = UNSETTLED.admit(self.context.monotonic()) {
            let (bucket, key) = (&key.address.bucket, key.address.key.escape_ascii());
            tracing::warn!(%bucket, %key, %error, left_out = line.left_out, "a batch of a data type is sent again later");
        }
    }

    /// The writers of a gateway.
    pub(crate) fn new(
        context: Arc<NodeContext>,
        issuer: Arc<ClockIssuer>,
        catalogue: Arc<CatalogueCopy>,
        index_growth: Arc<IndexGrowth>,
    ) -> Arc<Self> {
        let (unanswered, confirmed) = (UnansweredMemory::new(), ConfirmedClocks::default());
        Arc::new(Self { context, issuer, catalogue, index_growth, queues: Mutex::default(), unanswered, confirmed })
    }

    /// The actor whose rows these writers write. A single gateway keeps one for good, so that a key has one row for it: its clock never
    /// falls back, also over restarts, since it begins above a stored mark. Race: no two stores share one, or the context of one
    /// would cover rows of the other [invariant 176].
    pub(super) fn actor(&self) -> ActorId {
        self.issuer.lasting_actor
    }

    /// Whether replicas hold the rows, of which some may lack what others have.
    pub(crate) fn is_replicated(&self) -> bool {
        self.context.ports.store.limits().replicated
    }

    /// Queues a change, and waits for its answer until its deadline.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::TimedOut`], and those of the batch.
    pub(crate) async fn submit(self: &Arc<Self>, key: DatatypeKey, joined: JoinedUpdate) -> Result<DatatypeOutcome> {
        let deadline = joined.options.deadline;
        let (answer, receiver) = oneshot::channel();
        self.enqueue(key, Some(WaitingUpdate { joined, answer }))?;
        match timeout_at(deadline, receiver).await {
            Ok(Ok(result)) => result,
            // The task ended in a panic, which is counted and logged where it happened.
            Ok(Err(_)) => Err(Error::Internal("the writer of this key broke off".into())),
            Err(_) => Err(Error::TimedOut),
        }
    }

    /// Lets the task of a key run, for its markers.
    pub(super) fn wake(self: &Arc<Self>, key: DatatypeKey) {
        let _ = self.enqueue(key, None);
    }

    fn enqueue(self: &Arc<Self>, key: DatatypeKey, waiting: Option<WaitingUpdate>) -> Result<()> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get_mut(&key.partition) {
            // Bound: a key that is updated faster than batches end must not fill the memory.
            if queue.waiting.len() >= WAITING_MAX {
                return Err(Error::Overloaded { retry_after: 1 });
            }
            queue.waiting.extend(waiting);
            queue.arrival.notify_one();
            return Ok(());
        }
        let queue = KeyQueue { waiting: waiting.into_iter().collect(), ..KeyQueue::default() };
        let arrival = Arc::clone(&queue.arrival);
        queues.insert(key.partition.clone(), queue);
        let task =
            RunningWriter { writers: Arc::clone(self), key, arrival, progress: KeyProgress::default(), ended: false };
        // A task of its own: a client that leaves must not stop the batch that others joined.
        tokio::spawn(task.run());
        Ok(())
    }

    /// The changes that wait for the next batch; without any the key's task ends, if it may.
    fn take(&self, partition: &Partition, may_end: bool) -> Option<Vec<WaitingUpdate>> {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(partition);
        let waiting = queue.map(|queue| std::mem::take(&mut queue.waiting)).unwrap_or_default();
        if waiting.is_empty() && may_end {
            // Race: under the lock, so that a change queued now finds a task or starts one.
            queues.remove(partition);
            return None;
        }
        Some(waiting)
    }
}

/// The task of one key.
struct RunningWriter {
    writers: Arc<DatatypeWriters>,
    key: DatatypeKey,
    arrival: Arc<Notify>,
    progress: KeyProgress,
    /// Whether its queue is gone; one that is there now belongs to the next task.
    ended: bool,
}

impl RunningWriter {
    /// The changes of the next batch; `None` ends the task.
    fn next(&mut self, may_end: bool) -> Option<Vec<WaitingUpdate>> {
        let waiting = self.writers.take(&self.key.partition, may_end);
        self.ended = waiting.is_none();
        waiting
    }

    async fn run(mut self) {
        // The first look at the head says whether markers are to be cleaned.
        let mut cleaning = true;
        while let Some(waiting) = self.next(!cleaning && self.may_rest()) {
            let Self { writers, key, progress, arrival, .. } = &mut self;
            if waiting.is_empty() && !cleaning {
                let quiet = tokio::time::timeout(progress.quiet(), arrival.notified()).await.is_err();
                if quiet {
                    // A failure is tried again later: what is left stays.
                    if let Err(error) = writers.settle(key, progress).await {
                        writers.log_unsettled(key, &error);
                    }
                }
                continue;
            }
            if waiting.is_empty() {
                // Failures are left to the next one that sees the marker.
                cleaning = writers.clean_page(key).await.unwrap_or(false);
                continue;
            }
            // Bound: a key that is never idle is cleaned, too, a page after each batch [invariant 116].
            cleaning =
                writers.commit_all(key, waiting, progress).await && writers.clean_page(key).await.unwrap_or(false);
        }
    }
}

impl RunningWriter {
    /// Whether nothing is left to do for the key, or the process ends and its actor with it.
    fn may_rest(&self) -> bool {
        self.progress.is_settled() || self.writers.context.is_stopping()
    }
}

impl Drop for RunningWriter {
    fn drop(&mut self) {
        // Race: a change may have begun the next task already; without its queue a third would write beside it [invariant 109].
        if !self.ended {
            // After a panic the queue would wait for a task that is gone; dropped senders answer those that wait.
            self.writers.queues.lock().remove(&self.key.partition);
        }
    }
}

impl DatatypeWriters {
    /// Commits all of these, in their order; whether the key has markers to clean.
    async fn commit_all(&self, key: &DatatypeKey, waiting: Vec<WaitingUpdate>, progress: &mut KeyProgress) -> bool {
        let (mut updates, mut has_markers) = (waiting, false);
        loop {
            // Before each batch: the ones before it may have taken all the time that clients had.
            let (late, waiting): (Vec<_>, Vec<_>) = updates.into_iter().partition(WaitingUpdate::is_late);
            late.into_iter().for_each(|update| update.answer(Err(Error::TimedOut)));
            updates = waiting;
            if updates.is_empty() {
                return has_markers;
            }
            // A delete takes the whole value and its clock row, and an import reads it, so each has a batch of its own.
            let is_alone = updates[0].is_alone();
            let group = match updates.iter().position(|update| update.is_alone() != is_alone || is_alone) {
                Some(0) => 1,
                Some(end) => end,
                None => updates.len(),
            };
            let others = updates.split_off(group);
            let (deferred, markers) = self.commit_group(key, updates, progress).await;
            has_markers |= markers;
            updates = deferred;
            updates.extend(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::address::BucketAddress;

    use super::*;
    use crate::testing::gateway_over;
    use larder_testkit::VolatileStore;

    #[tokio::test]
    async fn a_task_that_ended_leaves_the_queue_of_the_next_one_alone() {
        let gateway = gateway_over(&VolatileStore::new(false)).await;
        let writers = &gateway.kv.datatype_writers;
        let bucket = BucketAddress::new("default".into(), "b".into()).unwrap();
        let address = Address { bucket, key: "k".into() };
        let key = DatatypeKey {
            partition: Partition::datatype(&address, 1),
            bucket_view: Partition::buckets(&address.bucket.bucket_type, 1),
            address,
            precision: 14,
        };
        writers.queues.lock().insert(key.partition.clone(), KeyQueue::default());
        let mut ending = RunningWriter {
            writers: writers.clone(),
            key: key.clone(),
            arrival: Arc::default(),
            progress: KeyProgress::default(),
            ended: false,
        };
        assert!(ending.next(true).is_none());
        // The next change comes before the task is dropped.
        writers.wake(key.clone());
        drop(ending);
        assert!(writers.queues.lock().contains_key(&key.partition), "a third task would write beside the second");
    }
}
