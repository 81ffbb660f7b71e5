//! The server's own rows have a second copy: damage to one of the two costs nothing.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_store::{Batch, Change, Durability, Kind, Partition, ReadQuery, Result, Row, Store, Table, Timestamp};

use super::inspect::{RecordingWatcher, flip, no_references, section, tables, tree_bytes};
use super::{call, place, small};
use crate::inspect::{RepairOptions, check, repair};
use crate::tree_id::TreeId;
use crate::{LocalStore, OpenError, OpenOptions, manifest};

/// Rows of each of the server's tables, which fill several blocks.
const ROWS: u64 = 200;

fn own(table: Table) -> Partition {
    Partition::new(table, Bytes::from_static(table.name().as_bytes()))
}

fn server_row(number: u64, stamp: u64) -> Row {
    let value = vec![number as u8; 100].into();
    Row { name: number.to_be_bytes().to_vec().into(), value, stamp: Timestamp(stamp), expires: None }
}

async fn apply(store: &LocalStore, partition: Partition, change: Change) {
    store.apply(Batch::single(partition, vec![change]), &call(Durability::Buffered)).await.unwrap();
}

/// A closed store with rows of the server and of clients; some of the server's are removed again.
async fn written() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(small(dir.path())).unwrap();
    for number in 0..ROWS {
        for table in [Table::Members, Table::Marks, Table::Keys, Table::Objects] {
            let partition = if crate::mirror::holds(table) { own(table) } else { place(table, number) };
            apply(&store, partition, Change::Put(server_row(number, 1))).await;
        }
    }
    for number in (0..ROWS).step_by(3) {
        let name = number.to_be_bytes().to_vec().into();
        apply(&store, own(Table::Members), Change::Remove { name, stamp: Timestamp(2) }).await;
    }
    store.close().await.unwrap();
    dir
}

/// The numbers of the server's rows in a table.
async fn numbers(store: &LocalStore, table: Table) -> Result<Vec<u64>> {
    let page = store.read(&own(table), &ReadQuery::all(1000), &call(Durability::Buffered)).await?;
    Ok(page.rows.iter().map(|row| u64::from_be_bytes(row.name[..].try_into().unwrap())).collect())
}

/// Asserts that a store has the server's rows, in pages and by name.
async fn assert_whole(store: &LocalStore, what: &str) {
    let members = (0..ROWS).filter(|number| number % 3 != 0).collect::<Vec<_>>();
    assert_eq!(numbers(store, Table::Members).await.unwrap(), members, "{what}");
    assert_eq!(numbers(store, Table::Marks).await.unwrap(), (0..ROWS).collect::<Vec<_>>(), "{what}");
    for number in 0..ROWS {
        let name = Bytes::copy_from_slice(&number.to_be_bytes());
        let page = store.read(&own(Table::Members), &ReadQuery::one(name), &call(Durability::Buffered)).await.unwrap();
        assert_eq!(page.rows.len(), usize::from(number % 3 != 0), "{what}: {number}");
    }
}

/// The largest table of a tree.
fn table(dir: &Path, tree_id: TreeId) -> PathBuf {
    tables(dir, tree_id.name()).swap_remove(0)
}

/// The bytes of data blocks at the front of a table.
fn data_bytes(table: &Path) -> u64 {
    section(table, "tli")
}

#[tokio::test]
async fn one_damaged_block_of_rows_wide_once_took_the_catalogue_and_the_users_along() {
    for tree_id in [TreeId::Wide, TreeId::Packed, TreeId::Mirror] {
        let dir = written().await;
        let table = table(dir.path(), tree_id);
        for at in (60..data_bytes(&table)).step_by(3000) {
            flip(&table, at);
            let store = LocalStore::open(small(dir.path())).unwrap();
            assert_whole(&store, &format!("{tree_id:?}, byte {at}")).await;
            drop(store);
            flip(&table, at);
        }
    }
}

#[tokio::test]
async fn a_change_beside_a_damaged_block_is_there_after_a_restart() {
    let dir = written().await;
    let damaged = table(dir.path(), TreeId::Wide);
    flip(&damaged, data_bytes(&damaged) - 60);
    for round in 0..3_u64 {
        let store = LocalStore::open(small(dir.path())).unwrap();
        apply(&store, own(Table::Members), Change::Put(server_row(1000 + round, 5))).await;
        let members = numbers(&store, Table::Members).await.unwrap();
        assert_eq!(members[members.len() - 1 - round as usize..], (1000..=1000 + round).collect::<Vec<_>>());
        store.close().await.unwrap();
    }
    let store = LocalStore::open(small(dir.path())).unwrap();
    apply(&store, own(Table::Members), Change::Clear { stamp: Timestamp(9) }).await;
    assert!(numbers(&store, Table::Members).await.unwrap().is_empty(), "a removal reads the mirror as well");
}

#[tokio::test]
async fn damage_to_both_copies_is_named() {
    let dir = written().await;
    for tree_id in [TreeId::Wide, TreeId::Mirror] {
        let table = table(dir.path(), tree_id);
        (60..data_bytes(&table)).step_by(200).for_each(|at| flip(&table, at));
    }
    let store = LocalStore::open(small(dir.path())).unwrap();
    let error = numbers(&store, Table::Members).await.unwrap_err();
    assert!(error.kind == Kind::Damaged && error.to_string().contains("rows/wide"), "{error}");
}

