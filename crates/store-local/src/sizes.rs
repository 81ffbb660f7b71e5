//! Sizes of the engine's files and buffers: smaller on small disks, so that journals and memtables fit beside the tables, and
//! with little memory.

use crate::tree_id::TreeId;

const MIB: u64 = 1024 * 1024;
/// A memtable is the disk's size divided by this, within its bounds.
const DISK_PER_MEMTABLE: u64 = 64;
/// Largest memtable: larger ones make longer restarts, and no faster writes.
const MEMTABLE_BYTES_MAX: u64 = 64 * MIB;
/// Memtables that are full or being filled at a time.
const MEMTABLES: u64 = 5;
/// A memtable of bulk rows has this part of the others' size: its bodies are what a server keeps in memory while clients load them, and
/// its table, of a few places, is cheap however small.
const BULK_PARTS: u64 = 4;
/// A smaller one would be full with a few bodies.
const BULK_MEMTABLE_MIN: u64 = 4 * MIB;
/// Memtables of bulk rows above which bodies wait.
const BULK_MEMTABLES: u64 = 3;

/// Sizes of memtables, tables and journal files, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSizes {
    /// Size at which a tree's memtable is rotated, but for bulk rows, and a journal file is sealed.
    pub memtable: u64,
    /// Size at which a compaction begins a new table.
    pub table: u64,
    /// Total of journal files above which the oldest memtable is flushed before it is full; it bounds the replay at a start.
    pub journals_max: u64,
    /// Writers wait while the memtables hold more.
    pub memtables_max: u64,
}

impl EngineSizes {
    /// The sizes for a disk of `disk` bytes and `memory` bytes for all memtables.
    #[must_use]
    pub fn for_disk(disk: u64, memory: u64) -> Self {
        let memtable = (disk / DISK_PER_MEMTABLE).min(memory / MEMTABLES);
        Self::from_memtable(memtable.clamp(MIB, MEMTABLE_BYTES_MAX))
    }

    /// The sizes around a memtable of `bytes`.
    #[must_use]
    pub fn from_memtable(bytes: u64) -> Self {
        Self { memtable: bytes, table: bytes, journals_max: 2 * bytes, memtables_max: MEMTABLES * bytes }
    }

    /// Size at which the memtable of a tree is rotated.
    pub(crate) fn memtable_for(&self, tree_id: TreeId) -> u64 {
        match tree_id {
            TreeId::Bulk => (self.memtable / BULK_PARTS).max(self.memtable.min(BULK_MEMTABLE_MIN)),
            TreeId::Packed | TreeId::Wide | TreeId::Mirror => self.memtable,
        }
    }

    /// Bodies wait while the memtables of bulk rows hold more; other writers do not.
    pub(crate) fn bulk_memtables_max(&self) -> u64 {
        BULK_MEMTABLES * self.memtable_for(TreeId::Bulk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_disks_and_little_memory_get_small_memtables() {
        let memtable = |disk: u64| EngineSizes::for_disk(disk * MIB, u64::MAX).memtable / MIB;
        assert_eq!([16, 64, 700, 4096, 1_000_000].map(memtable), [1, 1, 10, 64, 64]);
        let memtable = |memory: u64| EngineSizes::for_disk(1 << 40, memory * MIB).memtable / MIB;
        assert_eq!([1, 8, 32, 320, 1_000_000].map(memtable), [1, 1, 6, 64, 64]);
    }
}
