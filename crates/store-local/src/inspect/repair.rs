//! Copies the readable data of a directory into a new one.
//!
//! ```text
//! survey ─▶ into: everything but `format` ─▶ packed, wide, bulk: newest versions, merged ─▶ mirror ─▶ blob files ─▶ `format`
//! ```
//! The file `format` comes last: a start refuses the new directory until it is complete. The repair reports the keys
//! that may have lost a newer version one by one, see `address`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use bytes::Bytes;
use lsm_tree::{AbstractTree as _, InternalValue, ValueType};

use super::address::{KeyAddress, LostKeys, UnreadableRanges};
use super::journals::JournalEntries;
use super::newest::{FoundEntry, FoundValue, NewestEntries, read_value};
use super::survey::{self, SourceDirectory, SourceTree};
use super::{Damage, InspectionSummary, InspectionTally, InspectionWatcher, RowBlobsMaker, blob_files, bytes_below};
use crate::backup::KEY_RING_FILE;
use crate::blobs::folders;
use crate::io_errors::{OpenError, if_there, sync_dir};
use crate::manifest::ManifestFile;
use crate::open::{create_dir_synced, create_layout, fill_mirror, lock, open_trees, sizes_for_disk};
use crate::tree_id::TreeId;
use crate::trees::Trees;
use crate::{format, mirror};

/// Block cache of the new directory, which has no readers yet.
const CACHE_BYTES: u64 = 1024 * 1024;

/// Options of [`repair`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Leaves out a key that may have lost a newer version, instead of copying the version that was found. It is named either way.
    pub leave_out_older: bool,
}

/// The result of a repair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairSummary {
    /// The inspection of the damaged directory.
    pub found: InspectionSummary,
    /// Entries of tables and journals that were copied.
    pub entries: u64,
    /// Blob files that were copied.
    pub blob_files: u64,
    /// Keys that may have lost a newer version; left out with [`RepairOptions::leave_out_older`].
    pub doubtful_keys: u64,
}

/// Copies all readable data of `dir` into `into`, which must be absent or empty, and reports the rest. It changes nothing in
/// `dir`; a server can open `into` once this returns.
///
/// # Errors
/// As [`super::check`]. `Io`, too: `into` is not empty, or cannot be written; its content is then incomplete, and no start
/// opens it.
pub fn repair(
    dir: &Path,
    into: &Path,
    references: RowBlobsMaker<'_>,
    options: RepairOptions,
    watcher: &mut dyn InspectionWatcher,
) -> Result<RepairSummary, OpenError> {
    let failed = |what: &'static str| move |error: io::Error| OpenError::io(into, what, &error);
    let mut tally = InspectionTally::new(dir, watcher)?;
    // Both locks are held to the end: no server changes the source or opens the target half copied.
    let _source_lock = survey::lock(dir)?;
    check_unused(dir, into)?;
    let source = SourceDirectory::survey(dir, &mut tally)?;
    let journal = source.journal_entries()?;
    create_dir_synced(into).map_err(failed("making the directory"))?;
    let _lock = lock(into)?;
    let manifest = create_layout(into)?;
    let sizes = sizes_for_disk(into, u64::MAX).map_err(failed("looking at the disk"))?;
    let trees = open_trees(into, CACHE_BYTES, sizes.table)?;
    tally.add_expected(bytes_below(&dir.join("rows")).map_err(failed("looking into the directory"))?);
    let mut summary = RepairSummary::default();
    let mirror = source.mirror();
    // The mirror is not copied: it is filled with what the others have then.
    for tree in source.trees.iter().filter(|tree| tree.id != TreeId::Mirror) {
        let mut copy = TreeCopy {
            source: &source,
            tree,
            mirror,
            unreadable: UnreadableRanges::new(&tree.unreadable),
            options,
            tally: &mut tally,
            summary: &mut summary,
        };
        copy.run(&trees, &journal).map_err(|error| OpenError::Io { dir: into.to_owned(), what: error.to_string() })?;
    }
    blob_files::check_named(dir, &source, &journal, references, &mut tally).map_err(failed("reading tables"))?;
    trees.publish_tables();
    fill_mirror(&trees).map_err(|error| OpenError::Io { dir: into.to_owned(), what: error.to_string() })?;
    let mut shards = BTreeSet::new();
    let copied = blob_files::check(dir, &mut tally, |path, id| {
        summary.blob_files += 1;
        shards.insert(id.0[0]);
        copy_synced(path, &folders::shard(&folders::root(into), id.0[0]).join(id.hex()))
    });
    // Crash: the names of the copied blobs are synced before `format` makes the copy usable.
    copied.and_then(|()| sync_folders(into, &shards)).map_err(failed("copying blobs"))?;
    // What they open is worthless without them.
    if_there(copy_synced(&dir.join(KEY_RING_FILE), &into.join(KEY_RING_FILE)))
        .map_err(failed("copying the encryption keys"))?;
    // The manifest and `format` come last: until then a start refuses the target.
    let named = ManifestFile::new(into, manifest)
        .and_then(|file| Ok(file.change(|manifest| manifest.trees = trees.versions())?));
    named.and_then(|()| format::create(into)).map_err(failed("writing the manifest"))?;
    summary.found = tally.finish();
    Ok(summary)
}

