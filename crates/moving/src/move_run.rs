//! One run of the job of a move: the parts that its steps share, and what it notes for its operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_core::Result;
use larder_kv::Gateway;
use larder_rows::address::Address;
use larder_rows::{MoveOrder, Timestamp};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::move_store::{KeyList, MoveStore};
use crate::progress::{MoveCount, MovePhase, MoveProgress, SweepProgress};
use crate::rules::SourceAddress;
use crate::source::Source;
use crate::source_http::SourceHttp;

/// How often the progress is written.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Most keys of a list; more are counted alone.
const LISTED_MAX: usize = 200;
/// Most bytes of a name in a list.
const SHOWN_BYTES_MAX: usize = 200;
/// Most notes.
const NOTES_MAX: usize = 200;

/// Why a step of a move ended early: it is tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MoveStopped(pub(crate) String);

impl From<larder_core::Error> for MoveStopped {
    fn from(error: larder_core::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<crate::source::SourceError> for MoveStopped {
    fn from(error: crate::source::SourceError) -> Self {
        Self(error.to_string())
    }
}

/// A run of the job.
pub(crate) struct MoveRun {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) store: MoveStore,
    pub(crate) source: Source,
    pub(crate) order: MoveOrder,
    state: Mutex<RunState>,
}

struct RunState {
    progress: MoveProgress,
    /// Requests before this run.
    requests_before: u64,
    asides: NotedKeys,
    differences: NotedKeys,
}

/// Keys with what is wrong with them.
#[derive(Debug, Default)]
struct NotedKeys {
    lines: BTreeMap<String, String>,
    /// How many there are, also those beyond the list.
    count: u64,
    is_changed: bool,
}

impl NotedKeys {
    fn from_lines(lines: Vec<String>) -> Self {
        let split = |line: String| match line.split_once(": ") {
            Some((key, why)) => (key.to_owned(), why.to_owned()),
            None => (line, String::new()),
        };
        let lines: BTreeMap<_, _> = lines.into_iter().map(split).collect();
        Self { count: lines.len() as u64, lines, is_changed: false }
    }

    fn add(&mut self, key: String, why: String) {
        self.is_changed = true;
        if self.lines.len() >= LISTED_MAX && !self.lines.contains_key(&key) {
            self.count += 1;
            return;
        }
        if self.lines.insert(key, why).is_none() {
            self.count += 1;
        }
    }

    fn remove(&mut self, key: &str) {
        if self.lines.remove(key).is_some() {
            self.count = self.count.saturating_sub(1);
            self.is_changed = true;
        }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.iter().map(|(key, why)| format!("{key}: {why}")).collect()
    }
}

impl MoveRun {
    /// A run that goes on where the last one was.
    pub(crate) async fn load(store: &MoveStore, http: Arc<dyn SourceHttp>, order: MoveOrder) -> Result<Arc<Self>> {
        let gateway = Arc::clone(&store.gateway);
        let now = gateway.context().now();
        let progress = store.progress(&order.id).await?;
        let progress = progress.unwrap_or_else(|| MoveProgress::new(order.id.clone(), now));
        // An order is checked before it is written, so its address parses.
        let address = SourceAddress::parse(&order.source).map_err(larder_core::Error::Internal)?;
        let state = RunState {
            requests_before: progress.counts.get(MoveCount::Requests),
            asides: NotedKeys::from_lines(store.key_list(KeyList::Asides).await?),
            differences: NotedKeys::from_lines(store.key_list(KeyList::Differences).await?),
            progress,
        };
        let source = Source::new(http, address, order.rate);
        Ok(Arc::new(Self { gateway, store: store.clone(), source, order, state: Mutex::new(state) }))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.gateway.context().now()
    }

    pub(crate) fn phase(&self) -> MovePhase {
        self.state.lock().progress.phase
    }

    /// Whether the wish of the order was carried out.
    pub(crate) fn is_handled(&self) -> bool {
        self.state.lock().progress.handled >= self.order.number
    }

    /// Changes the progress; it is written within a second.
    pub(crate) fn note<T>(&self, change: impl FnOnce(&mut MoveProgress) -> T) -> T {
        change(&mut self.state.lock().progress)
    }

