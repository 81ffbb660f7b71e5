//! Copies what can be read of a data directory into a new one.
//!
//! ```text
//! survey ─▶ into: everything but `format` ─▶ packed, wide, bulk: newest versions, merged ─▶ blob files ─▶ `format`
//! ```
//! The file `format` comes last: a start refuses the new directory until it is complete. Keys of which a newer version may be
//! lost are left out and reported one by one, see `doubt`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use bytes::Bytes;
use lsm_tree::{AbstractTree as _, InternalValue, ValueType};

use super::address::{KeyAddress, LostKeys};
use super::doubt::Doubts;
use super::journals::JournalEntries;
use super::newest::{FoundEntry, FoundValue, NewestEntries};
use super::survey::{self, Source, SourceTree};
use super::values::ValuePlace;
use super::{InspectionSummary, InspectionWatcher, Tally, bodies, bytes_below};
use crate::blobs::folders;
use crate::format;
use crate::manifest::ManifestFile;
use crate::open::{OpenError, lay_out, lock, make_dir, open_spaces, suiting_sizes};
use crate::spaces::{Space, Spaces};
use crate::tree::sync_dir;

/// Memory for blocks of the new directory, which nobody reads yet.
const CACHE_BYTES: u64 = 1024 * 1024;

/// How to repair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Copy the version that is there of a key of which a newer one may be lost, instead of leaving the key out.
    pub keep_older: bool,
}

/// What a repair did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairSummary {
    /// What was found in the damaged directory.
    pub found: InspectionSummary,
    /// Entries of tables and journals that were copied.
    pub entries: u64,
    /// Blob files that were copied.
    pub blob_files: u64,
    /// Keys of which a newer version may be lost; they were left out, unless older versions were asked for.
    pub doubtful_keys: u64,
}

/// Copies all that can be read of `dir` into `into`, which is not there yet or empty, and reports what could not be copied.
/// Nothing in `dir` is changed; `into` can be opened once this returns.
///
/// # Errors
/// As [`super::check`]. `Io`, too: `into` is not empty, or cannot be written; what is in it then is incomplete, and no start
/// opens it.
pub fn repair(
    dir: &Path,
    into: &Path,
    options: RepairOptions,
    watcher: &mut dyn InspectionWatcher,
) -> Result<RepairSummary, OpenError> {
    let failed = |what: &'static str| move |error: io::Error| OpenError::io(into, what, &error);
    let mut tally = Tally::new(dir, watcher)?;
    let _source_lock = survey::lock(dir)?;
    refuse_used(dir, into)?;
    let source = Source::survey(dir, &mut tally)?;
    let journal = source.journal_entries()?;
    make_dir(into).map_err(failed("making the directory"))?;
    let _lock = lock(into)?;
    let manifest = lay_out(into)?;
    let sizes = suiting_sizes(into, u64::MAX).map_err(failed("looking at the disk"))?;
    let spaces = open_spaces(into, CACHE_BYTES, sizes.table)?;
    tally.expect(bytes_below(&dir.join("rows")).map_err(failed("looking into the directory"))?);
    let mut summary = RepairSummary::default();
    for tree in &source.trees {
        let mut copy = TreeCopy {
            source: &source,
            tree,
            doubts: Doubts::new(&tree.doubts),
            options,
            tally: &mut tally,
            summary: &mut summary,
        };
        copy.run(&spaces, &journal).map_err(|error| OpenError::Io { dir: into.to_owned(), what: error.to_string() })?;
    }
    let mut shards = BTreeSet::new();
    let copied = bodies::check(dir, &mut tally, |path, id| {
        summary.blob_files += 1;
        shards.insert(id.0[0]);
        copy_synced(path, &folders::shard(&folders::root(into), id.0[0]).join(id.hex()))
    });
    copied.and_then(|()| sync_folders(into, &shards)).map_err(failed("copying blobs"))?;
    let named =
        ManifestFile::new(into, manifest).and_then(|file| file.change(|manifest| manifest.trees = spaces.versions()));
    named.and_then(|()| format::create(into)).map_err(failed("writing the manifest"))?;
    summary.found = tally.finish();
    Ok(summary)
}

