//! The active journal, open for appending, and the sealed ones beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{is_full, is_transient};
use crate::journal::frame::{FrameBuffer, HEADER_BYTES, JournalHeader};
use crate::journal::{Group, Journal, JournalError};
use crate::manifest::{Manifest, ManifestFile};
use crate::synced::SyncedFile;

/// A buffer for frames keeps at most so many bytes between groups.
const BUFFER_BYTES_KEPT: usize = 4 * 1024 * 1024;
/// The file is made longer by so many bytes at a time: a sync that need not store a new length is a quarter faster (ext4).
const AHEAD_BYTES: u64 = 4 * 1024 * 1024;
/// Pieces of one call at most (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// A journal file as the manifest describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManifestedJournal {
    /// What its header says.
    pub(crate) header: JournalHeader,
    /// Where it ends; `None` while it is appended to.
    pub(crate) sealed: Option<JournalEnd>,
}

/// Where the frames of a journal file end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    /// The last group; the one before the first when there is none.
    pub(crate) group: u64,
    /// Sequence number of the last group.
    pub(crate) seqno: u64,
    /// Checksum of the last frame.
    pub(crate) checksum: u64,
    /// Bytes of the file up to there.
    pub(crate) length: u64,
}

impl JournalEnd {
    /// The end of a file that has its header only.
    pub(crate) fn empty(header: &JournalHeader, seqno: u64) -> Self {
        Self { group: header.first.saturating_sub(1), seqno, checksum: header.chain, length: HEADER_BYTES as u64 }
    }
}

/// Path of a journal file.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.jnl"))
}

/// The files of the journal: what the committer and the maintenance threads share.
pub(crate) struct JournalFiles {
    dir: PathBuf,
    /// Held open: syncing the directory must not fail for want of a descriptor.
    handle: File,
    manifest: Arc<ManifestFile>,
    /// Kept beside the manifest: the committer asks after each group, and a change of the manifest waits for the disk.
    sealed_bytes: AtomicU64,
    active_bytes: AtomicU64,
}

impl JournalFiles {
    /// The files in `dir`, which is there.
    ///
    /// # Errors
    /// What the machine answers.
    pub(crate) fn new(dir: PathBuf, manifest: Arc<ManifestFile>) -> io::Result<Self> {
        let handle = File::open(&dir)?;
        let sealed_bytes = AtomicU64::new(manifest.read(sealed_bytes));
        Ok(Self { dir, handle, manifest, sealed_bytes, active_bytes: AtomicU64::new(0) })
    }

    /// Makes a file that has its header only, synced with its name.
    ///
    /// # Errors
    /// What the machine answers; the file is gone then.
    pub(crate) fn create(&self, header: &JournalHeader) -> io::Result<File> {
        let path = path(&self.dir, header.number);
        // A file of this number that the manifest does not name is what a cut rotation left.
        let made = OpenOptions::new().write(true).create(true).truncate(true).open(&path).and_then(|file| {
            file.write_all_at(&header.encode(), 0)?;
            file.sync_all()?;
            self.handle.sync_all()?;
            Ok(file)
        });
        made.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed_bytes.load(Ordering::Relaxed) + self.active_bytes.load(Ordering::Relaxed)
    }

    /// Changes the manifest.
    fn change(&self, change: impl FnOnce(&mut Manifest)) -> io::Result<()> {
        let changed = self.manifest.change(change);
        self.sealed_bytes.store(self.manifest.read(sealed_bytes), Ordering::Relaxed);
        changed
    }

    /// Removes the sealed files whose writes are all before `seqno`: they are in tables. The manifest forgets a file before
    /// it goes, so that a cut in between leaves a file without a name, never a name without a file. `trees` are the versions
    /// that those tables are in.
    ///
    /// # Errors
    /// What the machine answers; a file may stay until the next start.
    pub(crate) fn release(&self, seqno: u64, trees: [u64; 3]) -> io::Result<()> {
        let done = |journal: &ManifestedJournal| journal.sealed.is_some_and(|end| end.seqno < seqno);
        let released = self.manifest.read(|manifest| {
            let done = manifest.journals.iter().take_while(|journal| done(journal));
            done.map(|journal| journal.header.number).collect::<Vec<_>>()
        });
        let Some(last) = released.last() else { return Ok(()) };
        self.change(|manifest| {
            manifest.trees = trees;
            manifest.journals.retain(|journal| journal.header.number > *last);
        })?;
        released.iter().try_for_each(|number| remove(&path(&self.dir, *number)))
    }

