//! Large values of the bulk tree: an entry in a table is a handle of a file, an offset and a length.
//!
//! ```text
//! entry   offset, file, length in the file, length of the value: varints, 7 bits a byte, the low ones first
//! value   "BLOB" · xxh3 (128 bits) of key and bytes · sequence number u64 · key length u16 · value length u32 · length u32
//!         · key · bytes (lz4)                                                                        little endian
//! ```
//! These are files of lsm-tree, as in `version_file`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use larder_rows::codec::FieldDecoder;
use larder_rows::content::BlobId;
use larder_store::BlobOwner;
use xxhash_rust::xxh3::Xxh3Default;

use crate::blobs::row_owner;

const MAGIC: &[u8; 4] = b"BLOB";
const HEAD_BYTES: usize = 38;

/// The handle of a large value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueHandle {
    /// Number of the file.
    pub(super) file: u64,
    offset: u64,
    stored: u32,
    length: u32,
}

impl ValueHandle {
    /// Decodes the value of an entry in a table.
    pub(super) fn decode(bytes: Bytes) -> Option<Self> {
        let mut rest = FieldDecoder::new(bytes);
        let mut next = || rest.varint().ok();
        let (offset, file) = (next()?, next()?);
        let (stored, length) = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
        Some(Self { file, offset, stored, length })
    }

    /// Reads and checks the value.
    ///
    /// # Errors
    /// The damage, and the row that owns the body if that can be read.
    pub(super) fn read(&self, folder: &Path, key: &[u8]) -> Result<Bytes, (String, Option<BlobOwner>)> {
        let path = folder.join(self.file.to_string());
        let alone = |what: String| (what, None);
        let named = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => alone("a value was in it".to_owned()),
            io::ErrorKind::UnexpectedEof => alone(format!("it ends before the value at byte {}", self.offset)),
            _ => alone(error.to_string()),
        };
        let file = File::open(&path).map_err(named)?;
        let mut bytes = vec![0; HEAD_BYTES + key.len() + self.stored as usize];
        file.read_exact_at(&mut bytes, self.offset).map_err(named)?;
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let (found, stored) = rest.split_at(key.len());
        let mut checksum = Xxh3Default::new();
        checksum.update(key);
        checksum.update(stored);
        let is_whole = head.starts_with(MAGIC) && found == key && head[4..20] == checksum.digest128().to_le_bytes();
        // A damaged block is decoded up to the damage: the owner at its front has a check of its own.
        let mut value = vec![0; self.length as usize];
        let decoded = lz4_flex::block::decompress_into(stored, &mut value);
        match is_whole && decoded.is_ok_and(|length| length == value.len()) {
            true => Ok(value.into()),
            false => Err((format!("the value at byte {} is damaged", self.offset), owner(key, value.into()))),
        }
    }
}

/// The row that owns the body in a bulk row: its name is at the front, under a check of its own.
fn owner(key: &[u8], value: Bytes) -> Option<BlobOwner> {
    let id = BlobId(key.get(1..)?.try_into().ok()?);
    row_owner(id, value)
}
