//! The sweep of expired rows: a slow pass that frees their space. Readers never see them.

use bytes::Bytes;
use larder_store::{Purpose, Result};
use tokio::time::Instant;

use crate::queue::{CommitReply, WriteCommand};
use crate::read;
use crate::store::{LocalStore, UNTIMED_WITHIN};
use crate::tree_id::TreeId;

/// Most entries read in one step; bounds the request to the committer.
const STEP_ENTRIES_MAX: usize = 1000;

/// The position of the sweep.
#[derive(Debug, Clone)]
pub(crate) struct SweepCursor {
    tree_id: TreeId,
    from: Bytes,
}

impl Default for SweepCursor {
    fn default() -> Self {
        Self { tree_id: TreeId::Wide, from: first() }
    }
}

/// The result of one step of the sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepStep {
    /// Entries read.
    pub seen: usize,
    /// Expired rows removed.
    pub removed: usize,
    /// Whether a pass over all tables is complete; the next step begins a new one.
    pub complete: bool,
}

impl LocalStore {
    /// Reads the next entries, at most `limit` and at most a thousand, and removes their expired rows: wide rows first, then
    /// packed entries. The committer removes a row only if it is still expired by then.
    ///
    /// # Errors
    /// As [`larder_store::Store::apply`]; the next pass reads the same entries again.
    pub async fn sweep_expired(&self, limit: usize) -> Result<SweepStep> {
        let cursor = self.cursor().lock().clone();
        let limit = limit.clamp(1, STEP_ENTRIES_MAX);
        let expired = read::find_expired(self.trees(), cursor.tree_id, &cursor.from, limit, self.clock().now())?;
        let complete = expired.next.is_none() && cursor.tree_id == TreeId::Packed;
        // The cursor moves before the purge: a failing purge must not stop the sweep at one place.
        *self.cursor().lock() = match (expired.next, cursor.tree_id) {
            (Some(from), tree_id) => SweepCursor { tree_id, from },
            (None, TreeId::Wide) => SweepCursor { tree_id: TreeId::Packed, from: first() },
            (None, TreeId::Packed | TreeId::Bulk | TreeId::Mirror) => SweepCursor::default(),
        };
        let mut swept = SweepStep { seen: expired.seen, removed: 0, complete };
        if !expired.keys.is_empty() {
            let bytes = expired.keys.iter().map(|(_, key)| key.len()).sum();
            // Buffered: the next pass repeats a purge that a power cut takes back.
            let deadline = Instant::now() + UNTIMED_WITHIN;
            let done = self.queue().submit_until(deadline, WriteCommand::Purge(expired.keys), bytes, false);
            if let CommitReply::Purged(removed) = self.run_admitted(Purpose::Reclaim, bytes, deadline, done).await? {
                swept.removed = removed;
            }
        }
        Ok(swept)
    }
}

/// The first key of the first table.
fn first() -> Bytes {
    Bytes::from_static(&[1])
}
