//! Promises about pages, ranges and orders.

use bytes::Bytes;
use larder_store::Timestamp;

use super::subject::{PLAIN, StoreSubject, put, put_until, range, row};
use larder_store::{Partition, Range, ReadOrder, ReadQuery, RowPage, Stopped, Table};

/// A partition of rows `a` to `g`.
async fn seven(subject: &StoreSubject, table: Table) -> Partition {
    let partition = subject.partition(table);
    subject.change(&partition, "gbdface".chars().map(|name| put(name.to_string(), "v", Timestamp(1))).collect()).await;
    partition
}

/// The names of a page as one string.
fn letters(page: &RowPage) -> String {
    page.rows.iter().map(|row| String::from_utf8_lossy(&row.name)).collect()
}

pub(super) async fn an_absent_partition_is_an_empty_page(subject: StoreSubject) {
    for table in Table::ALL {
        let page = subject.page(&subject.partition(table), &ReadQuery::all(10)).await;
        assert_eq!(page, RowPage { rows: Vec::new(), stopped: Stopped::End });
    }
}

pub(super) async fn rows_come_back_in_key_order(subject: StoreSubject) {
    for table in PLAIN {
        let partition = seven(&subject, table).await;
        subject
            .change(
                &partition,
                vec![put("bb", "v", Timestamp(1)), put("", "v", Timestamp(1)), put("Z", "v", Timestamp(1))],
            )
            .await;
        assert_eq!(subject.names(&partition).await, ["", "Z", "a", "b", "bb", "c", "d", "e", "f", "g"], "{table:?}");
    }
}

pub(super) async fn rows_come_back_as_they_were_written(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        let mut rows = vec![row("a", "one", Timestamp(7)), row("b", "two", Timestamp(u64::MAX >> 1))];
        rows[1].expires = subject.in_seconds(1000);
        subject.change(&partition, rows.iter().cloned().map(larder_store::Change::Put).collect()).await;
        assert_eq!(subject.rows(&partition).await, rows, "{table:?}");
    }
}

pub(super) async fn a_page_stops_at_its_limit_and_goes_on(subject: StoreSubject) {
    for table in PLAIN {
        let partition = seven(&subject, table).await;
        let (mut pages, mut after) = (Vec::new(), None::<Bytes>);
        loop {
            let page = subject.page(&partition, &ReadQuery::after(after.as_ref(), 3)).await;
            pages.push(letters(&page));
            if page.stopped == Stopped::End {
                break;
            }
            assert_eq!(page.rows.len(), 3, "{table:?}: only the limit stops a page before its end");
            after = page.rows.last().map(|row| row.name.clone());
        }
        assert_eq!(pages, ["abc", "def", "g"], "{table:?}");
        let whole = subject.page(&partition, &ReadQuery::all(8)).await;
        assert_eq!((letters(&whole), whole.stopped), ("abcdefg".to_owned(), Stopped::End), "{table:?}");
    }
}

pub(super) async fn a_reverse_read_is_the_mirror_of_a_forward_one(subject: StoreSubject) {
    for table in PLAIN {
        let partition = seven(&subject, table).await;
        let mut forward = subject.rows(&partition).await;
        let query = ReadQuery { order: ReadOrder::Reverse, ..ReadQuery::all(100) };
        let reverse = subject.page(&partition, &query).await;
        forward.reverse();
        assert_eq!((reverse.rows, reverse.stopped), (forward, Stopped::End), "{table:?}");
        let part = subject.page(&partition, &range("b", "e", 100, ReadOrder::Reverse)).await;
        assert_eq!(letters(&part), "dcb", "{table:?}");
    }
}

pub(super) async fn a_reverse_read_stops_at_its_limit_and_goes_on(subject: StoreSubject) {
    for table in PLAIN {
        let partition = seven(&subject, table).await;
        let first = subject.page(&partition, &range("b", "g", 2, ReadOrder::Reverse)).await;
        assert_eq!((letters(&first), first.stopped), ("fe".to_owned(), Stopped::Limit), "{table:?}");
        let rest = subject.page(&partition, &range("b", "e", 10, ReadOrder::Reverse)).await;
        assert_eq!((letters(&rest), rest.stopped), ("dcb".to_owned(), Stopped::End), "{table:?}");
    }
}

