//! Reads the trees' directories before lsm-tree opens them: every file that must exist exists and can be opened. It changes
//! nothing, so a refused start leaves the directory as it was.

use std::fs;
use std::io::{self, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use lsm_tree::table::{Block, DataBlock};
use lsm_tree::{Cache, Checksum, CompressionType, DescriptorTable, Table};

use crate::archive;
use crate::tree_id::{PerTree, TreeId};
use crate::version_file::{self, TreeFile, TreeFiles};

/// The first bytes of the metadata of a file of large values.
const BLOB_META_MAGIC: &[u8; 4] = b"META";

/// Checks these trees in `rows`; `versions` are the least versions that the manifest names.
///
/// # Errors
/// The line that names the file and what is wrong with it.
pub(crate) fn check(rows: &Path, trees: &[TreeId], versions: PerTree<u64>) -> Result<(), String> {
    trees.iter().try_for_each(|tree_id| check_tree(&rows.join(tree_id.name()), versions[*tree_id as usize]))
}

fn check_tree(dir: &Path, version: u64) -> Result<(), String> {
    let files = version_file::read(dir)?;
    if files.version < version {
        let current = dir.join("current");
        return Err(format!("{} names version {}, {version} was on disk", current.display(), files.version));
    }
    check_names(&dir.join("tables"), true)?;
    check_names(&dir.join("blobs"), false)?;
    check_files(&files)
}

/// Refuses files whose names are no numbers: lsm-tree fails over them, but only after it has begun to remove files.
fn check_names(dir: &Path, must_be: bool) -> Result<(), String> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_be => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", dir.display())),
    };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
        let is_number = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<u64>().is_ok());
        if !is_number || path.is_dir() {
            return Err(format!("{} is none of the engine's files", path.display()));
        }
    }
    Ok(())
}

fn check_files(files: &TreeFiles) -> Result<(), String> {
    files.tables.iter().try_for_each(|file| open_table(file).map(drop))?;
    files.blob_files.iter().try_for_each(check_blob_file)
}

/// Opens a table by itself, which reads and checks its trailer, metadata, index and filter, and that it is no other table.
///
/// # Errors
/// The line that names the file and what is wrong with it.
pub(crate) fn open_table(file: &TreeFile) -> Result<Table, String> {
    let table = open_any_table(file)?;
    match table.metadata.id == file.id {
        true => Ok(table),
        false => Err(format!("{}: {}", file.path.display(), describe_other(table.metadata.id))),
    }
}

/// The id in the description of a table; `None` when it cannot be opened.
pub(crate) fn numbered_file(file: &TreeFile) -> Option<u64> {
    open_any_table(file).ok().map(|table| table.metadata.id)
}

fn open_any_table(file: &TreeFile) -> Result<Table, String> {
    let path = file.path.display();
    let named = |what: String| format!("{path}: {what}");
    // First, because a wrong count of sections would abort the process at the open.
    archive::check(&file.path).map_err(|error| named(error.to_string()))?;
    let cache = Arc::new(Cache::with_capacity_bytes(0));
    let checksum = Checksum::from_raw(file.checksum);
    let descriptors = Some(Arc::new(DescriptorTable::new(1)));
    // lsm-tree panics over some damage instead of returning an error.
    let opened = catch_unwind(AssertUnwindSafe(|| {
        Table::recover(file.path.clone(), checksum, file.global_seqno, 0, cache, descriptors, true, true)
    }));
    match opened {
        Ok(Ok(table)) => Ok(table),
        Ok(Err(lsm_tree::Error::Io(error))) => Err(named(error.to_string())),
        Ok(Err(error)) => Err(named(format!("the table is damaged ({error})"))),
        Err(_) => Err(named("the table is damaged".to_owned())),
    }
}

/// The damage of a table that has the name of another one.
pub(crate) fn describe_other(id: u64) -> String {
    format!("it is a copy of table {id}")
}

/// Checks the table of contents and the metadata of a file of large values, and that it is no other one.
fn check_blob_file(file: &TreeFile) -> Result<(), String> {
    let path = file.path.display();
    let damaged = |why: String| format!("{path}: the file of large values is damaged ({why})");
    let archive = match archive::open(&file.path) {
        Ok(archive) => archive,
        Err(sfa::Error::Io(error)) => return Err(format!("{path}: {error}")),
        Err(error) => return Err(damaged(format!("{error:?}"))),
    };
    let section = archive.toc().section(b"meta").ok_or_else(|| damaged("it has no description".to_owned()))?;
    let mut description = section.buf_reader(&file.path).map_err(|error| format!("{path}: {error}"))?;
    let mut magic = [0; 4];
    description.read_exact(&mut magic).map_err(|error| damaged(error.to_string()))?;
    if &magic != BLOB_META_MAGIC {
        return Err(damaged("its description does not begin as one".to_owned()));
    }
    let block =
        Block::from_reader(&mut description, CompressionType::None).map_err(|error| damaged(error.to_string()))?;
    // lsm-tree panics over entries that do not decode.
    let id = catch_unwind(AssertUnwindSafe(|| DataBlock::new(block).point_read(b"id", u64::MAX)));
    let id = id.ok().flatten().and_then(|id| Some(u64::from_le_bytes(id.value[..].try_into().ok()?)));
    match id.ok_or_else(|| damaged("its description has no number".to_owned()))? {
        id if id == file.id => Ok(()),
        id => Err(format!("{path}: it is a copy of file {id} of large values")),
    }
}
