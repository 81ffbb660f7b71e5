//! Reads the trees' directories before the engine below opens them: every file that must be there is there and can be opened.
//! Nothing is changed, so a refused start leaves the directory as it was.

use std::fs;
use std::io::{self, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use lsm_tree::table::Block;
use lsm_tree::{Cache, Checksum, CompressionType, DescriptorTable, Table};

use crate::archive;
use crate::spaces::Space;
use crate::version_file::{self, TreeFile, TreeFiles};

/// The description of a file of large values begins so.
const BLOB_META_MAGIC: &[u8; 4] = b"META";

/// Checks all trees in `rows`; `versions` are those that the manifest names.
///
/// # Errors
/// The line that names the file and what is wrong with it.
pub(crate) fn check(rows: &Path, versions: [u64; 3]) -> Result<(), String> {
    Space::ALL.into_iter().try_for_each(|space| check_tree(&rows.join(space.name()), versions[space as usize]))
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

/// The engine below gives up over a file whose name is no number: only after it has begun to tidy up.
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

/// Opens a table by itself: its trailer, its description, its index and its filter are read and checked.
///
/// # Errors
/// The line that names the file and what is wrong with it.
pub(crate) fn open_table(file: &TreeFile) -> Result<Table, String> {
    let path = file.path.display();
    let named = |what: String| format!("{path}: {what}");
    archive::check(&file.path).map_err(|error| named(error.to_string()))?;
    let cache = Arc::new(Cache::with_capacity_bytes(0));
    let checksum = Checksum::from_raw(file.checksum);
    let descriptors = Some(Arc::new(DescriptorTable::new(1)));
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

/// The table of contents and the description of a file of large values pass their checks.
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
    let block = Block::from_reader(&mut description, CompressionType::None);
    block.map(drop).map_err(|error| damaged(error.to_string()))
}
