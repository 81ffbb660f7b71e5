//! Surveys a data directory: the files that must exist, and their damage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use lsm_tree::Table;

use super::address::{LostKeys, UnreadableRange};
use super::journals::{JournalEntries, SourceJournal};
use super::newest::{FoundValue, NewestEntries, read_value};
use super::tables::{KeyBounds, TablePart, TableReader, is_whole_inside};
use super::{Damage, InspectionTally};
use crate::format::{self, DirectoryState};
use crate::io_errors::{OpenError, if_there};
use crate::journal::decode_synced;
use crate::large_values::ValueHandle;
use crate::manifest::{self, EngineManifest};
use crate::open::lock_file;
use crate::precheck::{self, open_table};
use crate::tree_id::TreeId;
use crate::version_file::{self, OTHER_BYTES, TreeFile, TreeFiles, file_checksum};

/// The checksum of a file that no version names.
const UNKNOWN: u128 = 0;

/// The surveyed data directory.
pub(super) struct SourceDirectory {
    dir: std::path::PathBuf,
    pub(super) trees: Vec<SourceTree>,
    journal: SourceJournal,
}

/// A surveyed tree.
pub(super) struct SourceTree {
    pub(super) id: TreeId,
    /// Tables with readable entries.
    pub(super) tables: Vec<SourceTable>,
    /// Ranges of keys that may have lost a newer version.
    pub(super) unreadable: Vec<UnreadableRange>,
    /// Damaged files of large values.
    damaged_values: BTreeSet<u64>,
    /// The greatest sequence number in the tables.
    newest: Option<u64>,
}

/// A table with readable entries.
pub(super) struct SourceTable {
    pub(super) file: TreeFile,
    pub(super) first: Bytes,
    pub(super) last: Bytes,
}

/// The result of reading a table.
#[derive(Default)]
struct SurveyedTable {
    /// The first and the last readable key.
    keys: Option<(Bytes, Bytes)>,
    /// The first and the last key by the table's metadata.
    range: Option<(Bytes, Bytes)>,
    newest: Option<u64>,
    opened: Option<Table>,
    /// The damage.
    damage: Option<String>,
    lost: Vec<KeyBounds>,
}

/// Takes the lock of a directory, if its file exists: a running server holds it. Only servers create the file.
pub(super) fn lock(dir: &Path) -> Result<Option<File>, OpenError> {
    let file = if_there(File::open(dir.join("LOCK")));
    let file = file.map_err(|error| OpenError::io(dir, "locking the directory", &error))?;
    file.map(|file| lock_file(dir, file)).transpose()
}

impl SourceDirectory {
    /// Reads everything but blob files, and reports damage.
    ///
    /// # Errors
    /// `UnknownFormat`, `Io`.
    pub(super) fn survey(dir: &Path, tally: &mut InspectionTally<'_>) -> Result<Self, OpenError> {
        let failed = |what: &'static str| move |error: io::Error| OpenError::io(dir, what, &error);
        let trees = check_format(dir, tally)?;
        tally.count_file();
        let manifest = match manifest::read(dir).map_err(failed("reading the manifest"))? {
            Some(Ok(manifest)) => Some(manifest),
            Some(Err(_)) => {
                tally.damage(&manifest::path(dir), "it is damaged: it says which files must be there", Vec::new());
                None
            }
            None => {
                tally.damage(&manifest::path(dir), "it is missing: it says which files must be there", Vec::new());
                None
            }
        };
        let synced = check_synced(dir, tally).map_err(failed("reading the file synced"))?;
        let journal =
            SourceJournal::survey(dir, manifest.as_ref(), synced, tally).map_err(failed("reading the journal"))?;
        let manifest = manifest.unwrap_or_default();
        let surveyed = trees.iter().map(|tree_id| survey_tree(dir, *tree_id, &manifest, tally));
        let surveyed = surveyed.collect::<io::Result<Vec<_>>>().map_err(failed("reading tables"))?;
        // A start checks more: foreign files, missing folders.
        if tally.is_whole()
            && let Err(what) = precheck::check(&dir.join("rows"), trees, manifest.trees)
        {
            tally.damage(&dir.join("rows"), what, Vec::new());
        }
        Ok(Self { dir: dir.to_owned(), trees: surveyed, journal })
    }

