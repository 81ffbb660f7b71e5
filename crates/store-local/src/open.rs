//! Opening a data directory: lock, format, journal, engine, side file; whatever is wrong is said in one line.
//!
//! ```text
//! LOCK     held while the server runs     synced   up to which group is on disk, see `synced`
//! format   see `format`                   rows/    the engine below        blobs/   see `blobs`
//! ```

use std::fs::{self, File, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_store::Clock;

use crate::format;
use crate::journal_file::Journals;
use crate::spaces::{Space, Spaces, is_damage};
use crate::synced::{Synced, SyncedFile};

/// What to open, and how.
#[derive(Clone)]
pub struct OpenOptions {
    /// The data directory; made when it is not there.
    pub dir: PathBuf,
    /// Memory for blocks of the engine.
    pub cache_bytes: u64,
    /// Whether writes with [`larder_store::Durability::Disk`] wait for the disk.
    pub durable: bool,
    /// Go on although the journal has lost groups that were synced.
    pub accept_damaged_journal: bool,
    /// The clock that judges expiry.
    pub clock: Arc<dyn Clock>,
}

/// Why a data directory was not opened. The text is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another server", dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// It holds something that is not Larder's.
    #[error("{} is not empty and no data directory: it holds {found}", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// It is in a format that this build does not know.
    #[error("{} has data format {found}, written by {writer}; this is {program}, which reads format 1", dir.display())]
    UnknownFormat {
        /// The data directory.
        dir: PathBuf,
        /// The format found.
        found: String,
        /// The program that wrote it.
        writer: String,
        /// This program.
        program: &'static str,
    },
    /// The journal has lost writes that were on disk and answered.
    #[error(
        "the journal in {} is damaged: {what}; restore a backup, or accept the loss with accept_damaged_journal",
        dir.display()
    )]
    DamagedJournal {
        /// The data directory.
        dir: PathBuf,
        /// What is missing.
        what: String,
    },
    /// Something other than the journal is damaged.
    #[error("the data in {} is damaged: {what}; restore a backup", dir.display())]
    Damaged {
        /// The data directory.
        dir: PathBuf,
        /// What was found.
        what: String,
    },
    /// The machine refused something.
    #[error("{} cannot be opened: {what}", dir.display())]
    Io {
        /// The data directory.
        dir: PathBuf,
        /// What was refused.
        what: String,
    },
}

impl OpenError {
    /// The machine refused something.
    pub(crate) fn io(dir: &Path, what: &str, error: &std::io::Error) -> Self {
        Self::Io { dir: dir.to_owned(), what: format!("{what}: {error}") }
    }
}

/// A data directory, opened and checked.
pub(crate) struct Opened {
    pub(crate) spaces: Spaces,
    pub(crate) side: SyncedFile,
    pub(crate) synced: Synced,
    /// Number of the last group.
    pub(crate) last: u64,
    pub(crate) lock: File,
}

/// Opens a data directory.
pub(crate) fn open(options: &OpenOptions) -> Result<Opened, OpenError> {
    let dir = &options.dir;
    fs::create_dir_all(dir).map_err(|error| OpenError::io(dir, "making the directory", &error))?;
    let lock = lock(dir)?;
    let rows = dir.join("rows");
    format::check_or_create(dir, &rows)?;
    remove_unfinished(dir, &rows)?;
    let synced = SyncedFile::read(dir).map_err(|error| OpenError::io(dir, "reading the file synced", &error))?;
    check_journal(options, &rows, synced.as_ref())?;
    let spaces = open_spaces(dir, &rows, options.cache_bytes)?;
    let recovered = recovered(dir, &spaces)?;
    let accepted = check_recovered(options, &recovered, synced.as_ref())?;
    let synced = Synced { accepted, ..recovered };
    let side =
        SyncedFile::create(dir, &synced).map_err(|error| OpenError::io(dir, "writing the file synced", &error))?;
    Ok(Opened { spaces, side, synced, last: recovered.last(), lock })
}

