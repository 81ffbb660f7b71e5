//! The file `format` of a data directory: which format it is in, and which program wrote it first.
//!
//! ```text
//! larder data, format 1
//! written by larder 0.1.0
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::open::OpenError;

/// The format this build reads and writes.
const FORMAT: &str = "1";
/// What a start that broke off early may have left.
const OWN_NAMES: [&str; 5] = ["LOCK", "format.new", "blobs", "admin.sock", "lost+found"];
/// The program that writes it.
const PROGRAM: &str = concat!("larder ", env!("CARGO_PKG_VERSION"));

/// Checks the format of a data directory, or writes it into an empty one.
pub(crate) fn check_or_create(dir: &Path, rows: &Path) -> Result<(), OpenError> {
    match fs::read_to_string(path(dir)) {
        Ok(text) => check(dir, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !rows.exists() => {
            refuse_foreign(dir)?;
            create(dir).map_err(|error| OpenError::io(dir, "writing the file format", &error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::UnknownFormat {
            dir: dir.to_owned(),
            found: "none, the file format is missing".into(),
            writer: "an unknown program".into(),
            program: PROGRAM,
        }),
        Err(error) => Err(OpenError::io(dir, "reading the file format", &error)),
    }
}

/// A directory that holds something else is somebody else's: pointing at a Riak node's data is an easy slip.
fn refuse_foreign(dir: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::io(dir, "looking into the directory", &error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !OWN_NAMES.iter().any(|own| name == *own) {
            return Err(OpenError::Foreign { dir: dir.to_owned(), found: name.to_string_lossy().into_owned() });
        }
    }
    Ok(())
}

fn check(dir: &Path, text: &str) -> Result<(), OpenError> {
    let mut lines = text.lines();
    let found = lines.next().and_then(|line| line.strip_prefix("larder data, format ")).unwrap_or("unreadable");
    let writer = lines.next().and_then(|line| line.strip_prefix("written by ")).unwrap_or("an unknown program");
    if found == FORMAT {
        return Ok(());
    }
    Err(OpenError::UnknownFormat { dir: dir.to_owned(), found: found.into(), writer: writer.into(), program: PROGRAM })
}

fn create(dir: &Path) -> io::Result<()> {
    let unfinished = dir.join("format.new");
    let mut file = File::create(&unfinished)?;
    writeln!(file, "larder data, format {FORMAT}\nwritten by {PROGRAM}")?;
    file.sync_all()?;
    fs::rename(unfinished, path(dir))?;
    File::open(dir)?.sync_all()
}

fn path(dir: &Path) -> std::path::PathBuf {
    dir.join("format")
}
