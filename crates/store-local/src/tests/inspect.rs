//! `check` and `repair` over damaged stores.

mod other_tables;
mod random_damage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::ops::Bound;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{
    Batch, BlobOwner, Blobs as _, Change, Durability, ReadOrder, Row, RowBlobs, Store, Table, Timestamp,
};
use larder_testkit::SplitMix64;

use super::{call, options, place};
use crate::backup::KEY_RING_FILE;
use crate::blobs::LocalBlobs;
use crate::inspect::{
    Damage, InspectionSummary, InspectionWatcher, LostKeys, RepairOptions, RepairSummary, check, repair,
};
use crate::journal::HEADER_BYTES;
use crate::tree_id::TreeId;
use crate::{LocalStore, OpenError, OpenOptions};

/// Without versions that may be older ones.
const STRICT: RepairOptions = RepairOptions { leave_out_older: true };

/// The rows of these tests name no blobs.
pub(super) fn no_references(_data_keys: Vec<Row>) -> RowBlobs {
    Box::new(|_, _, _| Vec::new())
}

type StoreEntries = BTreeMap<(&'static str, Bytes), Bytes>;

#[derive(Default)]
pub(super) struct RecordingWatcher {
    pub(super) damage: Vec<Damage>,
    progress: Vec<(u64, u64)>,
}

impl InspectionWatcher for RecordingWatcher {
    fn progress(&mut self, done: u64, total: u64) {
        self.progress.push((done, total));
    }

    fn damage(&mut self, damage: &Damage) {
        self.damage.push(damage.clone());
    }
}

impl RecordingWatcher {
    fn names(&self, path: &Path) -> bool {
        self.damage.iter().any(|damage| damage.file == path)
    }

    fn is_about(&self, what: &str) -> bool {
        self.damage.iter().any(|damage| damage.file.to_string_lossy().contains(what))
    }

    fn reports(&self, tree: &str, key: &Bytes) -> bool {
        self.damage.iter().flat_map(|damage| &damage.lost).any(|lost| match lost {
            LostKeys::Key(lost) => lost.raw() == (tree, key),
            LostKeys::Range { tree: of, from, to } => {
                let from = match from {
                    Bound::Included(from) => key >= from.raw().1,
                    Bound::Excluded(from) => key > from.raw().1,
                    Bound::Unbounded => true,
                };
                let to = match to {
                    Bound::Included(to) => key <= to.raw().1,
                    Bound::Excluded(to) => key < to.raw().1,
                    Bound::Unbounded => true,
                };
                *of == tree && from && to
            }
        })
    }

    fn reports_blob(&self, id: &str) -> bool {
        self.damage.iter().flat_map(|damage| &damage.lost).any(|lost| lost.to_string().contains(id))
    }
}

/// Pseudo-random bytes, which do not compress.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    SplitMix64::new(seed).bytes(length)
}

fn small(dir: &Path) -> OpenOptions {
    OpenOptions { durable: false, ..super::small(dir) }
}

async fn put(store: &LocalStore, table: Table, key: u64, stamp: u64, value: Vec<u8>) {
    let row = Row { name: "row".into(), value: value.into(), stamp: Timestamp(stamp), expires: None };
    store.apply(Batch::single(place(table, key), vec![Change::Put(row)]), &call(Durability::Disk)).await.unwrap();
}

async fn remove(store: &LocalStore, table: Table, key: u64, stamp: u64) {
    store
        .apply(
            Batch::single(place(table, key), vec![Change::Clear { stamp: Timestamp(stamp) }]),
            &call(Durability::Disk),
        )
        .await
        .unwrap();
}

fn id(number: u64) -> BlobId {
    BlobId::for_row(&number.to_be_bytes(), b"row", Timestamp(number))
}

