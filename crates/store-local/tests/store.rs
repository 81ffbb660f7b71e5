//! Reopening, exclusion, swaps, bulk rows, expiry.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use common::{call, clock, open, options, row};
use larder_store::{
    Batch, Change, Durability, Head, Kind, Options, Partition, ReadQuery, Row, Shadow, Store, Swap, Table,
};
use larder_store_local::{LocalStore, OpenError};

const DISK: Durability = Durability::Disk;

fn partition(table: Table, key: impl AsRef<[u8]>) -> Partition {
    Partition::own(table, Bytes::copy_from_slice(key.as_ref()))
}

async fn rows(store: &LocalStore, partition: &Partition) -> Vec<Row> {
    store.read(partition, &ReadQuery::all(1000), &call(DISK)).await.unwrap().rows
}

#[tokio::test(flavor = "multi_thread")]
async fn what_many_writers_wrote_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(dir.path(), &clock);
    let writers = (0..32_u64).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for stamp in 1..20_u64 {
                let mut batch = Batch::of(
                    partition(Table::Objects, writer.to_be_bytes()),
                    vec![Change::Put(row("s", stamp, b"v"))],
                );
                batch.add(partition(Table::Keys, "all"), vec![Change::Put(row(writer.to_be_bytes(), stamp, b""))]);
                batch
                    .add(partition(Table::Objects, "shared"), vec![Change::Put(row(writer.to_be_bytes(), stamp, b""))]);
                let durability = if writer % 2 == 0 { Durability::Disk } else { Durability::Buffered };
                store.apply(batch, &call(durability)).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.batches, 32 * 19);
    assert!(stats.groups < stats.batches, "{stats:?}");
    store.close().await.unwrap();
    assert!(!store.is_ready());
    assert_eq!(
        store
            .apply(Batch::of(partition(Table::Objects, "x"), vec![Change::Clear { stamp: 1 }]), &call(DISK))
            .await
            .unwrap_err()
            .kind,
        Kind::Poisoned
    );
    drop(store);

    let store = open(dir.path(), &clock);
    for table in [Table::Objects, Table::Keys] {
        let all = partition(table, if table == Table::Keys { "all" } else { "shared" });
        let rows = rows(&store, &all).await;
        assert_eq!(rows.len(), 32);
        assert!(rows.iter().all(|row| row.stamp == 19));
    }
    assert_eq!(store.partitions(Table::Objects, None, 10, &call(DISK)).await.unwrap().partitions.len(), 10);
}

#[tokio::test]
async fn swaps_of_one_head_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    for table in [Table::Consistent, Table::Catalogue] {
        let place = partition(table, "p");
        let swap = |expected, stamp, changes| {
            let (store, place) = (store.clone(), place.clone());
            async move { store.apply_if(&place, expected, row("head", stamp, b"h").into(), changes, &call(DISK)).await }
        };
        let other = || vec![Change::Put(row("other", 1, b"o"))];
        assert_eq!(swap(None, 5, other()).await.unwrap(), Swap::Applied);
        assert_eq!(swap(None, 6, vec![]).await.unwrap(), Swap::Conflict(Some(row("head", 5, b"h"))));
        assert_eq!(swap(Some(4), 6, vec![]).await.unwrap(), Swap::Conflict(Some(row("head", 5, b"h"))));
        assert_eq!(swap(Some(5), 5, vec![]).await.unwrap_err().kind, Kind::Misuse);
        assert_eq!(swap(Some(5), 7, vec![]).await.unwrap(), Swap::Applied);
        let racing = (0..20).map(|at| swap(Some(7), 8 + at, vec![])).map(tokio::spawn).collect::<Vec<_>>();
        let mut applied = 0;
        for one in racing {
            applied += usize::from(one.await.unwrap().unwrap() == Swap::Applied);
        }
        assert_eq!(applied, 1);
        assert_eq!(rows(&store, &place).await.len(), 2);
        let plain = store.apply(Batch::of(place, other()), &call(DISK)).await;
        assert_eq!(plain.unwrap_err().kind, Kind::Misuse);
    }
}