/// The directory's lock; it goes with the file.
fn lock(dir: &Path) -> Result<File, OpenError> {
    let failed = |error| OpenError::io(dir, "locking the directory", &error);
    let file = File::options().create(true).truncate(false).write(true).open(dir.join("LOCK")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Removes an engine's directory whose creation was cut short: its file `version` comes before any data.
fn remove_unfinished(dir: &Path, rows: &Path) -> Result<(), OpenError> {
    if !rows.exists() || rows.join("version").exists() {
        return Ok(());
    }
    let has_data = fs::read_dir(rows.join("keyspaces")).is_ok_and(|mut keyspaces| keyspaces.next().is_some());
    if has_data {
        return Err(OpenError::Damaged { dir: dir.to_owned(), what: "the file rows/version is missing".into() });
    }
    fs::remove_dir_all(rows).map_err(|error| OpenError::io(dir, "removing an unfinished directory", &error))
}

/// Judges the journals before the engine below cuts off what it cannot read, and cuts off what a power cut left of a group
/// that was never synced.
fn check_journal(options: &OpenOptions, rows: &Path, synced: Option<&Synced>) -> Result<(), OpenError> {
    let dir = &options.dir;
    let journals = Journals::read(rows).map_err(|error| OpenError::io(dir, "reading the journal", &error))?;
    let synced = synced.copied().unwrap_or_default();
    for (first, last) in journals.gaps.iter().filter(|(_, last)| *last > synced.accepted) {
        refuse_unless_accepted(options, format!("groups {first} to {last} are missing in it"))?;
    }
    if let Some((_, last)) = journals.groups.filter(|(_, last)| *last < synced.last()) {
        refuse_unless_accepted(options, format!("it ends with group {last}, {} was on disk", synced.last()))?;
    }
    match journals.tail {
        Some(tail) if tail.torn => {
            tracing::info!(path = %tail.path.display(), at = tail.end, "cutting off a write that was not finished");
            tail.cut().map_err(|error| OpenError::io(dir, "cutting the journal", &error))
        }
        _ => Ok(()),
    }
}

fn refuse_unless_accepted(options: &OpenOptions, what: String) -> Result<(), OpenError> {
    if !options.accept_damaged_journal {
        return Err(OpenError::DamagedJournal { dir: options.dir.clone(), what });
    }
    let dir = options.dir.display();
    tracing::warn!(%dir, "the journal is damaged, as accepted: {what}; writes that were answered are lost");
    Ok(())
}

/// Opens the engine below. Where it panics over what it finds, that is damage, too.
fn open_spaces(dir: &Path, rows: &Path, cache_bytes: u64) -> Result<Spaces, OpenError> {
    let damaged = |what: String| OpenError::Damaged { dir: dir.to_owned(), what };
    match catch_unwind(AssertUnwindSafe(|| Spaces::open(rows, cache_bytes))) {
        Ok(Ok(spaces)) => Ok(spaces),
        Ok(Err(fjall::Error::Locked)) => Err(OpenError::InUse { dir: dir.to_owned() }),
        Ok(Err(error)) if is_damage(&error) => Err(damaged(error.to_string())),
        Ok(Err(error)) => Err(OpenError::Io { dir: dir.to_owned(), what: error.to_string() }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(damaged(text.unwrap_or("the engine gave up").to_owned()))
        }
    }
}

/// The last group of each keyspace, as it is now. The engine syncs its journal when it opens, so this is on disk.
fn recovered(dir: &Path, spaces: &Spaces) -> Result<Synced, OpenError> {
    let mut recovered = Synced::default();
    for space in Space::ALL {
        let group = spaces.group(space);
        let group = group.map_err(|error| OpenError::Damaged { dir: dir.to_owned(), what: error.to_string() })?;
        recovered.note(space, group);
    }
    Ok(recovered)
}

/// Compares what was recovered with what was on disk; answers up to which group losses are accepted now.
fn check_recovered(options: &OpenOptions, recovered: &Synced, synced: Option<&Synced>) -> Result<u64, OpenError> {
    let Some(synced) = synced else {
        if recovered.last() > 0 {
            let dir = options.dir.display();
            tracing::warn!(%dir, "the file synced is missing: whether the journal lost writes cannot be told this time");
        }
        return Ok(0);
    };
    let lost = (0..Space::ALL.len())
        .filter(|&at| recovered.groups[at] < synced.groups[at])
        .max_by_key(|&at| synced.groups[at]);
    if let Some(at) = lost {
        let (found, known) = (recovered.groups[at], synced.groups[at]);
        refuse_unless_accepted(options, format!("its last group is {found}, {known} was on disk"))?;
    }
    let accepts_now = options.accept_damaged_journal;
    Ok(if accepts_now { synced.accepted.max(recovered.last()) } else { synced.accepted })
}
