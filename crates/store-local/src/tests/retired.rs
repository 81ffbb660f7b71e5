//! Parts that no reader needs any more: they go while the store rests, and not before.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_store::{Batch, Change, Durability, Partition, ReadOrder, ReadQuery, Row, Store, Table, Timestamp};
use lsm_tree::AbstractTree;

use super::{call, options};
use crate::tree::EngineTree;
use crate::tree_id::TreeId;
use crate::{EngineSizes, LocalStore, OpenOptions};

fn open(dir: &Path) -> LocalStore {
    LocalStore::open(OpenOptions { sizes: Some(EngineSizes::from_memtable(64 * 1024)), ..options(dir) }).unwrap()
}

fn wide() -> Partition {
    Partition::new(Table::Keys, "bucket")
}

async fn put(store: &LocalStore, names: impl Iterator<Item = String>, stamp: u64) {
    let row =
        |name: String| Row { name: name.into(), value: vec![7; 100].into(), stamp: Timestamp(stamp), expires: None };
    let changes = names.map(|name| Change::Put(row(name))).collect();
    store.apply(Batch::single(wide(), changes), &call(Durability::Buffered)).await.unwrap();
}

/// The numbers of the files of tables, and of the tables in the tree's newest version.
fn tables(tree: &EngineTree) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let files = std::fs::read_dir(tree.dir.join("tables")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    (files, tree.lsm.current_version().iter_tables().map(lsm_tree::Table::id).collect())
}

#[tokio::test]
async fn tables_that_were_merged_go_without_a_further_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for round in 0..100 {
        put(&store, (0..100).map(|row| format!("{row}-{round}")), 1).await;
    }
    let tree = store.trees().tree(TreeId::Wide);
    let mut seen = tables(tree);
    for _ in 0..400 {
        // No write comes from here on.
        tokio::time::sleep(Duration::from_millis(50)).await;
        seen = tables(tree);
        if seen.0 == seen.1 && tree.l0_runs() < 4 && !tree.has_retired() {
            break;
        }
    }
    assert_eq!(seen.0, seen.1, "the files are those that the newest version names");
    assert!(!tree.has_retired() && tree.lsm.version_free_list_len() == 0);
    let next_id = tree.lsm.get_next_table_id();
    assert!(next_id > seen.1.len() as u64 + 8, "{next_id} tables were made, and some were merged");
    let page = store.read(&wide(), &ReadQuery::all(20_000), &call(Durability::Disk)).await.unwrap();
    assert_eq!(page.rows.len(), 10_000);
}

#[tokio::test]
async fn readers_without_a_pause_once_kept_every_flushed_memtable() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let tree = store.trees().tree(TreeId::Wide);
    let wait_for = async |what: &str, is_so: &dyn Fn(u64) -> bool| {
        for _ in 0..400 {
            if is_so(tree.retired_bytes()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{what}: {} bytes are retired", tree.retired_bytes());
    };
    let first = store.trees().snapshots.acquire();
    for round in 0..100 {
        put(&store, (0..100).map(|row| format!("{row}-{round}")), 1).await;
    }
    wait_for("what the first reader may need", &|bytes| bytes > 10 * 64 * 1024).await;
    let held = tree.retired_bytes();
    // There is a reader at every moment, and each needs less than the one before.
    let second = store.trees().snapshots.acquire();
    drop(first);
    for round in 100..120 {
        put(&store, (0..100).map(|row| format!("{row}-{round}")), 1).await;
    }
    wait_for("what the second reader may need", &|bytes| bytes < held / 2).await;
    assert!(tree.lsm.version_free_list_len() > 0, "the second reader holds a version");
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_without_a_pause_once_kept_flushed_memtables_and_every_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let sizes = EngineSizes::from_memtable(64 * 1024);
    // A tree that comes after the busy one keeps every journal from its first write on.
    put(&store, ["once".to_owned()].into_iter(), 1).await;
    let ended = Arc::new(AtomicBool::new(false));
    let writers = (0..4).map(|writer| {
        let (store, ended) = (store.clone(), ended.clone());
        tokio::spawn(async move {
            for round in 1.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let key = Partition::new(Table::Objects, format!("{writer}-{}", round % 50));
                let value = vec![7; 16 * 1024].into();
                let row = Row { name: "row".into(), value, stamp: Timestamp(round), expires: None };
                store.apply(Batch::single(key, vec![Change::Put(row)]), &call(Durability::Buffered)).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let (mut retired, mut journals) = (0, 0);
    let until = tokio::time::Instant::now() + Duration::from_secs(3);
    while tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let trees = store.trees().all();
        retired = retired.max(trees.iter().map(EngineTree::retired_bytes).sum::<u64>());
        let tables = trees.iter().map(EngineTree::disk_bytes).sum::<u64>();
        journals = journals.max(store.disk_bytes().saturating_sub(tables));
    }
    ended.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(retired <= sizes.memtables_max, "{retired} bytes of flushed memtables");
    // Tables that are being written count among them, and how many the flusher is behind is the machine's speed: it kept a gigabyte.
    assert!(journals <= 32 * sizes.journals_max, "{journals} bytes of journals");
}

#[tokio::test]
async fn rows_that_are_written_again_under_a_reader_stay_in_its_page() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let names = || (0..5).map(|row| row.to_string());
    put(&store, names(), 1).await;
    let from = Bytes::from_static(&[0]);
    let mut page = store.trees().range(TreeId::Wide, from, None, ReadOrder::Forward);
    let first = page.next().unwrap().unwrap();
    for stamp in 2..20 {
        put(&store, names(), stamp).await;
    }
    let rows: Vec<_> = page.map(std::result::Result::unwrap).collect();
    assert_eq!(rows.len(), 4, "each row in the version of the page's begin");
    assert!(rows.iter().all(|(_, value)| *value == first.1), "stamp 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_published_while_a_group_is_written_shows_no_half_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let names = || (0..50).map(|row: u32| row.to_string());
    put(&store, names(), 1).await;
    let ended = Arc::new(AtomicBool::new(false));
    let publisher = {
        let (store, ended) = (store.clone(), ended.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                store.publish_versions();
            }
        })
    };
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for stamp in 2.. {
                put(&store, names(), stamp).await;
            }
        })
    };
    for _ in 0..3_000 {
        let page = store.read(&wide(), &ReadQuery::all(100), &call(Durability::Disk)).await.unwrap();
        let stamps: BTreeSet<_> = page.rows.iter().map(|row| row.stamp).collect();
        assert_eq!((page.rows.len(), stamps.len()), (50, 1), "rows of one group");
        tokio::task::yield_now().await;
    }
    writer.abort();
    ended.store(true, Ordering::Relaxed);
    publisher.join().unwrap();
}
