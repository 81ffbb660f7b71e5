//! Brings a directory of format 2, which has no mirror, to format 3.

use std::fs;
use std::io;
use std::path::Path;

use larder_store::ReadOrder;

use crate::entry;
use crate::flush::flush;
use crate::format;
use crate::io_errors::{if_there, sync_dir};
use crate::journal::WriteGroup;
use crate::manifest::ManifestFile;
use crate::mirror;
use crate::open_error::OpenError;
use crate::tree_id::TreeId;
use crate::trees::{Trees, read_error};

/// Creates the folder of the mirror.
///
/// # Errors
/// Any I/O error.
pub(crate) fn create_mirror(dir: &Path) -> io::Result<()> {
    let rows = dir.join("rows");
    let mirror = rows.join(TreeId::Mirror.name());
    // An interrupted start may have left a part of it.
    if_there(fs::remove_dir_all(&mirror))?;
    fs::create_dir(&mirror)?;
    sync_dir(&rows)
}

/// Fills the mirror and names the format.
///
/// # Errors
/// `Io`: the directory is still of the format before.
pub(crate) fn finish(dir: &Path, trees: &Trees, manifest: &ManifestFile) -> Result<(), OpenError> {
    // Not `Damaged`, which says that nothing was changed: the folder of the mirror is there.
    let failed =
        |error: larder_store::Error| OpenError::Io { dir: dir.to_owned(), what: format!("adding the mirror: {error}") };
    fill_mirror(trees).map_err(failed)?;
    // Crash: `format` comes last. Until it names the mirror, a start makes it anew.
    let named = manifest.change(|manifest| manifest.trees = trees.versions()).map_err(io::Error::from);
    named.and_then(|()| format::create(dir)).map_err(|error| OpenError::io(dir, "adding the mirror", &error))
}

/// Fills an empty mirror from the trees of its tables, and writes it to tables. No other thread may write.
///
/// # Errors
/// Any error of the reads, and of the flush.
pub(crate) fn fill_mirror(trees: &Trees) -> larder_store::Result<()> {
    let mut writes = Vec::new();
    for table in mirror::TABLES {
        let (first, end) = entry::table_bounds(table);
        for entry in trees.range(TreeId::for_table(table), first, Some(end), ReadOrder::Forward) {
            let (key, value) = entry?;
            writes.push((TreeId::Mirror, key, Some(value)));
        }
    }
    trees.insert(&WriteGroup { number: 0, seqno: trees.next_seqno(), writes });
    let mirror = trees.tree(TreeId::Mirror);
    mirror.rotate();
    while let Some(sealed) = mirror.next_sealed() {
        let flushed = flush(mirror, &sealed, 1, trees.snapshots.watermark());
        flushed.map_err(|error| read_error(TreeId::Mirror, error))?;
        mirror.drop_flushed();
    }
    Ok(())
}