/// Writes a store with tables, journals, large values and blob files; flushed keys are overwritten and removed.
async fn written(dir: &Path) {
    for stamp in 1..=3_u64 {
        let store = LocalStore::open(small(dir)).unwrap();
        for key in 0..300 {
            match (key % 5, stamp) {
                (0, 2) => remove(&store, Table::Objects, key, stamp).await,
                (1, 2) | (2, 3) => remove(&store, Table::Keys, key, stamp).await,
                (3, 2..) => {}
                _ => {
                    let length = if key % 6 == 1 { 3000 } else { 300 };
                    put(&store, Table::Objects, key, stamp, noise(key * 7 + stamp, length)).await;
                    put(&store, Table::Keys, key, stamp, noise(key * 11 + stamp, 300)).await;
                }
            }
        }
        let blobs = LocalBlobs::open(dir, store.bulk_rows(), store.disk_space()).unwrap();
        for number in 0..12 {
            let length = if number < 10 { 20_000 } else { 1_300_000 };
            let number = stamp * 100 + number;
            let owner = BlobOwner { partition: place(Table::Objects, number), row: "row".into() };
            let mut writer = blobs.create(id(number), owner).await.unwrap();
            writer.write(noise(number, length).into()).await.unwrap();
            drop(writer.finish(Durability::Buffered).await.unwrap());
        }
        if stamp < 3 {
            store.close().await.unwrap();
        }
    }
    let store = LocalStore::open(OpenOptions { durable: true, ..small(dir) }).unwrap();
    store.hold_memtables(true);
    put(&store, Table::Objects, 1000, 9, noise(9, 100)).await;
    put(&store, Table::Objects, 1001, 9, noise(10, 100)).await;
    remove(&store, Table::Objects, 3, 9).await;
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Every file below a directory with its bytes, and every folder.
pub(super) fn tree_bytes(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(tree_bytes(&path));
            files.insert(path, None);
        } else {
            files.insert(path.clone(), Some(fs::read(path).unwrap()));
        }
    }
    files
}

/// All entries of a data directory, and the names of its blob files.
fn entries(dir: &Path) -> (StoreEntries, BTreeSet<String>) {
    let opened = crate::open::open(&small(dir)).unwrap();
    let mut entries = StoreEntries::new();
    for tree_id in TreeId::ALL {
        let first = Bytes::from_static(&[0]);
        for entry in opened.trees.range(tree_id, first, None, ReadOrder::Forward) {
            let (key, value) = entry.unwrap();
            entries.insert((tree_id.name(), Bytes::copy_from_slice(&key)), Bytes::copy_from_slice(&value));
        }
    }
    let files = tree_bytes(&dir.join("blobs")).into_iter().filter(|(_, bytes)| bytes.is_some());
    (entries, files.map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
}

/// The name of a file, and the damage to it.
type DamagedFile = (&'static str, fn(&Path));

struct InspectFixture {
    dir: tempfile::TempDir,
    expected: StoreEntries,
    blobs: BTreeSet<String>,
}

/// The check and the repair of a damaged copy.
struct InspectedCopy {
    checked: RecordingWatcher,
    summary: InspectionSummary,
    repaired: RecordingWatcher,
    repair: RepairSummary,
    found: StoreEntries,
    copy: PathBuf,
    _dirs: (tempfile::TempDir, tempfile::TempDir),
}

impl InspectFixture {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path()).await;
        let read = tempfile::tempdir().unwrap();
        copy(dir.path(), read.path());
        let (expected, blobs) = entries(read.path());
        assert!(expected.len() > 400 && blobs.len() == 6, "{} {}", expected.len(), blobs.len());
        Self { dir, expected, blobs }
    }

    /// Checks and repairs a damaged copy. The copy must not change, and every missing blob must be reported.
    fn after(&self, options: RepairOptions, damage: impl FnOnce(&Path)) -> InspectedCopy {
        let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (dir, into) = (dirs.0.path(), dirs.1.path().join("deep/new"));
        copy(self.dir.path(), dir);
        damage(dir);
        let before = tree_bytes(dir);
        let (mut checked, mut repaired) = (RecordingWatcher::default(), RecordingWatcher::default());
        let summary = check(dir, &no_references, &mut checked).unwrap();
        let done = repair(dir, &into, &no_references, options, &mut repaired).unwrap();
        assert!(tree_bytes(dir) == before, "an inspection changed something");
        for seen in [&checked, &repaired] {
            assert!(seen.progress.windows(2).all(|two| two[0].0 <= two[1].0));
            let last = seen.progress.last().unwrap();
            assert_eq!(last.0, last.1);
        }
        let mut again = RecordingWatcher::default();
        let new = check(&into, &no_references, &mut again).unwrap();
        assert!(new.is_whole(), "{:?}", again.damage);
        let (copied, blobs) = entries(&into);
        for id in self.blobs.difference(&blobs) {
            assert!(repaired.reports_blob(id) || repaired.is_about(&format!("/blobs/{}", &id[..2])), "{id} is gone");
        }
        assert!(blobs.is_subset(&self.blobs));
        InspectedCopy { checked, summary, repaired, repair: done, found: copied, copy: dir.to_owned(), _dirs: dirs }
    }

    /// Asserts that missing keys are reported, and that no removed or replaced value is back.
    fn assert_nothing_lost_silently(&self, outcome: &InspectedCopy) {
        for ((tree, key), value) in &self.expected {
            match outcome.found.get(&(*tree, key.clone())) {
                Some(stored) => assert!(stored == value, "{tree} {}: an older version", key.escape_ascii()),
                None => assert!(outcome.repaired.reports(tree, key), "{tree} {}: lost silently", key.escape_ascii()),
            }
        }
        for (tree, key) in outcome.found.keys() {
            assert!(self.expected.contains_key(&(*tree, key.clone())), "{tree} {} is back", key.escape_ascii());
        }
    }

    /// Asserts that each key whose newest version is not in the copy is named, whatever the copy has.
    fn assert_every_difference_named(&self, outcome: &InspectedCopy) {
        for entry in self.expected.keys().chain(outcome.found.keys()) {
            let (tree, key) = entry;
            let is_same = outcome.found.get(entry) == self.expected.get(entry);
            assert!(is_same || outcome.repaired.reports(tree, key), "{tree} {}: not named", key.escape_ascii());
        }
    }

    fn lost(&self, outcome: &InspectedCopy) -> usize {
        self.expected.len() - outcome.found.len()
    }
}

