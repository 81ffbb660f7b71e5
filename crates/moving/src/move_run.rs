//! One run of the job of a move: the parts that its steps share, and what it notes for its operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_core::Result;
use larder_kv::{Gateway, ImportComparison};
use larder_rows::{MoveOrder, Timestamp};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::move_samples;
use crate::move_store::{KeyList, MoveStore};
use crate::progress::{MoveCount, MovePhase, MoveProgress, MoveVerification, SweepProgress};

/// How often the progress is written.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Most keys of a list; more are counted alone.
const LISTED_MAX: usize = 200;
/// Most bytes of a name in a list.
const SHOWN_BYTES_MAX: usize = 200;
/// Most characters of a note, or of what is wrong with a key: a source may have put its own words into it.
const NOTE_CHARS_MAX: usize = 1000;
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

/// The other side of a move, and what it needs here.
pub(crate) trait MoveSource: Send + Sync + 'static {
    /// Requests so far.
    fn requests(&self) -> u64;
}

/// The steps of a move from one kind of source.
#[async_trait]
pub(crate) trait MoveSteps: Send + Sync {
    /// What moves.
    type Scope: Send + Sync;

    /// Reaches the source; returns what moves, and tells what does not.
    ///
    /// # Errors
    /// The source does not answer, or lacks what its operator named.
    async fn check(&self) -> std::result::Result<Self::Scope, MoveStopped>;

    /// Makes here what keys need before they come.
    ///
    /// # Errors
    /// The source or the store does not answer, or something is refused here.
    async fn prepare(&self, scope: &Self::Scope) -> std::result::Result<(), MoveStopped>;

    /// Follows the source beside the passes, where it tells its changes. It has no end.
    async fn follow_beside(self: Arc<Self>) {
        std::future::pending().await
    }

    /// Waits until the next pass of the phase `follow` is due.
    async fn await_pass(&self) {}

    /// Ends at this store what the move needed here, when its order is to finish or to cancel. It may be done again.
    ///
    /// # Errors
    /// The store does not answer.
    async fn close(&self) -> std::result::Result<(), MoveStopped> {
        Ok(())
    }

    /// Passes over all keys; returns what a comparison found.
    ///
    /// # Errors
    /// The source or the store does not answer. The pass begins again then; what was copied is not copied again.
    async fn pass(
        self: Arc<Self>,
        scope: &Self::Scope,
        kind: SweepKind,
    ) -> std::result::Result<MoveVerification, MoveStopped>;
}

impl From<crate::source_calls::SourceError> for MoveStopped {
    fn from(error: crate::source_calls::SourceError) -> Self {
        Self(error.to_string())
    }
}

/// What a pass over keys does with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepKind {
    /// Copies those that were not copied.
    Seed,
    /// Copies those that changed.
    Follow,
    /// Reads and compares all.
    Verify,
}

/// What a pass did with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeyOutcome {
    /// Whether the source had changed since, and that was brought here.
    pub(crate) changed: bool,
    /// The comparison of a verification.
    pub(crate) comparison: Option<ImportComparison>,
    /// Whether the source showed an older state, so that the key has to be read once more.
    pub(crate) is_doubted: bool,
}

/// Why a key was not copied.
pub(crate) enum KeyFailure {
    /// It never will be as it is.
    Aside(String),
    /// The source does not answer for it.
    Unanswered(String),
    /// It may be later.
    Stopped(MoveStopped),
}

/// A run of the job.
pub(crate) struct MoveRun<S> {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) store: MoveStore,
    pub(crate) source: S,
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

impl<S: MoveSource> MoveRun<S> {
    /// A run that goes on where the last one was.
    pub(crate) async fn load(store: &MoveStore, source: S, order: MoveOrder) -> Result<Arc<Self>> {
        let gateway = Arc::clone(&store.gateway);
        let now = gateway.context().now();
        let progress = store.progress(&order.id).await?;
        let progress = progress.unwrap_or_else(|| MoveProgress::new(order.id.clone(), now));
        let state = RunState {
            requests_before: progress.counts.get(MoveCount::Requests),
            asides: NotedKeys::from_lines(store.key_list(KeyList::Asides).await?),
            differences: NotedKeys::from_lines(store.key_list(KeyList::Differences).await?),
            progress,
        };
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
        let note = cut(note);
        self.note(|progress| {
            if progress.notes.len() < NOTES_MAX && !progress.notes.contains(&note) {
                progress.notes.push(note);
            }
        });
    }

