//! Large values, which a tree keeps beside its tables: an entry in a table is a handle of a file, an offset and a length.
//!
//! ```text
//! entry   offset, file, length in the file, length of the value: varints, 7 bits a byte, the low ones first
//! value   "BLOB" · xxh3 (128 bits) of key and bytes · sequence number u64 · key length u16 · value length u32 · length u32
//!         · key · bytes (lz4)                                                                        little endian
//! ```
//! These are files of lsm-tree, as in `version_file`. Its own reader compares neither the key nor the number: of a file in the place of
//! another it returns another key's value. Rows of the bulk tree say whose they are, so one is read by lsm-tree, through its cache;
//! values of the other trees, of scans and of damaged files are read here.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_rows::codec::FieldDecoder;
use lsm_tree::{InternalValue, UserValue, ValueType};
use xxhash_rust::xxh3::Xxh3Default;

const MAGIC: &[u8; 4] = b"BLOB";
const HEAD_BYTES: usize = 38;

/// The handle of a large value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueHandle {
    /// Number of the file.
    pub(crate) file: u64,
    offset: u64,
    stored: u32,
    length: u32,
}

/// A value that cannot be read.
pub(crate) struct UnreadableValue {
    /// Why; `InvalidData`, `UnexpectedEof` and `NotFound` are damage.
    pub(crate) error: io::Error,
    /// A damaged value up to its damage, then zeros; empty when nothing was read.
    pub(crate) rest: Bytes,
}

impl ValueHandle {
    /// Decodes the value of an entry in a table.
    pub(crate) fn decode(bytes: Bytes) -> Option<Self> {
        let mut rest = FieldDecoder::new(bytes);
        let mut next = || rest.varint().ok();
        let (offset, file) = (next()?, next()?);
        let (stored, length) = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
        Some(Self { file, offset, stored, length })
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.length)
    }

    /// The bytes that it takes in its file.
    pub(crate) fn stored_bytes(&self) -> u64 {
        u64::from(self.stored)
    }

    /// Reads and checks the value of a key, written with this sequence number.
    ///
    /// # Errors
    /// Any I/O error; `InvalidData`, `UnexpectedEof` say at which byte the damage is.
    pub(crate) fn read(&self, folder: &Path, key: &[u8], seqno: u64) -> Result<Bytes, UnreadableValue> {
        let unread = |error| UnreadableValue { error, rest: Bytes::new() };
        let at_end = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), format!("it ends before the value at byte {}", self.offset))
            }
            _ => error,
        };
        let file = File::open(folder.join(self.file.to_string())).map_err(unread)?;
        let mut bytes = vec![0; HEAD_BYTES + key.len() + self.stored as usize];
        file.read_exact_at(&mut bytes, self.offset).map_err(at_end).map_err(unread)?;
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let (stored_key, stored) = rest.split_at(key.len());
        let mut checksum = Xxh3Default::new();
        checksum.update(key);
        checksum.update(stored);
        // Race: an older file in its place has the same keys, at the same offsets if the values have the same lengths [invariant 150].
        let is_its_own = stored_key == key && head[20..28] == seqno.to_le_bytes();
        let is_whole = head.starts_with(MAGIC) && is_its_own && head[4..20] == checksum.digest128().to_le_bytes();
        // A damaged block is decoded up to the damage: a name at its front may have a check of its own.
        let mut value = vec![0; self.length as usize];
        let decoded = lz4_flex::block::decompress_into(stored, &mut value);
        match is_whole && decoded.is_ok_and(|length| length == value.len()) {
            true => Ok(value.into()),
            false => {
                let what = format!("the value at byte {} is damaged", self.offset);
                Err(UnreadableValue { error: io::Error::new(io::ErrorKind::InvalidData, what), rest: value.into() })
            }
        }
    }
}

/// The value of an entry, read from its file in `folder` if it is there.
///
/// # Errors
/// Any I/O error; `InvalidData`, `UnexpectedEof` and `NotFound` are damage.
pub(crate) fn resolve(folder: &Path, entry: &InternalValue) -> io::Result<UserValue> {
    if entry.key.value_type != ValueType::Indirection {
        return Ok(entry.value.clone());
    }
    let handle = ValueHandle::decode(entry.value.clone().into());
    let handle = handle.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the place of a value is damaged"))?;
    let read = handle.read(folder, &entry.key.user_key, entry.key.seqno);
    Ok(read.map_err(|unreadable| unreadable.error)?.into())
}

/// The large values of a version of a tree.
pub(crate) struct LargeValues {
    /// Their folder.
    pub(crate) folder: PathBuf,
    /// Held, not read, since lsm-tree does not export its type: files of an older version go when nobody holds it [invariant 131].
    pub(crate) _version: Box<dyn Any + Send>,
}
