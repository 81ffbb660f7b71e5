//! Opening a data directory. A start either opens everything or changes nothing and says in one line what is wrong.
//!
//! ```text
//! LOCK      held while the server runs      format    see `format`; written last when a directory is made
//! manifest  which files must be there       synced    the last group on disk, see `synced`
//! journal/  see `journal`                   rows/     one directory for each tree          blobs/   see `blobs`
//!
//! manifest ──> journals whole and in one chain? ──> trees whole? ──> blob folders? ──> open, replay
//!              └───────────────── read only: any no ends the start ────────┘
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_store::Clock;

use crate::blobs::folders;
use crate::format::{self, Found};
use crate::journal::{self, Group, JournalEnd, JournalFile, JournalFiles, JournalHeader, ManifestedJournal};
use crate::manifest::{self, Manifest, ManifestFile};
use crate::precheck;
use crate::sizes::EngineSizes;
use crate::spaces::{Space, Spaces, is_damage};
use crate::synced::SyncedFile;
use crate::tree::{SpaceTree, sync_dir};

/// What to open, and how.
#[derive(Clone)]
pub struct OpenOptions {
    /// The data directory; made when it is not there.
    pub dir: PathBuf,
    /// Memory for blocks of the engine.
    pub cache_bytes: u64,
    /// Most memory for rows that are not in tables yet; writers wait when it is taken.
    pub memtables_bytes: u64,
    /// Whether writes with [`larder_store::Durability::Disk`] wait for the disk.
    pub durable: bool,
    /// Go on although the journal has lost groups that were synced.
    pub accept_damaged_journal: bool,
    /// Sizes of memtables, tables and journals; `None`: by the size of the disk.
    pub sizes: Option<EngineSizes>,
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
    #[error("{} has data format {found}, written by {writer}; this is {program}, which reads format 2; `kv-admin export` with that program and `import` with this one carries the data over", dir.display())]
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
    #[error("the data in {} is damaged: {what}; nothing was changed: put the file back, or see `larder check` and `larder repair`", dir.display())]
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
    pub(crate) files: Arc<JournalFiles>,
    pub(crate) journal: JournalFile,
    pub(crate) sizes: EngineSizes,
    /// Number of the last group.
    pub(crate) last: u64,
    /// Writes that were in no table.
    pub(crate) replayed: u64,
    pub(crate) lock: Arc<File>,
}

/// Opens a data directory.
pub(crate) fn open(options: &OpenOptions) -> Result<Opened, OpenError> {
    let dir = &options.dir;
    let failed = |what: &'static str| move |error: io::Error| OpenError::io(dir, what, &error);
    make_dir(dir).map_err(failed("making the directory"))?;
    let lock = Arc::new(lock(dir)?);
    let manifest = match format::find(dir)? {
        Found::Ours => read_manifest(dir)?,
        Found::Nothing => create(dir)?,
    };
    let known = SyncedFile::read(dir).map_err(failed("reading the file synced"))?.unwrap_or(0);
    let checked = check(options, &manifest, known)?;
    let sizes = options
        .sizes
        .map_or_else(|| suiting_sizes(dir, options.memtables_bytes), Ok)
        .map_err(failed("looking at the disk"))?;
    let spaces = open_trees(options, &sizes)?;
    let Replayed { last: found, writes: replayed } = replay(dir, &spaces, &manifest, &sizes, checked.is_lossy)?;
    let manifest = Arc::new(ManifestFile::new(dir, manifest).map_err(failed("opening the directory"))?);
    let files = JournalFiles::new(dir.join("journal"), manifest.clone()).map_err(failed("opening the journal"))?;
    let (header, end) = match checked.is_lossy {
        false => checked.active,
        true => begin_anew(&spaces, &files, &manifest, found, known).map_err(failed("beginning a new journal"))?,
    };
    files.remove_leftovers().map_err(failed("removing journals that are not needed"))?;
    let synced = SyncedFile::open(dir, end.group.min(known)).map_err(failed("opening the file synced"))?;
    let files = Arc::new(files);
    let journal = JournalFile::open(files.clone(), header, end, sizes.memtable, synced);
    let journal = journal.map_err(failed("opening the journal"))?;
    Ok(Opened { spaces, files, journal, sizes, last: end.group, replayed, lock })
}