    /// Reads the journal.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn journal_entries(&self) -> Result<JournalEntries, OpenError> {
        let persisted = TreeId::ALL.map(|tree_id| self.trees.get(tree_id as usize)?.newest);
        let entries = self.journal.entries(&self.dir, persisted);
        entries.map_err(|error| OpenError::io(&self.dir, "reading the journal", &error))
    }

    /// The mirror, if the directory has one.
    pub(super) fn mirror(&self) -> Option<&SourceTree> {
        self.trees.get(TreeId::Mirror as usize)
    }

    /// Reports the keys whose large values are damaged.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn check_large_values(
        &self,
        journal: &JournalEntries,
        tally: &mut InspectionTally<'_>,
    ) -> Result<(), OpenError> {
        for tree in self.trees.iter().filter(|tree| !tree.damaged_values.is_empty()) {
            for entry in NewestEntries::new(tree, self.mirror(), journal) {
                let entry = entry.map_err(|error| OpenError::io(&self.dir, "reading tables", &error))?;
                let FoundValue::Separated(place) = &entry.value else { continue };
                let place = ValueHandle::decode(place.clone());
                if place.is_some_and(|place| !tree.damaged_values.contains(&place.file)) {
                    continue;
                }
                if let Err(Damage { file, what, lost }) = read_value(&self.dir, tree.id, &entry) {
                    tally.damage(&file, what, lost);
                }
            }
        }
        Ok(())
    }

    /// The data directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Checks the file `format`; returns the trees of the directory.
fn check_format(dir: &Path, tally: &mut InspectionTally<'_>) -> Result<&'static [TreeId], OpenError> {
    tally.count_file();
    let path = dir.join("format");
    match format::find(dir) {
        Ok(DirectoryState::Data) => Ok(TreeId::in_directory(true)),
        Ok(DirectoryState::WithoutMirror) => Ok(TreeId::in_directory(false)),
        Ok(DirectoryState::Empty) => Err(OpenError::Io { dir: dir.to_owned(), what: "it holds no data".to_owned() }),
        Err(OpenError::UnknownFormat { .. }) if !path.exists() => {
            tally.damage(&path, "it is missing", Vec::new());
            Ok(trees_found(dir))
        }
        Err(OpenError::UnknownFormat { found, .. }) if found == format::UNREADABLE => {
            tally.damage(&path, "it is damaged", Vec::new());
            Ok(trees_found(dir))
        }
        Err(error) => Err(error),
    }
}

/// The trees of a directory whose format is not known.
fn trees_found(dir: &Path) -> &'static [TreeId] {
    TreeId::in_directory(dir.join("rows").join(TreeId::Mirror.name()).is_dir())
}

/// The last group known to be on disk.
fn check_synced(dir: &Path, tally: &mut InspectionTally<'_>) -> io::Result<u64> {
    let path = dir.join("synced");
    // A start creates the file again.
    let Some(bytes) = if_there(fs::read(&path))? else { return Ok(0) };
    tally.count_file();
    Ok(decode_synced(bytes.into()).unwrap_or_else(|_| {
        tally.damage(&path, "it is damaged; no key is hit, and a start writes it anew", Vec::new());
        0
    }))
}

fn survey_tree(
    dir: &Path,
    tree_id: TreeId,
    manifest: &EngineManifest,
    tally: &mut InspectionTally<'_>,
) -> io::Result<SourceTree> {
    let folder = dir.join("rows").join(tree_id.name());
    let files = tree_files(&folder, tree_id, manifest.trees[tree_id as usize], tally)?;
    let mut damaged_values = BTreeSet::new();
    for file in &files.blob_files {
        let Some(what) = check_file(file, tally)? else { continue };
        damaged_values.insert(file.id);
        // Without a known checksum the checks of its values decide.
        if file.checksum != UNKNOWN {
            tally.damage(&file.path, what, Vec::new());
        }
    }
    let surveyed = files.tables.iter().map(|file| Ok((file, survey_table(file, tally)?)));
    let surveyed = surveyed.collect::<io::Result<Vec<_>>>()?;
    let mut tree = SourceTree { id: tree_id, tables: Vec::new(), unreadable: Vec::new(), damaged_values, newest: None };
    for (at, (file, table)) in surveyed.iter().enumerate() {
        tree.newest = tree.newest.max(table.newest);
        if let Some(what) = &table.damage {
            let lost = table.lost.iter().map(|bounds| narrow_bounds(bounds, at, &surveyed)).collect::<Vec<_>>();
            let ranges = lost.iter().map(|(from, to)| LostKeys::range(tree_id, from, to)).collect();
            tally.damage(&file.path, what, ranges);
            tree.unreadable.extend(lost.into_iter().map(|bounds| UnreadableRange {
                path: file.path.clone(),
                bounds,
                newest: table.opened.as_ref().map(Table::get_highest_seqno),
                place: file.place,
                table: table.opened.clone(),
            }));
        }
        if let Some((first, last)) = table.keys.clone() {
            tree.tables.push(SourceTable { file: (*file).clone(), first, last });
        }
    }
    Ok(tree)
}

