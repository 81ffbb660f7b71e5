//! The journal of an inspected directory: its damage and its entries.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use bytes::Bytes;

use super::InspectionTally;
use super::address::VersionOrigin;
use crate::journal::{self, JournalHeader, ManifestJournal};
use crate::manifest::EngineManifest;
use crate::tree_id::{PerTree, TreeId};

/// The journal files of the directory.
pub(super) struct SourceJournal {
    files: Vec<ManifestJournal>,
    /// The last group that must exist.
    last: u64,
    is_damaged: bool,
}

/// The newest version of each key in the journal, by tree.
pub(super) struct JournalEntries {
    entries: PerTree<BTreeMap<Bytes, JournalEntry>>,
    /// The sequence number from which every group is whole.
    whole_from: u64,
}

/// One version of a key; `None`: removed.
pub(super) struct JournalEntry {
    pub(super) seqno: u64,
    pub(super) value: Option<Bytes>,
}

impl SourceJournal {
    /// Scans the files that the manifest names; without a manifest, the existing ones.
    ///
    /// # Errors
    /// Any I/O error.
    pub(super) fn survey(
        dir: &Path,
        manifest: Option<&EngineManifest>,
        synced: u64,
        tally: &mut InspectionTally<'_>,
    ) -> io::Result<Self> {
        let folder = dir.join("journal");
        let Some(manifest) = manifest else {
            let files = found(&folder)?;
            return Ok(Self { files, last: synced, is_damaged: true });
        };
        let mut files = manifest.journals.clone();
        let scan = journal::scan(&folder, &files, synced)?;
        files.extend(scan.unnamed);
        for file in &files {
            tally.count_file();
            tally.count_bytes(fs::metadata(journal::path(&folder, file.header.number)).map_or(0, |file| file.len()));
        }
        for line in &scan.damage {
            let path = files.iter().map(|file| journal::path(&folder, file.header.number));
            let path = path.into_iter().find(|path| line.starts_with(&path.display().to_string()));
            let what = path.as_ref().and_then(|path| line.strip_prefix(&path.display().to_string())).unwrap_or(line);
            let what = format!("{}; their keys are not known", what.trim_start_matches([':', ' ']));
            tally.damage(path.as_deref().unwrap_or(&folder), what, Vec::new());
        }
        let sealed = files.iter().filter_map(|file| Some(file.sealed?.group)).max().unwrap_or(0);
        Ok(Self { files, last: sealed.max(synced), is_damaged: !scan.damage.is_empty() })
    }

    /// Reads the entries of all whole frames. `persisted` is the greatest sequence number in each tree's tables.
    ///
    /// # Errors
    /// Any I/O error.
    pub(super) fn entries(&self, dir: &Path, persisted: PerTree<Option<u64>>) -> io::Result<JournalEntries> {
        let mut whole_from = 0;
        let mut last = None;
        let mut groups = Vec::new();
        for file in &self.files {
            journal::replay(&dir.join("journal"), file, self.is_damaged, |frame| {
                let writes = frame.writes().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
                // A gap: versions before it may have newer ones in the lost groups.
                if last.is_some_and(|last| frame.group != last + 1) {
                    whole_from = frame.seqno;
                }
                last = Some(frame.group);
                groups.push((frame.seqno, writes));
                Ok::<_, io::Error>(())
            })?;
        }
        // The end of the journal is lost: a later version of any key may have been in it.
        if self.is_damaged && last.unwrap_or(0) < self.last {
            whole_from = u64::MAX;
        }
        let mut entries = JournalEntries { entries: Default::default(), whole_from };
        for (seqno, writes) in groups {
            for (tree_id, key, value) in writes {
                // A lost group may have removed a version that precedes the gap. If it was flushed, the table has the newer
                // state.
                let is_in_table = persisted[tree_id as usize].is_some_and(|persisted| seqno <= persisted);
                if seqno >= whole_from || !is_in_table {
                    entries.put(tree_id, key, JournalEntry { seqno, value });
                }
            }
        }
        Ok(entries)
    }
}

impl JournalEntries {
    fn put(&mut self, tree_id: TreeId, key: Bytes, entry: JournalEntry) {
        let entries = &mut self.entries[tree_id as usize];
        if entries.get(&key).is_none_or(|known| known.seqno <= entry.seqno) {
            entries.insert(key, entry);
        }
    }

    /// Entries of one tree, sorted by key, with their origins.
    pub(super) fn in_tree(&self, tree_id: TreeId) -> impl Iterator<Item = (&Bytes, &JournalEntry, VersionOrigin)> {
        let origin = |entry: &JournalEntry| VersionOrigin::Journal { is_last: entry.seqno >= self.whole_from };
        self.entries[tree_id as usize].iter().map(move |(key, entry)| (key, entry, origin(entry)))
    }
}

/// The existing journal files, sorted by number, as a manifest would name them.
fn found(folder: &Path) -> io::Result<Vec<ManifestJournal>> {
    let header = |number| JournalHeader { number, first: 1, chain: 0 };
    let numbers = journal::numbers(folder)?.into_iter();
    Ok(numbers.map(|number| ManifestJournal { header: header(number), sealed: None }).collect())
}
