//! Inspects a data directory that no server has open: `check` reports damage, `repair` copies the undamaged data.
//!
//! ```text
//! survey     required files, and their damage             tables        blocks of one table, damaged or not
//! journals   entries that are in no table yet             newest        the newest versions, and their values
//! blob_files blob files                                  repair        writes the undamaged data into a new directory
//! address    keys as operators know them, and those that cannot be read
//! ```
//! An inspection changes nothing in the directory. It hands damage to an [`InspectionWatcher`] at once and keeps only the names
//! of damaged files in memory.

mod address;
mod blob_files;
mod journals;
mod newest;
mod repair;
mod survey;
pub(crate) mod tables;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use larder_store::{Row, RowBlobs};

use crate::blobs::folders;
use crate::io_errors::{OpenError, if_there};
use survey::SourceDirectory;

pub use address::{KeyAddress, LostKeys};
pub use repair::{RepairOptions, RepairSummary, repair};

/// Receives the progress and the findings of an inspection.
pub trait InspectionWatcher {
    /// `done` of `total` bytes are read.
    fn progress(&mut self, done: u64, total: u64);

    /// A file is damaged.
    fn damage(&mut self, damage: &Damage);
}

/// One damaged file, or one place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// The damage, on one line.
    pub what: String,
    /// The keys that the damage hits, as far as they are known.
    pub lost: Vec<LostKeys>,
}

/// The totals of an inspection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InspectionSummary {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damaged or missing files.
    pub damaged_files: u64,
    /// Single keys that damage hits.
    pub lost_keys: u64,
    /// Ranges of keys that damage hits.
    pub lost_ranges: u64,
}

impl InspectionSummary {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged_files == 0
    }
}

/// Makes what says which blobs a row names, from the rows of data keys: other rows may be sealed with these.
pub type RowBlobsMaker<'a> = &'a dyn Fn(Vec<Row>) -> RowBlobs;

/// Reads every file of a data directory and reports damage; `references` says which blobs a row names. Changes nothing.
///
/// # Errors
/// `InUse`: a server has the directory open. `UnknownFormat`: it has another version's format. `Io`: a file cannot be read, or
/// there is no data directory.
pub fn check(
    dir: &Path,
    references: RowBlobsMaker<'_>,
    watcher: &mut dyn InspectionWatcher,
) -> Result<InspectionSummary, OpenError> {
    let mut tally = InspectionTally::new(dir, watcher)?;
    let _lock = survey::lock(dir)?;
    let source = SourceDirectory::survey(dir, &mut tally)?;
    let journal = source.journal_entries()?;
    source.check_large_values(&journal, &mut tally)?;
    blob_files::check_named(dir, &source, &journal, references, &mut tally)
        .map_err(|error| OpenError::io(dir, "reading tables", &error))?;
    blob_files::check(dir, &mut tally, |_, _| Ok(())).map_err(|error| OpenError::io(dir, "reading blobs", &error))?;
    Ok(tally.finish())
}

/// Counts files, bytes and damage, and passes them to the watcher.
pub(crate) struct InspectionTally<'a> {
    watcher: &'a mut dyn InspectionWatcher,
    summary: InspectionSummary,
    done: u64,
    total: u64,
    damaged: BTreeSet<PathBuf>,
}

impl<'a> InspectionTally<'a> {
    fn new(dir: &Path, watcher: &'a mut dyn InspectionWatcher) -> Result<Self, OpenError> {
        let mut total = 0;
        for folder in ["journal", "rows", "blobs"] {
            let bytes = bytes_below(&dir.join(folder));
            total += bytes.map_err(|error| OpenError::io(dir, "looking into the directory", &error))?;
        }
        Ok(Self { watcher, summary: InspectionSummary::default(), done: 0, total, damaged: BTreeSet::new() })
    }

    /// Whether no damage was found so far.
    fn is_whole(&self) -> bool {
        self.summary.is_whole()
    }

    /// Counts a file.
    fn count_file(&mut self) {
        self.summary.files += 1;
    }

    /// Counts bytes that were read.
    fn count_bytes(&mut self, bytes: u64) {
        self.summary.bytes += bytes;
        self.advance(bytes);
    }

    /// Advances the progress.
    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        self.total = self.total.max(self.done);
        self.watcher.progress(self.done, self.total);
    }

    /// Adds to the total of the progress.
    fn add_expected(&mut self, bytes: u64) {
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
    let Some(entries) = if_there(fs::read_dir(dir))? else { return Ok(0) };
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
