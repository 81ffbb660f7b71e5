//! The files that name a tree's tables: `current`, and the version file that it names.
//!
//! ```text
//! current   version u64 · xxh3 (128 bits) of the version file · 00                       little endian
//! v<N>      an archive; section `tree_type`: 1 for a tree with large values beside its tables; section `tables`: levels u8 · per level runs u8 · per run tables u32 · per table id u64 · 00 ·
//!           xxh3 of its file u128 · sequence number u64; section `blob_files`: count u32 · per file id u64 · 00 · xxh3 u128
//! ```
//! These are files of lsm-tree 3.1, format 3. lsm-tree does not verify them and takes a directory without `current` for a new
//! one, so a start reads them first. The version of lsm-tree is pinned; a test compares this decoder with its files.
//!
//! Verifies the checksums of the tables of large values before a compaction reads them.
//!
//! Such a table ends with a list of the files that hold its values. lsm-tree 3.1 reads this list without a checksum: a wrong
//! number in it makes the compactor panic under lsm-tree's lock, or remove a file that is still in use. So each table is read
//! to its end once and compared with the checksum in the version file.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use lsm_tree::{AbstractTree, AnyTree, Table};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use crate::archive;
use crate::threads::Mutex;

const CURRENT_BYTES: usize = 25;
/// The section `tree_type` of a tree that separates large values from their keys.
const SEPARATES: u8 = 1;

/// A file of a tree, with the checksum of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeFile {
    /// The id, which is the file's name.
    pub(crate) id: u64,
    /// The path.
    pub(crate) path: PathBuf,
    /// xxh3 of all bytes.
    pub(crate) checksum: u128,
    /// The offset of the sequence numbers in a table.
    pub(crate) global_seqno: u64,
    /// The place of a table; `None` in files of large values.
    pub(crate) place: Option<TablePlace>,
}

/// The place of a table in its tree: a version in a lower level is older than a version of its key in a level above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TablePlace {
    /// The level, from the top.
    pub(crate) level: u8,
    /// The run in the level; its tables do not overlap and are sorted by key.
    pub(crate) run: u8,
}

/// All files of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeFiles {
    /// The version.
    pub(crate) version: u64,
    /// Whether the tree separates large values from their keys.
    pub(crate) separates: bool,
    /// Tables, level by level.
    pub(crate) tables: Vec<TreeFile>,
    /// Files of large values.
    pub(crate) blob_files: Vec<TreeFile>,
}

/// Reads the file list of a tree's directory.
///
/// # Errors
/// The line that names the file and what is wrong with it.
pub(crate) fn read(dir: &Path) -> Result<TreeFiles, String> {
    let path = dir.join("current");
    let current = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (version, checksum) = decode_current(&current)
        .ok_or_else(|| format!("{} is damaged: it names the version of the tables", path.display()))?;
    let (names, path) = (path, dir.join(format!("v{version}")));
    let bytes =
        fs::read(&path).map_err(|error| format!("{}, which {} names: {error}", path.display(), names.display()))?;
    // lsm-tree believes `current`: one wrong bit would open an older version and delete newer tables as orphans.
    if xxh3_128(&bytes) != checksum {
        let (version, current) = (path.display(), names.display());
        return Err(format!("{version} or {current} is damaged: they say which tables there are"));
    }
    let files = decode_version(dir, &path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(TreeFiles { version, ..files })
}

/// Reads a version file without the checksum in `current`; `None` when it does not decode, or names a table that does not
/// exist.
pub(crate) fn read_unverified(dir: &Path, version: u64) -> Option<TreeFiles> {
    let path = dir.join(format!("v{version}"));
    let files = catch_unwind(AssertUnwindSafe(|| decode_version(dir, &path))).ok()?.ok()?;
    files.tables.iter().all(|table| table.path.is_file()).then_some(TreeFiles { version, ..files })
}

/// The version that a tree's `current` names, and the checksum of its version file.
pub(crate) fn decode_current(bytes: &[u8]) -> Option<(u64, u128)> {
    let bytes: &[u8; CURRENT_BYTES] = bytes.try_into().ok()?;
    let (version, rest) = bytes.split_first_chunk::<8>()?;
    let (checksum, kind) = rest.split_first_chunk::<16>()?;
    (kind == [0]).then(|| (u64::from_le_bytes(*version), u128::from_le_bytes(*checksum)))
}

/// The bytes of a `current` that names this version, whose file has these bytes.
pub(crate) fn encode_current(version: u64, version_file: &[u8]) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend_from_slice(&xxh3_128(version_file).to_le_bytes());
    bytes.push(0);
    bytes
}

