//! The side file `synced`: the last group known to be on disk, kept beside the journal to tell a lost end from a torn one.
//!
//! ```text
//! version 02 · group u64 · CRC-32 of both; numbers big endian
//! ```
//! It is overwritten after each sync of the journal and not synced itself: after a power cut it may be older than the
//! journal, never newer.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_model::codec::{DecodeError, Decoder, Encoder};

const VERSION: u8 = 2;

/// Its bytes.
pub(crate) fn encode(group: u64) -> Bytes {
    let mut bytes = Encoder::with_capacity(13);
    bytes.u8(VERSION);
    bytes.u64(group);
    let check = crc32fast::hash(bytes.written());
    bytes.raw(&check.to_be_bytes());
    bytes.finish()
}

/// Reads its bytes back.
///
/// # Errors
/// [`DecodeError`] for another version, length or checksum.
pub(crate) fn decode(bytes: Bytes) -> Result<u64, DecodeError> {
    let checked = bytes.slice(..bytes.len().saturating_sub(4));
    let mut rest = Decoder::new(bytes);
    rest.version(VERSION)?;
    let group = rest.u64()?;
    if rest.raw(4)? != crc32fast::hash(&checked).to_be_bytes()[..] {
        return Err(DecodeError::Invalid("checksum"));
    }
    rest.finish()?;
    Ok(group)
}

/// The side file, open.
pub(crate) struct SyncedFile {
    path: PathBuf,
    file: File,
    group: u64,
}

impl SyncedFile {
    /// Reads the side file of a data directory; `None` when there is none that can be read (then the log says so).
    ///
    /// # Errors
    /// What the machine answers.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<u64>> {
        let path = path(dir);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let group = decode(bytes.into());
        Ok(group
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "the number of the last synced group is not known"))
            .ok())
    }

    /// Opens or makes the side file; `group` is known to be on disk.
    ///
    /// # Errors
    /// What the machine answers.
    pub(crate) fn open(dir: &Path, group: u64) -> io::Result<Self> {
        let path = path(dir);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        Ok(Self { path, file, group })
    }

    /// The last group known to be on disk.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// Notes that a group is on disk. The journal does not need it: a failure costs only a check.
    pub(crate) fn write(&mut self, group: u64) {
        self.group = group;
        if let Err(error) = self.file.write_all_at(&encode(group), 0) {
            tracing::warn!(path = %self.path.display(), %error, "the number of the last synced group was not written");
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("synced")
}
