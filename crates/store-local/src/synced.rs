//! The file `synced`: the number of the last synced group. A start uses it to tell a lost end of the journal from a torn one.
//!
//! ```text
//! version 02 · group u64 · CRC-32 of both; numbers big endian
//! ```
//! The committer overwrites it after each sync of the journal and does not sync it: after a power cut it may be older than the
//! journal, never newer.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_model::codec::{DecodeError, FieldDecoder, FieldEncoder};

const VERSION: u8 = 2;

/// The bytes of the file.
pub(crate) fn encode(group: u64) -> Bytes {
    let mut bytes = FieldEncoder::with_capacity(13);
    bytes.u8(VERSION);
    bytes.u64(group);
    let check = crc32fast::hash(bytes.written());
    bytes.raw(&check.to_be_bytes());
    bytes.finish()
}

/// Decodes the bytes of the file.
///
/// # Errors
/// [`DecodeError`] for another version, length or checksum.
pub(crate) fn decode(bytes: Bytes) -> Result<u64, DecodeError> {
    let checked = bytes.slice(..bytes.len().saturating_sub(4));
    let mut rest = FieldDecoder::new(bytes);
    rest.version(VERSION)?;
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
        let path = path(dir);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let group = decode(bytes.into()).inspect_err(|error| {
            tracing::warn!(%error, "read of the last synced group failed; this start checks less of the journal");
        });
        Ok(group.ok())
    }

    /// Opens or creates the file; `group` is known to be on disk.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn open(dir: &Path, group: u64) -> io::Result<Self> {
        let path = path(dir);
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
        if let Err(error) = self.file.write_all_at(&encode(group), 0) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "write of the last synced group failed; the next start checks less of the journal");
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("synced")
}
