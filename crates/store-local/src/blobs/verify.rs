//! Verifies whole blob files for an inspection, without a store.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Kind, Result};

use super::disk::failed;
use super::{bulk_row, folders, reader};

/// Ids of the files in one folder, sorted.
///
/// # Errors
/// Any I/O error.
pub(crate) fn ids(root: &Path, shard: u8) -> io::Result<Vec<BlobId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folders::shard(root, shard))? {
        let id = entry?.file_name().to_str().and_then(BlobId::from_hex);
        ids.extend(id.filter(|id| id.0[0] == shard));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Reads and checks every byte of the file of `id`; returns the row that owns the blob, too, when the head is whole.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn verify_file(path: &Path, id: BlobId) -> (Result<()>, Option<BlobOwner>) {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return (Err(failed("open a blob", error)), None),
    };
    let owner = match reader::read_head(&file, id) {
        Ok((head, ..)) => Some(head.owner),
        Err(error) => return (Err(error), None),
    };
    let checked = reader::read_layout(&file, id).and_then(|(_, layout)| reader::check_blocks(&file, &layout));
    // An unreadable sector is damage; a file that may not be opened is not.
    (checked.map_err(|error| larder_store::Error { kind: Kind::Damaged, ..error }), owner)
}

/// The row that owns the body in a bulk row; its name has a check of its own.
pub(crate) fn row_owner(id: BlobId, value: Bytes) -> Option<BlobOwner> {
    bulk_row::owner(id, value).ok()
}
