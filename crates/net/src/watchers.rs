//! The events that a connection waits for besides its client: the end of the server, and its own timers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior};

use crate::arriving_body::MinRate;

/// Futures beside a connection. Each is polled when it was woken and not with every request: polling the end of the server and
/// two timers costs as much as a lookup.
pub struct ConnectionWatchers<'a, T> {
    futures: FuturesUnordered<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
}

impl<'a, T> ConnectionWatchers<'a, T> {
    /// No futures.
    #[must_use]
    pub fn new() -> Self {
        Self { futures: FuturesUnordered::new() }
    }

    /// Adds a future.
    pub fn add(&mut self, future: impl Future<Output = T> + Send + 'a) {
        self.futures.push(Box::pin(future));
    }

    /// The result of a future that has ended; each comes once. Without futures it never comes.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        match self.futures.poll_next_unpin(context) {
            Poll::Ready(Some(ended)) => Poll::Ready(ended),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Waits for a future to end, as [`Self::poll`].
    pub async fn next(&mut self) -> T {
        std::future::poll_fn(|context| self.poll(context)).await
    }
}

impl<T> Default for ConnectionWatchers<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// How often the check for slow readers runs.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Returns when a client takes its responses below the least rate for too long. `activity` tells whether bytes wait for the
/// client, and how many went out.
pub(crate) async fn wait_for_slow_reader(activity: impl Fn() -> (bool, u64)) {
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since: Option<(MinRate, u64)> = None;
    loop {
        ticks.tick().await;
        let (is_blocked, sent) = activity();
        if !is_blocked {
            since = None;
            continue;
        }
        let (min_rate, before) = since.get_or_insert_with(|| (MinRate::begin(), sent));
        min_rate.count(sent.saturating_sub(*before));
        *before = sent;
        // Bound: a client that reads almost nothing would hold the memory of its response for ever.
        if Instant::now() > min_rate.deadline() {
            tracing::debug!("response too slow: the client reads below the least rate, so the connection is closed");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;

    #[tokio::test(start_paused = true)]
    async fn each_watcher_ends_once_even_if_nobody_waited_when_it_was_woken() {
        let (send, receive) = oneshot::channel();
        let mut watchers = ConnectionWatchers::new();
        watchers.add(async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            "timer"
        });
        watchers.add(async { receive.await.unwrap_or("dropped") });
        assert!(futures_util::poll!(std::pin::pin!(watchers.next())).is_pending());
        send.send("end").unwrap();
        tokio::task::yield_now().await;
        assert_eq!(watchers.next().await, "end");
        assert_eq!(watchers.next().await, "timer");
        let silent = tokio::time::timeout(Duration::from_secs(60), watchers.next()).await;
        assert!(silent.is_err(), "there are no more");
    }
}
