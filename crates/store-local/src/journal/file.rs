//! The active journal file, open for appending, and the file `synced` beside it: the number of the last synced group.
//!
//! ```text
//! synced   version 02 · group u64 · CRC-32 of both; numbers big endian
//! ```
//! The committer overwrites `synced` after each sync of the journal and does not sync it: after a power cut it may be older than
//! the journal, never newer. A start uses it to tell a lost end of the journal from a torn one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use larder_model::codec::{DecodeError, FieldDecoder, FieldEncoder};

use crate::io_errors::{if_there, is_full, is_transient};
use crate::journal::files::{JournalEnd, JournalFiles, ManifestJournal, path};
use crate::journal::frame::{FrameBuffer, JournalHeader};
use crate::journal::{Journal, JournalError, WriteGroup};

/// Most bytes that the frame buffer keeps between groups.
const BUFFER_BYTES_KEPT: usize = 4 * 1024 * 1024;
/// Bytes by which the file is preallocated at a time: a sync that stores no new length is a quarter faster (ext4).
const PREALLOCATE_BYTES: u64 = 4 * 1024 * 1024;
/// Most slices of one `pwritev` call (`IOV_MAX`).
const PIECES_MAX: usize = 1024;
/// Version of the file `synced`.
const SYNCED_VERSION: u8 = 2;

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
                // A new file of this number may stay behind; no manifest names it, and the next try truncates it.
                // Bound: without a distance every append to a full disk would sync and try to rotate again.
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
        // Crash: the new file is synced before the manifest names it; a start removes a file without a name.
        let file = self.files.create(&header)?;
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
        if self.end.length >= self.rotate_at {
            self.rotate()?;
        }
        // `synced` goes into the frame: a later scan then knows that all groups up to it were on disk [invariant 39].
        let checksum = self.frame.encode(group, self.end.checksum, self.synced.group());
        let length = self.end.length + self.frame.length() as u64;
        let written =
            self.extend_file(length).and_then(|()| write_pieces(&self.file, self.frame.pieces(), self.end.length));
        self.frame.shrink(BUFFER_BYTES_KEPT);
        written.map_err(|error| self.undo_append(&error))?;
        // Only after the write: the next frame starts at the old end when this one failed.
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

/// The bytes of the file `synced`.
pub(crate) fn encode_synced(group: u64) -> Bytes {
    let mut bytes = FieldEncoder::with_capacity(13);
    bytes.u8(SYNCED_VERSION);
    bytes.u64(group);
    let check = crc32fast::hash(bytes.written());
    bytes.raw(&check.to_be_bytes());
    bytes.finish()
}

/// Decodes the bytes of the file `synced`.
///
/// # Errors
/// [`DecodeError`] for another version, length or checksum.
pub(crate) fn decode_synced(bytes: Bytes) -> Result<u64, DecodeError> {
    let checked = bytes.slice(..bytes.len().saturating_sub(4));
    let mut rest = FieldDecoder::new(bytes);
    rest.version(SYNCED_VERSION)?;
    let group = rest.u64()?;
    if rest.raw(4)? != crc32fast::hash(&checked).to_be_bytes()[..] {
        return Err(DecodeError::Invalid("checksum"));
    }
    rest.finish()?;
    Ok(group)
}

/// The file `synced`, open.
pub(crate) struct SyncedFile {
    path: PathBuf,
    file: File,
    group: u64,
}

impl SyncedFile {
    /// Reads the file of a data directory; `None` when it is missing, or damaged, which is logged.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<u64>> {
        let Some(bytes) = if_there(fs::read(synced_path(dir)))? else { return Ok(None) };
        // A damaged file counts as missing: the numbers in the frames still show most losses.
        let group = decode_synced(bytes.into()).inspect_err(|error| {
            tracing::warn!(%error, "read of the last synced group failed; this start checks less of the journal");
        });
        Ok(group.ok())
    }

    /// Opens or creates the file; `group` is known to be on disk.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn open(dir: &Path, group: u64) -> io::Result<Self> {
        let path = synced_path(dir);
        // Not truncated: a crash before the next sync must not lose the number.
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        Ok(Self { path, file, group })
    }

    /// The last group known to be on disk.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// Notes that a group is on disk. A failed write is only logged: it weakens a check, no data depends on it.
    pub(crate) fn write(&mut self, group: u64) {
        self.group = group;
        if let Err(error) = self.file.write_all_at(&encode_synced(group), 0) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "write of the last synced group failed; the next start checks less of the journal");
        }
    }
}

fn synced_path(dir: &Path) -> PathBuf {
    dir.join("synced")
}
