//! How large the engine's files and buffers grow: less on small disks, so that what is not in tables yet fits beside them.

const MIB: u64 = 1024 * 1024;
/// One memtable is this part of the disk, within its bounds.
const DISK_PER_MEMTABLE: u64 = 64;
/// Largest memtable: larger ones make longer restarts, and no faster writes.
const MEMTABLE_BYTES_MAX: u64 = 64 * MIB;

/// Sizes of memtables, tables and journal files, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSizes {
    /// A tree's memtable is rotated at this size, and a journal file sealed.
    pub memtable: u64,
    /// A compaction begins a new table at this size.
    pub table: u64,
    /// Above this total of journal files the oldest memtable is flushed before it is full: a restart reads no more.
    pub journals_max: u64,
    /// Writers wait while the memtables hold more.
    pub memtables_max: u64,
}

impl EngineSizes {
    /// The sizes for a disk of so many bytes.
    #[must_use]
    pub fn for_disk(bytes: u64) -> Self {
        Self::of_memtable((bytes / DISK_PER_MEMTABLE).clamp(MIB, MEMTABLE_BYTES_MAX))
    }

    /// The sizes around a memtable of so many bytes.
    #[must_use]
    pub fn of_memtable(bytes: u64) -> Self {
        Self { memtable: bytes, table: bytes, journals_max: 4 * bytes, memtables_max: 5 * bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_disks_get_small_memtables() {
        let memtable = |disk: u64| EngineSizes::for_disk(disk * MIB).memtable / MIB;
        assert_eq!([16, 64, 700, 4096, 1_000_000].map(memtable), [1, 1, 10, 64, 64]);
    }
}
