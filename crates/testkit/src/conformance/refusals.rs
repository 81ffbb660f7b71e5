//! Promises about refused calls: they write nothing.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use larder_store::contract::KEY_BYTES_MAX;

use super::subject::{GUARDED, PLAIN, StoreSubject, options, put, put_until, remove, row};
use larder_store::{
    Batch, CallOptions, CasResult, Change, Kind, Partition, PartitionChanges, ReadQuery, Result, Table, Timestamp,
};

fn bounded(partition: &Partition, changes: Vec<Change>, rows_max: usize) -> Batch {
    Batch {
        partitions: vec![PartitionChanges {
            rows_max: Some(rows_max),
            ..PartitionChanges::new(partition.clone(), changes)
        }],
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, kind: Kind) {
    assert_eq!(answer.map_err(|error| error.kind).expect_err("refused"), kind);
}

pub(super) async fn a_partition_may_be_filled_up_to_rows_max(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        for (rows, name) in (1..).zip(["a", "b", "c"]) {
            let batch = bounded(&partition, vec![put(name, "v", Timestamp(1))], 3);
            subject.apply(batch).await.expect("there is room");
            assert_eq!(subject.rows(&partition).await.len(), rows, "{table:?}");
        }
        subject.change(&partition, vec![put("d", "v", Timestamp(1))]).await;
        assert_eq!(subject.rows(&partition).await.len(), 4, "{table:?}: the bound is the batch's, not the partition's");
    }
}

pub(super) async fn beyond_rows_max_nothing_is_written(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, vec![put("a", "v", Timestamp(1)), put("b", "v", Timestamp(1))]).await;
        let before = subject.rows(&partition).await;
        let changes = vec![
            remove("a", Timestamp(9)),
            put("b", "w", Timestamp(9)),
            put("c", "w", Timestamp(9)),
            put("d", "w", Timestamp(9)),
        ];
        refused(subject.apply(bounded(&partition, changes, 2)).await, Kind::TooManyRows { rows: 3 });
        assert_eq!(subject.rows(&partition).await, before, "{table:?}");
        refused(
            subject.apply(bounded(&partition, vec![put("b", "w", Timestamp(9))], 1)).await,
            Kind::TooManyRows { rows: 2 },
        );
        assert_eq!(subject.rows(&partition).await, before, "{table:?}: it was too full before");
    }
}

pub(super) async fn a_batch_that_saw_other_rows_writes_nothing(subject: StoreSubject) {
    if subject.store.limits().replicated {
        return;
    }
    let partition = subject.partition(Table::Objects);
    let after = |changes, seen: &[(&'static str, Timestamp)]| {
        let expected_rows = Some(seen.iter().map(|(name, stamp)| (Bytes::from(*name), *stamp)).collect());
        let partition = partition.clone();
        Batch { partitions: vec![PartitionChanges { expected_rows, ..PartitionChanges::new(partition, changes) }] }
    };
    subject.apply(after(vec![put("a", "v", Timestamp(1))], &[])).await.expect("nothing is there");
    refused(subject.apply(after(vec![put("b", "v", Timestamp(1))], &[])).await, Kind::Changed);
    refused(subject.apply(after(vec![put("b", "v", Timestamp(1))], &[("a", Timestamp(2))])).await, Kind::Changed);
    subject
        .apply(after(vec![put_until("b", "v", Timestamp(3), subject.in_seconds(10))], &[("a", Timestamp(1))]))
        .await
        .expect("the partition holds the rows that were seen");
    refused(subject.apply(after(vec![put("a", "w", Timestamp(4))], &[("a", Timestamp(1))])).await, Kind::Changed);
    subject
        .apply(after(vec![put("a", "w", Timestamp(4))], &[("a", Timestamp(1)), ("b", Timestamp(3))]))
        .await
        .expect("the partition holds the rows that were seen");
    subject.wait_seconds(11);
    subject
        .apply(after(vec![put("c", "v", Timestamp(5))], &[("a", Timestamp(4))]))
        .await
        .expect("an expired row is absent");
    assert_eq!(subject.rows(&partition).await.len(), 2);
}

pub(super) async fn rows_that_expire_do_not_count(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        let soon = subject.in_seconds(10);
        let mut changes: Vec<Change> = (0..5).map(|at: u8| put_until([at], "v", Timestamp(1), soon)).collect();
        changes.push(put("a", "v", Timestamp(1)));
        subject.apply(bounded(&partition, changes, 1)).await.expect("one row stays");
        assert_eq!(subject.rows(&partition).await.len(), 6, "{table:?}");
        refused(
            subject.apply(bounded(&partition, vec![put("b", "v", Timestamp(1))], 1)).await,
            Kind::TooManyRows { rows: 2 },
        );
        subject.wait_seconds(11);
        refused(
            subject.apply(bounded(&partition, vec![put("b", "v", Timestamp(1))], 1)).await,
            Kind::TooManyRows { rows: 2 },
        );
        subject
            .apply(bounded(&partition, vec![put_until("a", "w", Timestamp(2), subject.in_seconds(10))], 0))
            .await
            .expect("none stays");
    }
}

