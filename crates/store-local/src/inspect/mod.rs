//! Looks through a data directory that no server has open: `check` says what is damaged, `repair` copies what is not.
//!
//! ```text
//! survey   which files must be there, which of them are whole      tables    where in a table the damage is
//! journals what is in no table yet                                 values    one large value of the bulk tree
//! doubt    keys of which a newer version may be lost               newest    merges tables and journals, key by key
//! bodies   blob files                                              repair    writes what is left into a new directory
//! address  names for people
//! ```
//! Nothing in the directory is changed. Damage is handed to an [`InspectionWatcher`] as it is found; of it only the names of
//! files stay in memory.

mod address;
mod bodies;
mod doubt;
mod journals;
mod newest;
mod repair;
mod survey;
mod tables;
mod values;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use address::{KeyAddress, LostKeys};
pub use repair::{RepairOptions, RepairSummary, repair};

use crate::blobs::folders;
use crate::open::OpenError;
use survey::Source;

/// Follows an inspection.
pub trait InspectionWatcher {
    /// So many bytes of so many were read.
    fn progress(&mut self, done: u64, total: u64);

    /// Something is damaged.
    fn damage(&mut self, damage: &Damage);
}

/// One damaged file, or one place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, on one line.
    pub what: String,
    /// The keys that it hits, as far as they are known.
    pub lost: Vec<LostKeys>,
}

/// What an inspection saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InspectionSummary {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Files that are damaged or missing.
    pub damaged_files: u64,
    /// Single keys that are hit.
    pub lost_keys: u64,
    /// Ranges of keys that are hit.
    pub lost_ranges: u64,
}

impl InspectionSummary {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged_files == 0
    }
}

/// Reads every file of a data directory and reports what is damaged. Changes nothing.
///
/// It does not look whether each row that names a blob has that blob: this engine does not interpret a row's value.
///
/// # Errors
/// `InUse`: a server has it open. `UnknownFormat`: another version's. `Io`: the machine refused to read a file, or there is no
/// data directory.
pub fn check(dir: &Path, watcher: &mut dyn InspectionWatcher) -> Result<InspectionSummary, OpenError> {
    let mut tally = Tally::new(dir, watcher)?;
    let _lock = survey::lock(dir)?;
    let source = Source::survey(dir, &mut tally)?;
    source.check_large_values(&mut tally)?;
    bodies::check(dir, &mut tally, |_, _| Ok(())).map_err(|error| OpenError::io(dir, "reading blobs", &error))?;
    Ok(tally.finish())
}

/// Counts and hands on.
pub(crate) struct Tally<'a> {
    watcher: &'a mut dyn InspectionWatcher,
    summary: InspectionSummary,
    done: u64,
    total: u64,
    damaged: BTreeSet<PathBuf>,
}

impl<'a> Tally<'a> {
    fn new(dir: &Path, watcher: &'a mut dyn InspectionWatcher) -> Result<Self, OpenError> {
        let mut total = 0;
        for folder in ["journal", "rows/packed", "rows/wide", "rows/bulk", "blobs"] {
            let bytes = bytes_below(&dir.join(folder));
            total += bytes.map_err(|error| OpenError::io(dir, "looking into the directory", &error))?;
        }
        Ok(Self { watcher, summary: InspectionSummary::default(), done: 0, total, damaged: BTreeSet::new() })
    }

    /// Whether nothing was found so far.
    fn is_whole(&self) -> bool {
        self.summary.is_whole()
    }

    /// Counts a file that was read, or will have been by the bytes that follow.
    fn file(&mut self) {
        self.summary.files += 1;
    }

    /// Counts bytes that were read.
    fn read(&mut self, bytes: u64) {
        self.summary.bytes += bytes;
        self.advance(bytes);
    }

    /// Moves the bar on.
    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        self.total = self.total.max(self.done);
        self.watcher.progress(self.done, self.total);
    }

    /// There is more to do.
    fn expect(&mut self, bytes: u64) {
        self.total += bytes;
    }

    fn damage(&mut self, file: &Path, what: impl Into<String>, lost: Vec<LostKeys>) {
        if self.damaged.insert(file.to_owned()) {
            self.summary.damaged_files += 1;
        }
        let keys = lost.iter().filter(|lost| matches!(lost, LostKeys::Key(_))).count() as u64;
        self.summary.lost_keys += keys;
        self.summary.lost_ranges += lost.len() as u64 - keys;
        self.watcher.damage(&Damage { file: file.to_owned(), what: what.into(), lost });
    }

    fn finish(self) -> InspectionSummary {
        self.watcher.progress(self.total, self.total);
        self.summary
    }
}

fn bytes_below(dir: &Path) -> io::Result<u64> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.path() != folders::unfinished(dir) {
            bytes += bytes_below(&entry.path())?;
        } else if kind.is_file() {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
