//! Reopening, locking, compare-and-set, bulk rows, expiry.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use larder_store::Timestamp;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{call, clock, open, options, row};
use bytes::Bytes;
use larder_store::{
    Batch, CallOptions, CasResult, Change, DerivedRow, Durability, HeadWrite, Kind, Partition, ReadQuery, Row, Store,
    Table,
};
use larder_store_local::{LocalStore, OpenError};

const DISK: Durability = Durability::Disk;

fn partition(table: Table, key: impl AsRef<[u8]>) -> Partition {
    Partition::new(table, Bytes::copy_from_slice(key.as_ref()))
}

async fn rows(store: &LocalStore, partition: &Partition) -> Vec<Row> {
    store.read(partition, &ReadQuery::all(1000), &call(DISK)).await.unwrap().rows
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_many_writers_survive_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(dir.path(), &clock);
    let writers = (0..32_u64).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for stamp in 1..20_u64 {
                let mut batch = Batch::single(
                    partition(Table::Objects, writer.to_be_bytes()),
                    vec![Change::Put(row("s", Timestamp(stamp), b"v"))],
                );
                batch.add(
                    partition(Table::Keys, "all"),
                    vec![Change::Put(row(writer.to_be_bytes(), Timestamp(stamp), b""))],
                );
                batch.add(
                    partition(Table::Objects, "shared"),
                    vec![Change::Put(row(writer.to_be_bytes(), Timestamp(stamp), b""))],
                );
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
            .apply(
                Batch::single(partition(Table::Objects, "x"), vec![Change::Clear { stamp: Timestamp(1) }]),
                &call(DISK)
            )
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
        assert!(rows.iter().all(|row| row.stamp == Timestamp(19)));
    }
    assert_eq!(store.partitions(Table::Objects, None, 10, &call(DISK)).await.unwrap().partitions.len(), 10);
}

#[tokio::test]
async fn racing_compare_and_sets_of_a_head_apply_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    for table in [Table::Consistent, Table::Catalogue] {
        let place = partition(table, "p");
        let swap = |expected, stamp, changes| {
            let (store, place) = (store.clone(), place.clone());
            async move { store.apply_if(&place, expected, row("head", stamp, b"h").into(), changes, &call(DISK)).await }
        };
        let other = || vec![Change::Put(row("other", Timestamp(1), b"o"))];
        assert_eq!(swap(None, Timestamp(5), other()).await.unwrap(), CasResult::Applied);
        assert_eq!(
            swap(None, Timestamp(6), vec![]).await.unwrap(),
            CasResult::Conflict(Some(row("head", Timestamp(5), b"h")))
        );
        assert_eq!(
            swap(Some(Timestamp(4)), Timestamp(6), vec![]).await.unwrap(),
            CasResult::Conflict(Some(row("head", Timestamp(5), b"h")))
        );
        assert_eq!(swap(Some(Timestamp(5)), Timestamp(5), vec![]).await.unwrap_err().kind, Kind::Misuse);
        assert_eq!(swap(Some(Timestamp(5)), Timestamp(7), vec![]).await.unwrap(), CasResult::Applied);
        let racing =
            (0..20).map(|at| swap(Some(Timestamp(7)), Timestamp(8 + at), vec![])).map(tokio::spawn).collect::<Vec<_>>();
        let mut applied = 0;
        for attempt in racing {
            applied += usize::from(attempt.await.unwrap().unwrap() == CasResult::Applied);
        }
        assert_eq!(applied, 1);
        assert_eq!(rows(&store, &place).await.len(), 2);
        let plain = store.apply(Batch::single(place, other()), &call(DISK)).await;
        assert_eq!(plain.unwrap_err().kind, Kind::Misuse);
    }
}

#[tokio::test]
async fn a_refused_batch_changes_no_partition() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    for table in [Table::Objects, Table::Keys] {
        let (one, other) = (partition(table, "one"), partition(table, "other"));
        let puts =
            |names: &[&str]| names.iter().map(|name| Change::Put(row(name, Timestamp(1), b""))).collect::<Vec<_>>();
        let mut batch = Batch::single(one.clone(), puts(&["a", "b"]));
        batch.add(other.clone(), puts(&["a", "b", "c"]));
        batch.partitions[1].rows_max = Some(2);
        let refused = store.apply(batch.clone(), &call(DISK)).await.unwrap_err();
        assert_eq!(refused.kind, Kind::TooManyRows { rows: 3 });
        assert!(rows(&store, &one).await.is_empty() && rows(&store, &other).await.is_empty());
        batch.partitions[1].rows_max = Some(3);
        store.apply(batch, &call(DISK)).await.unwrap();
        assert_eq!(rows(&store, &other).await.len(), 3);
    }
    let large =
        Batch::single(partition(Table::Keys, "large"), vec![Change::Put(row("a", Timestamp(1), vec![0; 3 << 20]))]);
    assert_eq!(store.apply(large, &call(DISK)).await.unwrap_err().kind, Kind::TooLarge);
    let long = Batch::single(partition(Table::Keys, vec![0; 70_000]), vec![Change::Put(row("a", Timestamp(1), b""))]);
    assert_eq!(store.apply(long, &call(DISK)).await.unwrap_err().kind, Kind::TooLarge);
}

