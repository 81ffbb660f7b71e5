//! Tables that are not where they belong, and tables that no version names.

use lsm_tree::{InternalValue, ValueType};

use super::*;

/// Asserts that a start is refused by the name of this file, and changes nothing.
fn assert_refused(dir: &Path, file: &Path) {
    let before = tree_bytes(dir);
    let refused = LocalStore::open(small(dir)).err().expect("a table is another one").to_string();
    assert!(refused.contains(file.to_str().unwrap()), "{refused}");
    assert!(tree_bytes(dir) == before, "a refused start changed something");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_another_table_was_once_called_whole_and_brought_removed_keys_back() {
    let fixture = InspectFixture::new().await;
    // Each table of large values is merged with those before it: there is one.
    for tree in ["packed", "wide"] {
        let count = tables(fixture.dir.path(), tree).len();
        assert!(count > 1, "{tree}");
        for (from, to) in [(0, count - 1), (count - 1, 0)] {
            let place = |dir: &Path| {
                let tables = tables(dir, tree);
                (tables[from].clone(), tables[to].clone())
            };
            let outcome = fixture.after(STRICT, |dir| {
                let (from, to) = place(dir);
                fs::copy(from, to).unwrap();
            });
            let file = outcome.copy.join(place(fixture.dir.path()).1.strip_prefix(fixture.dir.path()).unwrap());
            assert!(
                outcome.checked.names(&file)
                    && outcome.checked.damage.iter().any(|damage| damage.what.contains("a copy of table"))
            );
            fixture.assert_nothing_lost_silently(&outcome);
            assert_refused(&outcome.copy, &file);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_store_gives_no_entries() {
    let fixture = InspectFixture::new().await;
    let ours = tables(fixture.dir.path(), "packed").swap_remove(0);
    let number = ours.file_name().unwrap().to_str().unwrap().to_owned();
    // Each write of the other store makes a table with the next number.
    let other = tempfile::tempdir().unwrap();
    let trees = crate::tests::scan::open(other.path());
    let entry = |key: u64| {
        let key = crate::entry::partition_key(&place(Table::Objects, key));
        Ok(InternalValue::from_components(key, noise(1, 300), 99, ValueType::Value))
    };
    let mut theirs = other.path().to_owned();
    while !theirs.ends_with(&number) {
        let written = trees.tree(TreeId::Packed).write_tables(&mut (0..20).map(entry)).unwrap();
        theirs = written.0[0].path.to_path_buf();
    }
    let file = ours.strip_prefix(fixture.dir.path()).unwrap().to_owned();
    let outcome = fixture.after(STRICT, |dir| {
        fs::copy(&theirs, dir.join(&file)).unwrap();
    });
    assert!(outcome.checked.names(&outcome.copy.join(&file)), "{:?}", outcome.checked.damage);
    fixture.assert_nothing_lost_silently(&outcome);
}

/// The list has no checksum of its own: the one of the file says that something is wrong, and no entry is.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_bit_in_the_list_of_value_files_costs_no_entry_and_no_memory() {
    let fixture = InspectFixture::new().await;
    let table = tables(fixture.dir.path(), "packed").into_iter().find_map(|table| {
        let archive = sfa::Reader::new(&table).unwrap();
        let list = archive.toc().section(b"linked_blob_files")?;
        Some((table.strip_prefix(fixture.dir.path()).unwrap().to_owned(), list.pos()))
    });
    let (table, list) = table.expect("a table with places of values");
    // The count, then the id, the number of values, their bytes and their stored bytes of the first file.
    for at in [3, 4, 12, 20, 28] {
        let outcome = fixture.after(STRICT, |dir| flip(&dir.join(&table), list + at));
        assert!(outcome.checked.names(&outcome.copy.join(&table)), "byte {at}");
        assert!(outcome.found == fixture.expected, "byte {at}: entries are gone");
    }
}

/// A closed store with two tables of rows: the second removes and replaces rows of the first. Returns the version file of the
/// first, too.
async fn two_versions(dir: &Path) -> (PathBuf, Vec<u8>) {
    let store = LocalStore::open(small(dir)).unwrap();
    for key in 0..50 {
        put(&store, Table::Objects, key, 1, noise(key, 100)).await;
    }
    store.close().await.unwrap();
    drop(store);
    let version = newest_version(dir);
    let bytes = fs::read(&version).unwrap();
    let store = LocalStore::open(small(dir)).unwrap();
    for key in 0..80 {
        match key % 2 {
            0 => remove(&store, Table::Objects, key, 2).await,
            _ => put(&store, Table::Objects, key, 2, noise(key + 1000, 100)).await,
        }
    }
    store.close().await.unwrap();
    (version, bytes)
}

/// The version file with the greatest number.
fn newest_version(dir: &Path) -> PathBuf {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix('v')?.parse::<u64>().ok();
    files(dir.join("rows/packed")).into_iter().filter(|path| number(path).is_some()).max_by_key(number).unwrap()
}

#[tokio::test]
async fn a_damaged_newest_version_once_hid_the_newest_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (older, bytes) = two_versions(dir.path()).await;
    let newest = newest_version(dir.path());
    assert!(newest != older && tables(dir.path(), "packed").len() == 2, "{newest:?}");
    let expected = entries(dir.path()).0;
    fs::write(&older, bytes).unwrap();
    for is_missing in [false, true] {
        match is_missing {
            false => flip(&newest, 100),
            true => fs::remove_file(&newest).unwrap(),
        }
        let into = tempfile::tempdir().unwrap();
        let mut seen = RecordingWatcher::default();
        repair(dir.path(), into.path(), &no_references, STRICT, &mut seen).unwrap();
        assert!(seen.damage.iter().any(|damage| damage.what.contains("1 newer")), "{:?}", seen.damage);
        assert!(entries(into.path()).0 == expected, "removed keys are back, or newer ones gone");
    }
}