fn decode_version(dir: &Path, path: &Path) -> io::Result<TreeFiles> {
    let archive = archive::open(path).map_err(|error| io::Error::other(error.to_string()))?;
    let section = |name: &str| {
        let entry = archive.toc().section(name.as_bytes());
        entry.ok_or_else(|| io::Error::other(format!("no section {name}")))?.buf_reader(path)
    };
    let separates = byte(&mut section("tree_type")?)? == SEPARATES;
    let mut tables = Vec::new();
    let mut reader = section("tables")?;
    for level in 0..byte(&mut reader)? {
        for run in 0..byte(&mut reader)? {
            for _ in 0..u32::from_le_bytes(take(&mut reader)?) {
                tables.push(tree_file(&mut reader, &dir.join("tables"), Some(TablePlace { level, run }))?);
            }
        }
    }
    let mut blob_files = Vec::new();
    let mut reader = section("blob_files")?;
    for _ in 0..u32::from_le_bytes(take(&mut reader)?) {
        blob_files.push(tree_file(&mut reader, &dir.join("blobs"), None)?);
    }
    Ok(TreeFiles { version: 0, separates, tables, blob_files })
}

fn tree_file(reader: &mut impl Read, folder: &Path, place: Option<TablePlace>) -> io::Result<TreeFile> {
    let id = u64::from_le_bytes(take(reader)?);
    if byte(reader)? != 0 {
        return Err(io::Error::other("an unknown kind of checksum"));
    }
    let checksum = u128::from_le_bytes(take(reader)?);
    let global_seqno = if place.is_some() { u64::from_le_bytes(take(reader)?) } else { 0 };
    Ok(TreeFile { id, path: folder.join(id.to_string()), checksum, global_seqno, place })
}

fn byte(reader: &mut impl Read) -> io::Result<u8> {
    take::<1>(reader).map(|[byte]| byte)
}

fn take<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The damage of a file whose checksum does not match.
pub(crate) const OTHER_BYTES: &str = "its bytes are not those that were written";
/// Bytes per read for a checksum.
const READ_BYTES: usize = 256 * 1024;

/// The tables of one tree that passed their checksums since the start.
#[derive(Default)]
pub(crate) struct VerifiedTables(Mutex<HashSet<u64>>);

impl VerifiedTables {
    /// Verifies the tables that were not verified yet.
    ///
    /// # Errors
    /// `InvalidData` names the first damaged table; else any I/O error.
    pub(crate) fn verify_new(&self, tree: &AnyTree) -> io::Result<()> {
        let version = tree.current_version();
        // Not under the lock: reads take seconds, and at worst two compactors verify a table twice.
        let known = self.0.lock().clone();
        let mut whole = HashSet::new();
        for table in version.iter_tables() {
            // One without such a list is read block by block, each under its checksum.
            if table.regions.linked_blob_files.is_some() && !known.contains(&table.id()) {
                verify_table(table)?;
            }
            whole.insert(table.id());
        }
        // Forget removed tables.
        *self.0.lock() = whole;
        Ok(())
    }
}

fn verify_table(table: &Table) -> io::Result<()> {
    if file_checksum(&mut File::open(&*table.path)?, |_| ())? == table.checksum().into_u128() {
        return Ok(());
    }
    let what = format!("{}: {OTHER_BYTES}", table.path.display());
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// The xxh3 of the rest of a file; `read` gets the length of each piece.
///
/// # Errors
/// Any I/O error.
pub(crate) fn file_checksum(file: &mut File, mut read: impl FnMut(u64)) -> io::Result<u128> {
    let mut checksum = Xxh3Default::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(checksum.digest128()),
            Ok(count) => {
                checksum.update(&buffer[..count]);
                read(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
