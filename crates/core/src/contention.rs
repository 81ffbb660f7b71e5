//! Contention of writers for one key: those of one gateway queue, and gateways back off from each other.
//!
//! ```text
//! writers of a key here ──queue──> one at a time ─┐
//!                                                 ├─ compare and set ── conflict ──> exponential backoff, and again
//! writers of a key elsewhere ─────────────────────┘
//! ```
//! Concurrent compare-and-sets of one key cost each other several rounds among the replicas. Thirty at once keep failing each
//! other until their deadlines, so a gateway runs at most one.
//!
//! A write that replaces the whole key answers for all that wait behind it: those of them that would replace it, too, may count as made
//! just before, and replaced by it. So thirty writers of a key take the time of a few.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::Partition;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{Error, Result};

/// The first backoff after a conflict; each is twice as long, up to the last. Half of it is random.
const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// The writers of a partition.
#[derive(Debug, Default)]
struct WriterQueue {
    turns: Arc<tokio::sync::Mutex<()>>,
    /// The last writer that had arrived before a write began that replaced the whole.
    replaced: AtomicU64,
}

/// The number of a writer, in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriterArrival(u64);

/// The writer queues of a gateway: one per partition with writers.
#[derive(Debug)]
pub struct WriterQueues {
    by_partition: Mutex<HashMap<Partition, Arc<WriterQueue>>>,
    arrived: AtomicU64,
    random: fn(&mut [u8]),
}

/// A place in a queue; at its head once [`WriterQueues::wait_for_turn`] has returned it.
#[derive(Debug)]
#[must_use = "the next writer goes on when this is dropped"]
pub struct WriterTurn<'a> {
    queues: &'a WriterQueues,
    partition: Partition,
    queue: Option<Arc<WriterQueue>>,
    arrived: WriterArrival,
    held: Option<OwnedMutexGuard<()>>,
    /// Whether it waited for other writers: earlier reads of the partition may be outdated.
    pub waited: bool,
}

impl WriterQueues {
    /// No queues yet; pauses are spread by `random`.
    pub(crate) fn new(random: fn(&mut [u8])) -> Self {
        Self { by_partition: Mutex::default(), arrived: AtomicU64::new(0), random }
    }

    /// Waits until no other request of this gateway writes the partition. Hold the turn from the read that a compare-and-set
    /// relies on until its answer, and never while a body arrives.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the deadline comes first: nothing was written.
    #[inline]
    pub async fn wait_for_turn(&self, partition: &Partition, deadline: Instant) -> Result<WriterTurn<'_>> {
        let mut turn = self.join(partition);
        if turn.wait(deadline).await { Ok(turn) } else { Err(Error::Overloaded { retry_after: 1 }) }
    }

    /// Backs off from writers of other gateways after this many conflicts in a row.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the deadline would come first.
    pub async fn back_off(&self, conflicts: usize, deadline: Instant) -> Result<()> {
        // Bound: the pause reaches its maximum long before, and a greater shift would overflow.
        let doublings = u32::try_from(conflicts).unwrap_or(u32::MAX).min(16);
        let pause = BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MAX);
        // Race: two gateways that conflicted would conflict again after equal pauses.
        let mut chance = [0];
        (self.random)(&mut chance);
        let until = Instant::now() + pause / 2 + pause / 2 * u32::from(chance[0]) / 255;
        if until >= deadline {
            return Err(Error::Overloaded { retry_after: 1 });
        }
        sleep_until(until).await;
        Ok(())
    }

    fn join(&self, partition: &Partition) -> WriterTurn<'_> {
        let queue = Arc::clone(self.by_partition.lock().entry(partition.clone()).or_default());
        let arrived = WriterArrival(1 + self.arrived.fetch_add(1, Ordering::AcqRel));
        WriterTurn {
            queues: self,
            partition: partition.clone(),
            queue: Some(queue),
            arrived,
            held: None,
            waited: false,
        }
    }
}

