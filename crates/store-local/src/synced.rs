//! The side file `synced`: up to which group each keyspace is on disk, kept beside the journal to tell a damaged one.
//!
//! ```text
//! version 01 · packed u64 · wide u64 · bulk u64 · accepted u64 · CRC-32 of all before it; numbers big endian
//! ```
//! A number is that of the last synced group that wrote to the keyspace. It is written after the sync and not synced itself:
//! after a power cut it may be older than the journal, never newer. `accepted` is the last group whose loss an operator has
//! accepted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_model::codec::{DecodeError, Decoder, Encoder};

use crate::spaces::Space;

const VERSION: u8 = 1;

/// Numbers of groups that are on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    /// The last group per keyspace, as in [`Space::ALL`].
    pub(crate) groups: [u64; 3],
    /// The last group whose loss was accepted.
    pub(crate) accepted: u64,
}

impl Synced {
    /// The last group of all.
    pub(crate) fn last(&self) -> u64 {
        self.groups.into_iter().max().unwrap_or(0)
    }

    /// Notes that a group wrote to a keyspace.
    pub(crate) fn note(&mut self, space: Space, group: u64) {
        self.groups[space as usize] = group;
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Encoder::with_capacity(37);
        bytes.u8(VERSION);
        self.groups.into_iter().chain([self.accepted]).for_each(|group| bytes.u64(group));
        let check = crc32fast::hash(bytes.written());
        bytes.raw(&check.to_be_bytes());
        bytes.finish()
    }

    /// Reads its bytes back.
    ///
    /// # Errors
    /// [`DecodeError`] for another version, length or checksum.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let checked = bytes.slice(..bytes.len().saturating_sub(4));
        let mut rest = Decoder::new(bytes);
        rest.version(VERSION)?;
        let groups = [rest.u64()?, rest.u64()?, rest.u64()?];
        let accepted = rest.u64()?;
        if rest.raw(4)? != crc32fast::hash(&checked).to_be_bytes()[..] {
            return Err(DecodeError::Invalid("checksum"));
        }
        rest.finish()?;
        Ok(Self { groups, accepted })
    }
}

/// The side file, open.
pub(crate) struct SyncedFile {
    path: PathBuf,
    file: File,
}

impl SyncedFile {
    /// Reads the side file of a data directory; `None` when there is none, or none that can be read (then the log says so).
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Synced>> {
        let path = path(dir);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let synced = Synced::decode(bytes.into());
        Ok(synced
            .inspect_err(
                |error| tracing::warn!(path = %path.display(), "ignoring the number of the last synced group: {error}"),
            )
            .ok())
    }

    /// Opens it for writing and writes what is known.
    pub(crate) fn create(dir: &Path, synced: &Synced) -> io::Result<Self> {
        let path = path(dir);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        let bytes = synced.encode();
        file.write_all_at(&bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        Ok(Self { path, file })
    }

    /// Writes it anew. A failure is logged and changes nothing else: an older number is no wrong one.
    pub(crate) fn write(&self, synced: &Synced) {
        if let Err(error) = self.file.write_all_at(&synced.encode(), 0) {
            tracing::warn!(path = %self.path.display(), "the number of the last synced group could not be written: {error}");
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("synced")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_no_damaged_byte_is_believed() {
        let mut synced = Synced { groups: [1, 2, 3], accepted: 4 };
        synced.note(Space::Wide, 9);
        assert_eq!(synced.last(), 9);
        let bytes = synced.encode();
        assert_eq!(Synced::decode(bytes.clone()), Ok(synced));
        for at in 0..bytes.len() {
            let mut wrong = bytes.to_vec();
            wrong[at] ^= 1;
            assert!(Synced::decode(wrong.into()).is_err());
            assert!(Synced::decode(bytes.slice(..at)).is_err());
        }
    }
}
