//! Promises about concurrent readers and writers.

use larder_store::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{JoinSet, yield_now};

use super::subject::{GUARDED, PLAIN, StoreSubject, join_all, put, remove, row};
use larder_store::{Batch, CasResult, Change, Kind, Partition, PartitionChanges, Row, Table};

/// Rounds of a writer: enough to overlap with readers, few enough for an engine with a disk.
const ROUNDS: u64 = 100;
const READERS: usize = 4;
const WRITERS: u64 = 8;

/// The changes of a round: the same value everywhere, and a row named after the round in place of the last round's row.
fn round(stamp: u64) -> Vec<Change> {
    let value = stamp.to_string();
    let mut changes: Vec<Change> = ["a", "b", "c", "d"].map(|name| put(name, &value, Timestamp(stamp))).to_vec();
    changes.push(remove(format!("round {}", stamp - 1), Timestamp(stamp - 1)));
    changes.push(put(format!("round {stamp}"), &value, Timestamp(stamp)));
    changes
}

fn assert_whole(rows: &[Row], expected: usize) {
    let values: Vec<_> = rows.iter().map(|row| (&row.name, &row.value)).collect();
    assert_eq!(rows.len(), expected, "half a batch: {values:?}");
    assert!(rows.iter().all(|row| row.value == rows[0].value), "rows of two batches: {values:?}");
}

/// Readers that check a partition until they are stopped.
fn readers(subject: &StoreSubject, partition: &Partition, expected: usize) -> (JoinSet<()>, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let (subject, partition, stop) = (subject.clone(), partition.clone(), stop.clone());
        readers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                assert_whole(&subject.rows(&partition).await, expected);
                yield_now().await;
            }
        });
    }
    (readers, stop)
}

pub(super) async fn a_batch_is_seen_whole_or_not_at_all(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        subject.change(&partition, round(1)).await;
        let (tasks, stop) = readers(&subject, &partition, 5);
        for stamp in 2..ROUNDS {
            subject.change(&partition, round(stamp)).await;
            yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
        join_all(tasks).await;
    }
}

pub(super) async fn a_cas_is_seen_whole_or_not_at_all(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        let head = |stamp: u64| row("", stamp.to_string(), Timestamp(stamp));
        assert_eq!(subject.compare_and_set(&partition, None, head(1), round(1)).await, CasResult::Applied);
        let (tasks, stop) = readers(&subject, &partition, 6);
        for stamp in 2..ROUNDS {
            let cas = subject.compare_and_set(&partition, Some(Timestamp(stamp - 1)), head(stamp), round(stamp)).await;
            assert_eq!(cas, CasResult::Applied, "{table:?}: there is no other writer");
            yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
        join_all(tasks).await;
    }
}

pub(super) async fn exactly_one_of_many_racing_cas_wins(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        let mut expected = None;
        for round in 1..=10_u64 {
            let mut racers = JoinSet::new();
            for racer in 1..=WRITERS {
                let (subject, partition) = (subject.clone(), partition.clone());
                let head = row("", format!("{racer}"), Timestamp(100 * round + racer));
                racers.spawn(async move {
                    let changes = vec![put("a", &head.value, head.stamp)];
                    (head.clone(), subject.compare_and_set(&partition, expected, head, changes).await)
                });
            }
            let answers = racers.join_all().await;
            let won: Vec<&Row> =
                answers.iter().filter(|(_, cas)| *cas == CasResult::Applied).map(|(head, _)| head).collect();
            assert_eq!(won.len(), 1, "{table:?}: {answers:?}");
            let rows = subject.rows(&partition).await;
            assert_eq!(&rows[0], won[0], "{table:?}");
            assert_eq!(
                rows[1],
                row("a", &won[0].value, won[0].stamp),
                "{table:?}: head and changes are of one compare-and-set"
            );
            assert!(
                answers
                    .iter()
                    .all(|(_, cas)| matches!(cas, CasResult::Applied)
                        || *cas == CasResult::Conflict(Some(won[0].clone()))),
                "{table:?}: a conflict shows the winner: {answers:?}"
            );
            expected = Some(won[0].stamp);
        }
    }
}

pub(super) async fn one_of_many_racing_creations_wins(subject: StoreSubject) {
    if subject.store.limits().replicated {
        return;
    }
    for round in 1..=10_u8 {
        let partition = subject.other(Table::Objects, [round]);
        let mut racers = JoinSet::new();
        for racer in 1..=WRITERS {
            let (subject, partition) = (subject.clone(), partition.clone());
            racers.spawn(async move {
                let changes = vec![put(format!("{racer}"), "v", Timestamp(racer))];
                let expected_rows = Some(Vec::new());
                let one = PartitionChanges { expected_rows, ..PartitionChanges::new(partition, changes) };
                subject.apply(Batch { partitions: vec![one] }).await.map_err(|error| error.kind)
            });
        }
        let answers = racers.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        assert!(answers.iter().all(|answer| matches!(answer, Ok(()) | Err(Kind::Changed))), "{answers:?}");
        assert_eq!(subject.rows(&partition).await.len(), 1);
    }
}

pub(super) async fn no_increment_is_lost_between_racing_cas(subject: StoreSubject) {
    for table in GUARDED {
        let partition = subject.partition(table);
        assert_eq!(
            subject.compare_and_set(&partition, None, row("", "", Timestamp(1)), Vec::new()).await,
            CasResult::Applied
        );
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (subject, partition) = (subject.clone(), partition.clone());
            writers.spawn(async move {
                for _ in 0..10 {
                    increment(&subject, &partition).await;
                }
            });
        }
        join_all(writers).await;
        assert_eq!(subject.rows(&partition).await[0].stamp, Timestamp(1 + 10 * WRITERS), "{table:?}");
    }
}

async fn increment(subject: &StoreSubject, partition: &Partition) {
    let mut stamp = subject.rows(partition).await[0].stamp;
    loop {
        match subject.compare_and_set(partition, Some(stamp), row("", "", stamp + 1), Vec::new()).await {
            CasResult::Applied => return,
            CasResult::Conflict(head) => stamp = head.expect("the head is never removed").stamp,
        }
        yield_now().await;
    }
}

pub(super) async fn concurrent_writes_all_arrive(subject: StoreSubject) {
    for table in PLAIN {
        let partition = subject.partition(table);
        let mut writers = JoinSet::new();
        for writer in 1..=WRITERS {
            let (subject, partition) = (subject.clone(), partition.clone());
            writers.spawn(async move {
                for at in 0..20 {
                    let name = format!("{writer} {at}");
                    subject
                        .change(
                            &partition,
                            vec![put(name, "v", Timestamp(1)), put("shared", "v", Timestamp(100 * writer + at))],
                        )
                        .await;
                }
            });
        }
        join_all(writers).await;
        let rows = subject.rows(&partition).await;
        assert_eq!(rows.len() as u64, 20 * WRITERS + 1, "{table:?}");
        assert_eq!(
            rows.last(),
            Some(&row("shared", "v", Timestamp(100 * WRITERS + 19))),
            "{table:?}: the newest stamp wins"
        );
    }
}