impl WriterTurn<'_> {
    /// The last writer that has arrived at any queue: ask before the write is sent.
    #[must_use]
    pub fn last_arrival(&self) -> WriterArrival {
        WriterArrival(self.queues.arrived.load(Ordering::Acquire))
    }

    /// Notes that the write of this turn, which was sent after `before` had arrived, replaced the whole.
    pub fn note_replaced(&self, before: WriterArrival) {
        if let Some(queue) = &self.queue {
            queue.replaced.fetch_max(before.0, Ordering::AcqRel);
        }
    }

    /// Whether a write that replaced the whole was sent after this writer had arrived, and is acknowledged.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.replaced.load(Ordering::Acquire) >= self.arrived.0)
    }

    /// Waits for the turns before this one; `false`: the deadline came first.
    async fn wait(&mut self, deadline: Instant) -> bool {
        let Some(queue) = &self.queue else { return false };
        // Tried first: only a writer that had to wait needs to read the head again.
        self.held = Arc::clone(&queue.turns).try_lock_owned().ok();
        if self.held.is_none() {
            self.waited = true;
            self.held = timeout_at(deadline, Arc::clone(&queue.turns).lock_owned()).await.ok();
        }
        self.held.is_some()
    }
}

impl Drop for WriterTurn<'_> {
    fn drop(&mut self) {
        // Both handles go before the count below: this turn would otherwise keep its own queue.
        (self.held, self.queue) = (None, None);
        let mut queues = self.queues.by_partition.lock();
        // Writers join a queue under this lock only: a queue that only the map holds is empty.
        if queues.get(&self.partition).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_store::Table;

    use super::*;

    fn partition(key: &'static str) -> Partition {
        Partition::new(Table::Heads, key)
    }

    #[tokio::test(start_paused = true)]
    async fn writers_of_a_key_run_one_by_one_in_order_of_arrival() {
        let queues = WriterQueues::new(|_| {});
        let deadline = Instant::now() + Duration::from_secs(60);
        let order = Mutex::new(Vec::new());
        let writer = async |number: usize| {
            let mut turn = queues.join(&partition("k"));
            assert!(turn.wait(deadline).await);
            assert_eq!(turn.waited, number > 0);
            tokio::time::sleep(Duration::from_secs(1)).await;
            order.lock().push(number);
        };
        let begun = Instant::now();
        tokio::join!(writer(0), writer(1), writer(2));
        assert_eq!((order.into_inner(), begun.elapsed()), (vec![0, 1, 2], Duration::from_secs(3)));
        assert!(queues.by_partition.lock().is_empty(), "an empty queue is dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_replaces_the_whole_answers_for_those_that_waited_when_it_was_sent() {
        let (queues, deadline) = (WriterQueues::new(|_| {}), Instant::now() + Duration::from_secs(60));
        let mut first = queues.join(&partition("k"));
        assert!(first.wait(deadline).await);
        let mut waiting = queues.join(&partition("k"));
        let sent = first.last_arrival();
        let (mut late, mut other) = (queues.join(&partition("k")), queues.join(&partition("l")));
        assert!(!waiting.is_replaced(), "it is not acknowledged");
        first.note_replaced(sent);
        drop(first);
        assert!(waiting.wait(deadline).await && waiting.is_replaced());
        drop(waiting);
        assert!(late.wait(deadline).await && !late.is_replaced(), "it came after the write was sent");
        assert!(other.wait(deadline).await && !other.is_replaced(), "another key");
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_leaves_its_queue_at_the_deadline_or_when_dropped() {
        let queues = WriterQueues::new(|_| {});
        let mut first = queues.join(&partition("k"));
        assert!(first.wait(Instant::now()).await, "the queue is empty");
        let mut late = queues.join(&partition("k"));
        assert!(!late.wait(Instant::now() + Duration::from_secs(1)).await);
        let mut other = queues.join(&partition("l"));
        assert!(other.wait(Instant::now()).await, "another key has its own queue");
        drop((late, other));
        assert_eq!(queues.by_partition.lock().len(), 1);
        let mut gone = queues.join(&partition("k"));
        let _ = tokio::time::timeout(Duration::from_secs(1), gone.wait(Instant::now() + Duration::from_secs(9))).await;
        drop((gone, first));
        assert!(queues.by_partition.lock().is_empty());
    }
}