/// The files of a tree: those of its current version. If that is damaged, those of the last readable version and all newer ones,
/// which a version that cannot be read may name; without such a version all that are there.
fn tree_files(folder: &Path, tree_id: TreeId, version: u64, tally: &mut InspectionTally<'_>) -> io::Result<TreeFiles> {
    tally.count_file();
    let current = folder.join("current");
    let what = match version_file::read(folder) {
        // A version older than the manifest's would bring removed keys back.
        Ok(files) if files.version >= version => return Ok(files),
        Ok(files) => format!("it names version {}, {version} was on disk", files.version),
        Err(what) => what.replace(&format!("{}: ", current.display()), ""),
    };
    let versions = list_numbered(folder, "v")?;
    let Some(mut files) = versions.iter().rev().find_map(|version| version_file::read_unverified(folder, *version))
    else {
        let what = format!("{what}; all files that are there are taken for its tables: removed keys may be back");
        // No version says which files are left over from before: any key may be an older one.
        tally.damage(&current, what, vec![LostKeys::range(tree_id, &Bound::Unbounded, &Bound::Unbounded)]);
        return Ok(TreeFiles {
            version: 0,
            separates: tree_id.separates(),
            tables: files_after(folder, "tables", None)?,
            blob_files: files_after(folder, "blobs", None)?,
        });
    };
    // A newer version than the readable one may have been in use: its tables have greater numbers. Of entries that are in several
    // tables the newest is taken, so that more tables than needed do no harm.
    let last = |files: &[TreeFile]| files.iter().map(|file| file.id).max();
    let named = last(&files.tables);
    let tables = files_after(folder, "tables", named)?;
    let blob_files = files_after(folder, "blobs", last(&files.blob_files))?;
    let what = format!("{what}; the tables are those of v{} and {} newer ones", files.version, tables.len());
    // A table between them may have been merged and removed, and its removals with it: what they removed may be back.
    let has_gap = last(&tables).is_some_and(|newest| newest - named.unwrap_or(0) > tables.len() as u64);
    let doubtful = has_gap.then(|| LostKeys::range(tree_id, &Bound::Unbounded, &Bound::Unbounded));
    tally.damage(&current, what, doubtful.into_iter().collect());
    files.tables.extend(tables);
    files.blob_files.extend(blob_files);
    Ok(files)
}

/// The numbered files of a folder after `last`; no version says what is in them.
fn files_after(folder: &Path, name: &str, last: Option<u64>) -> io::Result<Vec<TreeFile>> {
    let folder = folder.join(name);
    let ids = list_numbered(&folder, "")?.into_iter().filter(|id| last.is_none_or(|last| *id > last));
    let file =
        |id: u64| TreeFile { id, path: folder.join(id.to_string()), checksum: UNKNOWN, global_seqno: 0, place: None };
    Ok(ids.map(file).collect())
}