#[tokio::test]
async fn a_refused_batch_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    for table in [Table::Objects, Table::Keys] {
        let (one, other) = (partition(table, "one"), partition(table, "other"));
        let puts = |names: &[&str]| names.iter().map(|name| Change::Put(row(name, 1, b""))).collect::<Vec<_>>();
        let mut batch = Batch::of(one.clone(), puts(&["a", "b"]));
        batch.add(other.clone(), puts(&["a", "b", "c"]));
        batch.partitions[1].rows_max = Some(2);
        let refused = store.apply(batch.clone(), &call(DISK)).await.unwrap_err();
        assert_eq!(refused.kind, Kind::TooManyRows { rows: 3 });
        assert!(rows(&store, &one).await.is_empty() && rows(&store, &other).await.is_empty());
        batch.partitions[1].rows_max = Some(3);
        store.apply(batch, &call(DISK)).await.unwrap();
        assert_eq!(rows(&store, &other).await.len(), 3);
    }
    let large = Batch::of(partition(Table::Keys, "large"), vec![Change::Put(row("a", 1, vec![0; 3 << 20]))]);
    assert_eq!(store.apply(large, &call(DISK)).await.unwrap_err().kind, Kind::TooLarge);
    let long = Batch::of(partition(Table::Keys, vec![0; 70_000]), vec![Change::Put(row("a", 1, b""))]);
    assert_eq!(store.apply(long, &call(DISK)).await.unwrap_err().kind, Kind::TooLarge);
}

#[tokio::test]
async fn a_deadline_that_passed_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    let past = Options { deadline: tokio::time::Instant::now() - Duration::from_secs(1), ..call(DISK) };
    let batch = Batch::of(partition(Table::Objects, "a"), vec![Change::Put(row("a", 1, b""))]);
    assert_eq!(store.apply(batch, &past).await.unwrap_err().kind, Kind::TimedOut);
}

#[tokio::test]
async fn expired_rows_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(dir.path(), &clock);
    let expiring = |name: &str, at| Change::Put(Row { expires: Some(at), ..row(name, 1, b"v") });
    for table in [Table::Keys, Table::Objects] {
        for key in ["p", "q", "r"] {
            let changes = vec![expiring("a", 1_000_010), expiring("b", 1_000_020), Change::Put(row("c", 1, b"v"))];
            store.apply(Batch::of(partition(table, key), changes), &call(DISK)).await.unwrap();
        }
    }
    clock.0.store(1_000_010, Ordering::SeqCst);
    assert_eq!(rows(&store, &partition(Table::Keys, "p")).await.len(), 2);
    let (mut removed, mut complete) = (0, false);
    while !complete {
        let swept = store.sweep_expired(4).await.unwrap();
        removed += swept.removed;
        complete = swept.complete;
    }
    assert_eq!(removed, 6);
    clock.0.store(1_000_000, Ordering::SeqCst);
    for table in [Table::Keys, Table::Objects] {
        assert_eq!(rows(&store, &partition(table, "q")).await.len(), 2, "gone for good");
    }
}

#[tokio::test]
async fn a_row_that_is_written_expired_hides_nothing_written_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    for table in [Table::Keys, Table::Objects] {
        let place = partition(table, "p");
        let expired = Row { expires: Some(5), ..row("a", 10, b"expired") };
        let changes = vec![Change::Put(expired.clone()), Change::Put(row("a", 5, b"v"))];
        store.apply(Batch::of(place.clone(), changes), &call(DISK)).await.unwrap();
        assert_eq!(rows(&store, &place).await, vec![row("a", 5, b"v")], "{table:?}");
        store.apply(Batch::of(place.clone(), vec![Change::Put(expired)]), &call(DISK)).await.unwrap();
        assert!(rows(&store, &place).await.is_empty(), "{table:?}");
    }
}

