//! Promises about conflicting writes and about batches.

use super::subject::{PLAIN, StoreSubject, options, put, remove, row};
use larder_store::Timestamp;
use larder_store::{Batch, CallOptions, Change, ConsistencyLevel, Durability, Partition, ReadQuery, Table};

/// All permutations of three changes.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Applies three changes in every order, each order to its own partition, and checks the value of row `a`.
async fn in_any_order(subject: &StoreSubject, changes: [Change; 3], left: &str) {
    for table in PLAIN {
        for order in ORDERS {
            let partition = subject.other(table, format!("{order:?}"));
            for at in order {
                subject.change(&partition, vec![changes[at].clone()]).await;
            }
            let rows = subject.rows(&partition).await;
            assert_eq!(rows.len(), 1, "{table:?} {order:?}");
            assert_eq!(rows[0].value, left, "{table:?} {order:?}");
        }
    }
}

async fn filled(subject: &StoreSubject, table: Table, changes: Vec<Change>) -> Partition {
    let partition = subject.partition(table);
    subject.change(&partition, changes).await;
    partition
}

pub(super) async fn the_newer_stamp_wins_in_any_order(subject: StoreSubject) {
    let changes =
        [put("a", "z old", Timestamp(5)), put("a", "y newer", Timestamp(6)), put("a", "x newest", Timestamp(1 << 50))];
    in_any_order(&subject, changes, "x newest").await;
}

pub(super) async fn the_greater_value_wins_between_equal_stamps(subject: StoreSubject) {
    in_any_order(
        &subject,
        [put("a", "", Timestamp(5)), put("a", "b", Timestamp(5)), put("a", "ba", Timestamp(5))],
        "ba",
    )
    .await;
}

pub(super) async fn the_same_write_twice_is_one_write(subject: StoreSubject) {
    for table in PLAIN {
        let partition = filled(&subject, table, vec![put("a", "v", Timestamp(5))]).await;
        subject.change(&partition, vec![put("a", "v", Timestamp(5))]).await;
        assert_eq!(subject.rows(&partition).await, [row("a", "v", Timestamp(5))], "{table:?}");
    }
}

pub(super) async fn a_removal_wins_a_tie(subject: StoreSubject) {
    for table in PLAIN {
        let partition = filled(&subject, table, vec![put("a", "v", Timestamp(5)), put("b", "v", Timestamp(5))]).await;
        subject.change(&partition, vec![remove("a", Timestamp(5))]).await;
        assert_eq!(subject.names(&partition).await, ["b"], "{table:?}");
    }
}

pub(super) async fn a_removal_takes_only_what_is_not_newer(subject: StoreSubject) {
    for table in PLAIN {
        let partition = filled(
            &subject,
            table,
            vec![put("a", "v", Timestamp(4)), put("b", "v", Timestamp(5)), put("c", "v", Timestamp(6))],
        )
        .await;
        subject
            .change(&partition, vec![remove("a", Timestamp(5)), remove("b", Timestamp(5)), remove("c", Timestamp(5))])
            .await;
        assert_eq!(subject.rows(&partition).await, [row("c", "v", Timestamp(6))], "{table:?}");
    }
}

pub(super) async fn a_removal_takes_one_row_alone(subject: StoreSubject) {
    for table in PLAIN {
        let partition =
            filled(&subject, table, ["", "a", "a\0", "ab"].map(|name| put(name, "v", Timestamp(1))).to_vec()).await;
        subject.change(&partition, vec![remove("a", Timestamp(9))]).await;
        assert_eq!(subject.names(&partition).await, ["", "a\0", "ab"], "{table:?}");
        subject.change(&partition, vec![remove("", Timestamp(9))]).await;
        assert_eq!(subject.names(&partition).await, ["a\0", "ab"], "{table:?}");
    }
}

pub(super) async fn a_row_comes_back_after_its_removal(subject: StoreSubject) {
    for table in PLAIN {
        let partition = filled(&subject, table, vec![put("a", "v", Timestamp(5))]).await;
        subject.change(&partition, vec![remove("a", Timestamp(5))]).await;
        assert_eq!(subject.rows(&partition).await, [], "{table:?}");
        subject.change(&partition, vec![put("a", "w", Timestamp(6))]).await;
        assert_eq!(subject.rows(&partition).await, [row("a", "w", Timestamp(6))], "{table:?}");
    }
}

pub(super) async fn removing_what_is_absent_is_no_error(subject: StoreSubject) {
    for table in PLAIN {
        let partition = filled(&subject, table, vec![remove("a", Timestamp(5)), remove("", Timestamp(5))]).await;
        subject.change(&partition, vec![Change::Clear { stamp: Timestamp(5) }]).await;
        assert_eq!(subject.rows(&partition).await, [], "{table:?}");
    }
}

