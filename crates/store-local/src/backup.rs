//! A backup of a data directory that is in use: a directory that a server can open, with all that was answered before it began.
//!
//! ```text
//! trees      `current`, the version file that it names, tables, large values   linked
//! synced     before the journals: it names no group that they lack
//! manifest   after the trees: its journals have all groups that they lack
//! journals   up to the last whole frame                                        copied
//! keys       after the rows: of all that they have             copied
//! blobs      after the rows that name them; removals wait until the end        linked
//! ```
//! No file is changed once it has a name, but for journals, so a link is a copy. Files that go while the trees are linked make
//! the links begin again. The links are made within the data directory, in moments; then they move to the backup, or are copied
//! where that is another file system.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use larder_store::Purpose;

use crate::blobs::{LocalBlobs, folders};
use crate::disk_space::DiskSpace;
use crate::format;
use crate::io_errors::{if_there, sync_dir, write_synced};
use crate::journal::{self, HEADER_BYTES, JournalFrame, ManifestJournal};
use crate::manifest;
use crate::tree_id::TreeId;
use crate::version_file;

/// The file with the keys of encrypted objects, if the server keeps it here: without it a backup could not be read.
pub const KEY_RING_FILE: &str = "encryption-keys";
/// The ending of a backup that is not whole.
const PARTIAL: &str = "partial";
/// How often the links of the trees begin again.
const ATTEMPTS_MAX: usize = 200;
/// The form of a backup's name, with a digit for each `0`.
const NAME_FORM: &str = "0000-00-00T00-00-00Z";
/// The file in a folder of backups that the one which is being made holds locked.
const LOCK: &str = "lock";
/// Bytes that are copied between two looks at the progress.
const PIECE_BYTES: usize = 1024 * 1024;

/// The progress of a backup; its caller may end it.
#[derive(Debug, Default)]
pub struct BackupProgress {
    /// Files that are in the backup.
    pub files: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// The part of these bytes that was copied, not linked.
    pub copied: AtomicU64,
    /// Set by the caller: the backup ends and leaves nothing.
    pub cancelled: AtomicBool,
}

/// Removes backups that a kill interrupted. Other names are left alone.
fn remove_interrupted(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_suffix(PARTIAL)?.strip_suffix('.'));
        if name.is_some_and(is_backup_name) && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a name is that of a backup: the time when it began.
fn is_backup_name(name: &str) -> bool {
    let fits = |(form, byte): (u8, u8)| if form == b'0' { byte.is_ascii_digit() } else { byte == form };
    name.len() == NAME_FORM.len() && NAME_FORM.bytes().zip(name.bytes()).all(fits)
}

/// Backs up the data directory `dir`, whose blobs are these, into the new directory `into`. Where files must be copied, those of
/// the last backup beside it are linked instead if they are the same. Blocks the thread.
///
/// # Errors
/// Any I/O error; `Interrupted`: cancelled; `ResourceBusy`: another backup runs. Nothing is left then.
pub fn back_up(dir: &Path, blobs: &LocalBlobs, into: &Path, progress: &BackupProgress) -> io::Result<()> {
    let _turn = blobs.begin_backup().ok_or_else(|| io::Error::from(io::ErrorKind::ResourceBusy))?;
    let staged = format::staged_backup(dir);
    let folder = into.parent().unwrap_or(Path::new("/"));
    // Another server may use the folder.
    let lock = File::create(folder.join(LOCK))?;
    lock.try_lock().map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
    let partial = folder.join(format!("{}.{PARTIAL}", into.file_name().unwrap_or_default().display()));
    remove_interrupted(folder)?;
    let previous = backups_in(folder)?.pop();
    let run = || -> io::Result<()> {
        // Race: a body that is removed after the journals were copied is still named by a row in them.
        let held = blobs.hold_removals();
        stage_rows(dir, &staged, progress)?;
        stage_blobs(dir, &staged, progress)?;
        drop(held);
        write_synced(&staged.join("format"), &fs::read(dir.join("format"))?)?;
        // After the rows: it has the keys of all of them.
        if let Some(keys) = if_there(fs::read(dir.join(KEY_RING_FILE)))? {
            write_synced(&staged.join(KEY_RING_FILE), &keys)?;
        }
        let shares_disk = fs::metadata(folder)?.dev() == fs::metadata(dir)?.dev();
        let backup = Placed { previous: previous.as_deref(), progress, space: shares_disk.then(|| blobs.disk_space()) };
        backup.place_folder(&staged, &partial, Path::new(""))?;
        fs::rename(&partial, into)?;
        sync_dir(folder)
    };
    let done = run();
    if done.is_err() {
        // A backup that is not whole must not look like one, and its room is wanted.
        let _ = fs::remove_dir_all(&partial);
    }
    if_there(fs::remove_dir_all(&staged))?;
    done
}

