//! Scans beside flushes and compactions, in an order that threads seldom have.

use std::cell::Cell;
use std::path::Path;

use bytes::Bytes;
use larder_store::ReadOrder;

use crate::flush::flush;
use crate::journal::WriteGroup;
use crate::range_scan::ScanBounds;
use crate::tree_id::TreeId;
use crate::trees::Trees;

const CACHE_BYTES: u64 = 64 * 1024;
const TABLE_BYTES: u64 = 256 * 1024;

pub(super) fn open(dir: &Path) -> Trees {
    for tree_id in TreeId::ALL {
        std::fs::create_dir_all(dir.join(tree_id.name())).unwrap();
    }
    Trees::open(dir, CACHE_BYTES, TABLE_BYTES).unwrap()
}

fn put(trees: &Trees, rows: impl Iterator<Item = u32>, value: &'static str) {
    let writes = rows.map(|row| (TreeId::Wide, key(row), Some(Bytes::from_static(value.as_bytes())))).collect();
    let seqno = trees.next_seqno();
    trees.insert(&WriteGroup { number: seqno, seqno, writes });
}

fn key(row: u32) -> Bytes {
    format!("row {row:08}").into()
}

/// Moves all rows to tables.
pub(super) fn flush_all(trees: &Trees) {
    for tree in trees.all() {
        tree.rotate();
        let Some(sealed) = tree.next_sealed() else { continue };
        flush(tree, &sealed, 1, trees.snapshots.watermark()).unwrap();
        tree.drop_flushed();
    }
}

fn bounds() -> ScanBounds {
    ScanBounds { from: key(0).into(), to: None, order: ReadOrder::Forward }
}

#[test]
fn a_row_that_was_replaced_and_flushed_while_a_scan_began_was_missing() {
    let dir = tempfile::tempdir().unwrap();
    let trees = open(dir.path());
    put(&trees, 0..1, "old");
    let is_begun = Cell::new(false);
    let acquire = || {
        let snapshot = trees.snapshots.acquire();
        if !is_begun.replace(true) {
            put(&trees, 0..1, "new");
            flush_all(&trees);
        }
        snapshot
    };
    let entries: Vec<_> = trees.tree(TreeId::Wide).scan(bounds(), acquire).map(Result::unwrap).collect();
    let [(name, value)] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((&**name, &**value), (&*key(0), &b"new"[..]));
}

#[test]
fn a_table_that_was_merged_away_under_a_scan_was_removed_under_it() {
    const ROWS: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let trees = open(dir.path());
    let tree = trees.tree(TreeId::Wide);
    for part in 0..5 {
        put(&trees, (0..ROWS).filter(|row| row % 5 == part), "the value of a row, in several blocks of a table");
        flush_all(&trees);
    }
    let mut rows = tree.scan(bounds(), || trees.snapshots.acquire());
    let first = rows.next().unwrap().unwrap();
    let tables = || std::fs::read_dir(dir.path().join("wide/tables")).unwrap().flatten().map(|file| file.path());
    let before: Vec<_> = tables().collect();
    trees.publish_versions();
    for _ in 0..8 {
        tree.compact(u64::MAX, trees.snapshots.watermark()).unwrap();
        trees.publish_versions();
        tree.release_retired(trees.snapshots.watermark()).unwrap();
    }
    assert_eq!(rows.map(Result::unwrap).count() as u32 + 1, ROWS);
    assert_eq!(&*first.0, &*key(0));
    // The scan is gone, and with it the last use of the old tables.
    let left = tables().filter(|file| before.contains(file)).count();
    assert!(left < before.len(), "{left} of {} tables were merged", before.len());
}

#[test]
fn a_key_longer_than_any_made_a_read_panic() {
    let dir = tempfile::tempdir().unwrap();
    let trees = open(dir.path());
    put(&trees, 0..3, "value");
    let long = Bytes::from(vec![b's'; 100_000]);
    for tree_id in [TreeId::Packed, TreeId::Wide] {
        assert_eq!(trees.get_committed(tree_id, &long).unwrap(), None);
        assert_eq!(trees.range(tree_id, long.clone(), Some(long.clone()), ReadOrder::Forward).count(), 0);
    }
    assert_eq!(trees.range(TreeId::Wide, key(0), Some(long), ReadOrder::Reverse).count(), 3);
}
