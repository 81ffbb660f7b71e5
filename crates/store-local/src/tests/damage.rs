//! Truncated, damaged, torn and missing journals.

use std::fs;
use std::path::{Path, PathBuf};

use larder_store::{Durability, Store};

use super::{is_there, options, put};
use crate::journal::{HEADER_BYTES, JournalHeader};
use crate::{EngineSizes, LocalStore, OpenError, manifest};

const GROUPS: u64 = 12;

/// Writes and syncs `GROUPS` rows one after the other; returns the path of the journal.
async fn written(dir: &Path) -> PathBuf {
    let store = LocalStore::open(options(dir)).unwrap();
    for key in 1..=GROUPS {
        put(&store, key, Durability::Disk).await.unwrap();
    }
    drop(store);
    dir.join("journal/00000001.jnl")
}

/// Copies a data directory with a journal of these bytes.
fn copy(from: &Path, to: &Path, journal: &Path, bytes: &[u8]) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target, journal, bytes);
        } else if entry.path() == journal {
            fs::write(target, bytes).unwrap();
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens a directory: either all rows exist, or the start names its journal as damaged.
async fn is_whole(dir: &Path) -> bool {
    match LocalStore::open(options(dir)) {
        Ok(store) => {
            for key in 1..=GROUPS {
                assert!(is_there(&store, key).await, "row {key} is lost silently");
            }
            true
        }
        Err(OpenError::DamagedJournal { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

async fn accept(dir: &Path) {
    let accepting = crate::OpenOptions { accept_damaged_journal: true, ..options(dir) };
    let store = LocalStore::open(accepting).unwrap();
    put(&store, 100, Durability::Disk).await.unwrap();
    drop(store);
    let store = LocalStore::open(options(dir)).unwrap();
    assert!(store.is_ready() && is_there(&store, 100).await);
}

/// Evenly spread numbers without a source of randomness.
fn scattered(count: u64, below: usize) -> impl Iterator<Item = usize> {
    (1..=count).map(move |at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % below as u64) as usize)
}

#[tokio::test]
async fn a_truncated_journal_is_refused_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let journal = written(dir.path()).await;
    let bytes = fs::read(&journal).unwrap();
    for (at, cut) in scattered(30, bytes.len()).chain([0, HEADER_BYTES, bytes.len() - 1, bytes.len()]).enumerate() {
        let copied = tempfile::tempdir().unwrap();
        let zeros = if at % 2 == 0 { 0 } else { 64 };
        copy(dir.path(), copied.path(), &journal, &[&bytes[..cut], &vec![0; zeros]].concat());
        let whole = is_whole(copied.path()).await;
        assert_eq!(whole, cut == bytes.len(), "cut at {cut} of {}", bytes.len());
        if at % 10 == 0 && !whole {
            accept(copied.path()).await;
        }
    }
}

#[tokio::test]
async fn a_journal_with_a_wrong_byte_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = written(dir.path()).await;
    let bytes = fs::read(&journal).unwrap();
    for at in scattered(30, bytes.len()) {
        let copied = tempfile::tempdir().unwrap();
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x55;
        copy(dir.path(), copied.path(), &journal, &wrong);
        assert!(!is_whole(copied.path()).await, "byte {at} of {}", bytes.len());
    }
}

#[tokio::test]
async fn a_wrong_byte_is_found_without_the_synced_file_if_a_later_frame_knows_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let journal = written(dir.path()).await;
    fs::remove_file(dir.path().join("synced")).unwrap();
    let mut bytes = fs::read(&journal).unwrap();
    bytes[HEADER_BYTES + 60] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    let refused = LocalStore::open(options(dir.path())).err().unwrap().to_string();
    assert!(refused.contains("groups 1 to 11 are damaged"), "{refused}");
}

#[tokio::test]
async fn a_start_cuts_a_torn_unsynced_group_off() {
    let dir = tempfile::tempdir().unwrap();
    let journal = written(dir.path()).await;
    let before = fs::read(&journal).unwrap();
    let store = LocalStore::open(options(dir.path())).unwrap();
    put(&store, 50, Durability::Buffered).await.unwrap();
    let mut after = fs::read(&journal).unwrap();
    after.truncate(after.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    let synced = fs::read(dir.path().join("synced")).unwrap();
    drop(store);
    // The drop of the store synced the group; a power cut before it would leave the older number.
    fs::write(dir.path().join("synced"), synced).unwrap();
    for at in (before.len()..after.len()).step_by(9) {
        let copied = tempfile::tempdir().unwrap();
        let mut torn = after.clone();
        torn[at..].iter_mut().take(16).for_each(|byte| *byte = 0);
        if torn == after {
            continue;
        }
        copy(dir.path(), copied.path(), &journal, &torn);
        assert!(is_whole(copied.path()).await);
        let cut = fs::metadata(copied.path().join("journal/00000001.jnl")).unwrap().len();
        assert_eq!(cut, before.len() as u64);
    }
}

#[tokio::test]
async fn a_missing_synced_file_is_created_again() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let side = dir.path().join("synced");
    fs::remove_file(&side).unwrap();
    assert!(is_whole(dir.path()).await);
    let store = LocalStore::open(options(dir.path())).unwrap();
    put(&store, 90, Durability::Disk).await.unwrap();
    drop(store);
    assert_eq!(crate::journal::decode_synced(fs::read(&side).unwrap().into()), Ok(GROUPS + 1));
}

/// Writes until the journal has several files, each with writes that are in no table.
async fn long(dir: &Path) -> Vec<PathBuf> {
    let sizes = EngineSizes { memtable: 4096, table: 4096, journals_max: 1 << 30, memtables_max: 1 << 30 };
    // The memtables are never full, so no journal file is released.
    let options = crate::OpenOptions { sizes: Some(sizes), ..options(dir) };
    let store = LocalStore::open_with(options, |journal| Box::new(journal)).unwrap();
    store.hold_memtables(true);
    for key in 1..=200 {
        put(&store, key, Durability::Disk).await.unwrap();
    }
    drop(store);
    let mut journals =
        fs::read_dir(dir.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    journals.sort();
    assert!(journals.len() > 3, "{journals:?}");
    journals
}

#[tokio::test]
async fn a_start_names_an_older_journal_that_is_missing_empty_or_zeroed() {
    let dir = tempfile::tempdir().unwrap();
    let journals = long(dir.path()).await;
    let zeroed = |bytes: &[u8]| vec![0; bytes.len()];
    for journal in &journals {
        let bytes = fs::read(journal).unwrap();
        let name = journal.file_name().unwrap().to_str().unwrap();
        for damage in [None, Some(Vec::new()), Some(zeroed(&bytes)), Some(bytes[..bytes.len() - 9].to_vec())] {
            match &damage {
                None => fs::remove_file(journal).unwrap(),
                Some(damaged) => fs::write(journal, damaged).unwrap(),
            }
            let refused = LocalStore::open(options(dir.path())).err().expect("it is damaged").to_string();
            assert!(refused.contains(name), "{refused}");
            assert_eq!(fs::read(journal).ok(), damage, "a refused start changes nothing");
            fs::write(journal, &bytes).unwrap();
        }
    }
    let store = LocalStore::open(options(dir.path())).unwrap();
    for key in 1..=200 {
        assert!(is_there(&store, key).await);
    }
}

#[tokio::test]
async fn a_start_names_a_journal_of_another_store() {
    let dir = tempfile::tempdir().unwrap();
    let journals = long(dir.path()).await;
    let bytes = fs::read(&journals[1]).unwrap();
    let header = JournalHeader { chain: 7, ..JournalHeader::decode(&bytes).unwrap() };
    fs::write(&journals[1], [&header.encode()[..], &bytes[HEADER_BYTES..]].concat()).unwrap();
    assert!(matches!(LocalStore::open(options(dir.path())), Err(OpenError::DamagedJournal { .. })));
}

#[tokio::test]
async fn the_manifest_and_the_version_files_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let rows = |name: &str| dir.path().join("rows").join(name);
    let files = [
        manifest::path(dir.path()),
        rows("packed/current"),
        rows("wide/current"),
        rows("bulk/current"),
        rows("packed/v0"),
    ];
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let mut flipped = bytes.clone();
        flipped[0] ^= 2;
        for damage in [None, Some(Vec::new()), Some(vec![0; bytes.len()]), Some(flipped)] {
            match &damage {
                None => fs::remove_file(&file).unwrap(),
                Some(damaged) => fs::write(&file, damaged).unwrap(),
            }
            let refused = LocalStore::open(options(dir.path())).err().expect("it is damaged").to_string();
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(refused.contains(name), "{name}: {refused}");
            assert_eq!(fs::read(&file).ok(), damage, "a refused start changes nothing");
            fs::write(&file, &bytes).unwrap();
        }
    }
    assert!(is_whole(dir.path()).await);
}
