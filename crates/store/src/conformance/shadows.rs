//! Rows that read as a head elsewhere says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::task::{JoinSet, yield_now};

use super::subject::{GUARDED, Subject, options, put, row, stopped};
use crate::{Clock, Head, Kind, Order, Partition, ReadQuery, Row, Shadow, Stamp, Stopped, Swap, Table};

/// Swaps that readers race: enough to be met at work, few enough for an engine with a disk.
const ROUNDS: u64 = 100;
const READERS: usize = 4;

/// Every guarded layout with every table of shadows.
fn pairs() -> impl Iterator<Item = (Table, Table)> {
    GUARDED.into_iter().flat_map(|guarded| Shadow::TABLES.map(|table| (guarded, table)))
}

/// A head whose shadow is the row `name` of `partition`; both have this value.
fn head(partition: &Partition, name: impl AsRef<[u8]>, value: Option<&str>, stamp: Stamp) -> Head {
    let shadow = Shadow {
        partition: partition.clone(),
        name: Bytes::copy_from_slice(name.as_ref()),
        value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
    };
    Head { row: row("", value.unwrap_or("none"), stamp), shadow: Some(shadow) }
}

/// A moment that is now for the engine too: what is being written now need not be put in order by others.
fn now(subject: &Subject) -> Stamp {
    subject.clock.now()
}

