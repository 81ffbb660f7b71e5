//! Packed entries whose values are beside their tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use larder_store::{Batch, Change, Durability, Kind, Partition, ReadOrder, ReadQuery, Row, Store, Table, Timestamp};

use super::inspect::noise;
use super::{EngineSizes, FrozenClock, call, put, small};
use crate::bulk_store::BulkRows;
use crate::journal::WriteGroup;
use crate::output_sync::OutputBound;
use crate::range_scan::ScanBounds;
use crate::tree_id::TreeId;
use crate::tree_options::TreeOptions;
use crate::{LocalStore, OpenOptions};

const KEYS: u64 = 200;
const LENGTH: usize = 3_000;

fn place(key: u64) -> Partition {
    Partition::new(Table::Objects, key.to_be_bytes().to_vec())
}

async fn put_all(store: &LocalStore, round: u64) {
    for key in 0..KEYS {
        let value = noise(key * 31 + round, LENGTH).into();
        let row = Row { name: "row".into(), value, stamp: Timestamp(round), expires: Some(Timestamp(2_000_000)) };
        store.apply(Batch::single(place(key), vec![Change::Put(row)]), &call(Durability::Buffered)).await.unwrap();
    }
}

async fn value(store: &LocalStore, key: u64) -> larder_store::Result<Option<Bytes>> {
    let page = store.read(&place(key), &ReadQuery::all(1), &call(Durability::Buffered)).await?;
    Ok(page.rows.into_iter().next().map(|row| row.value))
}

/// The files of large values, with their bytes.
fn value_files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(files) = fs::read_dir(dir.join("rows/packed/blobs")) else { return Vec::new() };
    files.map(|file| file.unwrap()).map(|file| (file.path(), file.metadata().unwrap().len())).collect()
}

async fn closed(dir: &Path, rounds: u64) {
    let store = LocalStore::open(small(dir)).unwrap();
    for round in 1..=rounds {
        put_all(&store, round).await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn one_damaged_value_costs_its_key_and_no_other_and_does_not_stop_the_sweep() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 1).await;
    let (path, bytes) = value_files(dir.path()).into_iter().max_by_key(|(_, bytes)| *bytes).expect("a file");
    let mut content = fs::read(&path).unwrap();
    content[bytes as usize / 2] ^= 1;
    fs::write(&path, content).unwrap();
    let store = LocalStore::open(small(dir.path())).unwrap();
    let mut unreadable = 0;
    for key in 0..KEYS {
        match value(&store, key).await {
            Ok(value) => assert_eq!(value, Some(noise(key * 31 + 1, LENGTH).into())),
            Err(error) => {
                assert_eq!(error.kind, Kind::Damaged, "{error}");
                unreadable += 1;
            }
        }
    }
    assert_eq!(unreadable, 1);
    store.close().await.unwrap();
    drop(store);
    let later = Arc::new(FrozenClock(AtomicU64::new(3_000_000)));
    let store = LocalStore::open(OpenOptions { clock: later, ..small(dir.path()) }).unwrap();
    let mut removed = 0;
    for _ in 0..100 {
        let swept = store.sweep_expired(10).await.unwrap();
        removed += swept.removed as u64;
        if swept.complete {
            break;
        }
    }
    assert_eq!(removed, KEYS - 1);
}

#[tokio::test]
async fn an_older_file_in_the_place_of_a_newer_one_once_served_older_values() {
    let dir = tempfile::tempdir().unwrap();
    // One file a round: flushes of small memtables end where the flusher happens to come.
    let large = || OpenOptions { sizes: Some(EngineSizes::from_memtable(16 * 1024 * 1024)), ..small(dir.path()) };
    let mut files = Vec::new();
    for round in [1, 2] {
        let store = LocalStore::open(large()).unwrap();
        put_all(&store, round).await;
        store.close().await.unwrap();
        let known = files.clone();
        files.extend(value_files(dir.path()).into_iter().filter(|file| !known.contains(file)));
    }
    let [(older, older_bytes), (newer, newer_bytes)] = &files[..] else { panic!("{files:?}") };
    // The same keys at the same offsets, each value with its checksum.
    assert_eq!(older_bytes, newer_bytes);
    let content = fs::read(older).unwrap();
    let store = LocalStore::open(large()).unwrap();
    fs::write(newer, content).unwrap();
    let mut unreadable = 0;
    for key in 0..KEYS {
        match value(&store, key).await {
            Ok(value) => assert_eq!(value, Some(noise(key * 31 + 2, LENGTH).into()), "an older value of key {key}"),
            Err(error) => unreadable += u64::from(error.kind == Kind::Damaged),
        }
    }
    assert_eq!(unreadable, KEYS);
    store.close().await.unwrap();
    drop(store);
    let refused = LocalStore::open(large()).err().expect("a file is another one").to_string();
    assert!(refused.contains("rows/packed/blobs/") && refused.contains("it is a copy of file"), "{refused}");
}

