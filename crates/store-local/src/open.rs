//! Opening a data directory. A start either opens everything, or changes nothing and reports the damage in one line.
//!
//! ```text
//! LOCK      held while the server runs      format    see `format`; written last when a directory is made
//! manifest  the files that must exist       synced    the last group on disk, see `synced`
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

use larder_store::{Clock, ReadOrder};

use crate::blobs::folders;
use crate::flush::flush;
use crate::format::{self, DirectoryState};
use crate::io_errors::{OpenError, if_there, sync_dir};
use crate::journal::{
    self, JournalEnd, JournalFile, JournalFiles, JournalHeader, ManifestJournal, SyncedFile, WriteGroup,
};
use crate::manifest::{self, EngineManifest, ManifestFile};
use crate::sizes::EngineSizes;
use crate::tree::EngineTree;
use crate::tree_id::{PerTree, TreeId};
use crate::trees::{Trees, is_damage, read_error};
use crate::{entry, mirror, precheck};

/// Options of [`crate::LocalStore::open`].
#[derive(Clone)]
pub struct OpenOptions {
    /// The data directory; created when it does not exist.
    pub dir: PathBuf,
    /// Memory for blocks of the engine.
    pub cache_bytes: u64,
    /// Most memory for rows that are not in tables yet, in bytes; writers wait when it is used up.
    pub memtables_bytes: u64,
    /// Whether writes with [`larder_store::Durability::Disk`] wait for the disk.
    pub durable: bool,
    /// Opens the store although the journal has lost synced groups.
    pub accept_damaged_journal: bool,
    /// Sizes of memtables, tables and journals; `None`: derived from the disk's size.
    pub sizes: Option<EngineSizes>,
    /// The clock that judges expiry.
    pub clock: Arc<dyn Clock>,
}

/// A data directory, opened and checked.
pub(crate) struct OpenedDirectory {
    pub(crate) trees: Trees,
    pub(crate) files: Arc<JournalFiles>,
    pub(crate) journal: JournalFile,
    pub(crate) sizes: EngineSizes,
    /// Number of the last group.
    pub(crate) last: u64,
    /// Writes replayed, because they were in no table.
    pub(crate) replayed: u64,
    pub(crate) lock: Arc<File>,
}

/// Opens a data directory.
pub(crate) fn open(options: &OpenOptions) -> Result<OpenedDirectory, OpenError> {
    let dir = &options.dir;
    let failed = |what: &'static str| move |error: io::Error| OpenError::io(dir, what, &error);
    create_dir_synced(dir).map_err(failed("making the directory"))?;
    // The lock precedes every read: a running server changes these files.
    let lock = Arc::new(lock(dir)?);
    let state = format::find(dir)?;
    let manifest = match &state {
        DirectoryState::Data | DirectoryState::WithoutMirror => read_manifest(dir)?,
        DirectoryState::Empty => create(dir)?,
    };
    let has_mirror = !matches!(state, DirectoryState::WithoutMirror);
    // Without the number the chain of frames still shows gaps; only a lost end goes unseen.
    let known = SyncedFile::read(dir).map_err(failed("reading the file synced"))?.unwrap_or(0);
    // All checks precede the first change: a refused start leaves the directory as it was.
    let checked = check(options, &manifest, has_mirror, known)?;
    let sizes = options
        .sizes
        .map_or_else(|| sizes_for_disk(dir, options.memtables_bytes), Ok)
        .map_err(failed("looking at the disk"))?;
    if !has_mirror {
        create_mirror(dir).map_err(failed("making a directory"))?;
    }
    // Opening a tree removes files that its version does not name, so the checks come first.
    let trees = open_trees(dir, options.cache_bytes, sizes.table)?;
    // Replay precedes the first append: new groups get sequence numbers after all replayed ones.
    let ReplaySummary { last: last_group, writes: replayed } =
        replay(dir, &trees, &checked.journals, &sizes, checked.is_lossy)?;
    let manifest = Arc::new(ManifestFile::new(dir, manifest).map_err(failed("opening the directory"))?);
    if !has_mirror {
        finish(dir, &trees, &manifest)?;
    }
    let files = JournalFiles::new(dir.join("journal"), manifest.clone()).map_err(failed("opening the journal"))?;
    let (header, end) = match checked.is_lossy {
        false => checked.active,
        true => start_new_journal(&trees, &files, &manifest, last_group, known)
            .map_err(failed("beginning a new journal"))?,
    };
    // Not before the checks and the opening: a refused start must not remove files.
    files.remove_leftovers().map_err(failed("removing journals that are not needed"))?;
    if_there(fs::remove_dir_all(format::staged_backup(dir))).map_err(failed("removing what a backup left"))?;
    // After an accepted loss `synced` may name groups that are gone: the next start would miss them again.
    let synced = SyncedFile::open(dir, end.group.min(known)).map_err(failed("opening the file synced"))?;
    let files = Arc::new(files);
    let journal = JournalFile::open(files.clone(), header, end, sizes.memtable, synced);
    let journal = journal.map_err(failed("opening the journal"))?;
    Ok(OpenedDirectory { trees, files, journal, sizes, last: end.group, replayed, lock })
}