#[tokio::test]
async fn a_directory_from_before_the_mirror_gets_one() {
    let dir = written().await;
    // As the program before made it.
    fs::remove_dir_all(dir.path().join("rows/mirror")).unwrap();
    let format = dir.path().join("format");
    fs::write(&format, fs::read_to_string(&format).unwrap().replace("format 4", "format 2")).unwrap();
    let mut findings = RecordingWatcher::default();
    assert!(check(dir.path(), &no_references, &mut findings).unwrap().is_whole(), "{:?}", findings.damage);
    let store = LocalStore::open(small(dir.path())).unwrap();
    assert_whole(&store, "at once").await;
    drop(store);
    assert!(fs::read_to_string(&format).unwrap().starts_with("larder data, format 4\n"));
    let damaged = table(dir.path(), TreeId::Wide);
    flip(&damaged, data_bytes(&damaged) - 60);
    let store = LocalStore::open(small(dir.path())).unwrap();
    assert_whole(&store, "from the mirror").await;
}

#[tokio::test]
async fn a_repair_takes_the_rows_of_the_server_from_the_mirror() {
    for tree_id in [TreeId::Wide, TreeId::Mirror] {
        let dir = written().await;
        let damaged = table(dir.path(), tree_id);
        (60..data_bytes(&damaged)).step_by(200).for_each(|at| flip(&damaged, at));
        let into = tempfile::tempdir().unwrap();
        let mut findings = RecordingWatcher::default();
        let done = repair(dir.path(), into.path(), &no_references, RepairOptions::default(), &mut findings).unwrap();
        assert!(!done.found.is_whole());
        let mut after = RecordingWatcher::default();
        assert!(check(into.path(), &no_references, &mut after).unwrap().is_whole(), "{:?}", after.damage);
        let store = LocalStore::open(small(into.path())).unwrap();
        assert_whole(&store, &format!("{tree_id:?}")).await;
        store.close().await.unwrap();
        drop(store);
        // Both copies: the other one is read when the first is damaged.
        let damaged = table(into.path(), TreeId::Wide);
        (60..data_bytes(&damaged)).step_by(200).for_each(|at| flip(&damaged, at));
        assert_whole(&LocalStore::open(small(into.path())).unwrap(), "the new mirror").await;
    }
}

/// Its value is beside the table in the first tree, and in the table in the mirror.
#[tokio::test]
async fn a_large_row_of_the_server_is_there_when_its_file_of_values_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(small(dir.path())).unwrap();
    for number in 0..ROWS {
        let row = Row { value: super::inspect::noise(number, 3000).into(), ..server_row(number, 1) };
        apply(&store, own(Table::Members), Change::Put(row)).await;
    }
    store.close().await.unwrap();
    drop(store);
    let values = fs::read_dir(dir.path().join("rows/wide/blobs")).unwrap().map(|file| file.unwrap().path());
    for file in values {
        // Not the description at its end, without which no start opens it.
        let end = fs::metadata(&file).unwrap().len() - 800;
        (60..end).step_by(1500).for_each(|at| flip(&file, at));
    }
    let all = (0..ROWS).collect::<Vec<_>>();
    let mut findings = RecordingWatcher::default();
    check(dir.path(), &no_references, &mut findings).unwrap();
    let lost = findings.damage.iter().flat_map(|damage| &damage.lost).count();
    assert!(!findings.damage.is_empty() && lost == 0, "{:?}", findings.damage);
    let into = tempfile::tempdir().unwrap();
    repair(dir.path(), into.path(), &no_references, RepairOptions::default(), &mut findings).unwrap();
    for dir in [dir.path(), into.path()] {
        let store = LocalStore::open(small(dir)).unwrap();
        assert_eq!(numbers(&store, Table::Members).await.unwrap(), all, "{}", dir.display());
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_older_manifest_once_blamed_a_journal_whose_groups_are_in_tables_and_lost_the_newer_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(small(dir.path())).unwrap();
    let older = fs::read(manifest::path(dir.path())).unwrap();
    for number in 0..4000 {
        apply(&store, place(Table::Objects, number), Change::Put(server_row(number, 1))).await;
    }
    store.close().await.unwrap();
    drop(store);
    fs::write(manifest::path(dir.path()), older).unwrap();
    let before = tree_bytes(dir.path());
    let newest = before.keys().filter(|path| path.extension().is_some_and(|kind| kind == "jnl")).max().unwrap();
    let refused = LocalStore::open(small(dir.path())).err().expect("the manifest is older");
    assert!(matches!(refused, OpenError::DamagedJournal { .. }), "{refused}");
    let named = newest.display().to_string();
    assert!(refused.to_string().contains(&named) && refused.to_string().contains("older"), "{refused}");
    assert!(tree_bytes(dir.path()) == before, "a refused start changed something");

    let accepting = OpenOptions { accept_damaged_journal: true, ..small(dir.path()) };
    let store = LocalStore::open(accepting).unwrap();
    for number in 0..4000 {
        let read = store.read(&place(Table::Objects, number), &ReadQuery::all(1), &call(Durability::Buffered)).await;
        assert_eq!(read.unwrap().rows.len(), 1, "{number}");
    }
    assert!(newest.with_extension("aside").exists(), "a journal is never removed for damage");
}
