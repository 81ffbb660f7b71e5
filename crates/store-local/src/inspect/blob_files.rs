//! The inspection of blob files: it reads each to its end.

use std::io;
use std::path::Path;

use larder_rows::content::BlobId;
use larder_store::Kind;

use super::InspectionTally;
use super::address::{KeyAddress, LostKeys};
use crate::blobs::{folders, ids, verify_file};

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
            tally.damage(path, error.to_string(), vec![LostKeys::Key(KeyAddress::of_blob(id, owner))]);
        }
        Err(error) => return Err(io::Error::other(error)),
    }
    tally.count_bytes(std::fs::metadata(path)?.len());
    Ok(())
}