/// Creates a directory and its parents, and syncs their names.
pub(crate) fn create_dir_synced(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_dir_synced(parent)?;
    }
    match fs::create_dir(dir) {
        // Another start may create the directory at the same time.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Crash: without the parent's sync a power cut takes the directory and everything that was synced in it.
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => sync_dir(Path::new(".")),
    }
}

/// Takes the directory's lock, which is released when the file is dropped.
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

/// Creates the content of an empty directory, or of one whose creation was interrupted: it never took a write. The file
/// `format` comes last and marks the rest as complete.
fn create(dir: &Path) -> Result<EngineManifest, OpenError> {
    let manifest = create_layout(dir)?;
    format::create(dir).map_err(|error| OpenError::io(dir, "writing the file format", &error))?;
    Ok(manifest)
}

/// Creates everything in an empty directory but the file `format`; until that exists, a start refuses a directory with data.
pub(crate) fn create_layout(dir: &Path) -> Result<EngineManifest, OpenError> {
    let failed = |what: &'static str| move |error: io::Error| OpenError::io(dir, what, &error);
    // An interrupted creation leaves a part of these, and no write ever reached them.
    for name in ["rows", "journal"] {
        let path = dir.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("clearing the directory")(error));
            }
            _ => fs::create_dir(&path).map_err(failed("making a directory"))?,
        }
    }
    for tree_id in TreeId::ALL {
        fs::create_dir(dir.join("rows").join(tree_id.name())).map_err(failed("making a directory"))?;
    }
    sync_dir(&dir.join("rows")).and_then(|()| folders::create(dir)).map_err(failed("making a directory"))?;
    let sizes = EngineSizes::from_memtable(1);
    open_trees(dir, 0, sizes.table)?;
    let header = JournalHeader { number: 1, first: 1, chain: 0 };
    let manifest =
        EngineManifest { trees: PerTree::default(), journals: vec![ManifestJournal { header, sealed: None }] };
    let written = ManifestFile::new(dir, EngineManifest::default()).and_then(|file| {
        let file = Arc::new(file);
        // The manifest comes after the files that it names: a crash in between must not leave names without files.
        JournalFiles::new(dir.join("journal"), file.clone())?.create(&header)?;
        SyncedFile::open(dir, 0)?.write(0);
        Ok(file.change(|empty| *empty = manifest.clone())?)
    });
    written.map_err(failed("writing the manifest"))?;
    Ok(manifest)
}

fn read_manifest(dir: &Path) -> Result<EngineManifest, OpenError> {
    let damaged = |what| OpenError::Damaged { dir: dir.to_owned(), what };
    match manifest::read(dir).map_err(|error| OpenError::io(dir, "reading the manifest", &error))? {
        Some(manifest) => manifest.map_err(damaged),
        // Every complete directory has a manifest: a new one would forget the journals.
        None => {
            Err(damaged(format!("{} is missing: it says which files must be there", manifest::path(dir).display())))
        }
    }
}

/// The result of the checks before the opening.
struct CheckedDirectory {
    /// The active journal and where it ends.
    active: (JournalHeader, JournalEnd),
    /// The journal files to replay, ascending; on an accepted loss those, too, that the manifest does not name.
    journals: Vec<ManifestJournal>,
    /// Whether journals are damaged and the operator accepted the loss.
    is_lossy: bool,
}

/// Checks that every file that must exist exists and is whole. Reads only.
fn check(
    options: &OpenOptions,
    manifest: &EngineManifest,
    has_mirror: bool,
    synced: u64,
) -> Result<CheckedDirectory, OpenError> {
    let dir = &options.dir;
    let damaged = |what| OpenError::Damaged { dir: dir.clone(), what };
    let scan = journal::scan(&dir.join("journal"), &manifest.journals, synced)
        .map_err(|error| OpenError::io(dir, "reading the journal", &error))?;
    for what in &scan.damage {
        if !options.accept_damaged_journal {
            return Err(OpenError::DamagedJournal { dir: dir.clone(), what: what.clone() });
        }
        let dir = dir.display();
        tracing::warn!(%dir, "the journal is damaged: {what}; the start goes on as accepted, answered writes are lost");
    }
    precheck::check(&dir.join("rows"), TreeId::in_directory(has_mirror), manifest.trees).map_err(damaged)?;
    folders::check(dir).map_err(damaged)?;
    let journals = manifest.journals.iter().copied().chain(scan.unnamed).collect();
    Ok(CheckedDirectory { active: scan.active, journals, is_lossy: !scan.damage.is_empty() })
}

