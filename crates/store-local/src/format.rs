//! The file `format` of a data directory: the directory's format, and the program that created it.
//!
//! ```text
//! larder data, format 4
//! written by larder 0.1.0
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::io_errors::{OpenError, if_there, write_synced};
use crate::journal::HEADER_BYTES;

/// The format this build writes.
const FORMAT: &str = "4";
/// The format before, whose packed and wide trees have every value in a table: they stay so.
const UNSEPARATED: &str = "3";
/// The one before that, which has no mirror either: a start adds it.
const WITHOUT_MIRROR: &str = "2";
/// Names that an interrupted first start may have left.
const OWN_NAMES: [&str; 10] = [
    "LOCK",
    "format.new",
    "manifest",
    "manifest.new",
    "synced",
    "rows",
    "journal",
    "blobs",
    "admin.sock",
    "lost+found",
];
/// The format reported for a file whose first line does not parse.
pub(crate) const UNREADABLE: &str = "unreadable";
/// The program that writes the file.
const PROGRAM: &str = concat!("larder ", env!("CARGO_PKG_VERSION"));

/// The folder of the links of a backup that is being made.
pub(crate) fn staged_backup(dir: &Path) -> PathBuf {
    dir.join("backup.partial")
}

/// The content of a directory.
pub(crate) enum DirectoryState {
    /// A data directory of this format, or of the one before.
    Data,
    /// A data directory of format 2, which has no mirror.
    WithoutMirror,
    /// Nothing, or the rest of an interrupted creation.
    Empty,
}

/// Determines whether a directory is a data directory.
///
/// # Errors
/// `Foreign`, `UnknownFormat`, `Io`.
pub(crate) fn find(dir: &Path) -> Result<DirectoryState, OpenError> {
    let looking = |error| OpenError::io(dir, "looking into the directory", &error);
    match fs::read(path(dir)) {
        Ok(text) => check(dir, &String::from_utf8_lossy(&text)),
        // Only a directory that never took a write is laid out anew: that clears its rows and journals.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !has_data(dir).map_err(looking)? => {
            check_for_foreign_files(dir)?;
            Ok(DirectoryState::Empty)
        }
        // A directory with data has lost its `format`: a fresh layout would delete the data.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::UnknownFormat {
            dir: dir.to_owned(),
            found: "none, the file format is missing".into(),
            writer: "an unknown program".into(),
            program: PROGRAM,
        }),
        Err(error) => Err(OpenError::io(dir, "reading the file format", &error)),
    }
}

/// Whether a write ever reached this directory: a table, a blob, or a frame after the header of a journal.
fn has_data(dir: &Path) -> io::Result<bool> {
    let long = |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > HEADER_BYTES as u64);
    for entry in entries(&dir.join("journal"))? {
        if long(&entry.path()) {
            return Ok(true);
        }
    }
    for tree in entries(&dir.join("rows"))? {
        if ["tables", "blobs"]
            .iter()
            .any(|name| fs::read_dir(tree.path().join(name)).is_ok_and(|mut files| files.next().is_some()))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let Some(listing) = if_there(fs::read_dir(dir))? else { return Ok(Vec::new()) };
    listing.collect()
}

/// Refuses a directory that holds foreign files: pointing the server at a Riak node's data is an easy slip.
fn check_for_foreign_files(dir: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::io(dir, "looking into the directory", &error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !OWN_NAMES.iter().any(|own_name| name == *own_name) {
            return Err(OpenError::Foreign { dir: dir.to_owned(), found: name.to_string_lossy().into_owned() });
        }
    }
    Ok(())
}

fn check(dir: &Path, text: &str) -> Result<DirectoryState, OpenError> {
    let mut lines = text.lines();
    let number = lines.next().and_then(|line| line.strip_prefix("larder data, format "));
    // A damaged file is no other version: `check` and `repair` read the rest.
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.filter(is_number).unwrap_or(UNREADABLE);
    let writer = lines.next().and_then(|line| line.strip_prefix("written by ")).unwrap_or("an unknown program");
    match number {
        FORMAT | UNSEPARATED => Ok(DirectoryState::Data),
        WITHOUT_MIRROR => Ok(DirectoryState::WithoutMirror),
        _ => Err(OpenError::UnknownFormat {
            dir: dir.to_owned(),
            found: number.into(),
            writer: writer.into(),
            program: PROGRAM,
        }),
    }
}

/// Writes the file; with it the creation of the directory is complete.
///
/// # Errors
/// Any I/O error.
pub(crate) fn create(dir: &Path) -> io::Result<()> {
    let unfinished = dir.join("format.new");
    // The bytes are on disk before the name: a crash never leaves a `format` without them.
    write_synced(&unfinished, format!("larder data, format {FORMAT}\nwritten by {PROGRAM}\n").as_bytes())?;
    fs::rename(unfinished, path(dir))?;
    File::open(dir)?.sync_all()
}

fn path(dir: &Path) -> std::path::PathBuf {
    dir.join("format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_once_was_another_version_and_ended_a_repair() {
        for text in [
            "larder data, format 3\u{1a}written by larder 0.1.0\n",
            "larder data, format 3x\n",
            "larder data, format ",
            "x",
        ] {
            let refused = check(Path::new("/d"), text).err();
            assert!(matches!(refused, Some(OpenError::UnknownFormat { found, .. }) if found == UNREADABLE), "{text}");
        }
        let other = check(Path::new("/d"), "larder data, format 99\nwritten by larder 9\n").err();
        assert!(matches!(other, Some(OpenError::UnknownFormat { found, .. }) if found == "99"));
    }
}