    /// Removes files that the manifest does not name: what a cut rotation or release left.
    ///
    /// # Errors
    /// What the machine answers.
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

/// The active journal file, open.
pub(crate) struct JournalFile {
    files: Arc<JournalFiles>,
    file: File,
    header: JournalHeader,
    end: JournalEnd,
    /// The length at which it is sealed; more after a rotation that had to be put off.
    rotate_at: u64,
    rotate_bytes: u64,
    /// The length of the file: zeros behind the end.
    length: u64,
    synced: SyncedFile,
    frame: FrameBuffer,
}

impl JournalFile {
    /// Opens the active file for appending behind `end`; bytes behind that are a torn write and are cut off.
    ///
    /// # Errors
    /// What the machine answers.
    pub(crate) fn open(
        files: Arc<JournalFiles>,
        header: JournalHeader,
        end: JournalEnd,
        rotate_bytes: u64,
        synced: SyncedFile,
    ) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path(&files.dir, header.number))?;
        if file.metadata()?.len() > end.length {
            file.set_len(end.length)?;
        }
        files.active_bytes.store(end.length, Ordering::Relaxed);
        let (rotate_at, length, frame) = (rotate_bytes, end.length, FrameBuffer::default());
        Ok(Self { files, file, header, end, rotate_at, rotate_bytes, length, synced, frame })
    }

    /// Seals the file and goes on in a new one. A cause that passes puts it off: the file only grows longer.
    fn rotate(&mut self) -> Result<(), JournalError> {
        self.cut_zeros();
        // Everything before the seal is on disk before the first frame behind it can be.
        self.sync()?;
        let header =
            JournalHeader { number: self.header.number + 1, first: self.end.group + 1, chain: self.end.checksum };
        match self.begin(header) {
            Ok(file) => {
                let end = JournalEnd::empty(&header, self.end.seqno);
                (self.file, self.header, self.end, self.rotate_at) = (file, header, end, self.rotate_bytes);
                self.length = end.length;
                Ok(())
            }
            Err(error) if is_transient(&error) => {
                self.rotate_at = self.end.length + self.rotate_bytes / 8;
                tracing::warn!(%error, "rotating the journal failed: it is tried again later");
                Ok(())
            }
            Err(error) => Err(JournalError::Failed(format!("rotating the journal: {error}"))),
        }
    }

    fn begin(&self, header: JournalHeader) -> io::Result<File> {
        let file = self.files.create(&header)?;
        let end = self.end;
        self.files.change(|manifest| {
            if let Some(active) = manifest.journals.last_mut() {
                active.sealed = Some(end);
            }
            manifest.journals.push(ManifestedJournal { header, sealed: None });
        })?;
        Ok(file)
    }

    /// Makes the file as long as this at least.
    fn lengthen(&mut self, length: u64) -> io::Result<()> {
        if length > self.length {
            let ahead = length.next_multiple_of(AHEAD_BYTES);
            self.file.set_len(ahead)?;
            self.length = ahead;
        }
        Ok(())
    }

    /// Ends the file where its frames end. Where that fails zeros stay, which are no frame.
    fn cut_zeros(&mut self) {
        if self.length > self.end.length && self.file.set_len(self.end.length).is_ok() {
            self.length = self.end.length;
        }
    }

    /// Takes back what a failed write left behind the last whole frame.
    fn take_back(&mut self, error: &io::Error) -> JournalError {
        self.length = self.end.length;
        match self.file.set_len(self.end.length) {
            Ok(()) if is_full(error) => JournalError::Full,
            Ok(()) => JournalError::Failed(error.to_string()),
            Err(second) => JournalError::Failed(format!("{error}; then cutting the journal: {second}")),
        }
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        self.cut_zeros();
    }
}

impl Journal for JournalFile {
    fn append(&mut self, group: &Group) -> Result<(), JournalError> {
        if self.end.length >= self.rotate_at {
            self.rotate()?;
        }
        let checksum = self.frame.fill(group, self.end.checksum, self.synced.group());
        let length = self.end.length + self.frame.length() as u64;
        let written =
            self.lengthen(length).and_then(|()| write_pieces(&self.file, self.frame.pieces(), self.end.length));
        self.frame.shrink(BUFFER_BYTES_KEPT);
        written.map_err(|error| self.take_back(&error))?;
        self.end = JournalEnd { group: group.number, seqno: group.seqno, checksum, length };
        self.files.active_bytes.store(self.end.length, Ordering::Relaxed);
        Ok(())
    }

    /// `sync_data` is enough: it waits for the data and for the length of the file.
    fn sync(&mut self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(|error| JournalError::Failed(error.to_string()))?;
        self.synced.write(self.end.group);
        Ok(())
    }
}

/// Writes all pieces, one behind the other.
fn write_pieces<'a>(file: &File, pieces: impl Iterator<Item = &'a [u8]>, mut at: u64) -> io::Result<()> {
    let mut pieces = pieces.map(IoSlice::new).peekable();
    while pieces.peek().is_some() {
        let mut call: Vec<IoSlice<'_>> = pieces.by_ref().take(PIECES_MAX).collect();
        let mut left = &mut call[..];
        while !left.is_empty() {
            match rustix::io::pwritev(file, left, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    at += count as u64;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn sealed_bytes(manifest: &Manifest) -> u64 {
    manifest.journals.iter().filter_map(|journal| Some(journal.sealed?.length)).sum()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