pub(super) async fn a_clear_takes_only_what_is_not_newer(subject: StoreSubject) {
    for table in PLAIN {
        let partition = filled(
            &subject,
            table,
            vec![put("", "v", Timestamp(4)), put("b", "v", Timestamp(5)), put("c", "v", Timestamp(6))],
        )
        .await;
        subject.change(&partition, vec![Change::Clear { stamp: Timestamp(5) }]).await;
        assert_eq!(subject.rows(&partition).await, [row("c", "v", Timestamp(6))], "{table:?}");
    }
}

pub(super) async fn a_clear_leaves_other_partitions_alone(subject: StoreSubject) {
    let keys: [&[u8]; 7] = [b"m", b"m\0", b"m\0\0", b"m\xff", b"mm", b"l\xff", b"n"];
    for table in PLAIN {
        for key in keys {
            subject
                .change(
                    &subject.other(table, key),
                    vec![put("", "v", Timestamp(1)), put(b"\xff\xff", "v", Timestamp(1))],
                )
                .await;
        }
        subject.change(&subject.other(table, "m"), vec![Change::Clear { stamp: Timestamp(9) }]).await;
        for key in keys {
            let left = subject.rows(&subject.other(table, key)).await.len();
            assert_eq!(left, if key == b"m" { 0 } else { 2 }, "{table:?} {key:?}");
        }
    }
}

pub(super) async fn a_clear_and_a_put_replace_everything(subject: StoreSubject) {
    for table in PLAIN {
        for clear_first in [true, false] {
            let partition = subject.other(table, [u8::from(clear_first)]);
            subject
                .change(
                    &partition,
                    vec![put("a", "v", Timestamp(1)), put("b", "v", Timestamp(2)), put("new", "v", Timestamp(4))],
                )
                .await;
            let mut changes = vec![Change::Clear { stamp: Timestamp(4) }, put("new", "w", Timestamp(5))];
            if !clear_first {
                changes.reverse();
            }
            subject.change(&partition, changes).await;
            assert_eq!(subject.rows(&partition).await, [row("new", "w", Timestamp(5))], "{table:?}");
        }
    }
}

pub(super) async fn a_batch_of_several_partitions_changes_them_all(subject: StoreSubject) {
    let tables = [Table::Objects, Table::Keys, Table::Buckets, Table::Members, Table::Marks];
    let all = |stamp| {
        let mut batch = Batch::default();
        for table in tables {
            for which in ["1", "2", "3"] {
                let changes = vec![remove("old", stamp - 1), put("new", table.name(), stamp)];
                batch.add(subject.other(table, which), changes);
            }
        }
        batch
    };
    for which in ["1", "2", "3"] {
        for table in tables {
            subject.change(&subject.other(table, which), vec![put("old", "v", Timestamp(1))]).await;
        }
    }
    subject.apply(all(Timestamp(2))).await.expect("a batch of many partitions is taken");
    for table in tables {
        for which in ["1", "2", "3"] {
            let rows = subject.rows(&subject.other(table, which)).await;
            assert_eq!(rows, [row("new", table.name(), Timestamp(2))], "{table:?}");
        }
    }
}

pub(super) async fn an_empty_batch_is_no_error(subject: StoreSubject) {
    subject.apply(Batch::default()).await.expect("no partitions");
    let barrier = CallOptions { durability: Durability::Forced, ..options() };
    subject.store.apply(Batch::default(), &barrier).await.expect("a sync barrier");
    for table in PLAIN {
        subject.change(&subject.partition(table), Vec::new()).await;
        assert_eq!(subject.rows(&subject.partition(table)).await, [], "{table:?}");
    }
}

pub(super) async fn every_durability_is_taken(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        for (stamp, durability) in [(1, Durability::Buffered), (2, Durability::Disk), (3, Durability::Forced)] {
            let batch = Batch::single(partition.clone(), vec![put("a", "v", Timestamp(stamp))]);
            let options = CallOptions { durability, ..options() };
            subject.store.apply(batch, &options).await.expect("a write is taken");
            assert_eq!(subject.rows(&partition).await, [row("a", "v", Timestamp(stamp))], "{table:?} {durability:?}");
        }
    }
}

pub(super) async fn one_machine_meets_every_level(subject: StoreSubject) {
    if subject.store.limits().nodes > 1 {
        return;
    }
    for (stamp, level) in (1..).zip([
        ConsistencyLevel::One,
        ConsistencyLevel::Two,
        ConsistencyLevel::Three,
        ConsistencyLevel::Quorum,
        ConsistencyLevel::All,
    ]) {
        let partition = subject.partition(Table::Objects);
        let options = CallOptions { level, ..options() };
        let batch = Batch::single(partition.clone(), vec![put("a", "v", Timestamp(stamp))]);
        subject.store.apply(batch, &options).await.expect("one disk is every replica");
        let page = subject.store.read(&partition, &ReadQuery::all(9), &options).await;
        assert_eq!(page.expect("one disk is every replica").rows, [row("a", "v", Timestamp(stamp))], "{level:?}");
    }
}
