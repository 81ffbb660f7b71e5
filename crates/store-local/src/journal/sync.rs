//! Syncs of the active journal file, and the file `synced` beside it: the number of the last synced group.
//!
//! ```text
//! synced   version 02 · group u64 · CRC-32 of both; numbers big endian
//! ```
//! `synced` is overwritten after each sync of the journal and is not synced itself: after a power cut it may be older than the
//! journal, never newer. A start uses it to tell a lost end of the journal from a torn one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};

use crate::io_errors::if_there;
use crate::journal::{JournalError, JournalSync};
use crate::threads::Mutex;

/// Version of the file `synced`.
const SYNCED_VERSION: u8 = 2;

/// The syncs of the active file, for the committer, which seals files, and the syncer, which runs beside it.
pub(crate) struct ActiveFileSync {
    target: Mutex<SyncTarget>,
    /// Held during a sync: Linux reports a failed write to one sync only, so no second one may run before that is noted.
    state: Mutex<SyncState>,
    synced: SyncedFile,
}

/// The end of the journal: all earlier files are on disk.
struct SyncTarget {
    file: Arc<File>,
    /// The last group in the file.
    group: u64,
}

struct SyncState {
    /// The last group that a sync of this process covered.
    covered: u64,
    failed: bool,
}

impl ActiveFileSync {
    /// The syncs of a file that ends with `group`.
    pub(crate) fn new(file: Arc<File>, group: u64, synced: SyncedFile) -> Self {
        // Frames of a killed process may be in the page cache only: nothing counts as covered until the first sync.
        let state = SyncState { covered: 0, failed: false };
        Self { target: Mutex::new(SyncTarget { file, group }), state: Mutex::new(state), synced }
    }

    /// Notes that the file ends with this group now.
    pub(crate) fn note_appended(&self, group: u64) {
        self.target.lock().group = group;
    }

    /// Later groups go to this file. The caller has synced the one before.
    pub(crate) fn continue_in(&self, file: Arc<File>) {
        self.target.lock().file = file;
    }

    /// The last group known to be on disk.
    pub(crate) fn synced_group(&self) -> u64 {
        self.synced.group.load(Ordering::Acquire)
    }
}

impl JournalSync for ActiveFileSync {
    /// `fdatasync` is enough: it covers the data and the length of the file.
    fn sync(&self) -> Result<bool, JournalError> {
        let mut state = self.state.lock();
        if state.failed {
            return Err(JournalError::Failed("an earlier sync failed".to_owned()));
        }
        // Before the sync: a group appended while it runs is not covered by it.
        let (file, group) = {
            let target = self.target.lock();
            (target.file.clone(), target.group)
        };
        if group == state.covered {
            return Ok(false);
        }
        file.sync_data().map_err(|error| {
            state.failed = true;
            JournalError::Failed(error.to_string())
        })?;
        state.covered = group;
        // After the sync: written before, a power cut would leave a number above the groups on disk and refuse the start.
        self.synced.write(group);
        Ok(true)
    }
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
    /// The number in it.
    group: AtomicU64,
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
        Ok(Self { path, file, group: AtomicU64::new(group) })
    }

    /// Notes that a group is on disk. A failed write is only logged: it weakens a check, no data depends on it.
    pub(crate) fn write(&self, group: u64) {
        self.group.store(group, Ordering::Release);
        if let Err(error) = self.file.write_all_at(&encode_synced(group), 0) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "write of the last synced group failed; the next start checks less of the journal");
        }
    }
}

fn synced_path(dir: &Path) -> PathBuf {
    dir.join("synced")
}
