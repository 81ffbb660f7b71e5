//! Parts that a tree no longer needs: memtables that were flushed, and versions with the tables that a compaction replaced.
//!
//! lsm-tree keeps them in the tree's earlier versions, and drops those under the lock that every read of the tree takes. To free
//! the rows of a memtable, or to remove tables of 64 MiB, takes tens of milliseconds. So the tree holds the parts, too, and
//! drops them without a lock once no version has them.

use std::any::Any;

use crate::threads::Mutex;

/// Most parts that are held. A further one lets go of the oldest, which lsm-tree then drops at its own time.
const PARTS_MAX: usize = 64;

/// A memtable or a version.
pub(crate) struct RetiredPart {
    /// Its memory; tables have theirs in the caches.
    memory: u64,
    _part: Box<dyn Any + Send>,
}

/// The parts of a tree, oldest first.
#[derive(Default)]
pub(crate) struct RetiredParts(Mutex<Vec<RetiredPart>>);

impl RetiredParts {
    /// Holds a part of so many bytes of memory.
    pub(crate) fn hold(&self, part: impl Any + Send, memory: u64) {
        self.put_back(vec![RetiredPart { memory, _part: Box::new(part) }]);
    }

    /// The memory of all parts, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.0.lock().iter().map(|part| part.memory).sum()
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// All parts.
    pub(crate) fn take(&self) -> Vec<RetiredPart> {
        std::mem::take(&mut self.0.lock())
    }

    /// Holds parts that were taken, longer.
    pub(crate) fn put_back(&self, parts: Vec<RetiredPart>) {
        let mut held = self.0.lock();
        held.extend(parts);
        let over = held.len().saturating_sub(PARTS_MAX);
        let oldest: Vec<_> = held.drain(..over).collect();
        // They are dropped without the lock.
        drop(held);
        drop(oldest);
    }
}
