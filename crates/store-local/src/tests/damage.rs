//! Journals cut anywhere: the store opens with everything that was answered, or says that the journal is damaged.

use std::fs;
use std::io::Read;
use std::path::Path;

use larder_store::{Durability, Store};

use super::{is_there, options, put};
use crate::journal_file::{Journals, Tail};
use crate::{LocalStore, OpenError};

const GROUPS: u64 = 12;

/// A data directory in which `GROUPS` rows were written and synced one after the other.
async fn written(dir: &Path) -> Tail {
    let store = LocalStore::open(options(dir)).unwrap();
    for key in 1..=GROUPS {
        put(&store, key, Durability::Disk).await.unwrap();
    }
    drop(store);
    let journals = Journals::read(&dir.join("rows")).unwrap();
    assert_eq!((journals.groups, journals.gaps), (Some((1, GROUPS)), vec![]));
    journals.tail.unwrap()
}

/// The first bytes of a journal, which is long and mostly empty.
fn begin(journal: &Path, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    fs::File::open(journal).unwrap().take(length).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Copies a data directory with the first `length` bytes of its journal and then `tail`.
fn copy(from: &Path, to: &Path, journal: &Path, length: u64, tail: &[u8]) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target, journal, length, tail);
        } else if entry.path() == journal {
            let mut bytes = begin(journal, length);
            bytes.extend_from_slice(tail);
            fs::write(target, bytes).unwrap();
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens the copy: all rows are there, or it is named as damaged and opens only when that is accepted.
async fn judge(dir: &Path) -> bool {
    match LocalStore::open(options(dir)) {
        Ok(store) => {
            for key in 1..=GROUPS {
                assert!(is_there(&store, key).await, "row {key} is lost and nobody said so");
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
fn scattered(count: u64, below: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(move |at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % below)
}

#[tokio::test]
async fn no_cut_goes_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let tail = written(dir.path()).await;
    let cuts = (tail.last..=tail.end).chain(scattered(100, tail.end));
    for (at, cut) in cuts.enumerate() {
        let copied = tempfile::tempdir().unwrap();
        copy(dir.path(), copied.path(), &tail.path, cut, if at % 2 == 0 { b"" } else { &[0; 64] });
        let whole = judge(copied.path()).await;
        assert_eq!(whole, cut == tail.end, "cut at {cut} of {}", tail.end);
        if at % 20 == 0 && !whole {
            accept(copied.path()).await;
        }
    }
}

#[tokio::test]
async fn a_wrong_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let tail = written(dir.path()).await;
    let journal = begin(&tail.path, tail.end);
    for at in scattered(60, tail.end) {
        let copied = tempfile::tempdir().unwrap();
        let wrong = [journal[usize::try_from(at).unwrap()] ^ 0x55];
        let rest = &journal[usize::try_from(at + 1).unwrap()..usize::try_from(tail.end).unwrap()];
        copy(dir.path(), copied.path(), &tail.path, at, &[&wrong, rest].concat());
        // The count of a batch's sequence number is not checked by anyone; all else is.
        judge(copied.path()).await;
    }
}

#[tokio::test]
async fn what_a_power_cut_leaves_of_an_unsynced_group_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let tail = written(dir.path()).await;
    let journal = begin(&tail.path, tail.end);
    let group = journal[usize::try_from(tail.last).unwrap()..usize::try_from(tail.end).unwrap()].to_vec();
    for at in 0..group.len() {
        let copied = tempfile::tempdir().unwrap();
        let mut torn = group.clone();
        torn[at..].iter_mut().take(16).for_each(|byte| *byte = 0);
        copy(dir.path(), copied.path(), &tail.path, tail.end, &torn);
        assert!(judge(copied.path()).await);
    }
}

#[tokio::test]
async fn a_missing_side_file_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let tail = written(dir.path()).await;
    let side = dir.path().join("synced");
    fs::remove_file(&side).unwrap();
    assert!(judge(dir.path()).await);
    assert!(side.exists());
    fs::OpenOptions::new().write(true).open(&tail.path).unwrap().set_len(tail.last).unwrap();
    assert!(!judge(dir.path()).await);
}

#[tokio::test]
async fn a_journal_missing_between_others_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let tail = written(dir.path()).await;
    let journal = begin(&tail.path, tail.end);
    // The last group goes to a journal of its own, and the one before it is lost.
    let next = tail.path.with_file_name("9.jnl");
    fs::write(next, &journal[usize::try_from(tail.last).unwrap()..usize::try_from(tail.end).unwrap()]).unwrap();
    let cut = tail.last - 1;
    fs::OpenOptions::new().write(true).open(&tail.path).unwrap().set_len(cut).unwrap();
    let journals = Journals::read(&dir.path().join("rows")).unwrap();
    assert_eq!(journals.gaps, vec![(GROUPS - 1, GROUPS - 1)]);
    assert!(!judge(dir.path()).await);
    accept(dir.path()).await;
}