#[tokio::test]
async fn values_that_are_overwritten_give_their_space_back_while_they_are() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 12).await;
    let bytes = value_files(dir.path()).iter().map(|(_, bytes)| bytes).sum::<u64>();
    let live = KEYS * LENGTH as u64;
    assert!(bytes >= live && bytes < 2 * live, "{bytes} bytes for {live}");
    let store = LocalStore::open(small(dir.path())).unwrap();
    for key in 0..KEYS {
        assert_eq!(value(&store, key).await.unwrap(), Some(noise(key * 31 + 12, LENGTH).into()));
    }
}

#[test]
fn a_scan_reads_the_values_of_its_version_after_a_merge_replaced_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let trees = super::scan::open(dir.path());
    let tree = trees.tree(TreeId::Packed);
    let key = |number: u64| Bytes::copy_from_slice(&(number + (1 << 32)).to_be_bytes()[3..]);
    let overwrite = |round: u64| {
        let writes = (0..KEYS).map(|number| (TreeId::Packed, key(number), Some(noise(number + round, LENGTH).into())));
        let seqno = trees.next_seqno();
        trees.insert(&WriteGroup { number: round, seqno, writes: writes.collect() });
        super::scan::flush_all(&trees);
    };
    overwrite(1);
    let bounds = ScanBounds { from: key(0).into(), to: None, order: ReadOrder::Reverse };
    let entries = tree.scan(bounds, || trees.snapshots.acquire());
    let folder = dir.path().join("packed/blobs");
    let files = || fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    let before = files();
    for round in 2..8 {
        overwrite(round);
        tree.compact(u64::MAX, trees.snapshots.watermark()).unwrap();
        trees.publish_versions();
        tree.release_retired(trees.snapshots.watermark()).unwrap();
    }
    assert!(before.iter().all(|file| file.exists()), "a file in use was removed");
    let values: Vec<_> = entries.map(|entry| entry.unwrap().1).collect();
    let expected: Vec<_> = (0..KEYS).rev().map(|number| noise(number + 1, LENGTH)).collect();
    assert!(values.iter().map(|value| &**value).eq(expected.iter().map(|value| &**value)));
    assert!(files().iter().all(|file| !before.contains(file)), "the scan is gone, and its files are there");
}

#[tokio::test]
async fn a_directory_of_format_3_keeps_its_values_in_tables() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 0).await;
    let packed = dir.path().join("rows/packed");
    fs::remove_dir_all(&packed).unwrap();
    fs::create_dir(&packed).unwrap();
    let options = TreeOptions {
        cache: Arc::new(lsm_tree::Cache::with_capacity_bytes(0)),
        descriptors: Arc::new(lsm_tree::DescriptorTable::new(1)),
        seqnos: lsm_tree::SequenceNumberCounter::default(),
        table_bytes: 4096,
    };
    drop(options.config(TreeId::Packed, &packed, None, OutputBound::default()).open().unwrap());
    let format = dir.path().join("format");
    fs::write(&format, fs::read_to_string(&format).unwrap().replace("format 4", "format 3")).unwrap();
    closed(dir.path(), 3).await;
    let store = LocalStore::open(small(dir.path())).unwrap();
    for key in 0..KEYS {
        assert_eq!(value(&store, key).await.unwrap(), Some(noise(key * 31 + 3, LENGTH).into()));
    }
    assert_eq!(value_files(dir.path()), []);
    assert!(fs::read_to_string(&format).unwrap().starts_with("larder data, format 3\n"));
}

#[tokio::test]
async fn bodies_that_the_flusher_is_behind_with_filled_the_memory_of_every_writer() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(small(dir.path())).unwrap();
    let max = EngineSizes::from_memtable(64 * 1024).bulk_memtables_max();
    let body = |key: u64| {
        let store = store.clone();
        async move { BulkRows::put(&store, Bytes::from(vec![key as u8; 24]), noise(key, 100 * 1024).into()).await }
    };
    store.hold_memtables(true);
    for key in 0..=max / (100 * 1024) {
        body(key).await.unwrap();
    }
    let next = tokio::spawn(body(99));
    // Meanwhile rows are written as before.
    put(&store, 1, Durability::Buffered).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!next.is_finished(), "a body waits for its memory");
    store.hold_memtables(false);
    // The next group seals them.
    put(&store, 2, Durability::Buffered).await.unwrap();
    next.await.unwrap().unwrap();
    assert!(BulkRows::get(&store, &[99; 24]).await.unwrap().is_some());
}
