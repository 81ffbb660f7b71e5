//! The active journal file, open for appending.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::io_errors::is_full;
use crate::journal::files::{JournalEnd, JournalFiles, ManifestJournal, path};
use crate::journal::frame::{FrameBuffer, JournalHeader};
use crate::journal::sync::{ActiveFileSync, SyncedFile};
use crate::journal::{Journal, JournalError, JournalSync, WriteGroup};
use crate::manifest::ManifestError;

/// Most bytes that the frame buffer keeps between groups.
const BUFFER_BYTES_KEPT: usize = 4 * 1024 * 1024;
/// Bytes by which the file is preallocated at a time: a sync that stores no new length is a quarter faster (ext4).
const PREALLOCATE_BYTES: u64 = 4 * 1024 * 1024;
/// Most slices of one `pwritev` call (`IOV_MAX`).
const PIECES_MAX: usize = 1024;
/// The active journal file, open.
pub(crate) struct JournalFile {
    files: Arc<JournalFiles>,
    file: Arc<File>,
    header: JournalHeader,
    end: JournalEnd,
    /// The length at which the file is sealed; larger after a rotation that was put off.
    rotate_at: u64,
    rotate_bytes: u64,
    /// The preallocated length of the file: zeros follow the last frame.
    length: u64,
    sync: Arc<ActiveFileSync>,
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
        let file = Arc::new(file);
        let sync = Arc::new(ActiveFileSync::new(file.clone(), end.group, synced));
        let (rotate_at, length, frame) = (rotate_bytes, end.length, FrameBuffer::default());
        Ok(Self { files, file, header, end, rotate_at, rotate_bytes, length, sync, frame })
    }

    /// Seals the file and continues in a new one. An error that changed nothing puts the rotation off: the file grows longer.
    fn rotate(&mut self) -> Result<(), JournalError> {
        self.trim_preallocation();
        // The seal names the last frame: without this sync a power cut would leave a seal over missing frames.
        self.sync.sync()?;
        let header =
            JournalHeader { number: self.header.number + 1, first: self.end.group + 1, chain: self.end.checksum };
        match self.start_file(header) {
            Ok(file) => {
                let end = JournalEnd::empty(&header, self.end.seqno);
                let file = Arc::new(file);
                // The old file is on disk whole, so from here on a sync of the new one covers every group.
                self.sync.continue_in(file.clone());
                (self.file, self.header, self.end, self.rotate_at) = (file, header, end, self.rotate_bytes);
                self.length = end.length;
                Ok(())
            }
            Err(ManifestError::Kept(error)) => {
                // A new file of this number may stay behind; no manifest names it, and the next try truncates it.
                // Bound: without a distance every append to a full disk would sync and try to rotate again.
                self.rotate_at = self.end.length + self.rotate_bytes / 8;
                let file = self.header.number;
                tracing::error!(file, %error, "rotation of the journal failed; the file grows and the rotation is retried");
                Ok(())
            }
            Err(error @ ManifestError::InDoubt(_)) => {
                Err(JournalError::Failed(format!("rotating the journal, replacing the manifest: {error}")))
            }
        }
    }

    /// Creates the next file, then names it: the first frame goes to a file that the manifest knows.
    fn start_file(&self, header: JournalHeader) -> Result<File, ManifestError> {
        // Crash: the new file is synced before the manifest names it; a start removes a file without a name.
        let file = self.files.create(&header).map_err(ManifestError::Kept)?;
        // Crash: the seal precedes the first frame of the new file, so a short old file is a loss, not a torn end.
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
            // The zeros after the last frame decode as no frame, so a scan ends there.
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
            // On a full disk the cut removes the partial frame, and all earlier frames are whole.
            Ok(()) if is_full(error) => JournalError::Full,
            // After any other error the content is unknown, even where the cut succeeds [invariant 38].
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
        // Before the append: a frame never straddles two files, and the seal names the last whole one.
        if self.end.length >= self.rotate_at || self.files.is_asked_to_rotate() {
            self.rotate()?;
        }
        // `synced` goes into the frame: a later scan then knows that all groups up to it were on disk [invariant 39].
        let checksum = self.frame.encode(group, self.end.checksum, self.sync.synced_group());
        let length = self.end.length + self.frame.length() as u64;
        let written =
            self.extend_file(length).and_then(|()| write_pieces(&self.file, self.frame.pieces(), self.end.length));
        self.frame.shrink(BUFFER_BYTES_KEPT);
        written.map_err(|error| self.undo_append(&error))?;
        // Only after the write: the next frame starts at the old end when this one failed.
        self.end = JournalEnd { group: group.number, seqno: group.seqno, checksum, length };
        self.files.active_bytes.store(self.end.length, Ordering::Relaxed);
        // After the write: a sync must not count a group that is not in the file yet.
        self.sync.note_appended(group.number);
        Ok(())
    }

    fn syncs(&self) -> Arc<dyn JournalSync> {
        self.sync.clone()
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
                // Without this error a write of no bytes would repeat for ever.
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
