//! The inspection of blob files: it reads each to its end.

use std::io;
use std::path::Path;

use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Kind, Row, RowBlobs, Table};

use super::address::{KeyAddress, LostKeys};
use super::journals::JournalEntries;
use super::newest::{FoundEntry, NewestEntries, read_value};
use super::survey::SourceDirectory;
use super::{InspectionTally, RowBlobsMaker};
use crate::blobs::{BULK_MAX, folders, ids, verify_file};
use crate::entry;
use crate::tree_id::TreeId;

/// Reads every blob file; hands whole ones to `whole`.
///
/// # Errors
/// Any I/O error, and the errors of `whole`.
pub(super) fn check(
    dir: &Path,
    tally: &mut InspectionTally<'_>,
    mut whole: impl FnMut(&Path, BlobId) -> io::Result<()>,
) -> io::Result<()> {
    let root = folders::root(dir);
    for shard in 0..=u8::MAX {
        let folder = folders::shard(&root, shard);
        let ids = match ids(&root, shard) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = format!("it is missing: bodies whose ids begin with {shard:02x} were in it");
                tally.damage(&folder, what, Vec::new());
                continue;
            }
            ids => ids?,
        };
        for id in ids {
            let path = folder.join(id.hex());
            check_file(&path, id, tally, &mut whole)?;
        }
    }
    match folders::unfinished(&root) {
        unfinished if unfinished.is_dir() => {}
        unfinished => tally.damage(&unfinished, "it is missing; it held nothing that is finished", Vec::new()),
    }
    Ok(())
}

fn check_file(
    path: &Path,
    id: BlobId,
    tally: &mut InspectionTally<'_>,
    whole: &mut impl FnMut(&Path, BlobId) -> io::Result<()>,
) -> io::Result<()> {
    tally.count_file();
    let (checked, owner) = verify_file(path, id);
    match checked {
        Ok(()) => whole(path, id)?,
        Err(error) if error.kind == Kind::Damaged => {
            tally.damage(path, error.to_string(), vec![LostKeys::Key(KeyAddress::from_blob(id, owner))]);
        }
        Err(error) => return Err(io::Error::other(error)),
    }
    tally.count_bytes(std::fs::metadata(path)?.len());
    Ok(())
}

/// Reports the files of blobs that are not there, with the rows that name them. Smaller blobs are rows themselves.
///
/// # Errors
/// Any I/O error.
pub(super) fn check_named(
    dir: &Path,
    source: &SourceDirectory,
    journal: &JournalEntries,
    references: RowBlobsMaker<'_>,
    tally: &mut InspectionTally<'_>,
) -> io::Result<()> {
    let root = folders::root(dir);
    let references = references(data_key_rows(dir, source, journal)?);
    for tree in source.trees.iter().filter(|tree| matches!(tree.id, TreeId::Packed | TreeId::Wide)) {
        for entry in NewestEntries::new(tree, None, journal) {
            for (id, owner) in named_files(dir, tree.id, &entry?, &references) {
                let folder = folders::shard(&root, id.0[0]);
                let path = folder.join(id.hex());
                // A folder that is not there is reported as such.
                if folder.is_dir() && !path.try_exists()? {
                    tally.damage(&path, "it is missing", vec![LostKeys::Key(KeyAddress::from_blob(id, Some(owner)))]);
                }
            }
        }
    }
    Ok(())
}

/// The rows of data keys. The mirror has them all, and little else.
fn data_key_rows(dir: &Path, source: &SourceDirectory, journal: &JournalEntries) -> io::Result<Vec<Row>> {
    let mut found = Vec::new();
    for entry in source.mirror().into_iter().flat_map(|mirror| NewestEntries::new(mirror, None, journal)) {
        let entry = entry?;
        if let Ok((partition, name)) = entry::split_key(&entry.key)
            && partition.table == Table::DataKeys
            && let Ok(Some(value)) = read_value(dir, TreeId::Mirror, &entry)
        {
            found.extend(entry::decode_wide(name, value));
        }
    }
    Ok(found)
}

/// The blobs with files of their own that the rows of an entry name. Readers report a row that does
/// not decode.
fn named_files(dir: &Path, tree_id: TreeId, entry: &FoundEntry, references: &RowBlobs) -> Vec<(BlobId, BlobOwner)> {
    // A value in a damaged file is reported as such.
    let (Ok(Some(value)), Ok((partition, name))) = (read_value(dir, tree_id, entry), entry::split_key(&entry.key))
    else {
        return Vec::new();
    };
    let rows = match tree_id {
        TreeId::Packed => entry::decode_packed(value).unwrap_or_default(),
        _ => entry::decode_wide(name, value).into_iter().collect(),
    };
    let named = rows.into_iter().flat_map(|Row { name, value, .. }| {
        let blobs = references(&partition, &name, value).into_iter();
        let owner = BlobOwner { partition: partition.clone(), row: name };
        blobs.filter(|blob| blob.length > BULK_MAX as u64).map(move |blob| (blob.id, owner.clone()))
    });
    named.collect()
}
