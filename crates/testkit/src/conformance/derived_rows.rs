//! Promises about derived rows: they follow a head in another partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::task::{JoinSet, yield_now};

use super::subject::{GUARDED, StoreSubject, join_all, options, put, row};
use larder_store::{
    CasResult, Clock, DerivedRow, HeadWrite, Kind, Partition, PartitionChanges, ReadOrder, ReadQuery, Row, Stopped,
    Table, Timestamp,
};

/// Writes that readers race: enough to overlap, few enough for an engine with a disk.
const ROUNDS: u64 = 100;
const READERS: usize = 4;

/// Every guarded layout with every table of derived rows.
fn pairs() -> impl Iterator<Item = (Table, Table)> {
    GUARDED.into_iter().flat_map(|guarded| DerivedRow::TABLES.map(|table| (guarded, table)))
}

/// A head whose derived row is the row `name` of `partition`; both have this value.
fn head(partition: &Partition, name: impl AsRef<[u8]>, value: Option<&str>, stamp: Timestamp) -> HeadWrite {
    let derived = DerivedRow {
        partition: partition.clone(),
        name: Bytes::copy_from_slice(name.as_ref()),
        value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
    };
    HeadWrite { derived: Some(derived), ..HeadWrite::from(row("", value.unwrap_or("none"), stamp)) }
}

/// The engine's current time: an engine treats intents of now as young.
fn now(subject: &StoreSubject) -> Timestamp {
    subject.clock.now()
}

