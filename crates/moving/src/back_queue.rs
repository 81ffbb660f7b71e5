//! The queue of the way back: keys wait in it until the Riak that a move came from fetches their objects.
//!
//! ```text
//! way_back ──key──> waiting ──GET /queuename/back──> the key is read now ──element──> Riak
//!     └──────────── told when it was fetched ────────────────┘
//! ```
//! Riak tells nobody whether it took an element, so [`crate::way_back`] asks for the key afterwards.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use larder_rows::ActorId;
use larder_rows::address::Address;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use crate::rules::HandedOut;

/// The name of the queue.
pub(crate) const BACK_QUEUE: &[u8] = b"back";
/// The time that a fetch waits for an element, as a node of Riak does.
const FETCH_WAIT: Duration = Duration::from_millis(40);
/// The time after which a queue that nobody fetches from is told.
const SILENCE: Duration = Duration::from_secs(10);
/// Objects that are read at a time, of up to 64 MiB each.
const READ_AT_ONCE: usize = 4;

/// A key whose object the Riak is to have.
pub(crate) struct WaitingKey {
    pub(crate) address: Address,
    /// The actor of the move.
    pub(crate) actor: ActorId,
    /// Told what was fetched, or why it cannot be.
    pub(crate) fetched: oneshot::Sender<Result<HandedOut, String>>,
}

/// The queue.
pub(crate) struct BackQueue {
    state: Mutex<BackQueueState>,
    added: Notify,
    /// Places for objects that are being read.
    pub(crate) reading: Semaphore,
}

#[derive(Default)]
struct BackQueueState {
    is_open: bool,
    waiting: VecDeque<WaitingKey>,
}

/// Keeps the queue open.
pub(crate) struct OpenBackQueue(Arc<BackQueue>);

impl Drop for OpenBackQueue {
    fn drop(&mut self) {
        *self.0.state.lock() = BackQueueState::default();
    }
}

impl Default for BackQueue {
    fn default() -> Self {
        Self { state: Mutex::default(), added: Notify::new(), reading: Semaphore::new(READ_AT_ONCE) }
    }
}

impl BackQueue {
    /// Opens it.
    pub(crate) fn open(self: &Arc<Self>) -> OpenBackQueue {
        *self.state.lock() = BackQueueState { is_open: true, waiting: VecDeque::new() };
        OpenBackQueue(Arc::clone(self))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Waits until the object of a key is fetched; returns what was fetched, or why it cannot be. `None`: the queue is closed. While
    /// nobody fetches, `tell` gets the number of keys that wait.
    pub(crate) async fn fetched(
        &self,
        address: &Address,
        actor: ActorId,
        tell: impl Fn(usize),
    ) -> Option<Result<HandedOut, String>> {
        while self.is_open() {
            let (fetched, mut told) = oneshot::channel();
            self.add(WaitingKey { address: address.clone(), actor, fetched });
            loop {
                match timeout(SILENCE, &mut told).await {
                    Ok(Ok(fetched)) => return Some(fetched),
                    // Attack: a client that hangs up as it fetches; the key waits again, and the pass goes on.
                    Ok(Err(_)) => break,
                    Err(_) => tell(self.state.lock().waiting.len()),
                }
            }
        }
        None
    }

    /// Adds a key. Bound: a pass works on so many keys at a time.
    fn add(&self, key: WaitingKey) {
        self.state.lock().waiting.push_back(key);
        self.added.notify_one();
    }

    /// Takes the next key; `None`: there is none for a moment.
    pub(crate) async fn take(&self) -> Option<WaitingKey> {
        match self.try_take() {
            Some(key) => Some(key),
            None => {
                let _ = timeout(FETCH_WAIT, self.added.notified()).await;
                self.try_take()
            }
        }
    }

    fn try_take(&self) -> Option<WaitingKey> {
        let mut state = self.state.lock();
        // A pass that was given up waits for nothing.
        std::iter::from_fn(|| state.waiting.pop_front()).find(|key| !key.fetched.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::address::BucketAddress;

    use super::*;
    use crate::rules::VectorClock;

    fn key(name: &'static str) -> (WaitingKey, oneshot::Receiver<Result<HandedOut, String>>) {
        let bucket = BucketAddress::new("default".into(), "b".into()).unwrap();
        let (fetched, told) = oneshot::channel();
        (WaitingKey { address: Address::new(bucket, name.into()).unwrap(), actor: ActorId(1), fetched }, told)
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_a_pass_that_was_given_up_are_not_handed_out() {
        let queue = Arc::new(BackQueue::default());
        let open = queue.open();
        let (first, given_up) = key("a");
        let (second, _told) = key("b");
        queue.add(first);
        queue.add(second);
        drop(given_up);
        assert_eq!(queue.take().await.unwrap().address.key, "b");
        assert!(queue.take().await.is_none());
        queue.add(key("c").0);
        drop(open);
        assert!(!queue.is_open() && queue.take().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_hung_up_as_it_fetched_once_ended_the_pass() {
        let queue = Arc::new(BackQueue::default());
        let open = queue.open();
        let address = key("a").0.address;
        let pass = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.fetched(&address, ActorId(1), |_| {}).await }
        });
        drop(queue.take().await.unwrap());
        let again = queue.take().await.unwrap();
        let handed_out = HandedOut { clock: VectorClock::default(), is_deletion: false };
        again.fetched.send(Ok(handed_out.clone())).unwrap();
        assert_eq!(pass.await.unwrap(), Some(Ok(handed_out)));
        drop(open);
        assert_eq!(queue.fetched(&key("b").0.address, ActorId(1), |_| {}).await, None);
    }
}
