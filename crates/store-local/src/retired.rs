//! Parts that a tree no longer needs: memtables that were flushed, and versions with the tables that a compaction replaced.
//!
//! lsm-tree keeps them in the tree's earlier versions, and drops those under the lock that every read of the tree takes. To free
//! the rows of a memtable, or to remove tables of 64 MiB, takes tens of milliseconds. So the tree holds the parts, too, and
//! drops them without a lock once no version has them.

use std::any::Any;
use std::sync::Arc;

use lsm_tree::Memtable;

use crate::threads::Mutex;

/// Most parts that are held. A further one lets go of the oldest, which lsm-tree then drops at its own time.
const PARTS_MAX: usize = 64;

/// A part that a tree needs no longer.
pub(crate) enum RetiredPart {
    /// A memtable, and its memory in bytes.
    Memtable(Arc<Memtable>, u64),
    /// A version. Its tables have their memory in the caches.
    Version {
        /// Held, not read: lsm-tree does not export its type.
        _version: Box<dyn Any + Send>,
    },
}

/// The parts of a tree, oldest first.
#[derive(Default)]
pub(crate) struct RetiredParts(Mutex<Vec<RetiredPart>>);

impl RetiredPart {
    fn memory(&self) -> u64 {
        match self {
            Self::Memtable(_, bytes) => *bytes,
            Self::Version { .. } => 0,
        }
    }

    /// Whether a version or a reader may have it still.
    fn is_used(&self) -> bool {
        match self {
            Self::Memtable(entries, _) => Arc::strong_count(entries) > 1,
            Self::Version { .. } => true,
        }
    }
}

impl RetiredParts {
    /// Holds a part.
    pub(crate) fn hold(&self, part: RetiredPart) {
        self.put_back(vec![part]);
    }

    /// The memory of all parts, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.0.lock().iter().map(RetiredPart::memory).sum()
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// All parts.
    pub(crate) fn take(&self) -> Vec<RetiredPart> {
        std::mem::take(&mut self.0.lock())
    }

    /// Holds parts that were taken and that are still used, longer; drops the others.
    pub(crate) fn put_back_used(&self, mut parts: Vec<RetiredPart>) {
        // Under readers without a pause some version always stays: the memory of the others must not wait for it.
        let unused: Vec<_> = parts.extract_if(.., |part| !part.is_used()).collect();
        self.put_back(parts);
        drop(unused);
    }

    /// Holds parts that were taken, longer.
    fn put_back(&self, parts: Vec<RetiredPart>) {
        let mut held = self.0.lock();
        held.extend(parts);
        let over = held.len().saturating_sub(PARTS_MAX);
        let oldest: Vec<_> = held.drain(..over).collect();
        // They are dropped without the lock.
        drop(held);
        drop(oldest);
    }
}