pub(super) async fn a_cas_writes_head_and_derived_row(subject: StoreSubject) {
    for (guarded, table) in pairs() {
        let (at, derived_rows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let now = now(&subject);
        let first = head(&derived_rows, "k", Some("first"), now);
        assert_eq!(
            subject.compare_and_set(&at, None, first, vec![put("a", "v", now)]).await,
            CasResult::Applied,
            "{at:?}"
        );
        assert_eq!(subject.rows(&at).await, [row("", "first", now), row("a", "v", now)], "{at:?}");
        assert_eq!(
            subject.rows(&derived_rows).await,
            [row("k", "first", now)],
            "{at:?}: value and stamp are those of the head"
        );
        let second = head(&derived_rows, "k", Some("second"), now + 2);
        assert_eq!(subject.compare_and_set(&at, Some(now), second, Vec::new()).await, CasResult::Applied, "{at:?}");
        assert_eq!(subject.rows(&derived_rows).await, [row("k", "second", now + 2)], "{at:?}");
        assert_eq!(subject.rows(&at).await[0], row("", "second", now + 2), "{at:?}");
    }
}

/// A conflict may leave them on an engine that writes them before the head.
pub(super) async fn a_head_never_lacks_the_rows_beside_it(subject: StoreSubject) {
    for (guarded, table) in pairs() {
        let (at, derived_rows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let outbox = subject.other(Table::Outbox, guarded.name());
        let now = now(&subject);
        let beside = |name: &str, stamp| Some(PartitionChanges::new(outbox.clone(), vec![put(name, "notice", stamp)]));
        let first = HeadWrite { beside: beside("a", now), ..head(&derived_rows, "k", Some("first"), now) };
        assert_eq!(subject.compare_and_set(&at, None, first, Vec::new()).await, CasResult::Applied, "{at:?}");
        let alone = HeadWrite { beside: beside("b", now), ..HeadWrite::from(row("", "second", now + 2)) };
        assert_eq!(subject.compare_and_set(&at, Some(now), alone, Vec::new()).await, CasResult::Applied, "{at:?}");
        assert_eq!(subject.rows(&outbox).await, [row("a", "notice", now), row("b", "notice", now)], "{at:?}");
    }
}

pub(super) async fn a_conflict_writes_neither_head_nor_derived_row(subject: StoreSubject) {
    for (guarded, table) in pairs() {
        let (at, derived_rows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let now = now(&subject);
        let lost =
            subject.compare_and_set(&at, Some(now), head(&derived_rows, "k", Some("lost"), now + 2), Vec::new()).await;
        assert_eq!(lost, CasResult::Conflict(None), "{at:?}");
        assert_eq!(subject.rows(&derived_rows).await, [], "{at:?}: there is no head");
        let first = head(&derived_rows, "k", Some("v"), now + 10);
        assert_eq!(subject.compare_and_set(&at, None, first, Vec::new()).await, CasResult::Applied, "{at:?}");
        for (expected, value) in [(None, Some("lost")), (Some(now + 8), Some("lost")), (Some(now + 12), None)] {
            let lost =
                subject.compare_and_set(&at, expected, head(&derived_rows, "k", value, now + 20), Vec::new()).await;
            assert_eq!(lost, CasResult::Conflict(Some(row("", "v", now + 10))), "{at:?} {expected:?}");
            assert_eq!(subject.rows(&derived_rows).await, [row("k", "v", now + 10)], "{at:?} {expected:?}");
            assert_eq!(subject.rows(&at).await, [row("", "v", now + 10)], "{at:?} {expected:?}");
        }
    }
}

pub(super) async fn a_derived_row_goes_and_comes_back(subject: StoreSubject) {
    for (guarded, table) in pairs() {
        let (at, derived_rows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let (now, mut expected) = (now(&subject), None);
        for (step, value) in (0..).zip([None, Some("v"), None, None, Some("w"), Some(""), None]) {
            let stamp = now + 2 * step;
            let cas = subject.compare_and_set(&at, expected, head(&derived_rows, "k", value, stamp), Vec::new()).await;
            assert_eq!(cas, CasResult::Applied, "{at:?} {step}");
            let derived: Vec<Row> = value.map(|value| row("k", value, stamp)).into_iter().collect();
            assert_eq!(subject.rows(&derived_rows).await, derived, "{at:?} {step}");
            assert_eq!(subject.page(&derived_rows, &ReadQuery::one("k".into())).await.rows, derived, "{at:?} {step}");
            expected = Some(stamp);
        }
        assert!(!subject.own_keys(table, 100).await.contains(&derived_rows.key), "{at:?}: the partition is empty");
    }
}

pub(super) async fn derived_rows_of_many_heads_are_one_listing(subject: StoreSubject) {
    for (guarded, table) in pairs() {
        let derived_rows = subject.other(table, guarded.name());
        let now = now(&subject);
        for which in 0..20_u64 {
            let (at, name) = (subject.other(guarded, format!("{table:?} {which}")), format!("{which:02}"));
            let first = head(&derived_rows, &name, Some("v"), now + which);
            assert_eq!(subject.compare_and_set(&at, None, first, Vec::new()).await, CasResult::Applied);
            if !which.is_multiple_of(5) {
                let gone = head(&derived_rows, &name, None, now + which + 2);
                assert_eq!(subject.compare_and_set(&at, Some(now + which), gone, Vec::new()).await, CasResult::Applied);
            }
        }
        let expected = [0, 5, 10, 15].map(|which: u64| row(format!("{which:02}"), "v", now + which));
        assert_eq!(subject.rows(&derived_rows).await, expected, "{table:?}");
        let first = subject.page(&derived_rows, &ReadQuery::all(3)).await;
        assert_eq!((&first.rows[..], first.stopped), (&expected[..3], Stopped::Limit), "{table:?}");
        let rest = subject.page(&derived_rows, &ReadQuery::after(Some(&first.rows[2].name), 3)).await;
        assert_eq!((&rest.rows[..], rest.stopped), (&expected[3..], Stopped::End), "{table:?}");
        let back = ReadQuery { order: ReadOrder::Reverse, ..ReadQuery::all(1) };
        assert_eq!(subject.page(&derived_rows, &back).await.rows, expected[3..], "{table:?}");
        assert_eq!(
            subject.page(&derived_rows, &ReadQuery::prefix("0".into(), 9)).await.rows,
            expected[..2],
            "{table:?}"
        );
        assert!(subject.own_keys(table, 100).await.contains(&derived_rows.key), "{table:?}");
    }
}

/// Every fifth round removes the derived row.
fn is_gone(stamp: Timestamp, first: Timestamp) -> bool {
    (stamp.since(first) / 2) % 5 == 4
}

/// Reads the head, the derived row and the head again: the derived row is that of a head between the two reads.
async fn assert_derived_row_follows(
    subject: &StoreSubject,
    at: &Partition,
    derived_rows: &Partition,
    first: Timestamp,
) {
    let before = subject.rows(at).await[0].stamp;
    let derived = subject.rows(derived_rows).await.pop();
    let after = subject.rows(at).await[0].stamp;
    let expected = |stamp: Timestamp| (!is_gone(stamp, first)).then(|| row("k", stamp.to_string(), stamp));
    let mut between = (before.0..=after.0).step_by(2).map(Timestamp).map(expected);
    assert!(between.any(|expected| expected == derived), "{at:?}: {derived:?} beside heads from {before} to {after}");
}

pub(super) async fn a_derived_row_is_never_older_than_its_head(subject: StoreSubject) {
    for (guarded, table) in pairs() {
        let (at, derived_rows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let first = now(&subject);
        let value = |stamp: Timestamp| (!is_gone(stamp, first)).then(|| stamp.to_string());
        let write = async |expected: Option<Timestamp>, stamp: Timestamp| {
            let head = head(&derived_rows, "k", value(stamp).as_deref(), stamp);
            assert_eq!(
                subject.compare_and_set(&at, expected, head, Vec::new()).await,
                CasResult::Applied,
                "there is no other writer"
            );
        };
        write(None, first).await;
        let (stop, mut readers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..READERS {
            let (subject, at, derived_rows, stop) = (subject.clone(), at.clone(), derived_rows.clone(), stop.clone());
            readers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    assert_derived_row_follows(&subject, &at, &derived_rows, first).await;
                    yield_now().await;
                }
            });
        }
        for round in 1..ROUNDS {
            write(Some(first + 2 * (round - 1)), first + 2 * round).await;
            assert_derived_row_follows(&subject, &at, &derived_rows, first).await;
            yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
        join_all(readers).await;
    }
}

pub(super) async fn a_derived_row_in_a_wrong_table_is_misuse(subject: StoreSubject) {
    let now = now(&subject);
    for guarded in GUARDED {
        let at = subject.partition(guarded);
        for table in Table::ALL.into_iter().filter(|table| !DerivedRow::TABLES.contains(table)) {
            let derived_rows = subject.other(table, "derived_rows");
            let head = head(&derived_rows, "k", Some("v"), now);
            misused(&subject, &at, None, head).await;
            assert_eq!(subject.rows(&at).await, [], "{guarded:?} {table:?}");
            assert_eq!(subject.rows(&derived_rows).await, [], "{guarded:?} {table:?}");
        }
        let derived_rows = subject.partition(DerivedRow::TABLES[0]);
        let first = head(&derived_rows, guarded.name(), Some("v"), now);
        assert_eq!(subject.compare_and_set(&at, None, first, Vec::new()).await, CasResult::Applied);
        for stamp in [now - 1, now, now + 1] {
            misused(&subject, &at, Some(now), head(&derived_rows, guarded.name(), Some("w"), stamp)).await;
        }
        let kept = subject.page(&derived_rows, &ReadQuery::one(guarded.name().into())).await;
        assert_eq!(kept.rows, [row(guarded.name(), "v", now)]);
    }
}

async fn misused(subject: &StoreSubject, at: &Partition, expected: Option<Timestamp>, head: HeadWrite) {
    let answer = subject.store.apply_if(at, expected, head, Vec::new(), &options()).await;
    assert_eq!(answer.expect_err("refused").kind, Kind::Misuse, "{at:?}");
}