/// Links or copies all but the blobs. It begins again when a file went before it was linked; links that are made stay, as a
/// start removes the files that no version names.
fn stage_rows(dir: &Path, staged: &Path, progress: &BackupProgress) -> io::Result<()> {
    if_there(fs::remove_dir_all(staged))?;
    fs::create_dir(staged)?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for _ in 0..ATTEMPTS_MAX {
        progress.check()?;
        match try_stage_rows(dir, staged) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => last = gone,
            other => return other,
        }
    }
    Err(last)
}

/// As [`stage_rows`]; `NotFound`: a file went.
fn try_stage_rows(dir: &Path, staged: &Path) -> io::Result<()> {
    let mut versions = [0; TreeId::ALL.len()];
    for tree_id in TreeId::ALL {
        let rows = Path::new("rows").join(tree_id.name());
        versions[tree_id as usize] = stage_tree(&dir.join(&rows), &staged.join(&rows))?;
    }
    // Before the journals: a group that it names was whole there.
    if let Some(synced) = if_there(fs::read(dir.join("synced")))? {
        write_synced(&staged.join("synced"), &synced)?;
    }
    // After the trees: a group in a tree is in its journals, or in all trees.
    let manifest = manifest::read(dir)?.ok_or(io::ErrorKind::NotFound)?.map_err(io::Error::other)?;
    if manifest.trees.iter().zip(versions).any(|(least, linked)| *least > linked) {
        // Journals were released after the trees were linked.
        return Err(io::ErrorKind::NotFound.into());
    }
    write_synced(&manifest::path(staged), manifest.encode().as_bytes())?;
    let (journals, copies) = (dir.join("journal"), staged.join("journal"));
    if_there(fs::remove_dir_all(&copies))?;
    fs::create_dir(&copies)?;
    manifest.journals.iter().try_for_each(|journal| copy_journal(&journals, &copies, journal))
}

/// Links the files of a tree; returns its version.
fn stage_tree(from: &Path, to: &Path) -> io::Result<u64> {
    // The version may be replaced between the two files that name it: it is read again.
    let files = version_file::read(from).map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?;
    let name = format!("v{}", files.version);
    let version = fs::read(from.join(&name))?;
    for folder in ["tables", "blobs"] {
        if from.join(folder).exists() {
            fs::create_dir_all(to.join(folder))?;
        }
    }
    for file in files.tables.iter().chain(&files.blob_files) {
        let within = file.path.strip_prefix(from).map_err(io::Error::other)?;
        match fs::hard_link(&file.path, to.join(within)) {
            // Of the try before: no id is used twice.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => linked?,
        }
    }
    write_synced(&to.join(name), &version)?;
    write_synced(&to.join("current"), &version_file::encode_current(files.version, &version))?;
    Ok(files.version)
}

