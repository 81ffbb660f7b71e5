//! The samples of the last two minutes, taken by one task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use larder_admission::{MemoryBudget, MemoryUsage};
use larder_core::StoredBytes;
use larder_core::metrics::TrafficSummary;
use larder_s3::Objects;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;

/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(1);
/// Samples that are kept: two minutes.
pub(super) const SAMPLES_KEPT: usize = 120;
/// Most streams of events at a time.
const STREAMS_MAX: usize = 16;

/// The state of a gateway at one moment.
#[derive(Debug, Clone)]
pub(crate) struct LiveSample {
    /// Monotonic time.
    pub(crate) at: Duration,
    /// The requests.
    pub(crate) traffic: TrafficSummary,
    /// The memory that clients hold.
    pub(crate) memory: MemoryUsage,
    /// The disk: mount point, size in KiB, percent used.
    pub(crate) disk: Option<(String, u64, u8)>,
    /// The bytes of the engine's tables and journals.
    pub(crate) stored: Option<StoredBytes>,
}

/// The samples, and the clients that wait for the next one.
pub(crate) struct LiveFeed {
    history: Mutex<VecDeque<Arc<LiveSample>>>,
    taken: watch::Sender<u64>,
    pub(crate) streams: Arc<Semaphore>,
}

impl Default for LiveFeed {
    fn default() -> Self {
        let (taken, _) = watch::channel(0);
        Self { history: Mutex::default(), taken, streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }
}

impl LiveFeed {
    /// Takes a sample every second, for ever.
    pub(crate) async fn sample(self: Arc<Self>, objects: Arc<Objects>, memory: MemoryBudget) {
        let mut ticks = tokio::time::interval(PERIOD);
        // A late tick must not be followed by several at once: rates are per sample.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.take(&objects, &memory);
        }
    }

    fn take(&self, objects: &Objects, memory: &MemoryBudget) {
        let gateway = &objects.gateway;
        let sample = LiveSample {
            at: gateway.context().monotonic(),
            traffic: gateway.traffic(),
            memory: memory.usage(),
            disk: gateway.engine().disk(),
            stored: gateway.engine().stored(),
        };
        let mut history = self.history.lock();
        if history.len() >= SAMPLES_KEPT {
            history.pop_front();
        }
        history.push_back(Arc::new(sample));
        drop(history);
        self.taken.send_modify(|taken| *taken += 1);
    }

    /// The samples, oldest first.
    pub(crate) fn history(&self) -> Vec<Arc<LiveSample>> {
        self.history.lock().iter().cloned().collect()
    }

    /// Changes with each sample.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.taken.subscribe()
    }
}
