//! Promises about rows that expire.

use super::subject::{GUARDED, PLAIN, StoreSubject, options, put, put_until, row};
use larder_store::Timestamp;
use larder_store::{CasResult, Change, Clock, ReadOrder, ReadQuery, Row, Stopped};

pub(super) async fn a_row_is_there_until_it_expires(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, vec![put_until("a", "v", Timestamp(1), subject.in_seconds(100))]).await;
        subject.wait_seconds(90);
        assert_eq!(subject.names(&partition).await, ["a"], "{table:?}: before");
        subject.wait_seconds(10);
        assert_eq!(subject.rows(&partition).await, [], "{table:?}: at the moment itself");
        subject.wait_seconds(1000);
        assert_eq!(subject.rows(&partition).await, [], "{table:?}: long after");
    }
}

pub(super) async fn expired_rows_are_never_returned(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        let soon = subject.in_seconds(10);
        let rows = |at: u8| {
            if at.is_multiple_of(2) { put([at], "v", Timestamp(1)) } else { put_until([at], "v", Timestamp(1), soon) }
        };
        subject.change(&partition, (0..8).map(rows).collect()).await;
        subject.wait_seconds(11);
        let stay = [0, 2, 4, 6].map(|name| row([name], "v", Timestamp(1)));
        assert_eq!(subject.rows(&partition).await, stay, "{table:?}");
        let first = subject.page(&partition, &ReadQuery::all(3)).await;
        assert_eq!(
            (first.rows.len(), first.stopped),
            (3, Stopped::Limit),
            "{table:?}: an expired row takes no place in a page"
        );
        let last = ReadQuery { order: ReadOrder::Reverse, ..ReadQuery::all(1) };
        assert_eq!(subject.page(&partition, &last).await.rows[0].name[..], [6], "{table:?}");
        subject.change(&partition, vec![put([9], "v", Timestamp(1))]).await;
        assert_eq!(
            subject.names(&partition).await.len(),
            5,
            "{table:?}: no expired row comes back after the next write"
        );
    }
}

pub(super) async fn a_row_without_expiry_outlives_one_with(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        let (soon, later) = (subject.in_seconds(10), subject.in_seconds(1000));
        let first = ["a", "b", "c"].map(|name| put_until(name, "v", Timestamp(1), soon));
        subject.change(&partition, first.to_vec()).await;
        subject.change(&partition, vec![put("a", "w", Timestamp(2)), put_until("b", "w", Timestamp(2), later)]).await;
        subject.wait_seconds(11);
        assert_eq!(subject.names(&partition).await, ["a", "b"], "{table:?}: the newest row decides the expiry");
        subject.wait_seconds(1000);
        assert_eq!(subject.rows(&partition).await, [row("a", "w", Timestamp(2))], "{table:?}");
    }
}

pub(super) async fn a_row_that_is_born_expired_hides_what_it_replaced(subject: StoreSubject) {
    subject.wait_seconds(100);
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, vec![put("a", "v", Timestamp(1)), put("b", "v", Timestamp(1))]).await;
        let past = Some(subject.clock.now() - 50_000_000);
        subject
            .change(&partition, vec![put_until("a", "w", Timestamp(2), past), put_until("c", "w", Timestamp(2), past)])
            .await;
        assert_eq!(subject.names(&partition).await, ["b"], "{table:?}");
    }
}

pub(super) async fn an_expired_head_is_absent(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        let first = Row { expires: subject.in_seconds(10), ..row("", "first", Timestamp(5)) };
        assert_eq!(subject.compare_and_set(&partition, None, first, Vec::new()).await, CasResult::Applied);
        subject.wait_seconds(11);
        let lost = subject
            .compare_and_set(
                &partition,
                Some(Timestamp(5)),
                row("", "second", Timestamp(6)),
                vec![put("x", "v", Timestamp(6))],
            )
            .await;
        assert_eq!(lost, CasResult::Conflict(None), "{table:?}");
        assert_eq!(subject.rows(&partition).await, [], "{table:?}");
        assert_eq!(
            subject.compare_and_set(&partition, None, row("", "third", Timestamp(7)), Vec::new()).await,
            CasResult::Applied,
            "{table:?}"
        );
        assert_eq!(subject.rows(&partition).await, [row("", "third", Timestamp(7))], "{table:?}");
    }
}

pub(super) async fn the_store_clock_decides_expiry(subject: StoreSubject) {
    let before = subject.store.now(&options()).await.expect("the store answers the time");
    subject.wait_seconds(5);
    let after = subject.store.now(&options()).await.expect("the store answers the time");
    assert!(after >= before + 5_000_000, "{before} and five seconds later {after}");
    for table in PLAIN {
        let partition = subject.partition(table);
        let until = |seconds: u64| Some(after + seconds * 1_000_000);
        let rows: Vec<Change> =
            vec![put_until("a", "v", Timestamp(1), until(0)), put_until("b", "v", Timestamp(1), until(60))];
        subject.change(&partition, rows).await;
        assert_eq!(subject.names(&partition).await, ["b"], "{table:?}");
    }
}
