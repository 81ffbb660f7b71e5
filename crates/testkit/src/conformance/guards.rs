//! Promises about compare-and-set on the head of a partition.

use super::subject::{GUARDED, StoreSubject, put, remove, row};
use larder_store::Timestamp;
use larder_store::{CasResult, Row};

pub(super) async fn a_cas_writes_head_and_changes(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        let first = vec![put("a", "v", Timestamp(5)), put("b", "v", Timestamp(5))];
        assert_eq!(
            subject.compare_and_set(&partition, None, row("", "first", Timestamp(5)), first).await,
            CasResult::Applied,
            "{table:?}"
        );
        let rows = [row("", "first", Timestamp(5)), row("a", "v", Timestamp(5)), row("b", "v", Timestamp(5))];
        assert_eq!(subject.rows(&partition).await, rows, "{table:?}");
        let second = vec![remove("a", Timestamp(6)), put("b", "w", Timestamp(6)), put("c", "w", Timestamp(6))];
        assert_eq!(
            subject.compare_and_set(&partition, Some(Timestamp(5)), row("", "second", Timestamp(6)), second).await,
            CasResult::Applied,
            "{table:?}"
        );
        let rows = [row("", "second", Timestamp(6)), row("b", "w", Timestamp(6)), row("c", "w", Timestamp(6))];
        assert_eq!(subject.rows(&partition).await, rows, "{table:?}");
    }
}

pub(super) async fn a_failed_guard_changes_nothing(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        assert_eq!(
            subject
                .compare_and_set(&partition, None, row("", "v", Timestamp(5)), vec![put("a", "v", Timestamp(5))])
                .await,
            CasResult::Applied
        );
        let before = subject.rows(&partition).await;
        for expected in [None, Some(1), Some(4), Some(6)] {
            let expected = expected.map(Timestamp);
            let changes = vec![remove("a", Timestamp(9)), put("b", "w", Timestamp(9))];
            let answer = subject.compare_and_set(&partition, expected, row("", "w", Timestamp(9)), changes).await;
            assert_eq!(answer, CasResult::Conflict(Some(row("", "v", Timestamp(5)))), "{table:?} {expected:?}");
            assert_eq!(subject.rows(&partition).await, before, "{table:?} {expected:?}");
        }
    }
}

pub(super) async fn an_absent_head_is_guarded_too(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        let lost = subject
            .compare_and_set(
                &partition,
                Some(Timestamp(5)),
                row("", "v", Timestamp(9)),
                vec![put("a", "v", Timestamp(9))],
            )
            .await;
        assert_eq!(lost, CasResult::Conflict(None), "{table:?}");
        assert_eq!(subject.rows(&partition).await, [], "{table:?}");
        assert_eq!(
            subject.compare_and_set(&partition, None, row("", "v", Timestamp(1)), Vec::new()).await,
            CasResult::Applied,
            "{table:?}"
        );
        let again = subject.compare_and_set(&partition, None, row("", "w", Timestamp(2)), Vec::new()).await;
        assert_eq!(again, CasResult::Conflict(Some(row("", "v", Timestamp(1)))), "{table:?}");
    }
}

pub(super) async fn a_head_is_one_row_among_others(subject: StoreSubject) {
    for table in GUARDED {
        let (one, two) = (subject.other(table, "1"), subject.other(table, "2"));
        for partition in [&one, &two] {
            let cas = subject
                .compare_and_set(partition, None, row("", "v", Timestamp(5)), vec![put("a", "v", Timestamp(5))])
                .await;
            assert_eq!(cas, CasResult::Applied, "{table:?}: partitions have heads of their own");
        }
        assert_eq!(
            subject.compare_and_set(&one, Some(Timestamp(5)), row("", "w", Timestamp(7)), Vec::new()).await,
            CasResult::Applied
        );
        assert_eq!(subject.rows(&one).await, [row("", "w", Timestamp(7)), row("a", "v", Timestamp(5))], "{table:?}");
        assert_eq!(subject.rows(&two).await, [row("", "v", Timestamp(5)), row("a", "v", Timestamp(5))], "{table:?}");
    }
}

pub(super) async fn a_head_has_any_name(subject: StoreSubject) {
    for table in GUARDED {
        for name in [&b""[..], b"head", b"\0", b"\xff\xff"] {
            let partition = subject.other(table, name);
            let head = |stamp: u64| Row { stamp: Timestamp(stamp), ..row(name, stamp.to_string(), Timestamp(stamp)) };
            assert_eq!(
                subject.compare_and_set(&partition, None, head(1), vec![put("m", "v", Timestamp(1))]).await,
                CasResult::Applied
            );
            assert_eq!(
                subject.compare_and_set(&partition, Some(Timestamp(1)), head(2), Vec::new()).await,
                CasResult::Applied
            );
            let lost = subject.compare_and_set(&partition, Some(Timestamp(1)), head(3), Vec::new()).await;
            assert_eq!(lost, CasResult::Conflict(Some(head(2))), "{table:?} {name:?}");
        }
    }
}
