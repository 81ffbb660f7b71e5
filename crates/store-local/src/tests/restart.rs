//! The length of the replay at a start.

use larder_store::Timestamp;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::{Batch, Change, Durability, Partition, Row, Store, Table};

use super::{FrozenClock, call, is_there, options, put};
use crate::journal::{self, JournalHeader, ManifestJournal, SyncedFile};
use crate::tree::EngineTree;
use crate::{EngineSizes, LocalStore, OpenOptions};

const MEMTABLE: u64 = 64 * 1024;

fn open(dir: &Path) -> LocalStore {
    LocalStore::open(OpenOptions { sizes: Some(EngineSizes::from_memtable(MEMTABLE)), ..options(dir) }).unwrap()
}

/// Writes `rows` rows of a hundred bytes to a packed and to a wide table.
async fn fill(store: &LocalStore, rows: u64) {
    for key in 0..rows {
        let name = bytes::Bytes::copy_from_slice(&key.to_be_bytes());
        let row = |name| Row { name, value: vec![7; 100].into(), stamp: Timestamp(1), expires: None };
        let mut batch =
            Batch::single(Partition::new(Table::Objects, name.clone()), vec![Change::Put(row(name.clone()))]);
        batch.add(Partition::new(Table::Keys, "bucket"), vec![Change::Put(row(name))]);
        store.apply(batch, &call(Durability::Buffered)).await.unwrap();
    }
}

#[tokio::test]
async fn a_start_after_a_close_replays_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 3_000).await;
    store.close().await.unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.stats().replayed, 0);
    assert!(store.disk_bytes() > 2 * 3_000 * 100);
}

#[tokio::test]
async fn a_start_after_a_kill_replays_no_more_than_the_journals_hold() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 5_000).await;
    // Without a close the memtables are not flushed, as after a kill.
    drop(store);
    let sizes = EngineSizes::from_memtable(MEMTABLE);
    let store = open(dir.path());
    let replayed = store.stats().replayed;
    assert!(0 < replayed && replayed < (sizes.journals_max + 2 * MEMTABLE) / 100, "{replayed} writes");
}

#[tokio::test]
async fn memory_in_use_is_counted_by_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(options(dir.path())).unwrap();
    let empty = store.memory();
    assert_eq!((empty.memtables, empty.entry_cache), (0, 0));
    for key in 0..20 {
        put(&store, key, Durability::Buffered).await.unwrap();
        assert!(is_there(&store, key).await);
    }
    let filled = store.memory();
    assert!(filled.memtables > 20 * 8 && filled.entry_cache > 10 * 8, "{filled:?}");
    store.close().await.unwrap();
    drop(store);
    let store = LocalStore::open(options(dir.path())).unwrap();
    assert!(is_there(&store, 1).await, "a wide row, from a table");
    let restarted = store.memory();
    assert!(restarted.memtables == 0 && restarted.block_cache > 0, "{restarted:?}");
}

#[tokio::test]
async fn a_store_that_rests_gives_the_memory_of_its_memtables_back() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(FrozenClock(AtomicU64::new(1_000_000)));
    let sizes = Some(EngineSizes::from_memtable(1024 * 1024));
    let store = LocalStore::open(OpenOptions { sizes, clock: clock.clone(), ..options(dir.path()) }).unwrap();
    fill(&store, 3_000).await;
    let loaded = store.memory().memtables;
    assert!(loaded > 512 * 1024, "two memtables, none of them full: {loaded}");
    for _ in 0..200 {
        // The threads poll in real time; each poll finds that ten seconds have passed.
        clock.0.fetch_add(10_000_000, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
        if store.memory().memtables == 0 {
            break;
        }
    }
    assert_eq!(store.memory().memtables, 0);
    let stats = store.stats();
    drop(store);
    let store = open(dir.path());
    assert!(store.stats().replayed < stats.batches, "what was flushed is not replayed");
    assert!(is_there(&store, 0).await && is_there(&store, 2_998).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_once_kept_a_part_of_a_group_that_a_power_cut_took_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 100).await;
    store.trees().all().iter().for_each(EngineTree::rotate);
    let flushed = || store.trees().all().iter().filter_map(EngineTree::persisted).max();
    for _ in 0..1000 {
        if flushed().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let on_disk = flushed().expect("a memtable is flushed");
    let (mut covered, synced) = (0, SyncedFile::read(dir.path()).unwrap().unwrap());
    for number in journal::numbers(&dir.path().join("journal")).unwrap() {
        let header = JournalHeader { number, first: 0, chain: 0 };
        let whole = ManifestJournal { header, sealed: None };
        let noted = journal::replay(&dir.path().join("journal"), &whole, false, |frame| {
            covered = if frame.group <= synced { frame.seqno } else { covered };
            Ok::<_, std::io::Error>(())
        });
        noted.unwrap();
    }
    assert!(covered >= on_disk, "synced up to {covered}, in tables up to {on_disk}");
}
