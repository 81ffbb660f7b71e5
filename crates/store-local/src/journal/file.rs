//! The active journal file, open for appending, and the sealed files beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::io_errors::{is_full, is_transient};
use crate::journal::frame::{FrameBuffer, HEADER_BYTES, JournalHeader};
use crate::journal::{Journal, JournalError, WriteGroup};
use crate::manifest::{EngineManifest, ManifestFile};
use crate::synced::SyncedFile;

/// Most bytes that the frame buffer keeps between groups.
const BUFFER_BYTES_KEPT: usize = 4 * 1024 * 1024;
/// Bytes by which the file is preallocated at a time: a sync that stores no new length is a quarter faster (ext4).
const PREALLOCATE_BYTES: u64 = 4 * 1024 * 1024;
/// Most slices of one `pwritev` call (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

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

/// The journal's files, shared by the committer and the maintenance threads.
pub(crate) struct JournalFiles {
    dir: PathBuf,
    /// Held open: syncing the directory must not fail for want of a descriptor.
    handle: File,
    manifest: Arc<ManifestFile>,
    /// A copy of a figure in the manifest: the committer reads it after each group and must not wait for a manifest write.
    sealed_bytes: AtomicU64,
    active_bytes: AtomicU64,
}

impl JournalFiles {
    /// The files in `dir`, which exists.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn new(dir: PathBuf, manifest: Arc<ManifestFile>) -> io::Result<Self> {
        let handle = File::open(&dir)?;
        let sealed_bytes = AtomicU64::new(manifest.read(sealed_bytes));
        Ok(Self { dir, handle, manifest, sealed_bytes, active_bytes: AtomicU64::new(0) })
    }

    /// Creates a file with its header; file and name are synced.
    ///
    /// # Errors
    /// Any I/O error; the file is removed again.
    pub(crate) fn create(&self, header: &JournalHeader) -> io::Result<File> {
        let path = path(&self.dir, header.number);
        // A crash during an earlier rotation may have left a file of this number that the manifest does not name.
        let made = OpenOptions::new().write(true).create(true).truncate(true).open(&path).and_then(|file| {
            // The file before its name: a crash must not leave a name without a header.
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
    fn change(&self, change: impl FnOnce(&mut EngineManifest)) -> io::Result<()> {
        let changed = self.manifest.change(change);
        self.sealed_bytes.store(self.manifest.read(sealed_bytes), Ordering::Relaxed);
        changed
    }

    /// Removes the sealed files whose writes are all before `seqno`, because they are in tables. `trees` are the versions that
    /// hold those tables.
    ///
    /// # Errors
    /// Any I/O error; a file may stay until the next start.
    pub(crate) fn release(&self, seqno: u64, trees: [u64; 3]) -> io::Result<()> {
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
        released.iter().try_for_each(|number| remove(&path(&self.dir, *number)))
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

/// The active journal file, open.
pub(crate) struct JournalFile {
    files: Arc<JournalFiles>,
    file: File,
    header: JournalHeader,
    end: JournalEnd,
    /// The length at which the file is sealed; larger after a rotation that was put off.
    rotate_at: u64,
    rotate_bytes: u64,
    /// The preallocated length of the file: zeros follow the last frame.
    length: u64,
    synced: SyncedFile,
    frame: FrameBuffer,
}

impl JournalFile {
    /// Opens the active file for appending at `end`; bytes after that are a torn write and are cut off.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn open(
        files: Arc<JournalFiles>,
        header: JournalHeader,
        end: JournalEnd,
        rotate_bytes: u64,
        synced: SyncedFile,
    ) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path(&files.dir, header.number))?;
        // Torn bytes that a shorter frame does not overwrite would stay between two frames, and look like damage.
        if file.metadata()?.len() > end.length {
            file.set_len(end.length)?;
        }
        files.active_bytes.store(end.length, Ordering::Relaxed);
        let (rotate_at, length, frame) = (rotate_bytes, end.length, FrameBuffer::default());
        Ok(Self { files, file, header, end, rotate_at, rotate_bytes, length, synced, frame })
    }

    /// Seals the file and continues in a new one. A transient error puts the rotation off: the file grows longer.
    fn rotate(&mut self) -> Result<(), JournalError> {
        self.trim_preallocation();
        // The seal names the last frame: without this sync a power cut would leave a seal over missing frames.
        self.sync()?;
        let header =
            JournalHeader { number: self.header.number + 1, first: self.end.group + 1, chain: self.end.checksum };
        match self.start_file(header) {
            Ok(file) => {
                let end = JournalEnd::empty(&header, self.end.seqno);
                (self.file, self.header, self.end, self.rotate_at) = (file, header, end, self.rotate_bytes);
                self.length = end.length;
                Ok(())
            }
            Err(error) if is_transient(&error) => {
                self.rotate_at = self.end.length + self.rotate_bytes / 8;
                let file = self.header.number;
                tracing::warn!(file, %error, "rotation of the journal failed; the file grows and the rotation is retried");
                Ok(())
            }
            Err(error) => Err(JournalError::Failed(format!("rotating the journal: {error}"))),
        }
    }

    /// Creates the next file, then names it: the first frame goes to a file that the manifest knows.
    fn start_file(&self, header: JournalHeader) -> io::Result<File> {
        let file = self.files.create(&header)?;
        let end = self.end;
        self.files.change(|manifest| {
            if let Some(active) = manifest.journals.last_mut() {
                active.sealed = Some(end);
            }
            manifest.journals.push(ManifestJournal { header, sealed: None });
        })?;
        Ok(file)
    }

    /// Preallocates the file to at least this length.
    fn extend_file(&mut self, length: u64) -> io::Result<()> {
        if length > self.length {
            let ahead = length.next_multiple_of(PREALLOCATE_BYTES);
            self.file.set_len(ahead)?;
            self.length = ahead;
        }
        Ok(())
    }

    /// Truncates the file at its last frame. If that fails zeros stay, which are no frame.
    fn trim_preallocation(&mut self) {
        if self.length > self.end.length && self.file.set_len(self.end.length).is_ok() {
            self.length = self.end.length;
        }
    }

    /// Truncates the bytes of a failed append after the last whole frame.
    fn undo_append(&mut self, error: &io::Error) -> JournalError {
        // A part of a frame that stays would be followed by whole frames, and a start would call it damage.
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
        self.trim_preallocation();
    }
}

impl Journal for JournalFile {
    fn append(&mut self, group: &WriteGroup) -> Result<(), JournalError> {
        if self.end.length >= self.rotate_at {
            self.rotate()?;
        }
        // `synced` goes into the frame: a later scan then knows that all groups up to it were on disk.
        let checksum = self.frame.encode(group, self.end.checksum, self.synced.group());
        let length = self.end.length + self.frame.length() as u64;
        let written =
            self.extend_file(length).and_then(|()| write_pieces(&self.file, self.frame.pieces(), self.end.length));
        self.frame.shrink(BUFFER_BYTES_KEPT);
        written.map_err(|error| self.undo_append(&error))?;
        self.end = JournalEnd { group: group.number, seqno: group.seqno, checksum, length };
        self.files.active_bytes.store(self.end.length, Ordering::Relaxed);
        Ok(())
    }

    /// `fdatasync` is enough: it covers the data and the length of the file.
    fn sync(&mut self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(|error| JournalError::Failed(error.to_string()))?;
        // After the sync: written before, a power cut would leave a number above the groups on disk and refuse the start.
        self.synced.write(self.end.group);
        Ok(())
    }
}

/// Writes all pieces, one after the other.
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

fn sealed_bytes(manifest: &EngineManifest) -> u64 {
    manifest.journals.iter().filter_map(|journal| Some(journal.sealed?.length)).sum()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