/// The sizes for the disk of a directory and an amount of memory.
pub(crate) fn sizes_for_disk(dir: &Path, memtables_bytes: u64) -> io::Result<EngineSizes> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(EngineSizes::for_disk(disk.f_blocks.saturating_mul(disk.f_frsize), memtables_bytes))
}

/// Opens the trees. A panic of lsm-tree over its files counts as damage.
pub(crate) fn open_trees(dir: &Path, cache_bytes: u64, table_bytes: u64) -> Result<Trees, OpenError> {
    let rows = dir.join("rows");
    let damaged = |what: String| OpenError::Damaged { dir: dir.to_owned(), what };
    match catch_unwind(AssertUnwindSafe(|| Trees::open(&rows, cache_bytes, table_bytes))) {
        Ok(Ok(trees)) => Ok(trees),
        Ok(Err((tree, error))) => {
            let what = format!("the tables in {} cannot be opened: {error}", tree.display());
            match is_damage(&error) {
                true => Err(damaged(what)),
                false => Err(OpenError::Io { dir: dir.to_owned(), what }),
            }
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("the engine gave up");
            Err(damaged(format!("the tables in {} cannot be opened: {text}", rows.display())))
        }
    }
}

/// The result of a replay.
#[derive(Default)]
struct ReplaySummary {
    /// The last group.
    last: u64,
    /// Writes that were in no table.
    writes: u64,
}

/// Puts the writes that are in no table back into the memtables.
fn replay(
    dir: &Path,
    trees: &Trees,
    journals: &[ManifestJournal],
    sizes: &EngineSizes,
    salvage: bool,
) -> Result<ReplaySummary, OpenError> {
    let persisted = TreeId::ALL.map(|tree_id| trees.tree(tree_id).persisted());
    let mut summary = ReplaySummary::default();
    for journal in journals {
        let replayed = journal::replay(&dir.join("journal"), journal, salvage, |frame| {
            let mut writes = frame.writes().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            // Tables hold every write up to `persisted`: a second copy would only fill the memtables.
            writes.retain(|(tree_id, ..)| persisted[*tree_id as usize].is_none_or(|seqno| frame.seqno > seqno));
            summary.last = summary.last.max(frame.group);
            summary.writes += writes.len() as u64;
            // Before the insert: no new group may get the number of a replayed one.
            trees.advance_seqno_past(frame.seqno);
            trees.insert(&WriteGroup { number: frame.group, seqno: frame.seqno, writes });
            let is_full = |tree: &&EngineTree| tree.active_bytes() >= sizes.memtable_for(tree.id);
            let full = trees.all().iter().filter(is_full);
            // A journal may be longer than the memory for memtables: the flusher takes the full ones after the start.
            full.for_each(EngineTree::rotate);
            Ok::<_, io::Error>(())
        });
        replayed.map_err(|error| OpenError::io(dir, "reading the journal", &error))?;
    }
    Ok(summary)
}

/// After an accepted loss: flushes the salvaged writes and starts a journal whose first group comes after every earlier one.
fn start_new_journal(
    trees: &Trees,
    files: &JournalFiles,
    manifest: &ManifestFile,
    last_group: u64,
    synced: u64,
) -> io::Result<(JournalHeader, JournalEnd)> {
    // Crash: each table keeps its part of a group; a power cut must not take the rest from the journal [invariant 148].
    for number in journal::numbers(&files.dir)? {
        File::open(journal::path(&files.dir, number))?.sync_all()?;
    }
    // The flush comes first: the manifest forgets the damaged journals, which are the only other copy of these writes.
    trees.all().iter().for_each(EngineTree::rotate);
    for tree in trees.all() {
        while let Some(sealed) = tree.next_sealed() {
            let flushed = crate::flush::flush(tree, &sealed, 1, trees.snapshots.watermark());
            flushed.map_err(|error| io::Error::other(error.to_string()))?;
            tree.drop_flushed();
        }
    }
    let journals = manifest.read(|manifest| manifest.journals.clone());
    let there = journal::numbers(&files.dir)?.into_iter().chain(journals.iter().map(|journal| journal.header.number));
    let number = there.max().unwrap_or(0) + 1;
    let sealed = journals.iter().filter_map(|journal| Some(journal.sealed?.group)).max().unwrap_or(0);
    let header = JournalHeader { number, first: last_group.max(synced).max(sealed) + 1, chain: 0 };
    // Crash: before the manifest forgets them, for the next start removes what it does not name [invariant 144].
    let kept = files.set_aside()?;
    tracing::warn!(
        ?kept,
        "the damaged journals are kept for a closer look; nothing reads them, and you may remove them"
    );
    // The new file comes before the manifest that names it.
    files.create(&header)?;
    // Crash: one change names the tables and the new journal, and forgets the damaged ones.
    manifest.change(|manifest| {
        manifest.trees = trees.versions();
        manifest.journals = vec![ManifestJournal { header, sealed: None }];
    })?;
    Ok((header, JournalEnd::empty(&header, 0)))
}

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