pub(super) fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    let at = usize::try_from(at).unwrap() % bytes.len();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// The files in a folder, the longest first.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    files.retain(|path| path.is_file());
    files.sort_by_key(|path| std::cmp::Reverse((fs::metadata(path).unwrap().len(), path.clone())));
    files
}

pub(super) fn tables(dir: &Path, tree: &str) -> Vec<PathBuf> {
    files(dir.join("rows").join(tree).join("tables"))
}

/// Where a section of a table begins.
pub(super) fn section(table: &Path, name: &str) -> u64 {
    sfa::Reader::new(table).unwrap().toc().section(name.as_bytes()).unwrap().pos()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_store_is_copied_whole() {
    let fixture = InspectFixture::new().await;
    let outcome = fixture.after(STRICT, |_| {});
    assert!(outcome.summary.is_whole() && outcome.checked.damage.is_empty(), "{:?}", outcome.checked.damage);
    assert!(outcome.repaired.damage.is_empty() && outcome.found == fixture.expected);
    assert_eq!(outcome.repair.entries, fixture.expected.len() as u64);
    assert_eq!(outcome.repair.blob_files, fixture.blobs.len() as u64);
    assert!(tables(fixture.dir.path(), "packed").len() > 1, "the store must have several tables");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_block_costs_its_keys_and_no_other() {
    let fixture = InspectFixture::new().await;
    for tree in ["packed", "wide"] {
        for number in 0..tables(fixture.dir.path(), tree).len() {
            for at in [4, 60, 9_000] {
                let outcome = fixture.after(STRICT, |dir| {
                    let table = &tables(dir, tree)[number];
                    flip(table, at % section(table, "tli"));
                });
                let table = &tables(&outcome.copy, tree)[number];
                assert!(outcome.checked.names(table) && outcome.repaired.names(table));
                assert!(outcome.summary.lost_ranges > 0, "{:?}", outcome.checked.damage);
                fixture.assert_nothing_lost_silently(&outcome);
                assert!(fixture.lost(&outcome) < 120, "a block was lost, and {} entries", fixture.lost(&outcome));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_a_damaged_index_filter_description_or_trailer_is_copied_whole() {
    let fixture = InspectFixture::new().await;
    for name in ["tli", "filter", "meta"] {
        let outcome = fixture.after(STRICT, |dir| {
            let table = &tables(dir, "packed")[0];
            flip(table, section(table, name) + 45);
        });
        assert!(outcome.checked.names(&tables(&outcome.copy, "packed")[0]), "{name}");
        assert!(outcome.found == fixture.expected, "{name}: {} are lost", fixture.lost(&outcome));
    }
    let outcome = fixture.after(STRICT, |dir| {
        let table = &tables(dir, "packed")[0];
        flip(table, fs::metadata(table).unwrap().len() - 3);
    });
    assert!(!outcome.summary.is_whole());
    fixture.assert_nothing_lost_silently(&outcome);
    assert_eq!(fixture.lost(&outcome), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_truncated_or_zeroed_table_brings_no_removed_key_back() {
    let fixture = InspectFixture::new().await;
    for tree in ["packed", "wide", "bulk"] {
        for number in 0..tables(fixture.dir.path(), tree).len() {
            for damage in 0..3 {
                let outcome = fixture.after(STRICT, |dir| {
                    let table = &tables(dir, tree)[number];
                    let bytes = fs::read(table).unwrap();
                    match damage {
                        0 => fs::remove_file(table).unwrap(),
                        1 => fs::write(table, &bytes[..bytes.len() / 2]).unwrap(),
                        _ => fs::write(table, vec![0; bytes.len()]).unwrap(),
                    }
                });
                assert!(outcome.checked.is_about(&format!("{tree}/tables/")), "{:?}", outcome.checked.damage);
                fixture.assert_nothing_lost_silently(&outcome);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_table_once_took_along_every_key_with_an_older_version() {
    let fixture = InspectFixture::new().await;
    let lose = |dir: &Path| fs::remove_file(&tables(dir, "packed")[0]).unwrap();
    let (strict, kept) = (fixture.after(STRICT, lose), fixture.after(RepairOptions::default(), lose));
    assert_eq!(strict.repair.doubtful_keys, kept.repair.doubtful_keys);
    assert_eq!(kept.found.len() as u64, strict.found.len() as u64 + kept.repair.doubtful_keys);
    fixture.assert_every_difference_named(&kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_large_value_is_named_with_its_row() {
    let fixture = InspectFixture::new().await;
    // The journal holds the values written last; those of the first file are not in it any more.
    let file = |dir: &Path| dir.join("rows/bulk/blobs/0");
    let outcome = fixture.after(STRICT, |dir| flip(&file(dir), 9_000));
    assert!(outcome.checked.names(&file(&outcome.copy)));
    fixture.assert_nothing_lost_silently(&outcome);
    assert_eq!((fixture.lost(&outcome), outcome.summary.lost_keys), (1, 1));
    let lines =
        outcome.checked.damage.iter().flat_map(|damage| &damage.lost).map(ToString::to_string).collect::<Vec<_>>();
    assert!(lines.iter().any(|line| line.starts_with("blob ") && line.contains(" of objects ")), "{lines:?}");
    let gone = fixture.after(STRICT, |dir| fs::remove_file(file(dir)).unwrap());
    fixture.assert_nothing_lost_silently(&gone);
    assert!(fixture.lost(&gone) > 0 && gone.summary.lost_keys == fixture.lost(&gone) as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_blob_file_is_named_with_its_row() {
    let fixture = InspectFixture::new().await;
    let name = fixture.blobs.first().unwrap();
    let path = |dir: &Path| dir.join("blobs").join(&name[..2]).join(name);
    for at in [3, 60, 300_000, 1_300_060] {
        let outcome = fixture.after(STRICT, |dir| flip(&path(dir), at));
        assert!(outcome.checked.names(&path(&outcome.copy)));
        assert!(outcome.checked.reports_blob(name) && outcome.repair.blob_files == 5);
        assert!(outcome.found == fixture.expected);
    }
    let folder = fixture.after(STRICT, |dir| fs::remove_dir_all(path(dir).parent().unwrap()).unwrap());
    assert!(folder.checked.names(path(&folder.copy).parent().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_groups_of_a_damaged_journal_are_copied() {
    let fixture = InspectFixture::new().await;
    let journal = |dir: &Path| {
        let mut journals = files(dir.join("journal"));
        journals.sort();
        journals.pop().unwrap()
    };
    let outcome = fixture.after(STRICT, |dir| {
        let path = journal(dir);
        let length = fs::metadata(&path).unwrap().len();
        assert!(length > HEADER_BYTES as u64 + 200);
        flip(&path, length - 10);
    });
    assert!(outcome.checked.names(&journal(&outcome.copy)), "{:?}", outcome.checked.damage);
    let lost = fixture.expected.iter().filter(|(key, value)| outcome.found.get(*key) != Some(value)).count();
    assert!(lost <= 1, "one group was damaged, {lost} keys are lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_manifest_format_or_current_is_copied() {
    let fixture = InspectFixture::new().await;
    let current = |dir: &Path| dir.join("rows/packed/current");
    let cases: [DamagedFile; 9] = [
        ("rows", |dir| fs::write(dir.join("rows/wide/tables/notes.txt"), "?").unwrap()),
        ("rows", |dir| fs::write(dir.join("rows/bulk/blobs/-1"), "?").unwrap()),
        ("manifest", |dir| fs::remove_file(dir.join("manifest")).unwrap()),
        ("manifest", |dir| flip(&dir.join("manifest"), 30)),
        ("format", |dir| fs::remove_file(dir.join("format")).unwrap()),
        ("format", |dir| flip(&dir.join("format"), 1)),
        ("rows/packed/current", |dir| fs::remove_file(dir.join("rows/packed/current")).unwrap()),
        ("rows/wide/current", |dir| flip(&dir.join("rows/wide/current"), 3)),
        ("synced", |dir| flip(&dir.join("synced"), 3)),
    ];
    for (name, damage) in cases {
        let outcome = fixture.after(STRICT, damage);
        assert!(outcome.checked.is_about(name), "{name}: {:?}", outcome.checked.damage);
        assert!(outcome.found == fixture.expected, "{name}: {} are lost", fixture.lost(&outcome));
    }
    let listed = fixture.after(STRICT, |dir| {
        files(dir.join("rows/bulk")).iter().for_each(|version| fs::remove_file(version).unwrap());
    });
    assert_eq!((listed.checked.damage.len(), fixture.lost(&listed)), (1, 0), "{:?}", listed.checked.damage);
    let outcome = fixture.after(STRICT, |dir| {
        fs::remove_file(current(dir)).unwrap();
        files(dir.join("rows/packed")).iter().for_each(|version| fs::remove_file(version).unwrap());
    });
    assert!(
        outcome.checked.names(&current(&outcome.copy)) && outcome.checked.damage.len() == 1,
        "{:?}",
        outcome.checked.damage
    );
    let store = LocalStore::open(small(&outcome._dirs.1.path().join("deep/new"))).unwrap();
    assert!(store.is_ready());
    fixture.assert_nothing_lost_silently(&outcome);
    assert_eq!(fixture.lost(&outcome), 0);
}

#[tokio::test]
async fn a_source_in_use_and_a_target_inside_it_or_not_empty_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let into = tempfile::tempdir().unwrap();
    let store = LocalStore::open(options(dir.path())).unwrap();
    put(&store, Table::Objects, 1, 1, vec![1]).await;
    let mut seen = RecordingWatcher::default();
    assert!(matches!(check(dir.path(), &no_references, &mut seen), Err(OpenError::InUse { .. })));
    let fix = |into: &Path| repair(dir.path(), into, &no_references, STRICT, &mut RecordingWatcher::default());
    assert!(matches!(fix(into.path()), Err(OpenError::InUse { .. })));
    drop(store);
    assert!(matches!(fix(&dir.path().join("new")), Err(OpenError::Io { .. })));
    assert!(fix(into.path()).is_ok());
    assert!(matches!(fix(into.path()), Err(OpenError::Io { .. })));
    assert!(matches!(check(tempfile::tempdir().unwrap().path(), &no_references, &mut seen), Err(OpenError::Io { .. })));
}

#[tokio::test]
async fn a_repair_left_the_master_keys_behind() {
    let (dir, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    LocalStore::open(options(dir.path())).unwrap().close().await.unwrap();
    let path = dir.path().join(KEY_RING_FILE);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    file.write_all(b"# Master keys.\nCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=\n").unwrap();
    repair(dir.path(), into.path(), &no_references, STRICT, &mut RecordingWatcher::default()).unwrap();
    let copied = into.path().join(KEY_RING_FILE);
    assert_eq!(fs::read(&copied).unwrap(), fs::read(&path).unwrap());
    assert_eq!(fs::metadata(&copied).unwrap().permissions().mode() & 0o777, 0o600);
}