/// The target must be empty, and outside of what is read.
fn refuse_used(dir: &Path, into: &Path) -> Result<(), OpenError> {
    let absolute = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let failed = |error| OpenError::io(into, "looking into the directory", &error);
    if absolute(into).map_err(failed)?.starts_with(absolute(dir).map_err(failed)?) {
        return Err(OpenError::Io { dir: into.to_owned(), what: "it lies in the directory that is read".to_owned() });
    }
    let entries = match fs::read_dir(into) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if name != "lost+found" {
            let what = format!("it must be empty, and holds {}", name.display());
            return Err(OpenError::Io { dir: into.to_owned(), what });
        }
    }
    Ok(())
}

/// One tree on its way.
struct TreeCopy<'a, 'w> {
    source: &'a Source,
    tree: &'a SourceTree,
    doubts: Doubts<'a>,
    options: RepairOptions,
    tally: &'a mut Tally<'w>,
    summary: &'a mut RepairSummary,
}

impl TreeCopy<'_, '_> {
    fn run(&mut self, spaces: &Spaces, journal: &JournalEntries) -> lsm_tree::Result<()> {
        let target = spaces.tree(self.tree.space);
        let entries = NewestEntries::new(self.tree, journal).filter_map(|entry| match entry {
            Ok(entry) => self.keep(entry).map(Ok),
            Err(error) => Some(Err(lsm_tree::Error::Io(error))),
        });
        let written = target.below.flush_to_tables(entries)?;
        let Some((tables, blob_files)) = written else { return Ok(()) };
        if self.tree.space == Space::Bulk {
            sync_dir(&target.dir.join("blobs"))?;
        }
        match tables.is_empty() {
            true => Ok(()),
            false => target.below.register_tables(&tables, blob_files.as_deref(), None, &[], 0),
        }
    }

    /// The entry as it is written; `None` when there is nothing to write.
    fn keep(&mut self, entry: FoundEntry) -> Option<InternalValue> {
        let value = match self.is_doubtful(&entry) && !self.options.keep_older {
            true => None,
            false => self.value(&entry),
        }?;
        self.tally.advance((entry.key.len() + value.len()) as u64);
        self.summary.entries += 1;
        let (key, value) = (lsm_tree::Slice::from(entry.key), lsm_tree::Slice::from(value));
        Some(InternalValue::from_components(key, value, entry.seqno, ValueType::Value))
    }

    /// Reports a key of which a newer version may be lost. One that was removed is not there either way.
    fn is_doubtful(&mut self, entry: &FoundEntry) -> bool {
        let doubt = self.doubts.of(&entry.key, entry.seqno, entry.origin);
        let Some(doubt) = doubt.filter(|_| !matches!(entry.value, FoundValue::Removed)) else { return false };
        let what = match self.options.keep_older {
            true => "a newer version may be lost with it; the version found elsewhere is copied",
            false => "a newer version may be lost with it; the version found elsewhere is left out",
        };
        let key = KeyAddress::new(self.tree.space, &entry.key);
        self.tally.damage(&doubt.path, what, vec![LostKeys::Key(key)]);
        self.summary.doubtful_keys += 1;
        true
    }

    fn value(&mut self, entry: &FoundEntry) -> Option<Bytes> {
        let place = match &entry.value {
            FoundValue::Removed => return None,
            FoundValue::Here(value) => return Some(value.clone()),
            FoundValue::Elsewhere(place) => place,
        };
        let folder = self.source.values_folder();
        let (file, read) = match ValuePlace::decode(place) {
            Some(place) => (folder.join(place.file.to_string()), place.read(&folder, &entry.key)),
            None => (folder.clone(), Err(("the place of a value is damaged".to_owned(), None))),
        };
        read.map_err(|(what, owner)| {
            let key = KeyAddress::new(self.tree.space, &entry.key).owned_by(owner);
            self.tally.damage(&file, what, vec![LostKeys::Key(key)]);
        })
        .ok()
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
