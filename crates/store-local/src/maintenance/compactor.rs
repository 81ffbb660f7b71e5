//! The compactors: each merges one tree at a time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::output_sync::is_over_bound;

use super::{EngineTree, L0_RUNS_STALL, Maintenance, POLL_EVERY, RETRY_FIRST, RETRY_LAST, RetryPause, is_damage};

/// How long a tree with a damaged block is not compacted.
const RETRY_DAMAGED: Duration = Duration::from_secs(600);

/// The work of a compactor on a tree.
enum CompactorWork {
    /// Merges that keep reads fast.
    Compact,
    /// Merges that give dead bytes back.
    Reclaim,
}

impl Maintenance {
    /// Compacts trees and reclaims their space until the threads are to end.
    pub(super) fn run_compactor(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            let due = self.next_compaction();
            let Some((tree, work)) = due else {
                let mut state = self.state.lock();
                if !self.stopped.load(Ordering::Acquire) {
                    self.changed.wait_for(&mut state, POLL_EVERY);
                }
                continue;
            };
            match work {
                CompactorWork::Compact => self.compact(tree),
                CompactorWork::Reclaim => self.reclaim(tree),
            }
            self.changed.notify_all();
        }
    }

    /// A tree that owes space or that a flush changed, and whose pause is over.
    fn next_compaction(&self) -> Option<(&EngineTree, CompactorWork)> {
        let mut state = self.state.lock();
        let now = self.ports.clock.monotonic();
        let is_free = |tree: &&EngineTree| {
            let at = tree.id as usize;
            // A compaction in a directory that needs a cleanup would write beside the files of a failed one.
            state.compaction_pauses[at].until <= now && !state.needs_cleanup[at] && !state.reclaims[at]
        };
        let free = || self.trees.all().iter().filter(is_free);
        // Work that keeps reads fast goes first: a merge that reclaims may take long.
        let (tree, work) = free()
            .find(|tree| state.compaction_due[tree.id as usize])
            .map(|tree| (tree, CompactorWork::Compact))
            .or_else(|| Some((free().find(|tree| state.reclaim_due[tree.id as usize])?, CompactorWork::Reclaim)))?;
        // Race: a flush during the work sets the mark again, so it is cleared before the work begins.
        match work {
            CompactorWork::Compact => state.compaction_due[tree.id as usize] = false,
            CompactorWork::Reclaim => state.reclaim_due[tree.id as usize] = false,
        }
        Some((tree, work))
    }

    /// Compacts until no compaction is due.
    fn compact(&self, tree: &EngineTree) {
        // On a short disk level 0 sinks in slices. A compaction would join them, so it waits until reads would be slow.
        if self.ports.space.is_short() && tree.l0_runs() < L0_RUNS_STALL / 2 {
            return;
        }
        loop {
            let before = tree.version();
            // The last quarter is for flushes and deletes.
            let room = self.ports.space.free() / 4 * 3;
            let done = tree.compact(room, self.trees.snapshots.watermark());
            self.note_levels(tree);
            match done {
                // On a disk that gets full: steps need less room.
                Err(error) if is_over_bound(&error) => return self.reclaim_instead(tree),
                // An unchanged version shows that no compaction was due.
                Ok(()) if tree.version() == before || self.stopped.load(Ordering::Acquire) => break,
                Ok(()) => {}
                Err(error) => return self.handle_compaction_error(tree, &error),
            }
        }
        self.state.lock().compaction_pauses[tree.id as usize] = RetryPause::default();
        self.update_merge_need();
    }

    /// Lets a compaction that has no room be done in steps.
    fn reclaim_instead(&self, tree: &EngineTree) {
        let mut state = self.state.lock();
        state.needs_cleanup[tree.id as usize] = true;
        state.reclaim_due[tree.id as usize] = true;
        drop(state);
        // A failure is logged, and the directory takes no merge until a later try succeeds.
        let _ = self.clean_up(tree);
    }

    /// Puts the next try off, and restores the directory of the tree.
    pub(crate) fn handle_compaction_error(&self, tree: &EngineTree, error: &lsm_tree::Error) {
        let at = tree.id as usize;
        let damaged = is_damage(error);
        let mut state = self.state.lock();
        let last = state.compaction_pauses[at].last;
        let pause = if damaged { RETRY_DAMAGED } else { (last * 2).clamp(RETRY_FIRST, RETRY_LAST) };
        state.compaction_pauses[at] = RetryPause { until: self.ports.clock.monotonic() + pause, last: pause };
        state.needs_cleanup[at] = true;
        // Due again: the retry after the pause needs no further flush.
        state.compaction_due[at] = true;
        self.set_merge_need(&state);
        drop(state);
        let dir = tree.dir.display();
        if damaged {
            tree.note_damage();
            tracing::error!(
                "compaction of {dir} failed: a table in it is damaged ({error}); reads and writes go on, see `larder check`"
            );
        } else if last.is_zero() {
            tracing::warn!("compaction of {dir} failed: {error}; it is retried");
        }
        let _ = self.clean_up(tree);
    }
}
