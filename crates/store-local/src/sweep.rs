//! The slow pass that removes expired rows. Readers never see them; this gives back their room.

use bytes::Bytes;
use larder_store::{Purpose, Result};

use crate::queue::{Done, Work};
use crate::read;
use crate::spaces::Space;
use crate::store::LocalStore;

/// Entries looked at in one step, so that no request to the committer grows large.
const STEP_ENTRIES_MAX: usize = 1000;

/// Where the pass stands.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    space: Space,
    from: Bytes,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { space: Space::Wide, from: first() }
    }
}

/// What a step of the pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Entries looked at.
    pub seen: usize,
    /// Expired rows removed.
    pub removed: usize,
    /// Whether a pass through all tables is complete; the next step begins a new one.
    pub complete: bool,
}

impl LocalStore {
    /// Looks at the next entries, at most `limit` and at most a thousand, and removes the rows that expired. Wide rows first,
    /// then packed entries. A row is removed by the committer, and only if it is still expired then.
    ///
    /// # Errors
    /// As [`larder_store::Store::apply`]; the same entries come up again in the next pass.
    pub async fn sweep_expired(&self, limit: usize) -> Result<Swept> {
        let cursor = self.cursor().lock().clone();
        let limit = limit.clamp(1, STEP_ENTRIES_MAX);
        let found = read::expired(self.spaces(), cursor.space, &cursor.from, limit, self.clock().now())?;
        let complete = found.next.is_none() && cursor.space == Space::Packed;
        *self.cursor().lock() = match (found.next, cursor.space) {
            (Some(from), space) => Cursor { space, from },
            (None, Space::Wide) => Cursor { space: Space::Packed, from: first() },
            (None, Space::Packed | Space::Bulk) => Cursor::default(),
        };
        let mut swept = Swept { seen: found.seen, removed: 0, complete };
        if !found.keys.is_empty() {
            let bytes = found.keys.iter().map(|(_, key)| key.len()).sum();
            let done = self.queue().run(Work::Purge(found.keys), bytes, false);
            if let Done::Purged(removed) = self.admitted(Purpose::Reclaim, bytes, done).await? {
                swept.removed = removed;
            }
        }
        Ok(swept)
    }
}

/// The first key behind the row of the last group.
fn first() -> Bytes {
    Bytes::from_static(&[1])
}
