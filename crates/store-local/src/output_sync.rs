//! Syncs the tables that a flush or a compaction writes, in small parts while it writes them.
//!
//! lsm-tree syncs a table once, when it is whole, and a compaction does that for its last table under the lock of the tree's
//! versions: every read and every write of the tree waits until the disk has 64 MiB. A table whose bytes are on disk by then
//! costs that lock a moment, and syncs of the journal find no long queue at the disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};

use crate::io_errors::sync_dir;

/// A part of a table that is synced at a time: some ten milliseconds of a slow disk.
const PART_BYTES: u64 = 4 * 1024 * 1024;

/// The files that one flush or compaction writes.
pub(crate) struct OutputSync {
    tables: PathBuf,
    /// Files with lower numbers are older than it.
    first: u64,
    /// The size of each file at its last sync.
    synced: BTreeMap<u64, u64>,
    unsynced: u64,
}

impl OutputSync {
    /// For a flush or compaction that begins now in the tree of this directory.
    pub(crate) fn new(tree: &Path) -> Self {
        let tables = tree.join("tables");
        let first = numbered(&tables).unwrap_or_default().last().map_or(0, |last| last + 1);
        Self { tables, first, synced: BTreeMap::new(), unsynced: 0 }
    }

    /// Counts bytes that were written, and syncs a part once it is full.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.unsynced += bytes as u64;
        if self.unsynced >= PART_BYTES {
            self.sync();
        }
    }

    /// Syncs everything that was written so far. A failure is left to the sync of the whole table, which fails, too: the
    /// kernel reports a failed write to each file that was open then.
    pub(crate) fn sync(&mut self) {
        self.unsynced = 0;
        let _ = self.try_sync();
    }

    fn try_sync(&mut self) -> io::Result<()> {
        // Others may write tables of this tree at the same time: those are synced along.
        for number in numbered(&self.tables)?.into_iter().filter(|number| *number >= self.first) {
            let path = self.tables.join(number.to_string());
            let bytes = fs::metadata(&path)?.len();
            if self.synced.insert(number, bytes) != Some(bytes) {
                fs::File::open(&path)?.sync_data()?;
            }
        }
        Ok(())
    }
}

/// The numbers of the files in a directory, ascending.
pub(crate) fn numbered(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The bytes of the files in a folder, as far as they can be counted.
pub(crate) fn bytes_in(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// The most bytes that the compactions of a tree may write, each; without a bound but while one is set.
#[derive(Debug, Clone)]
pub(crate) struct OutputBound(Arc<AtomicU64>);

impl Default for OutputBound {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl OutputBound {
    /// Runs a compaction that may write so many bytes. Another one that begins meanwhile has the bound, too.
    ///
    /// # Errors
    /// [`is_over_bound`]: it would have written more; its files are left behind. Else as `compact`.
    pub(crate) fn within<T>(&self, bytes: u64, compact: impl FnOnce() -> lsm_tree::Result<T>) -> lsm_tree::Result<T> {
        self.0.store(bytes, Ordering::Relaxed);
        let done = compact();
        self.0.store(u64::MAX, Ordering::Relaxed);
        done
    }
}

/// Whether a compaction ended because of its bound.
pub(crate) fn is_over_bound(error: &lsm_tree::Error) -> bool {
    matches!(error, lsm_tree::Error::Io(error) if error.kind() == io::ErrorKind::FileTooLarge)
}

/// Makes the filter of each compaction, which keeps every entry, syncs the output, and ends at the bound.
pub(crate) struct CompactionSync {
    /// The tree's directory.
    pub(crate) tree: PathBuf,
    /// The bound of the tree.
    pub(crate) bound: OutputBound,
    /// The folder of large values: lsm-tree syncs the files that it creates there, not their names.
    pub(crate) blobs: Option<PathBuf>,
}

impl RefUnwindSafe for CompactionSync {}

impl Factory for CompactionSync {
    fn name(&self) -> &str {
        "synced output"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let left = self.bound.0.load(Ordering::Relaxed);
        Box::new(CompactionOutput { output: OutputSync::new(&self.tree), left, blobs: self.blobs.clone() })
    }
}

/// The output of one compaction.
struct CompactionOutput {
    output: OutputSync,
    /// Bytes that it may still write.
    left: u64,
    blobs: Option<PathBuf>,
}

impl CompactionFilter for CompactionOutput {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        // A separated value would be read from its file for this.
        let value = if item.is_indirection() { 0 } else { item.value()?.len() };
        let bytes = item.key().len() + value;
        self.left = self.left.checked_sub(bytes as u64).ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.output.wrote(bytes);
        Ok(Verdict::Keep)
    }

    /// Runs at the end of a compaction, before it takes the lock of the versions.
    fn finish(mut self: Box<Self>) {
        self.output.sync();
        // This hook cannot fail the compaction, so a failed sync is only logged.
        if let Some(path) = &self.blobs
            && let Err(error) = sync_dir(path)
        {
            let path = path.display();
            tracing::error!(%error, %path, "sync of large values failed; a power cut may lose those of the last compaction");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_before_are_left_alone_and_unchanged_ones_are_synced_once() {
        let dir = tempfile::tempdir().unwrap();
        let tables = dir.path().join("tables");
        fs::create_dir(&tables).unwrap();
        fs::write(tables.join("7"), "old").unwrap();
        fs::write(tables.join("x"), "none").unwrap();
        let mut output = OutputSync::new(dir.path());
        fs::write(tables.join("10"), "new").unwrap();
        output.wrote(10);
        assert!(output.synced.is_empty(), "a part is not full");
        output.wrote(PART_BYTES as usize);
        assert_eq!(output.synced, BTreeMap::from([(10, 3)]));
        fs::write(tables.join("10"), "new and more").unwrap();
        fs::write(tables.join("11"), "newer").unwrap();
        output.sync();
        assert_eq!(output.synced, BTreeMap::from([(10, 12), (11, 5)]));
    }
}