pub(super) async fn rows_are_counted_after_the_change(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, vec![put("a", "v", Timestamp(5)), put("b", "v", Timestamp(5))]).await;
        let cases = [
            ("replaced", vec![put("a", "w", Timestamp(6))]),
            ("removed", vec![remove("b", Timestamp(6)), put("c", "w", Timestamp(6))]),
            ("removal that takes nothing", vec![remove("b", Timestamp(6)), remove("x", Timestamp(6))]),
            (
                "cleared",
                vec![Change::Clear { stamp: Timestamp(6) }, put("d", "w", Timestamp(7)), put("e", "w", Timestamp(7))],
            ),
        ];
        for (case, changes) in cases {
            assert!(subject.apply(bounded(&partition, changes, 2)).await.is_ok(), "{table:?}: {case}");
        }
        assert_eq!(subject.names(&partition).await, ["d", "e"], "{table:?}");
        let kept = vec![remove("d", Timestamp(6)), put("f", "w", Timestamp(7))];
        refused(subject.apply(bounded(&partition, kept, 2)).await, Kind::TooManyRows { rows: 3 });
    }
}

pub(super) async fn several_partitions_are_all_or_none(subject: StoreSubject) {
    for full in 0..4 {
        let partitions: Vec<Partition> =
            (0..4).map(|at| subject.other(PLAIN[at % 2], format!("{full} {at}"))).collect();
        for partition in &partitions {
            subject.change(partition, vec![put("a", "v", Timestamp(1))]).await;
        }
        let changes = |at: usize| {
            let changes = vec![remove("a", Timestamp::ZERO), put("b", "v", Timestamp(2))];
            let rows_max = (at == full).then_some(1);
            PartitionChanges { rows_max, ..PartitionChanges::new(partitions[at].clone(), changes) }
        };
        let batch = Batch { partitions: (0..4).map(changes).collect() };
        refused(subject.apply(batch).await, Kind::TooManyRows { rows: 2 });
        for partition in &partitions {
            assert_eq!(subject.rows(partition).await, [row("a", "v", Timestamp(1))], "{partition:?}");
        }
    }
}

pub(super) async fn misuse_is_refused(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        let mut batch = Batch::single(subject.partition(Table::Objects), vec![put("a", "v", Timestamp(1))]);
        batch.add(partition.clone(), vec![put("a", "v", Timestamp(1))]);
        refused(subject.apply(batch).await, Kind::Misuse);
        assert_eq!(subject.rows(&subject.partition(Table::Objects)).await, [], "{table:?}");
        assert_eq!(
            subject.compare_and_set(&partition, None, row("", "v", Timestamp(5)), Vec::new()).await,
            CasResult::Applied
        );
        for stamp in [4, 5] {
            let changes = vec![put("x", "v", Timestamp(9))];
            let answer = subject
                .store
                .apply_if(&partition, Some(Timestamp(5)), row("", "w", Timestamp(stamp)).into(), changes, &options())
                .await;
            refused(answer, Kind::Misuse);
        }
        assert_eq!(subject.rows(&partition).await, [row("", "v", Timestamp(5))], "{table:?}");
    }
    for table in PLAIN {
        let partition = subject.partition(table);
        let answer =
            subject.store.apply_if(&partition, None, row("", "v", Timestamp(5)).into(), Vec::new(), &options()).await;
        refused(answer, Kind::Misuse);
        assert_eq!(subject.rows(&partition).await, [], "{table:?}");
    }
}

