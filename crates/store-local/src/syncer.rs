//! The syncer: the thread that syncs the journal and answers durable writes, while the committer stages the next group.
//!
//! ```text
//! committer   stage 1 · append 1 · stage 2 ············· append 2 · stage 3 ···
//! syncer                           sync 1 ─────> reply 1 · sync 2 ─────> reply 2
//! ```
//! At most one group waits for its sync. The committer appends the next group of durable writes when that sync is done: until
//! then later writes join the open group, so groups grow with the load.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_store::Result;

use crate::journal::JournalSync;
use crate::queue::{CommitterHealth, PanicGuard, PendingReply};
use crate::threads::{Builder, Condvar, JoinHandle, Mutex};

/// The syncs of the journal. A failed one ends writing, and none follows it.
#[derive(Clone)]
pub(crate) struct GuardedSyncs {
    syncs: Arc<dyn JournalSync>,
    health: Arc<CommitterHealth>,
}

impl GuardedSyncs {
    /// The syncs of a journal, and who learns of their failure.
    pub(crate) fn new(syncs: Arc<dyn JournalSync>, health: Arc<CommitterHealth>) -> Self {
        Self { syncs, health }
    }

    /// Syncs the groups appended since the last sync, if there are any.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(crate) fn sync(&self) -> Result<()> {
        // All groups were synced before writing ended in order.
        if self.health.is_closed() {
            return Ok(());
        }
        // Linux may report success for the next sync after a failed one, so a poisoned journal is never synced again.
        if self.health.is_poisoned() {
            return Err(self.health.error());
        }
        // Race: after a failed sync memory holds writes that no disk has; later writes would build on them [invariant 38].
        let synced = self.syncs.sync().map_err(|failed| self.health.fail("syncing the journal failed", &failed))?;
        self.health.syncs.fetch_add(u64::from(synced), Ordering::Relaxed);
        Ok(())
    }
}

/// The syncer's thread, seen from the committer.
pub(crate) struct GroupSyncer {
    shared: Arc<SyncerShared>,
    thread: Option<JoinHandle<()>>,
}

struct SyncerShared {
    syncs: GuardedSyncs,
    state: Mutex<SyncerState>,
    changed: Condvar,
}

#[derive(Default)]
struct SyncerState {
    /// Replies of the group that waits for a sync.
    group: Option<Vec<PendingReply>>,
    /// Whether a sync runs.
    syncing: bool,
    /// Whether the committer hands over no more groups.
    closing: bool,
    /// Whether the thread has ended.
    ended: bool,
}

impl GroupSyncer {
    /// Starts the thread. It ends when this value is dropped.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn start(syncs: GuardedSyncs) -> std::io::Result<Self> {
        let shared = Arc::new(SyncerShared { syncs, state: Mutex::default(), changed: Condvar::new() });
        let runner = shared.clone();
        let thread = Builder::new().name("larder-syncer".into()).spawn(move || runner.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether a group still waits for its sync.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.state.lock().is_busy()
    }

    /// Waits until no group waits for its sync.
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| state.is_busy());
    }

    /// Hands over the replies of a group that the journal holds; they go out after a sync. Waits for the group before.
    pub(crate) fn hand_over(&self, replies: Vec<PendingReply>) {
        self.wait_until_idle();
        let mut state = self.shared.state.lock();
        // A thread that panicked sends no replies: dropped ones tell their callers that writing has ended.
        if !state.ended {
            state.group = Some(replies);
            drop(state);
            self.shared.changed.notify_all();
        }
    }

    /// Syncs on the caller's thread, for the end of writing.
    pub(crate) fn sync_now(&self) {
        self.wait_until_idle();
        // A failure is in `health`; no caller waits any more.
        let _ = self.shared.syncs.sync();
    }
}

impl Drop for GroupSyncer {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_all();
        // A panic of the thread is in `health`.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl SyncerState {
    fn is_busy(&self) -> bool {
        !self.ended && (self.syncing || self.group.is_some())
    }
}

impl SyncerShared {
    fn run(&self) {
        let _end = SyncerEnd(self);
        // Dropped first: a committer that waits for a sync must find the store poisoned when the wait ends.
        let _guard = PanicGuard::new(self.syncs.health.clone(), "the syncer panicked");
        while let Some(mut replies) = self.next_group() {
            // Race: a panic drops the replies, which tells their callers of the end. The store must be poisoned before, or a
            // caller's next write succeeds.
            let _before_replies = PanicGuard::new(self.syncs.health.clone(), "the syncer panicked");
            let synced = self.syncs.sync();
            self.state.lock().syncing = false;
            // Before the replies: the committer appends the next group while the callers of this one wake up.
            self.changed.notify_all();
            // A durable reply after a failed sync would promise a write that a power cut can take back.
            if let Err(error) = synced {
                replies.iter_mut().for_each(|reply| reply.refuse(&error));
            }
            replies.into_iter().for_each(PendingReply::send);
        }
    }

    /// The next group, once there is one; `None` at the end.
    fn next_group(&self) -> Option<Vec<PendingReply>> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.group.is_none() && !state.closing);
        let group = state.group.take();
        state.syncing = group.is_some();
        group
    }
}

/// Marks the end of the thread, also by a panic: a committer that waits for a sync goes on.
struct SyncerEnd<'a>(&'a SyncerShared);

impl Drop for SyncerEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ended = true;
        state.group = None;
        drop(state);
        self.0.changed.notify_all();
    }
}