/// The numbers in the names of a folder's files that begin with `prefix`, ascending.
fn list_numbered(folder: &Path, prefix: &str) -> io::Result<Vec<u64>> {
    let Some(entries) = if_there(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix(prefix)).and_then(|number| number.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a file to its end and compares its checksum; returns the damage.
fn check_file(file: &TreeFile, tally: &mut InspectionTally<'_>) -> io::Result<Option<String>> {
    tally.count_file();
    let Some(mut opened) = if_there(File::open(&file.path))? else { return Ok(Some("it is missing".to_owned())) };
    Ok(match file_checksum(&mut opened, |count| tally.count_bytes(count)) {
        Ok(checksum) if checksum == file.checksum => None,
        Ok(_) => Some(OTHER_BYTES.to_owned()),
        Err(error) => Some(format!("it cannot be read: {error}")),
    })
}

fn survey_table(file: &TreeFile, tally: &mut InspectionTally<'_>) -> io::Result<SurveyedTable> {
    let wrong = check_file(file, tally)?;
    if wrong.is_none()
        && let Ok(table) = open_table(file)
    {
        let range = key_range(&table);
        let newest = Some(table.get_highest_seqno());
        return Ok(SurveyedTable { keys: Some(range.clone()), range: Some(range), newest, ..SurveyedTable::default() });
    }
    let what = wrong.unwrap_or_else(|| "it cannot be opened".to_owned());
    if let Some(other) = other_table(file) {
        return Ok(SurveyedTable::lost(format!("{other}; none of its entries are used")));
    }
    let Some((reader, opened)) = if_there(TableReader::open(file))? else { return Ok(SurveyedTable::lost(what)) };
    let mut table = read_blocks(reader);
    table.range = opened.as_ref().map(key_range);
    table.newest = table.newest.max(opened.as_ref().map(Table::get_highest_seqno));
    // Without a known checksum, the checks of the blocks decide.
    let is_whole = file.place.is_none() && opened.is_some() && table.lost.is_empty();
    table.damage = (!is_whole).then(|| match (table.blocks_damaged(), opened.is_some()) {
        (true, _) => format!("{what}: entries cannot be read"),
        (false, _) => {
            format!("{what}: its index, its filter or its description is damaged, all its entries can be read")
        }
    });
    table.opened = opened;
    Ok(table)
}

/// The line that says that a file, whose bytes are not those that were written, is a whole table: another one then.
fn other_table(file: &TreeFile) -> Option<String> {
    match precheck::numbered_file(file) {
        Some(id) if id != file.id => Some(precheck::describe_other(id)),
        // Without a known checksum nothing says that it is another one.
        Some(_) if file.place.is_some() && is_whole_inside(file) => {
            Some("it is a table of another moment or of another store".to_owned())
        }
        _ => None,
    }
}

impl SurveyedTable {
    /// A table without a readable entry.
    fn lost(what: String) -> Self {
        Self { damage: Some(what), lost: vec![(Bound::Unbounded, Bound::Unbounded)], ..Self::default() }
    }

    fn blocks_damaged(&self) -> bool {
        !self.lost.is_empty()
    }
}

/// Reads all blocks; returns the range of readable keys, and the ranges of damaged blocks.
fn read_blocks(reader: TableReader) -> SurveyedTable {
    let mut table = SurveyedTable::default();
    let mut was_damaged = false;
    for part in reader {
        match part {
            TablePart::Entries(entries) => {
                let key = |entry: &lsm_tree::InternalValue| Bytes::copy_from_slice(&entry.key.user_key);
                let (Some(first), Some(last)) = (entries.front().map(key), entries.back().map(key)) else { continue };
                if was_damaged && let Some((_, to @ Bound::Unbounded)) = table.lost.last_mut() {
                    *to = Bound::Included(first.clone());
                }
                table.keys = Some((table.keys.take().map_or(first, |(first, _)| first), last));
                table.newest = table.newest.max(entries.iter().map(|entry| entry.key.seqno).max());
                was_damaged = false;
            }
            TablePart::Damaged { keys: (from, to), .. } => {
                match table.lost.last_mut().filter(|_| was_damaged) {
                    Some((_, last)) => *last = to,
                    None => table.lost.push((from, to)),
                }
                was_damaged = true;
            }
        }
    }
    table
}

fn key_range(table: &Table) -> (Bytes, Bytes) {
    let range = &table.metadata.key_range;
    (Bytes::copy_from_slice(range.min()), Bytes::copy_from_slice(range.max()))
}

/// Closes open ends of a range by the table's metadata, else by its neighbours in the run.
fn narrow_bounds(bounds: &KeyBounds, at: usize, tables: &[(&TreeFile, SurveyedTable)]) -> KeyBounds {
    let (file, table) = &tables[at];
    let is_beside = |other: &&(&TreeFile, SurveyedTable)| file.place.is_some() && other.0.place == file.place;
    let (mut from, mut to) = bounds.clone();
    if from == Bound::Unbounded {
        let before = || tables[..at].iter().rev().filter(is_beside).find_map(|other| other.1.keys.clone());
        from = match &table.range {
            Some((first, _)) => Bound::Included(first.clone()),
            None => before().map_or(from, |(_, last)| Bound::Excluded(last)),
        };
    }
    if to == Bound::Unbounded {
        let after = || tables[at + 1..].iter().filter(is_beside).find_map(|other| other.1.keys.clone());
        to = match &table.range {
            Some((_, last)) => Bound::Included(last.clone()),
            None => after().map_or(to, |(first, _)| Bound::Excluded(first)),
        };
    }
    (from, to)
}