/// Makes the data directory; its name is on disk before anything in it is relied on.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_dir(parent)?;
    }
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => sync_dir(Path::new(".")),
    }
}

/// The directory's lock; it goes with the file.
pub(crate) fn lock(dir: &Path) -> Result<File, OpenError> {
    let failed = |error| OpenError::io(dir, "locking the directory", &error);
    let file = File::options().create(true).truncate(false).write(true).open(dir.join("LOCK")).map_err(failed)?;
    lock_file(dir, file)
}

/// Locks the file `LOCK` of a directory.
pub(crate) fn lock_file(dir: &Path, file: File) -> Result<File, OpenError> {
    let failed = |error| OpenError::io(dir, "locking the directory", &error);
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Makes everything in an empty directory, or one whose making was cut short: nothing was ever written to it. The file
/// `format` comes last and says that the rest is whole.
fn create(dir: &Path) -> Result<Manifest, OpenError> {
    let manifest = lay_out(dir)?;
    format::create(dir).map_err(|error| OpenError::io(dir, "writing the file format", &error))?;
    Ok(manifest)
}

/// Makes everything in an empty directory but the file `format`: a start refuses it once something is in it.
pub(crate) fn lay_out(dir: &Path) -> Result<Manifest, OpenError> {
    let failed = |what: &'static str| move |error: io::Error| OpenError::io(dir, what, &error);
    for name in ["rows", "journal"] {
        let path = dir.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("clearing the directory")(error));
            }
            _ => fs::create_dir(&path).map_err(failed("making a directory"))?,
        }
    }
    for space in Space::ALL {
        fs::create_dir(dir.join("rows").join(space.name())).map_err(failed("making a directory"))?;
    }
    sync_dir(&dir.join("rows")).and_then(|()| folders::create(dir)).map_err(failed("making a directory"))?;
    let sizes = EngineSizes::of_memtable(1);
    open_spaces(dir, 0, sizes.table)?;
    let header = JournalHeader { number: 1, first: 1, chain: 0 };
    let manifest = Manifest { trees: [0; 3], journals: vec![ManifestedJournal { header, sealed: None }] };
    let written = ManifestFile::new(dir, Manifest::default()).and_then(|file| {
        let file = Arc::new(file);
        JournalFiles::new(dir.join("journal"), file.clone())?.create(&header)?;
        SyncedFile::open(dir, 0)?.write(0);
        file.change(|empty| *empty = manifest.clone())
    });
    written.map_err(failed("writing the manifest"))?;
    Ok(manifest)
}

fn read_manifest(dir: &Path) -> Result<Manifest, OpenError> {
    let damaged = |what| OpenError::Damaged { dir: dir.to_owned(), what };
    match manifest::read(dir).map_err(|error| OpenError::io(dir, "reading the manifest", &error))? {
        Some(manifest) => manifest.map_err(damaged),
        None => {
            Err(damaged(format!("{} is missing: it says which files must be there", manifest::path(dir).display())))
        }
    }
}

/// What the checks before the opening found.
struct CheckedDirectory {
    /// The active journal and where it ends.
    active: (JournalHeader, JournalEnd),
    /// Whether journals are damaged, and that was accepted.
    is_lossy: bool,
}

/// Everything that must be there is there. Reads only.
fn check(options: &OpenOptions, manifest: &Manifest, synced: u64) -> Result<CheckedDirectory, OpenError> {
    let dir = &options.dir;
    let damaged = |what| OpenError::Damaged { dir: dir.clone(), what };
    let scan = journal::scan(&dir.join("journal"), &manifest.journals, synced)
        .map_err(|error| OpenError::io(dir, "reading the journal", &error))?;
    for what in &scan.damage {
        if !options.accept_damaged_journal {
            return Err(OpenError::DamagedJournal { dir: dir.clone(), what: what.clone() });
        }
        tracing::warn!(dir = %dir.display(), "the journal is damaged, as accepted: {what}; answered writes are lost");
    }
    precheck::check(&dir.join("rows"), manifest.trees).map_err(damaged)?;
    folders::check(dir).map_err(damaged)?;
    Ok(CheckedDirectory { active: scan.active, is_lossy: !scan.damage.is_empty() })
}