/// Copies a journal up to its last whole frame: the engine may be in the middle of the next one, which has no answer yet.
fn copy_journal(from: &Path, to: &Path, journal: &ManifestJournal) -> io::Result<()> {
    let path = journal::path(from, journal.header.number);
    let bytes = Bytes::from(fs::read(&path)?);
    let mut end = HEADER_BYTES.min(bytes.len());
    while let Some(frame) = JournalFrame::decode(&bytes.slice(end..)) {
        end += frame.length();
    }
    if journal.sealed.is_some_and(|sealed| (end as u64) < sealed.length) {
        return Err(io::Error::other(format!("{} is damaged: `larder check` says how", path.display())));
    }
    write_synced(&journal::path(to, journal.header.number), &bytes[..end])
}

fn stage_blobs(dir: &Path, staged: &Path, progress: &BackupProgress) -> io::Result<()> {
    folders::create(staged)?;
    let (from, to) = (folders::root(dir), folders::root(staged));
    for shard in 0..=u8::MAX {
        progress.check()?;
        for entry in fs::read_dir(folders::shard(&from, shard))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                // A removal that began before it could wait may end now: its row is gone already.
                if_there(fs::hard_link(entry.path(), folders::shard(&to, shard).join(entry.file_name())))?;
            }
        }
    }
    Ok(())
}

/// The place of staged files in a backup.
struct Placed<'a> {
    previous: Option<&'a Path>,
    progress: &'a BackupProgress,
    /// The disk space of the engine, if the backup takes from it.
    space: Option<Arc<DiskSpace>>,
}

impl Placed<'_> {
    /// Places a folder and all below it; `within` is its path in the backup.
    fn place_folder(&self, from: &Path, to: &Path, within: &Path) -> io::Result<()> {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            self.progress.check()?;
            let entry = entry?;
            let (name, path) = (entry.file_name(), entry.path());
            match entry.file_type()?.is_dir() {
                true => self.place_folder(&path, &to.join(&name), &within.join(&name))?,
                false => self.place_file(&path, &to.join(&name), &within.join(&name))?,
            }
        }
        sync_dir(to)
    }

    fn place_file(&self, from: &Path, to: &Path, within: &Path) -> io::Result<()> {
        let length = fs::metadata(from)?.len();
        // Another disk takes no links, nor does another mount of this one.
        if fs::hard_link(from, to).is_err() {
            let same = self.previous.map(|previous| previous.join(within)).filter(|old| is_same(from, old));
            if same.is_none_or(|old| fs::hard_link(old, to).is_err()) {
                // The engine's own reserve stays: its writes must not end for a backup.
                let admitted = self.space.as_ref().map(|space| space.admit(Purpose::Data, length)).transpose();
                let reservation = admitted.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
                self.copy_synced(from, to)?;
                drop(reservation);
                self.progress.copied.fetch_add(length, Ordering::Relaxed);
            }
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        self.progress.bytes.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    fn copy_synced(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut source, mut copy) = (File::open(from)?, File::create_new(to)?);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            self.progress.check()?;
            match source.read(&mut piece)? {
                0 => break,
                count => copy.write_all(&piece[..count])?,
            }
        }
        copy.set_times(FileTimes::new().set_modified(source.metadata()?.modified()?))?;
        copy.sync_all()
    }
}

impl BackupProgress {
    fn check(&self) -> io::Result<()> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }
}

/// Whether a file of an earlier backup is a copy of this one: a copy keeps the time of its file.
fn is_same(from: &Path, old: &Path) -> bool {
    let known = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    };
    known(from).is_some_and(|file| known(old) == Some(file))
}

/// The backups in a folder, oldest first: their names are the times when they began.
///
/// # Errors
/// Any I/O error but a folder that is not there.
pub(crate) fn backups_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(entries) = if_there(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut backups = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_named = path.file_name().and_then(|name| name.to_str()).is_some_and(is_backup_name);
        if is_named && path.join("format").is_file() {
            backups.push(path);
        }
    }
    backups.sort();
    Ok(backups)
}
