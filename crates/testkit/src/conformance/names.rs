//! Promises about names, keys and values of any bytes and of any length within the limits.

use bytes::Bytes;
use larder_rows::limits::{BUCKET_BYTES_MAX, KEY_BYTES_MAX, TYPE_BYTES_MAX};
use larder_store::{Batch, CasResult, Change, PartitionChanges, Row, Table, Timestamp};

use super::subject::{GUARDED, PLAIN, StoreSubject, put, row};

/// Names that a careless encoding confuses or misorders, in ascending order.
const HARD: [&[u8]; 14] = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\x01",
    b"\0\xff",
    b"\x01",
    b"a",
    b"a\0",
    b"a\0b",
    b"a\x01",
    b"ab",
    b"a\xff",
    b"\xff",
    b"\xff\xff",
];

pub(super) async fn names_are_any_bytes(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, HARD.iter().rev().map(|name| put(name, name, Timestamp(1))).collect()).await;
        let expected: Vec<Row> = HARD.iter().map(|name| row(name, name, Timestamp(1))).collect();
        assert_eq!(subject.rows(&partition).await, expected, "{table:?}");
    }
}

pub(super) async fn partition_keys_are_any_bytes(subject: StoreSubject) {
    for table in PLAIN {
        for key in HARD {
            subject.change(&subject.other(table, key), vec![put("row", key, Timestamp(1))]).await;
        }
        for key in HARD {
            assert_eq!(
                subject.rows(&subject.other(table, key)).await,
                [row("row", key, Timestamp(1))],
                "{table:?} {key:?}"
            );
        }
    }
}

pub(super) async fn partitions_and_rows_do_not_run_into_each_other(subject: StoreSubject) {
    for table in PLAIN {
        for key in HARD {
            subject
                .change(&subject.other(table, key), HARD.iter().map(|name| put(name, key, Timestamp(1))).collect())
                .await;
        }
        for key in HARD {
            let expected: Vec<Row> = HARD.iter().map(|name| row(name, key, Timestamp(1))).collect();
            assert_eq!(subject.rows(&subject.other(table, key)).await, expected, "{table:?} {key:?}");
        }
    }
}

pub(super) async fn tables_do_not_share_partitions(subject: StoreSubject) {
    for table in Table::ALL {
        let partition = subject.partition(table);
        let here = row("row", table.name(), Timestamp(1));
        if table.is_guarded() {
            assert_eq!(subject.compare_and_set(&partition, None, here, Vec::new()).await, CasResult::Applied);
        } else {
            subject.change(&partition, vec![Change::Put(here)]).await;
        }
    }
    for table in Table::ALL {
        assert_eq!(subject.rows(&subject.partition(table)).await, [row("row", table.name(), Timestamp(1))]);
    }
}

pub(super) async fn an_empty_value_is_a_value(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, vec![put("", "", Timestamp(1)), put("a", "", Timestamp(1))]).await;
        assert_eq!(
            subject.rows(&partition).await,
            [row("", "", Timestamp(1)), row("a", "", Timestamp(1))],
            "{table:?}"
        );
    }
}

pub(super) async fn long_names_come_back(subject: StoreSubject) {
    let key = vec![b'k'; TYPE_BYTES_MAX + BUCKET_BYTES_MAX];
    for table in PLAIN {
        // A view row escapes the key, which may double its length; the names differ only at their ends.
        let mut names = [vec![0_u8; 2 * KEY_BYTES_MAX], vec![0_u8; 2 * KEY_BYTES_MAX]];
        names[1].push(1);
        let partition = subject.other(table, &key);
        subject.change(&partition, names.iter().map(|name| put(name, "v", Timestamp(1))).collect()).await;
        let found = subject.names(&partition).await;
        assert!(found.iter().eq(names.iter()), "{table:?}: {} rows, two were written", found.len());
    }
}

pub(super) async fn values_come_back_up_to_inline_max(subject: StoreSubject) {
    let inline_max = subject.store.limits().inline_max;
    for table in PLAIN {
        for length in [1, inline_max / 2, inline_max - 1, inline_max] {
            let value: Bytes = (0..length).map(|at| (at % 251) as u8).collect();
            let partition = subject.other(table, length.to_string());
            subject.change(&partition, vec![put("a", &value, Timestamp(1)), put("b", &value, Timestamp(1))]).await;
            let found = subject.rows(&partition).await;
            assert!(
                found == [row("a", &value, Timestamp(1)), row("b", &value, Timestamp(1))],
                "{table:?}: {length} bytes differ"
            );
        }
    }
}

pub(super) async fn a_batch_comes_back_up_to_batch_max(subject: StoreSubject) {
    let limits = subject.store.limits();
    let value = vec![7; limits.inline_max];
    for (table, guarded) in PLAIN.into_iter().zip(GUARDED) {
        let one = PartitionChanges::new(subject.partition(table), Vec::new());
        let mut batch = Batch { partitions: vec![one] };
        let rows = (limits.batch_max - 100 - batch.bytes()) / (limits.inline_max + 24);
        let changes: Vec<Change> = (0..rows).map(|at| put(format!("{at:08}"), &value, Timestamp(1))).collect();
        batch.partitions[0].changes = changes.clone();
        assert!(batch.bytes() <= limits.batch_max);
        subject.apply(batch).await.expect("a batch of allowed size is taken");
        let found = subject.rows(&subject.partition(table)).await;
        assert!(found.len() == rows && found.iter().all(|row| row.value == value), "{table:?}");
        let partition = subject.partition(guarded);
        assert_eq!(
            subject.compare_and_set(&partition, None, row("", "", Timestamp(1)), changes).await,
            CasResult::Applied
        );
        assert_eq!(subject.rows(&partition).await.len(), rows + 1, "{guarded:?}");
    }
}