pub(super) async fn a_range_includes_its_beginning_and_not_its_end(subject: StoreSubject) {
    let open = |from: Option<&'static str>, to: Option<&'static str>| ReadQuery {
        range: Range { from: from.map(Bytes::from), to: to.map(Bytes::from) },
        ..ReadQuery::all(100)
    };
    for table in PLAIN {
        let partition = seven(&subject, table).await;
        let cases = [
            (open(Some("c"), Some("e")), "cd"),
            (open(Some("bb"), Some("dd")), "cd"),
            (open(Some("f"), None), "fg"),
            (open(None, Some("c")), "ab"),
            (open(Some(""), Some("zz")), "abcdefg"),
            (open(Some("c"), Some("c\0")), "c"),
        ];
        for (query, names) in cases {
            assert_eq!(letters(&subject.page(&partition, &query).await), names, "{table:?} {query:?}");
        }
    }
}

pub(super) async fn a_range_of_nothing_is_an_empty_page(subject: StoreSubject) {
    for table in PLAIN {
        let partition = seven(&subject, table).await;
        for (from, to) in [("c", "c"), ("e", "c"), ("bb", "bc"), ("x", "z"), ("", "")] {
            for order in [ReadOrder::Forward, ReadOrder::Reverse] {
                let page = subject.page(&partition, &range(from, to, 5, order)).await;
                assert_eq!(page, RowPage { rows: Vec::new(), stopped: Stopped::End }, "{table:?} {from:?}..{to:?}");
            }
        }
    }
}

pub(super) async fn a_prefix_reads_its_names_and_no_others(subject: StoreSubject) {
    let names: [&[u8]; 8] = [b"", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xffx"];
    let cases: [(&[u8], &[usize]); 6] = [
        (b"", &[0, 1, 2, 3, 4, 5, 6, 7]),
        (b"a", &[1, 2, 3, 4]),
        (b"a\xff", &[3, 4]),
        (b"b", &[5]),
        (b"\xff", &[6, 7]),
        (b"c", &[]),
    ];
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, names.iter().map(|name| put(name, "v", Timestamp(1))).collect()).await;
        for (prefix, expected) in cases {
            let page = subject.page(&partition, &ReadQuery::prefix(Bytes::from_static(prefix), 100)).await;
            let found: Vec<&[u8]> = page.rows.iter().map(|row| &row.name[..]).collect();
            let expected: Vec<&[u8]> = expected.iter().map(|&at| names[at]).collect();
            assert_eq!(found, expected, "{table:?} {prefix:?}");
        }
    }
}

pub(super) async fn one_row_is_read_by_its_name(subject: StoreSubject) {
    let names: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"b"];
    for table in PLAIN {
        let partition = subject.partition(table);
        let soon = subject.in_seconds(10);
        let mut changes: Vec<_> = names.iter().map(|name| put(name, name, Timestamp(1))).collect();
        changes.push(put_until("expired", "v", Timestamp(1), soon));
        subject.change(&partition, changes).await;
        subject.wait_seconds(11);
        for order in [ReadOrder::Forward, ReadOrder::Reverse] {
            for name in names {
                let query = ReadQuery { order, ..ReadQuery::one(Bytes::from_static(name)) };
                let page = subject.page(&partition, &query).await;
                let expected = RowPage { rows: vec![row(name, name, Timestamp(1))], stopped: Stopped::End };
                assert_eq!(page, expected, "{table:?} {name:?}");
            }
            for name in ["absent", "expired", "a\0\0\0"] {
                let query = ReadQuery { order, ..ReadQuery::one(Bytes::from_static(name.as_bytes())) };
                let nothing = RowPage { rows: Vec::new(), stopped: Stopped::End };
                assert_eq!(subject.page(&partition, &query).await, nothing, "{table:?} {name:?}");
            }
        }
        let elsewhere = subject.page(&subject.other(table, "elsewhere"), &ReadQuery::one("a".into())).await;
        assert_eq!(elsewhere.rows, [], "{table:?}");
    }
}
