//! Promises about listings of partitions.

use bytes::Bytes;
use larder_store::Timestamp;

use super::subject::{GUARDED, PLAIN, StoreSubject, put, remove, row};
use larder_store::{CasResult, Change, Table};

fn sorted(mut keys: Vec<Bytes>) -> Vec<Bytes> {
    keys.sort();
    keys
}

pub(super) async fn every_partition_is_listed_once(subject: StoreSubject) {
    for table in PLAIN.into_iter().chain(GUARDED) {
        let mut written = Vec::new();
        for which in 0..23_u8 {
            // Keys that are prefixes of each other or end in zeros, with several rows each.
            let partition = subject.other(table, vec![which % 3; usize::from(which)]);
            let rows = vec![put("", "v", Timestamp(1)), put("b", "v", Timestamp(1))];
            if table.is_guarded() {
                assert_eq!(
                    subject.compare_and_set(&partition, None, row("head", "v", Timestamp(1)), rows).await,
                    CasResult::Applied
                );
            } else {
                subject.change(&partition, rows).await;
            }
            written.push(partition.key);
        }
        for limit in [1, 4, 1000] {
            assert_eq!(sorted(subject.own_keys(table, limit).await), sorted(written.clone()), "{table:?} {limit}");
        }
    }
}

pub(super) async fn an_emptied_partition_is_not_listed(subject: StoreSubject) {
    for table in PLAIN {
        for which in ["cleared", "left", "removed"] {
            subject
                .change(&subject.other(table, which), vec![put("a", "v", Timestamp(1)), put("b", "v", Timestamp(1))])
                .await;
        }
        subject
            .change(&subject.other(table, "removed"), vec![remove("a", Timestamp(1)), remove("b", Timestamp(1))])
            .await;
        subject.change(&subject.other(table, "cleared"), vec![Change::Clear { stamp: Timestamp(1) }]).await;
        assert_eq!(subject.own_keys(table, 100).await, [subject.other(table, "left").key], "{table:?}");
    }
}

pub(super) async fn a_listing_names_one_table(subject: StoreSubject) {
    for table in Table::ALL {
        let partition = subject.other(table, table.name());
        let head = row("", "v", Timestamp(1));
        if table.is_guarded() {
            assert_eq!(subject.compare_and_set(&partition, None, head, Vec::new()).await, CasResult::Applied);
        } else {
            subject.change(&partition, vec![Change::Put(head)]).await;
        }
    }
    for table in Table::ALL {
        assert_eq!(subject.own_keys(table, 100).await, [subject.other(table, table.name()).key], "{table:?}");
    }
}