    /// Counts, and notes that the move got on.
    pub(crate) fn count(&self, count: MoveCount, more: u64) {
        let now = self.now();
        self.note(|progress| {
            progress.counts.add(count, more);
            progress.progressed = now;
        });
    }

    /// Begins a phase.
    pub(crate) async fn enter(&self, phase: MovePhase) -> Result<()> {
        let now = self.now();
        self.note(|progress| {
            progress.phase = phase;
            progress.progressed = now;
            progress.sweep = SweepProgress { began: now, ..SweepProgress::default() };
        });
        tracing::info!(phase = phase.name(), source = self.order.source, "move from another store");
        self.save().await
    }

    /// Adds what the operator has to know, once.
    pub(crate) fn tell(&self, note: String) {
        self.note(|progress| {
            if progress.notes.len() < NOTES_MAX && !progress.notes.contains(&note) {
                progress.notes.push(note);
            }
        });
    }

    /// Notes a key that could not be copied.
    pub(crate) fn set_aside(&self, address: &Address, why: String) {
        let mut state = self.state.lock();
        state.asides.add(shown(address), why);
        state.progress.asides = state.asides.count;
    }

    /// Forgets that a key could not be copied.
    pub(crate) fn forget_aside(&self, address: &Address) {
        let mut state = self.state.lock();
        if !state.asides.lines.is_empty() {
            state.asides.remove(&shown(address));
            state.progress.asides = state.asides.count;
        }
    }

    /// A pass over all keys finds those that are set aside again.
    pub(crate) fn forget_unlisted_asides(&self) {
        let mut state = self.state.lock();
        state.asides.count = state.asides.lines.len() as u64;
        state.progress.asides = state.asides.count;
    }

    /// Notes a key that differs; with `None` forgets all.
    pub(crate) fn note_difference(&self, found: Option<(&Address, String)>) {
        let mut state = self.state.lock();
        match found {
            Some((address, why)) => state.differences.add(shown(address), why),
            None => state.differences = NotedKeys { is_changed: true, ..NotedKeys::default() },
        }
    }

    /// Writes the progress each second, without an end.
    pub(crate) async fn keep_saving(&self) {
        let (mut keys, mut at) = (self.keys(), Instant::now());
        let mut rate = 0.0_f64;
        loop {
            sleep(SAVE_INTERVAL).await;
            let (now_keys, now) = (self.keys(), Instant::now());
            let lately = (now_keys - keys) as f64 / (now - at).as_secs_f64().max(0.001);
            // About the last ten seconds.
            rate = if rate == 0.0 { lately } else { rate * 0.9 + lately * 0.1 };
            (keys, at) = (now_keys, now);
            self.note(|progress| progress.rate = rate.round() as u64);
            if let Err(error) = self.save().await {
                tracing::debug!(%error, "progress of the move not written");
            }
        }
    }

    /// Writes the progress, and the lists that changed.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn save(&self) -> Result<()> {
        let (progress, lists) = {
            let mut state = self.state.lock();
            let requests = state.requests_before + self.source.requests();
            let noted = state.progress.counts.get(MoveCount::Requests);
            state.progress.counts.add(MoveCount::Requests, requests.saturating_sub(noted));
            let mut lists = Vec::new();
            if std::mem::take(&mut state.asides.is_changed) {
                lists.push((KeyList::Asides, state.asides.lines()));
            }
            if std::mem::take(&mut state.differences.is_changed) {
                lists.push((KeyList::Differences, state.differences.lines()));
            }
            (state.progress.clone(), lists)
        };
        for (list, lines) in lists {
            self.store.write_key_list(list, &lines).await?;
        }
        self.store.write_progress(&progress).await
    }

    fn keys(&self) -> u64 {
        self.state.lock().progress.counts.get(MoveCount::Keys)
    }
}

/// An address on one line; long names are cut.
pub(crate) fn shown(address: &Address) -> String {
    let name = |name: &[u8]| match name.get(..SHOWN_BYTES_MAX) {
        Some(first) => format!("{}…", first.escape_ascii()),
        None => name.escape_ascii().to_string(),
    };
    let bucket = &address.bucket;
    format!("/types/{}/buckets/{}/keys/{}", name(&bucket.bucket_type), name(&bucket.bucket), name(&address.key))
}