/// The sizes for the disk of a directory, and for so much memory.
pub(crate) fn suiting_sizes(dir: &Path, memtables_bytes: u64) -> io::Result<EngineSizes> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(EngineSizes::suiting(disk.f_blocks.saturating_mul(disk.f_frsize), memtables_bytes))
}

fn open_trees(options: &OpenOptions, sizes: &EngineSizes) -> Result<Spaces, OpenError> {
    open_spaces(&options.dir, options.cache_bytes, sizes.table)
}

/// Opens the engine below. Where it panics over what it finds, that is damage, too.
pub(crate) fn open_spaces(dir: &Path, cache_bytes: u64, table_bytes: u64) -> Result<Spaces, OpenError> {
    let rows = dir.join("rows");
    let damaged = |what: String| OpenError::Damaged { dir: dir.to_owned(), what };
    match catch_unwind(AssertUnwindSafe(|| Spaces::open(&rows, cache_bytes, table_bytes))) {
        Ok(Ok(spaces)) => Ok(spaces),
        Ok(Err(error)) if is_damage(&error) => Err(damaged(error.to_string())),
        Ok(Err(error)) => Err(OpenError::Io { dir: dir.to_owned(), what: error.to_string() }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(damaged(text.unwrap_or("the engine gave up").to_owned()))
        }
    }
}

/// What a replay found.
#[derive(Default)]
struct Replayed {
    /// The last group.
    last: u64,
    /// Writes that were in no table.
    writes: u64,
}

/// Puts what is in no table yet back into the memtables.
fn replay(
    dir: &Path,
    spaces: &Spaces,
    manifest: &Manifest,
    sizes: &EngineSizes,
    salvage: bool,
) -> Result<Replayed, OpenError> {
    let persisted = Space::ALL.map(|space| spaces.tree(space).persisted());
    let mut found = Replayed::default();
    for journal in &manifest.journals {
        let replayed = journal::replay(&dir.join("journal"), journal, salvage, |frame| {
            let mut writes = frame.writes().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            writes.retain(|(space, ..)| persisted[*space as usize].is_none_or(|seqno| frame.seqno > seqno));
            found.last = found.last.max(frame.group);
            found.writes += writes.len() as u64;
            spaces.pass_seqno(frame.seqno);
            spaces.insert(&Group { number: frame.group, seqno: frame.seqno, writes });
            let full = spaces.trees().iter().filter(|tree| tree.active_bytes() >= sizes.memtable);
            full.for_each(SpaceTree::rotate);
            Ok::<_, io::Error>(())
        });
        replayed.map_err(|error| OpenError::io(dir, "reading the journal", &error))?;
    }
    Ok(found)
}

/// After an accepted loss: writes what was saved to tables and begins a journal behind all groups that ever were.
fn begin_anew(
    spaces: &Spaces,
    files: &JournalFiles,
    manifest: &ManifestFile,
    found: u64,
    synced: u64,
) -> io::Result<(JournalHeader, JournalEnd)> {
    spaces.trees().iter().for_each(SpaceTree::rotate);
    for tree in spaces.trees() {
        while let Some(sealed) = tree.next_sealed() {
            let flushed = crate::flush::flush(tree, &sealed, spaces.snapshots.watermark());
            flushed.map_err(|error| io::Error::other(error.to_string()))?;
            tree.flushed();
        }
    }
    let journals = manifest.read(|manifest| manifest.journals.clone());
    let number = journals.last().map_or(0, |journal| journal.header.number) + 1;
    let sealed = journals.iter().filter_map(|journal| Some(journal.sealed?.group)).max().unwrap_or(0);
    let header = JournalHeader { number, first: found.max(synced).max(sealed) + 1, chain: 0 };
    files.create(&header)?;
    manifest.change(|manifest| {
        manifest.trees = spaces.versions();
        manifest.journals = vec![ManifestedJournal { header, sealed: None }];
    })?;
    Ok((header, JournalEnd::empty(&header, 0)))
}
