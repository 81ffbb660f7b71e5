//! Blob files: each is read to its end.

use std::io;
use std::path::Path;

use larder_model::content::BlobId;
use larder_store::Kind;

use super::Tally;
use super::address::{KeyAddress, LostKeys};
use crate::blobs::{folders, ids, verify_file};

/// Reads every blob file; hands those that are whole to `whole`.
///
/// # Errors
/// What the machine answers, and what `whole` answers.
pub(super) fn check(
    dir: &Path,
    tally: &mut Tally<'_>,
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
    tally: &mut Tally<'_>,
    whole: &mut impl FnMut(&Path, BlobId) -> io::Result<()>,
) -> io::Result<()> {
    tally.file();
    let (checked, owner) = verify_file(path, id);
    match checked {
        Ok(()) => whole(path, id)?,
        Err(error) if error.kind == Kind::Damaged => {
            tally.damage(path, error.to_string(), vec![LostKeys::Key(KeyAddress::of_blob(id, owner))]);
        }
        Err(error) => return Err(io::Error::other(error)),
    }
    tally.read(std::fs::metadata(path)?.len());
    Ok(())
}