#[tokio::test]
async fn a_passed_deadline_answers_timed_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    let past = CallOptions { deadline: tokio::time::Instant::now() - Duration::from_secs(1), ..call(DISK) };
    let batch = Batch::single(partition(Table::Objects, "a"), vec![Change::Put(row("a", Timestamp(1), b""))]);
    assert_eq!(store.apply(batch, &past).await.unwrap_err().kind, Kind::TimedOut);
}

#[tokio::test]
async fn expired_rows_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(dir.path(), &clock);
    let expiring = |name: &str, at| Change::Put(Row { expires: Some(at), ..row(name, Timestamp(1), b"v") });
    for table in [Table::Keys, Table::Objects] {
        for key in ["p", "q", "r"] {
            let changes = vec![
                expiring("a", Timestamp(1_000_010)),
                expiring("b", Timestamp(1_000_020)),
                Change::Put(row("c", Timestamp(1), b"v")),
            ];
            store.apply(Batch::single(partition(table, key), changes), &call(DISK)).await.unwrap();
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
        assert_eq!(
            rows(&store, &partition(table, "q")).await.len(),
            2,
            "swept rows do not come back with an older clock"
        );
    }
}

#[tokio::test]
async fn a_row_written_expired_does_not_hide_later_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &clock());
    for table in [Table::Keys, Table::Objects] {
        let place = partition(table, "p");
        let expired = Row { expires: Some(Timestamp(5)), ..row("a", Timestamp(10), b"expired") };
        for written in [expired.clone(), row("a", Timestamp(5), b"v")] {
            store.apply(Batch::single(place.clone(), vec![Change::Put(written)]), &call(DISK)).await.unwrap();
        }
        assert_eq!(rows(&store, &place).await, vec![row("a", Timestamp(5), b"v")], "{table:?}");
        store.apply(Batch::single(place.clone(), vec![Change::Put(expired)]), &call(DISK)).await.unwrap();
        assert!(rows(&store, &place).await.is_empty(), "{table:?}");
    }
}

#[tokio::test]
async fn bulk_rows_are_written_listed_and_removed() {
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
async fn a_second_server_and_an_unknown_format_are_refused() {
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
async fn an_interrupted_creation_starts_again() {
    let (whole, clock) = (tempfile::tempdir().unwrap(), clock());
    drop(open(whole.path(), &clock));
    // The file `format` comes last: without it the store never took a write.
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
async fn a_directory_with_data_and_without_format_is_refused() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    let put = Batch::single(partition(Table::Objects, "p"), vec![Change::Put(row("r", Timestamp(1), "v"))]);
    store.apply(put, &call(DISK)).await.unwrap();
    drop(store);
    for more in ["format", "manifest"] {
        std::fs::remove_file(dir.path().join(more)).unwrap();
        let refused = LocalStore::open(options(dir.path(), &clock)).err().unwrap();
        assert!(matches!(refused, OpenError::UnknownFormat { .. }), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_no_head_before_its_derived_row_and_no_old_head_after_it() {
    const LAST: u64 = 20_000;
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    for table in [Table::Consistent, Table::Catalogue] {
        let at = partition(table, "head");
        let derived_rows = partition(Table::Entries, table.name());
        let reader = {
            let (store, at, derived_rows) = (store.clone(), at.clone(), derived_rows.clone());
            let read = async move |partition: &Partition| {
                let query = ReadQuery::one(Bytes::new());
                let page = store.read(partition, &query, &call(DISK)).await.unwrap();
                page.rows.first().map_or(0, |row| row.stamp.0)
            };
            tokio::spawn(async move {
                let mut head = 0;
                while head < LAST {
                    head = read(&at).await;
                    let derived = read(&derived_rows).await;
                    assert!(derived >= head, "{table:?}: the derived row at {derived} beside the head at {head}");
                    // The entry cache must not return the old head after a read of the new derived row.
                    let again = read(&at).await;
                    assert!(again >= derived, "{table:?}: the head at {again} after the derived row at {derived}");
                    tokio::task::yield_now().await;
                }
            })
        };
        let mut expected = None;
        for stamp in (2..=LAST).step_by(2) {
            let derived = DerivedRow { partition: derived_rows.clone(), name: Bytes::new(), value: Some(Bytes::new()) };
            let head = HeadWrite { derived: Some(derived), ..HeadWrite::from(row("", Timestamp(stamp), "v")) };
            let swap = store.apply_if(&at, expected, head, Vec::new(), &call(Durability::Buffered)).await.unwrap();
            assert_eq!(swap, CasResult::Applied);
            expected = Some(Timestamp(stamp));
        }
        reader.await.unwrap();
    }
}
