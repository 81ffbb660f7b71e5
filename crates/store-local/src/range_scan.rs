//! The entries of a range as a snapshot sees them: of each key its newest visible version, from memtables and tables.
//!
//! A counter has a version in the memtable for each of its updates, and lsm-tree's own ranges pass over each. This scan passes
//! over a few, and then seeks:
//!
//! ```text
//! memtable   a:9  a:8  a:7 … a:1  b:4  b:2      a snapshot of 9 takes a:8, steps to a:7 … and seeks b
//! run        a:0            b:1   c:3           each source has its next entry at hand; the least key is the scan's
//! ```

use std::ops::Bound;
use std::sync::Arc;

use larder_store::ReadOrder;
use lsm_tree::{InternalValue, Memtable, Table, UserKey, UserValue};

use crate::large_values::{LargeValues, resolve};
use crate::memtable_scan::MemtableScan;

/// Keys and values of a scan.
pub(crate) type ScannedEntries = Box<dyn Iterator<Item = lsm_tree::Result<(UserKey, UserValue)>> + Send>;

/// Entries in the order of a scan, each below its sequence number.
type Entries = Box<dyn Iterator<Item = lsm_tree::Result<InternalValue>> + Send>;

/// The bounds of a scan.
#[derive(Debug, Clone)]
pub(crate) struct ScanBounds {
    /// The first key; not empty, as no key is.
    pub(crate) from: UserKey,
    /// The key before which it ends; `None`: it goes to the last.
    pub(crate) to: Option<UserKey>,
    /// The order of the keys.
    pub(crate) order: ReadOrder,
}

/// A range of entries that is read.
pub(crate) struct RangeScan {
    /// The sources, each with its next entry.
    sources: Vec<(InternalValue, Entries)>,
    order: ReadOrder,
    /// Holds the version, too: an open table knows the path of its file alone, and a compaction would remove it [invariant 131].
    large: LargeValues,
}

impl RangeScan {
    /// A scan of the entries below `seqno` in memtables and in runs of tables. An entry may be in both. `large` are the values beside
    /// them.
    ///
    /// # Errors
    /// Any error of lsm-tree.
    pub(crate) fn new(
        memtables: Vec<Arc<Memtable>>,
        runs: Vec<Vec<Table>>,
        bounds: &ScanBounds,
        seqno: u64,
        large: LargeValues,
    ) -> lsm_tree::Result<Self> {
        let memtables = memtables.into_iter().filter(|entries| !entries.is_empty());
        let memtables =
            memtables.map(|entries| -> Entries { Box::new(MemtableScan::new(entries, bounds.clone(), seqno).map(Ok)) });
        let entries = memtables.chain(runs.into_iter().map(|run| run_entries(run, bounds.clone(), seqno)));
        let mut sources = Vec::new();
        for mut entries in entries {
            if let Some(first) = entries.next().transpose()? {
                sources.push((first, entries));
            }
        }
        Ok(Self { sources, order: bounds.order, large })
    }

    /// The newest entry of the next key.
    fn next_newest(&mut self) -> lsm_tree::Result<Option<InternalValue>> {
        let keys = self.sources.iter().map(|(first, _)| &first.key.user_key);
        let next = match self.order {
            ReadOrder::Forward => keys.min(),
            ReadOrder::Reverse => keys.max(),
        };
        let Some(key) = next.cloned() else { return Ok(None) };
        let mut newest: Option<InternalValue> = None;
        let mut at = 0;
        while let Some((first, later)) = self.sources.get_mut(at) {
            if first.key.user_key != key {
                at += 1;
                continue;
            }
            let entry = match later.next().transpose()? {
                Some(next) => std::mem::replace(first, next),
                None => self.sources.swap_remove(at).0,
            };
            if newest.as_ref().is_none_or(|newest| newest.key.seqno < entry.key.seqno) {
                newest = Some(entry);
            }
        }
        Ok(newest)
    }
}

impl Iterator for RangeScan {
    type Item = lsm_tree::Result<(UserKey, UserValue)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_newest() {
                Ok(Some(entry)) if entry.key.is_tombstone() => {}
                // A value that is damaged ends no scan: the entries after it are whole.
                Ok(entry) => {
                    return entry.map(|entry| Ok((entry.key.user_key.clone(), resolve(&self.large.folder, &entry)?)));
                }
                Err(error) => {
                    // Later entries of the damaged source are missing, and with them versions that hide others.
                    self.sources.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The visible entries of the tables of a run, which do not overlap; a table is opened when the one before has ended.
fn run_entries(run: Vec<Table>, ScanBounds { from, to, order }: ScanBounds, seqno: u64) -> Entries {
    let range = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
    let is_visible =
        move |entry: &lsm_tree::Result<InternalValue>| entry.as_ref().map_or(true, |entry| entry.key.seqno < seqno);
    match order {
        ReadOrder::Forward => {
            Box::new(run.into_iter().flat_map(move |table| table.range(range.clone())).filter(is_visible))
        }
        ReadOrder::Reverse => {
            Box::new(run.into_iter().rev().flat_map(move |table| table.range(range.clone()).rev()).filter(is_visible))
        }
    }
}
