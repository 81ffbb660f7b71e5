//! The journal's files as the manifest names them: creates, releases and removes them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::io_errors::if_there;
use crate::journal::frame::{HEADER_BYTES, JournalHeader};
use crate::manifest::{EngineManifest, ManifestError, ManifestFile};
use crate::tree_id::PerTree;

/// A journal file as the manifest describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManifestJournal {
    /// The header that the file must have.
    pub(crate) header: JournalHeader,
    /// The end of a sealed file; `None` for the active one.
    pub(crate) sealed: Option<JournalEnd>,
}

/// The end of the frames in a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    /// The last group; without frames, the group before the file's first.
    pub(crate) group: u64,
    /// Sequence number of the last group.
    pub(crate) seqno: u64,
    /// Checksum of the last frame.
    pub(crate) checksum: u64,
    /// Bytes from the start of the file to the end of the last frame.
    pub(crate) length: u64,
}

impl JournalEnd {
    /// The end of a file that holds only its header.
    pub(crate) fn empty(header: &JournalHeader, seqno: u64) -> Self {
        Self { group: header.first.saturating_sub(1), seqno, checksum: header.chain, length: HEADER_BYTES as u64 }
    }
}

/// Path of a journal file.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.jnl"))
}

/// The numbers of the journal files in a folder, ascending; none if there is no folder.
///
/// # Errors
/// Any I/O error.
pub(crate) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let Some(entries) = if_there(fs::read_dir(dir))? else { return Ok(Vec::new()) };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The journal's files, shared by the committer and the maintenance threads.
pub(crate) struct JournalFiles {
    pub(crate) dir: PathBuf,
    /// Held open: syncing the directory must not fail for want of a descriptor.
    handle: File,
    manifest: Arc<ManifestFile>,
    /// A copy of a figure in the manifest: the committer reads it after each group and must not wait for a manifest write.
    sealed_bytes: AtomicU64,
    /// Bytes of the active file; its writer keeps it.
    pub(super) active_bytes: AtomicU64,
    /// Whether the active file is to be sealed before the next group.
    rotation_asked: AtomicBool,
}

impl JournalFiles {
    /// The files in `dir`, which exists.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn new(dir: PathBuf, manifest: Arc<ManifestFile>) -> io::Result<Self> {
        let handle = File::open(&dir)?;
        let sealed_bytes = AtomicU64::new(manifest.read(sealed_bytes));
        Ok(Self {
            dir,
            handle,
            manifest,
            sealed_bytes,
            active_bytes: AtomicU64::new(0),
            rotation_asked: AtomicBool::new(false),
        })
    }

    /// Creates a file with its header; file and name are synced.
    ///
    /// # Errors
    /// Any I/O error; the file is removed again.
    pub(crate) fn create(&self, header: &JournalHeader) -> io::Result<File> {
        let path = path(&self.dir, header.number);
        // A crash during an earlier rotation may have left a file of this number that the manifest does not name.
        let created = OpenOptions::new().write(true).create(true).truncate(true).open(&path).and_then(|file| {
            // The file before its name: a crash must not leave a name without a header.
            file.write_all_at(&header.encode(), 0)?;
            file.sync_all()?;
            self.handle.sync_all()?;
            Ok(file)
        });
        created.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed_bytes.load(Ordering::Relaxed) + self.active_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the active file.
    pub(crate) fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    /// Lets the writer of the active file seal it before the next group, so that it can be released.
    pub(crate) fn ask_to_rotate(&self) {
        self.rotation_asked.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked since the last call.
    pub(super) fn is_asked_to_rotate(&self) -> bool {
        self.rotation_asked.load(Ordering::Relaxed) && self.rotation_asked.swap(false, Ordering::Relaxed)
    }

    /// Changes the manifest.
    pub(super) fn change(&self, change: impl FnOnce(&mut EngineManifest)) -> Result<(), ManifestError> {
        let changed = self.manifest.change(change);
        self.sealed_bytes.store(self.manifest.read(sealed_bytes), Ordering::Relaxed);
        changed
    }

    /// Removes the sealed files whose writes are all before `seqno`, because they are in tables. `trees` are the versions that
    /// hold those tables.
    ///
    /// # Errors
    /// As [`ManifestFile::change`]; of a removal `Kept`: that file stays until the next start.
    pub(crate) fn release(&self, seqno: u64, trees: PerTree<u64>) -> Result<(), ManifestError> {
        let done = |journal: &ManifestJournal| journal.sealed.is_some_and(|end| end.seqno < seqno);
        let released = self.manifest.read(|manifest| {
            let done = manifest.journals.iter().take_while(|journal| done(journal));
            done.map(|journal| journal.header.number).collect::<Vec<_>>()
        });
        let Some(last) = released.last() else { return Ok(()) };
        // The manifest forgets the file first: a crash in between leaves a file without a name, never a name without a file.
        self.change(|manifest| {
            manifest.trees = trees;
            manifest.journals.retain(|journal| journal.header.number > *last);
        })?;
        released.iter().try_for_each(|number| remove(&path(&self.dir, *number))).map_err(ManifestError::Kept)
    }

    /// Keeps all files of the folder once more under names that no start reads or removes; returns these.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn set_aside(&self) -> io::Result<Vec<PathBuf>> {
        let mut kept = Vec::new();
        for number in numbers(&self.dir)? {
            let (journal, aside) = (path(&self.dir, number), path(&self.dir, number).with_extension("aside"));
            // An interrupted start may have left it.
            if_there(fs::remove_file(&aside))?;
            match fs::hard_link(&journal, &aside) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // Not every file system has links.
                Err(_) => fs::copy(&journal, &aside).and_then(|_| File::open(&aside)?.sync_all())?,
                Ok(()) => {}
            }
            kept.push(aside);
        }
        self.handle.sync_all()?;
        Ok(kept)
    }

    /// Removes files that the manifest does not name; an interrupted rotation or release leaves such files.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn remove_leftovers(&self) -> io::Result<()> {
        let named = self.manifest.read(|manifest| {
            manifest.journals.iter().map(|journal| path(&self.dir, journal.header.number)).collect::<Vec<_>>()
        });
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jnl") && !named.contains(&path) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

fn sealed_bytes(manifest: &EngineManifest) -> u64 {
    manifest.journals.iter().filter_map(|journal| Some(journal.sealed?.length)).sum()
}

fn remove(path: &Path) -> io::Result<()> {
    if_there(fs::remove_file(path)).map(|_| ())
}
