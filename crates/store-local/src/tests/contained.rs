//! Damage in tables of a running store: only the keys in the damaged block are lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use larder_store::{Batch, Change, Durability, Kind, Partition, ReadQuery, Row, Store, Table, Timestamp};

use super::{FrozenClock, call, small};
use crate::inspect::tables;
use crate::tree_id::TreeId;
use crate::{LocalStore, OpenOptions};

const KEYS: u64 = 2_000;

fn place(key: u64) -> Partition {
    Partition::new(Table::Objects, key.to_be_bytes().to_vec())
}

async fn put(store: &LocalStore, key: u64, stamp: u64, expires: Option<u64>) -> larder_store::Result<()> {
    let row = Row {
        name: "row".into(),
        value: vec![key as u8; 200].into(),
        stamp: Timestamp(stamp),
        expires: expires.map(Timestamp),
    };
    store.apply(Batch::single(place(key), vec![Change::Put(row)]), &call(Durability::Buffered)).await
}

/// The stamp of a key's row, 0 when it has none.
async fn stamp(store: &LocalStore, key: u64) -> larder_store::Result<u64> {
    let page = store.read(&place(key), &ReadQuery::all(1), &call(Durability::Buffered)).await?;
    Ok(page.rows.first().map_or(0, |row| row.stamp.0))
}

/// The largest table of the packed tree.
fn table(dir: &Path) -> PathBuf {
    let tables = fs::read_dir(dir.join("rows/packed/tables")).unwrap().map(|entry| entry.unwrap().path());
    tables.max_by_key(|path| fs::metadata(path).unwrap().len()).expect("a table")
}

/// Makes every table of large values name a file that is not there.
fn misname_value_files(dir: &Path) -> usize {
    let tables = fs::read_dir(dir.join("rows/bulk/tables")).unwrap().map(|entry| entry.unwrap().path());
    let misnamed = tables.map(|table| {
        let list = sfa::Reader::new(&table).unwrap().toc().section(b"linked_blob_files").unwrap().pos() as usize;
        let mut bytes = fs::read(&table).unwrap();
        // The first file's number follows the count.
        bytes[list + 4] ^= 0x80;
        fs::write(table, bytes).unwrap();
    });
    misnamed.count()
}

async fn put_large(store: &LocalStore, round: u8) {
    for key in 0..100_u8 {
        store.bulk_rows().put(vec![b'n', key].into(), vec![round; 5_000].into()).await.unwrap();
    }
}

/// A closed store with `KEYS` keys, one of whose data blocks has a wrong bit.
async fn damaged(expires: Option<u64>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(small(dir.path())).unwrap();
    for key in 0..KEYS {
        put(&store, key, 1, expires).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let table = table(dir.path());
    let mut bytes = fs::read(&table).unwrap();
    bytes[6_000] ^= 1;
    fs::write(table, bytes).unwrap();
    dir
}

async fn unreadable(store: &LocalStore) -> Vec<u64> {
    let mut keys = Vec::new();
    for key in 0..KEYS {
        match stamp(store, key).await {
            Ok(stamp) => assert!(stamp >= 1, "key {key} is lost"),
            Err(error) => {
                assert_eq!(error.kind, Kind::Damaged, "{error}");
                keys.push(key);
            }
        }
    }
    keys
}

#[tokio::test]
async fn a_compaction_that_meets_a_damaged_block_does_not_end_writing() {
    let dir = damaged(None).await;
    let mut hit = Vec::new();
    for round in 0..2 {
        let store = LocalStore::open(small(dir.path())).unwrap();
        let now = unreadable(&store).await;
        assert!(!now.is_empty() && now.len() < 60, "{now:?}");
        assert!(round == 0 || now == hit, "{now:?} after {hit:?}");
        assert!(store.fault().is_some_and(|fault| fault.contains("rows/packed is damaged")), "{:?}", store.fault());
        hit = now;
        for stamp in 2..8 {
            for key in (0..KEYS).filter(|key| !hit.contains(key)) {
                put(&store, key, 10 * round + stamp, None).await.unwrap();
            }
        }
        assert_eq!(put(&store, hit[0], 50, None).await.unwrap_err().kind, Kind::Damaged);
        assert!(store.is_ready());
        store.close().await.unwrap();
    }
    let store = LocalStore::open(small(dir.path())).unwrap();
    assert_eq!(unreadable(&store).await, hit);
}

#[tokio::test]
async fn a_damaged_block_does_not_stop_the_sweep_of_expired_rows() {
    let dir = damaged(Some(2_000_000)).await;
    let later = Arc::new(FrozenClock(AtomicU64::new(3_000_000)));
    let store = LocalStore::open(OpenOptions { clock: later, ..small(dir.path()) }).unwrap();
    let (mut removed, mut steps) = (0, 0);
    loop {
        let swept = store.sweep_expired(100).await.unwrap();
        removed += swept.removed;
        steps += 1;
        assert!(steps < 1_000);
        if swept.complete {
            break;
        }
    }
    assert!(removed > KEYS as usize - 60 && removed < KEYS as usize, "{removed}");
}

#[tokio::test]
async fn a_wrong_number_in_a_list_of_value_files_does_not_end_the_compactor_or_writing() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(small(dir.path())).unwrap();
    put_large(&store, 1).await;
    store.close().await.unwrap();
    drop(store);
    assert!(misname_value_files(dir.path()) > 0);
    for round in 2..5 {
        let store = LocalStore::open(small(dir.path())).unwrap();
        let read = store.bulk_rows().get(&[b'n', 99]).await.unwrap();
        assert_eq!(read, Some(vec![round - 1; 5_000].into()));
        put_large(&store, round).await;
        assert!(store.is_ready());
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_block_is_named_with_its_file_its_offset_and_its_keys() {
    let dir = damaged(None).await;
    let folder = dir.path().join("rows/packed");
    let lines = tables::lines(TreeId::Packed, &folder, &[1], None);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let path = table(dir.path()).display().to_string();
    assert!(lines[0].starts_with(&format!("{path}, byte 4")), "{lines:?}");
    assert!(lines[0].contains("objects") && lines[0].contains("larder repair"), "{lines:?}");
    assert!(tables::lines(TreeId::Packed, &folder, &[7], None).is_empty(), "no key of the table was read");
}