/// Refuses a target that is not empty, or lies in the source directory.
fn check_unused(dir: &Path, into: &Path) -> Result<(), OpenError> {
    let absolute = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let failed = |error| OpenError::io(into, "looking into the directory", &error);
    if absolute(into).map_err(failed)?.starts_with(absolute(dir).map_err(failed)?) {
        return Err(OpenError::Io { dir: into.to_owned(), what: "it lies in the directory that is read".to_owned() });
    }
    let Some(entries) = if_there(fs::read_dir(into)).map_err(failed)? else { return Ok(()) };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if name != "lost+found" {
            let what = format!("it must be empty, and holds {}", name.display());
            return Err(OpenError::Io { dir: into.to_owned(), what });
        }
    }
    Ok(())
}

/// The copy of one tree.
struct TreeCopy<'a, 'w> {
    source: &'a SourceDirectory,
    tree: &'a SourceTree,
    mirror: Option<&'a SourceTree>,
    unreadable: UnreadableRanges<'a>,
    options: RepairOptions,
    tally: &'a mut InspectionTally<'w>,
    summary: &'a mut RepairSummary,
}

impl TreeCopy<'_, '_> {
    fn run(&mut self, trees: &Trees, journal: &JournalEntries) -> lsm_tree::Result<()> {
        let target = trees.tree(self.tree.id);
        let mut entries = NewestEntries::new(self.tree, self.mirror, journal).filter_map(|entry| match entry {
            Ok(entry) => self.keep(entry).map(Ok),
            Err(error) => Some(Err(lsm_tree::Error::Io(error))),
        });
        let (tables, blob_files) = target.write_tables(&mut entries)?;
        if target.separates {
            // lsm-tree syncs files of large values, not their names, which the version below needs.
            sync_dir(&target.dir.join("blobs"))?;
        }
        match tables.is_empty() {
            true => Ok(()),
            false => target.lsm.register_tables(&tables, Some(&blob_files), None, &[], 0),
        }
    }

    /// The entry to write; `None` for a removed, unreadable or doubtful one.
    fn keep(&mut self, entry: FoundEntry) -> Option<InternalValue> {
        let value = match self.is_doubtful(&entry) && self.options.leave_out_older {
            true => None,
            false => self.value(&entry),
        }?;
        self.tally.advance((entry.key.len() + value.len()) as u64);
        self.summary.entries += 1;
        let (key, value) = (lsm_tree::Slice::from(entry.key), lsm_tree::Slice::from(value));
        Some(InternalValue::from_components(key, value, entry.seqno, ValueType::Value))
    }

    /// Reports a key that may have lost a newer version. A removed key is absent either way and not reported.
    fn is_doubtful(&mut self, entry: &FoundEntry) -> bool {
        // A version that is lost here is in the mirror, and was found there.
        if mirror::holds_key(&entry.key) && self.mirror.is_some_and(|mirror| mirror.unreadable.is_empty()) {
            return false;
        }
        let range = self.unreadable.find(&entry.key, entry.seqno, entry.origin);
        let Some(range) = range.filter(|_| !matches!(entry.value, FoundValue::Removed)) else { return false };
        let what = match self.options.leave_out_older {
            true => "a newer version may be lost with it; the version found elsewhere is left out",
            false => "a newer version may be lost with it; the version found elsewhere is copied",
        };
        let key = KeyAddress::new(self.tree.id, &entry.key);
        self.tally.damage(&range.path, what, vec![LostKeys::Key(key)]);
        self.summary.doubtful_keys += 1;
        true
    }

    /// The value of an entry; one that cannot be read is reported.
    fn value(&mut self, entry: &FoundEntry) -> Option<Bytes> {
        let read = read_value(self.source.dir(), self.tree.id, entry);
        read.map_err(|Damage { file, what, lost }| self.tally.damage(&file, what, lost)).ok().flatten()
    }
}

fn copy_synced(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}

fn sync_folders(into: &Path, shards: &BTreeSet<u8>) -> io::Result<()> {
    let root = folders::root(into);
    shards.iter().try_for_each(|shard| sync_dir(&folders::shard(&root, *shard)))
}