pub(super) async fn misuse_is_refused_with_the_same_words(subject: StoreSubject) {
    let words = |answer: Result<()>| answer.map_err(|error| (error.kind, error.context)).expect_err("refused");
    for table in PLAIN {
        let partition = subject.partition(table);
        let change = async |changes| words(subject.apply(Batch::single(partition.clone(), changes)).await);
        let twice = (Kind::Misuse, "two changes to the row b\"a\"".to_owned());
        assert_eq!(
            change(vec![put("a", "v", Timestamp(1)), put("b", "v", Timestamp(1)), remove("a", Timestamp(5))]).await,
            twice,
            "{table:?}"
        );
        let zero = (Kind::Misuse, "a row with the stamp zero".to_owned());
        assert_eq!(change(vec![put("a", "v", Timestamp::ZERO)]).await, zero, "{table:?}");
        let limit = (Kind::Misuse, "a page with the limit zero".to_owned());
        let read = subject.store.read(&partition, &ReadQuery::all(0), &options()).await;
        assert_eq!(words(read.map(drop)), limit, "{table:?}");
        let listed = subject.store.partitions(table, None, 0, &options()).await;
        assert_eq!(words(listed.map(drop)), limit, "{table:?}");
        let long = subject.other(table, vec![7; KEY_BYTES_MAX]);
        refused(subject.apply(Batch::single(long, vec![put("a", "v", Timestamp(1))])).await, Kind::TooLarge);
        assert_eq!(subject.rows(&partition).await, [], "{table:?}");
    }
    for table in GUARDED {
        let (partition, head) = (subject.partition(table), row("", "v", Timestamp(5)));
        let answer =
            subject.store.apply_if(&partition, None, head.into(), vec![put("", "w", Timestamp(6))], &options()).await;
        assert_eq!(words(answer.map(drop)), (Kind::Misuse, "two changes to the row b\"\"".to_owned()), "{table:?}");
    }
}

pub(super) async fn a_batch_above_batch_max_writes_nothing(subject: StoreSubject) {
    let value = vec![7; subject.store.limits().batch_max];
    for table in PLAIN {
        let mut batch = Batch::single(subject.other(table, "small"), vec![put("a", "v", Timestamp(1))]);
        batch.add(subject.other(table, "large"), vec![put("a", &value, Timestamp(1))]);
        refused(subject.apply(batch).await, Kind::TooLarge);
        for which in ["small", "large"] {
            assert_eq!(subject.rows(&subject.other(table, which)).await, [], "{table:?} {which}");
        }
    }
}

pub(super) async fn a_cas_above_batch_max_writes_nothing(subject: StoreSubject) {
    let value = vec![7; subject.store.limits().batch_max];
    for table in GUARDED {
        let partition = subject.partition(table);
        let changes = vec![put("a", &value, Timestamp(1))];
        let answer =
            subject.store.apply_if(&partition, None, row("", "v", Timestamp(1)).into(), changes, &options()).await;
        refused(answer, Kind::TooLarge);
        assert_eq!(subject.rows(&partition).await, [], "{table:?}");
    }
}

pub(super) async fn a_deadline_in_the_past_never_hangs(subject: StoreSubject) {
    let past = CallOptions { deadline: Instant::now(), ..options() };
    let (plain, guarded) = (subject.partition(Table::Objects), subject.partition(Table::Consistent));
    let batch = Batch::single(plain.clone(), vec![put("a", "v", Timestamp(1))]);
    let store = &subject.store;
    assert_returns(store.read(&plain, &ReadQuery::all(1), &past)).await;
    assert_returns(store.apply(batch.clone(), &past)).await;
    assert_returns(store.apply_if(&guarded, None, row("", "v", Timestamp(1)).into(), Vec::new(), &past)).await;
    assert_returns(store.partitions(Table::Objects, None, 1, &past)).await;
    assert_returns(store.now(&past)).await;
    subject.apply(batch).await.expect("a batch that timed out may be sent again");
    assert_eq!(subject.rows(&plain).await, [row("a", "v", Timestamp(1))]);
}

async fn assert_returns<T>(call: impl Future<Output = Result<T>>) {
    let answer = timeout(Duration::from_secs(10), call).await.expect("the call hangs");
    if let Err(error) = answer {
        assert_eq!(error.kind, Kind::TimedOut, "{error}");
    }
}