#[tokio::test]
async fn bulk_rows_are_written_listed_removed() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(dir.path(), &clock);
    let bulk = store.bulk_rows();
    for at in 0..5_u8 {
        bulk.put(Bytes::copy_from_slice(&[at]), Bytes::from(vec![at; 100_000])).await.unwrap();
    }
    bulk.remove(Bytes::from_static(&[2])).await.unwrap();
    drop((store, bulk));
    let store = open(dir.path(), &clock);
    let bulk = store.bulk_rows();
    assert_eq!(bulk.get(&[3]).await.unwrap().unwrap(), vec![3; 100_000]);
    assert_eq!(bulk.get(&[2]).await.unwrap(), None);
    let keys = |rows: Vec<(Bytes, Bytes)>| rows.into_iter().map(|(key, _)| key[0]).collect::<Vec<_>>();
    assert_eq!(keys(bulk.keys(None, 3).await.unwrap()), [0, 1, 3]);
    assert_eq!(keys(bulk.keys(Some(Bytes::from_static(&[1])), 3).await.unwrap()), [3, 4]);
    assert!(store.disk_bytes() > 0);
}

#[tokio::test]
async fn a_second_server_and_an_unknown_format_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(dir.path(), &clock);
    let second = LocalStore::open(options(dir.path(), &clock)).err().unwrap();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    drop(store);
    std::fs::write(dir.path().join("format"), "larder data, format 7\nwritten by larder 9.0\n").unwrap();
    let unknown = LocalStore::open(options(dir.path(), &clock)).err().unwrap().to_string();
    assert!(unknown.contains("data format 7, written by larder 9.0; this is larder"), "{unknown}");
}

#[tokio::test]
async fn a_creation_that_was_cut_short_is_begun_again() {
    let (whole, clock) = (tempfile::tempdir().unwrap(), clock());
    drop(open(whole.path(), &clock));
    // The file format comes last: without it nothing was ever answered.
    for missing in [&["format"][..], &["format", "manifest"], &["format", "manifest", "journal/00000001.jnl", "synced"]]
    {
        missing.iter().for_each(|name| drop(std::fs::remove_file(whole.path().join(name))));
        let store = open(whole.path(), &clock);
        assert!(store.is_ready());
        drop(store);
    }
    std::fs::remove_file(whole.path().join("manifest")).unwrap();
    let damaged = LocalStore::open(options(whole.path(), &clock)).err().unwrap();
    assert!(matches!(damaged, OpenError::Damaged { .. }), "{damaged}");
}

#[tokio::test]
async fn a_format_that_is_missing_where_data_is_starts_nothing_anew() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    let put = Batch::of(partition(Table::Objects, "p"), vec![Change::Put(row("r", 1, "v"))]);
    store.apply(put, &call(DISK)).await.unwrap();
    drop(store);
    for more in ["format", "manifest"] {
        std::fs::remove_file(dir.path().join(more)).unwrap();
        let refused = LocalStore::open(options(dir.path(), &clock)).err().unwrap();
        assert!(matches!(refused, OpenError::UnknownFormat { .. }), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_is_seen_neither_before_its_shadow_nor_old_after_it() {
    const LAST: u64 = 20_000;
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    for table in [Table::Consistent, Table::Catalogue] {
        let at = partition(table, "head");
        let shadows = partition(Table::Entries, table.name());
        let reader = {
            let (store, at, shadows) = (store.clone(), at.clone(), shadows.clone());
            let read = async move |partition: &Partition| {
                let query = ReadQuery::one(Bytes::new());
                let page = store.read(partition, &query, &call(DISK)).await.unwrap();
                page.rows.first().map_or(0, |row| row.stamp)
            };
            tokio::spawn(async move {
                let mut head = 0;
                while head < LAST {
                    head = read(&at).await;
                    let shadow = read(&shadows).await;
                    assert!(shadow >= head, "{table:?}: the shadow at {shadow} beside the head at {head}");
                    // The cache of entries once answered the head of before, a moment after the shadow.
                    let again = read(&at).await;
                    assert!(again >= shadow, "{table:?}: the head at {again} after the shadow at {shadow}");
                    tokio::task::yield_now().await;
                }
            })
        };
        let mut expected = None;
        for stamp in (2..=LAST).step_by(2) {
            let shadow = Shadow { partition: shadows.clone(), name: Bytes::new(), value: Some(Bytes::new()) };
            let head = Head { row: row("", stamp, "v"), shadow: Some(shadow) };
            let swap = store.apply_if(&at, expected, head, Vec::new(), &call(Durability::Buffered)).await.unwrap();
            assert_eq!(swap, Swap::Applied);
            expected = Some(stamp);
        }
        reader.await.unwrap();
    }
}
