//! The blob files that rows name: each must be there.

use std::io;
use std::path::Path;

use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Row, RowBlobs};

use super::InspectionTally;
use super::address::{KeyAddress, LostKeys};
use super::journals::JournalEntries;
use super::newest::{FoundEntry, FoundValue, NewestEntries};
use super::survey::SourceDirectory;
use crate::blobs::{BULK_MAX, folders};
use crate::entry;
use crate::tree_id::TreeId;

/// Reports the files of blobs that are not there, with the rows that name them. Smaller blobs are rows themselves.
///
/// # Errors
/// Any I/O error.
pub(super) fn check(
    dir: &Path,
    source: &SourceDirectory,
    journal: &JournalEntries,
    references: RowBlobs,
    tally: &mut InspectionTally<'_>,
) -> io::Result<()> {
    let root = folders::root(dir);
    for tree in source.trees.iter().filter(|tree| matches!(tree.id, TreeId::Packed | TreeId::Wide)) {
        for entry in NewestEntries::new(tree, None, journal) {
            for (id, owner) in named_files(tree.id, entry?, references) {
                let folder = folders::shard(&root, id.0[0]);
                let path = folder.join(id.hex());
                // A folder that is not there is reported as such.
                if folder.is_dir() && !path.try_exists()? {
                    tally.damage(&path, "it is missing", vec![LostKeys::Key(KeyAddress::of_blob(id, Some(owner)))]);
                }
            }
        }
    }
    Ok(())
}

/// The blobs with files of their own that the rows of an entry name. Readers report a row that does
/// not decode.
fn named_files(
    tree_id: TreeId,
    FoundEntry { key, value, .. }: FoundEntry,
    references: RowBlobs,
) -> Vec<(BlobId, BlobOwner)> {
    let (FoundValue::Inline(value), Ok((partition, name))) = (value, entry::split_key(&key)) else { return Vec::new() };
    let rows = match tree_id {
        TreeId::Packed => entry::decode_packed(value).unwrap_or_default(),
        _ => entry::decode_wide(name, value).into_iter().collect(),
    };
    let named = rows.into_iter().flat_map(|Row { name, value, .. }| {
        let blobs = references(partition.table, &name, value).into_iter();
        let owner = BlobOwner { partition: partition.clone(), row: name };
        blobs.filter(|blob| blob.length > BULK_MAX as u64).map(move |blob| (blob.id, owner.clone()))
    });
    named.collect()
}