pub(super) async fn a_swap_writes_head_and_shadow(subject: Subject) {
    for (guarded, table) in pairs() {
        let (at, shadows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let now = now(&subject);
        let first = head(&shadows, "k", Some("first"), now);
        assert_eq!(subject.swap(&at, None, first, vec![put("a", "v", now)]).await, Swap::Applied, "{at:?}");
        assert_eq!(subject.rows(&at).await, [row("", "first", now), row("a", "v", now)], "{at:?}");
        assert_eq!(subject.rows(&shadows).await, [row("k", "first", now)], "{at:?}: value and stamp are the head's");
        let second = head(&shadows, "k", Some("second"), now + 2);
        assert_eq!(subject.swap(&at, Some(now), second, Vec::new()).await, Swap::Applied, "{at:?}");
        assert_eq!(subject.rows(&shadows).await, [row("k", "second", now + 2)], "{at:?}");
        assert_eq!(subject.rows(&at).await[0], row("", "second", now + 2), "{at:?}");
    }
}

pub(super) async fn a_conflict_writes_neither_head_nor_shadow(subject: Subject) {
    for (guarded, table) in pairs() {
        let (at, shadows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let now = now(&subject);
        let lost = subject.swap(&at, Some(now), head(&shadows, "k", Some("lost"), now + 2), Vec::new()).await;
        assert_eq!(lost, Swap::Conflict(None), "{at:?}");
        assert_eq!(subject.rows(&shadows).await, [], "{at:?}: there is no head");
        let first = head(&shadows, "k", Some("v"), now + 10);
        assert_eq!(subject.swap(&at, None, first, Vec::new()).await, Swap::Applied, "{at:?}");
        for (expected, value) in [(None, Some("lost")), (Some(now + 8), Some("lost")), (Some(now + 12), None)] {
            let lost = subject.swap(&at, expected, head(&shadows, "k", value, now + 20), Vec::new()).await;
            assert_eq!(lost, Swap::Conflict(Some(row("", "v", now + 10))), "{at:?} {expected:?}");
            assert_eq!(subject.rows(&shadows).await, [row("k", "v", now + 10)], "{at:?} {expected:?}");
            assert_eq!(subject.rows(&at).await, [row("", "v", now + 10)], "{at:?} {expected:?}");
        }
    }
}

pub(super) async fn a_shadow_goes_and_comes_back(subject: Subject) {
    for (guarded, table) in pairs() {
        let (at, shadows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let (now, mut expected) = (now(&subject), None);
        for (step, value) in (0..).zip([None, Some("v"), None, None, Some("w"), Some(""), None]) {
            let stamp = now + 2 * step;
            let swap = subject.swap(&at, expected, head(&shadows, "k", value, stamp), Vec::new()).await;
            assert_eq!(swap, Swap::Applied, "{at:?} {step}");
            let shadow: Vec<Row> = value.map(|value| row("k", value, stamp)).into_iter().collect();
            assert_eq!(subject.rows(&shadows).await, shadow, "{at:?} {step}");
            assert_eq!(subject.page(&shadows, &ReadQuery::one("k".into())).await.rows, shadow, "{at:?} {step}");
            expected = Some(stamp);
        }
        assert!(!subject.own_keys(table, 100).await.contains(&shadows.key), "{at:?}: nothing is in it");
    }
}

pub(super) async fn shadows_of_many_heads_are_one_listing(subject: Subject) {
    for (guarded, table) in pairs() {
        let shadows = subject.other(table, guarded.name());
        let now = now(&subject);
        for which in 0..20_u64 {
            let (at, name) = (subject.other(guarded, format!("{table:?} {which}")), format!("{which:02}"));
            let first = head(&shadows, &name, Some("v"), now + which);
            assert_eq!(subject.swap(&at, None, first, Vec::new()).await, Swap::Applied);
            if !which.is_multiple_of(5) {
                let gone = head(&shadows, &name, None, now + which + 2);
                assert_eq!(subject.swap(&at, Some(now + which), gone, Vec::new()).await, Swap::Applied);
            }
        }
        let expected = [0, 5, 10, 15].map(|which: u64| row(format!("{which:02}"), "v", now + which));
        assert_eq!(subject.rows(&shadows).await, expected, "{table:?}");
        let first = subject.page(&shadows, &ReadQuery::all(3)).await;
        assert_eq!((&first.rows[..], first.stopped), (&expected[..3], Stopped::Limit), "{table:?}");
        let rest = subject.page(&shadows, &ReadQuery::after(Some(&first.rows[2].name), 3)).await;
        assert_eq!((&rest.rows[..], rest.stopped), (&expected[3..], Stopped::End), "{table:?}");
        let back = ReadQuery { order: Order::Reverse, ..ReadQuery::all(1) };
        assert_eq!(subject.page(&shadows, &back).await.rows, expected[3..], "{table:?}");
        assert_eq!(subject.page(&shadows, &ReadQuery::prefix("0".into(), 9)).await.rows, expected[..2], "{table:?}");
        assert!(subject.own_keys(table, 100).await.contains(&shadows.key), "{table:?}");
    }
}

/// Every fifth round takes the shadow away.
fn is_gone(stamp: Stamp, first: Stamp) -> bool {
    ((stamp - first) / 2) % 5 == 4
}

/// Looks at the head, at the shadow and at the head again: the shadow is of a moment between.
async fn look(subject: &Subject, at: &Partition, shadows: &Partition, first: Stamp) {
    let before = subject.rows(at).await[0].stamp;
    let shadow = subject.rows(shadows).await.pop();
    let after = subject.rows(at).await[0].stamp;
    let said = |stamp: Stamp| (!is_gone(stamp, first)).then(|| row("k", stamp.to_string(), stamp));
    let mut between = (before..=after).step_by(2).map(said);
    assert!(between.any(|said| said == shadow), "{at:?}: {shadow:?} beside heads from {before} to {after}");
}

pub(super) async fn a_shadow_is_never_behind_its_head(subject: Subject) {
    for (guarded, table) in pairs() {
        let (at, shadows) = (subject.other(guarded, table.name()), subject.other(table, guarded.name()));
        let first = now(&subject);
        let value = |stamp: Stamp| (!is_gone(stamp, first)).then(|| stamp.to_string());
        let write = async |expected: Option<Stamp>, stamp: Stamp| {
            let head = head(&shadows, "k", value(stamp).as_deref(), stamp);
            assert_eq!(subject.swap(&at, expected, head, Vec::new()).await, Swap::Applied, "nobody else writes");
        };
        write(None, first).await;
        let (stop, mut readers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..READERS {
            let (subject, at, shadows, stop) = (subject.clone(), at.clone(), shadows.clone(), stop.clone());
            readers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    look(&subject, &at, &shadows, first).await;
                    yield_now().await;
                }
            });
        }
        for round in 1..ROUNDS {
            write(Some(first + 2 * (round - 1)), first + 2 * round).await;
            look(&subject, &at, &shadows, first).await;
            yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
        stopped(readers).await;
    }
}

pub(super) async fn a_shadow_out_of_place_is_misuse(subject: Subject) {
    let now = now(&subject);
    for guarded in GUARDED {
        let at = subject.partition(guarded);
        for table in Table::ALL.into_iter().filter(|table| !Shadow::TABLES.contains(table)) {
            let shadows = subject.other(table, "shadows");
            let head = head(&shadows, "k", Some("v"), now);
            misused(&subject, &at, None, head).await;
            assert_eq!(subject.rows(&at).await, [], "{guarded:?} {table:?}");
            assert_eq!(subject.rows(&shadows).await, [], "{guarded:?} {table:?}");
        }
        let shadows = subject.partition(Shadow::TABLES[0]);
        let first = head(&shadows, guarded.name(), Some("v"), now);
        assert_eq!(subject.swap(&at, None, first, Vec::new()).await, Swap::Applied);
        for stamp in [now - 1, now, now + 1] {
            misused(&subject, &at, Some(now), head(&shadows, guarded.name(), Some("w"), stamp)).await;
        }
        let kept = subject.page(&shadows, &ReadQuery::one(guarded.name().into())).await;
        assert_eq!(kept.rows, [row(guarded.name(), "v", now)]);
    }
}

async fn misused(subject: &Subject, at: &Partition, expected: Option<Stamp>, head: Head) {
    let answer = subject.store.apply_if(at, expected, head, Vec::new(), &options()).await;
    assert_eq!(answer.expect_err("refused").kind, Kind::Misuse, "{at:?}");
}