    /// Removes a note that is true no more.
    pub(crate) fn untell(&self, note: &str) {
        self.note(|progress| progress.notes.retain(|other| other != note));
    }

    /// Adds what the operator has to know, in place of notes that begin so.
    pub(crate) fn tell_instead(&self, prefix: &str, note: String) {
        self.note(|progress| progress.notes.retain(|other| !other.starts_with(prefix)));
        self.tell(note);
    }

    /// Notes a key that could not be copied, by its name on one line.
    pub(crate) fn set_aside(&self, key: String, why: String) {
        let mut state = self.state.lock();
        state.asides.add(key, cut(why));
        state.progress.asides = state.asides.count;
    }

    /// Forgets that a key could not be copied.
    pub(crate) fn forget_aside(&self, key: impl FnOnce() -> String) {
        let mut state = self.state.lock();
        if !state.asides.lines.is_empty() {
            state.asides.remove(&key());
            state.progress.asides = state.asides.count;
        }
    }

    /// A pass over all keys finds those that are set aside again.
    fn forget_unlisted_asides(&self) {
        let mut state = self.state.lock();
        state.asides.count = state.asides.lines.len() as u64;
        state.progress.asides = state.asides.count;
    }

    /// Notes a key that differs, by its name on one line.
    pub(crate) fn note_difference(&self, key: String) {
        self.state.lock().differences.add(key, "its values are not those of the source".to_owned());
    }

    /// Begins a pass.
    pub(crate) fn begin_pass(&self, kind: SweepKind) -> MoveVerification {
        let began = self.now();
        let mut state = self.state.lock();
        state.progress.sweep = SweepProgress { began, ..SweepProgress::default() };
        if kind == SweepKind::Verify {
            state.differences = NotedKeys { is_changed: true, ..NotedKeys::default() };
        }
        MoveVerification { began, ..MoveVerification::default() }
    }

    /// Begins a bucket of a pass.
    pub(crate) fn begin_bucket(&self, name: String) {
        self.note(|progress| {
            let sweep = &mut progress.sweep;
            (sweep.bucket, sweep.keys, sweep.keys_known) = (name, 0, 0);
        });
    }

    /// Counts what a pass did with a key.
    pub(crate) fn end_key(&self, outcome: KeyOutcome, kind: SweepKind, found: &mut MoveVerification) {
        self.count(MoveCount::Keys, 1);
        self.note(|progress| {
            progress.sweep.keys += 1;
            progress.sweep.changes += u64::from(outcome.changed);
        });
        found.changed_there += u64::from(outcome.changed && kind == SweepKind::Verify);
        let Some(comparison) = outcome.comparison else { return };
        found.keys += 1;
        match comparison {
            ImportComparison::Equal => found.equal += 1,
            ImportComparison::ChangedHere => found.changed_here += 1,
            ImportComparison::ChangedThere => found.changed_there += 1,
            ImportComparison::Differs => found.differs += 1,
        }
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&self, found: &mut MoveVerification) {
        self.forget_unlisted_asides();
        found.ended = self.now();
        self.note(|progress| {
            progress.sweeps += 1;
            progress.complete_until = found.began;
            progress.sweep.bucket.clear();
        });
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
        self.gateway.context().metrics.show_move(move_samples::samples(&progress, self.now()));
        for (list, lines) in lists {
            self.store.write_key_list(list, &lines).await?;
        }
        self.store.write_progress(&progress).await
    }

    fn keys(&self) -> u64 {
        self.state.lock().progress.counts.get(MoveCount::Keys)
    }
}

/// A text of a note; a long one is cut.
fn cut(text: String) -> String {
    match text.char_indices().nth(NOTE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A name on one line; a long one is cut.
pub(crate) fn shown_name(name: &[u8]) -> String {
    match name.get(..SHOWN_BYTES_MAX) {
        Some(first) => format!("{}…", first.escape_ascii()),
        None => name.escape_ascii().to_string(),
    }
}
