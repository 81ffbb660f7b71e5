//! Usage, over a memory store.

use std::time::Duration;

use super::super::buckets::testing::{BEGIN, S3TestStore, new_caller, version, write_versions};
use super::*;
use crate::acl_choice::AclChoice;

fn counts(count: u64, bytes_in: u64) -> UsageCounts {
    UsageCounts { count, bytes_in, ..UsageCounts::default() }
}

/// Node, start and, by operation, requests and bytes received.
type ShownSample<'a> = (&'a str, Timestamp, Vec<(&'a str, u64, u64)>);

fn samples(usage_samples: &[UsageSample]) -> Vec<ShownSample<'_>> {
    fn sample(usage_sample: &UsageSample) -> ShownSample<'_> {
        let operations =
            usage_sample.operations.iter().map(|(name, counts)| (name.as_str(), counts.count, counts.bytes_in));
        (usage_sample.node.as_str(), usage_sample.start, operations.collect())
    }
    usage_samples.iter().map(sample).collect()
}

#[tokio::test(start_paused = true)]
async fn counts_of_all_processes_add_up_by_node_and_hour() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let hour = Timestamp(hour_begin(BEGIN) * HOUR_MICROS);
    gateway_a.usage.count("K", "KeyWrite", counts(1, 10));
    gateway_a.usage.count("K", "KeyRead", counts(1, 0));
    gateway_a.usage.count("other", "KeyRead", counts(1, 0));
    gateway_b.usage.count("K", "KeyWrite", counts(2, 20));
    assert_eq!(
        samples(&gateway_b.usage.samples("K", BEGIN, BEGIN).await.unwrap()),
        [("g2", hour, vec![("KeyWrite", 2, 20)])]
    );
    for _ in 0..2 {
        gateway_a.usage.flush().await.unwrap();
        gateway_b.usage.flush().await.unwrap();
    }
    gateway_a.usage.count("K", "KeyWrite", counts(5, 50));
    let here =
        vec![("g1", hour, vec![("KeyRead", 1, 0), ("KeyWrite", 6, 60)]), ("g2", hour, vec![("KeyWrite", 2, 20)])];
    assert_eq!(samples(&gateway_a.usage.samples("K", BEGIN, BEGIN).await.unwrap()), here);
    let there = gateway_b.usage.samples("K", BEGIN, BEGIN).await.unwrap();
    assert_eq!(samples(&there)[0].2, [("KeyRead", 1, 0), ("KeyWrite", 1, 10)]);
    gateway_a.usage.flush().await.unwrap();
    assert_eq!(samples(&gateway_b.usage.samples("K", BEGIN, BEGIN).await.unwrap()), here);
    assert!(gateway_a.usage.samples("nobody", Timestamp::ZERO, Timestamp::MAX).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn hours_stay_apart_and_leave_memory_once_written() {
    let stores = S3TestStore::new();
    let objects = stores.gateway().await;
    let first = hour_begin(BEGIN) * HOUR_MICROS;
    for _ in 0..5 {
        objects.usage.count("K", "KeyRead", counts(1, 0));
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let all = objects.usage.samples("K", Timestamp::ZERO, Timestamp::MAX).await.unwrap();
    assert_eq!(all.len(), 5);
    objects.usage.flush().await.unwrap();
    assert_eq!(objects.usage.log.lines_for("K").len(), 1);
    assert_eq!(objects.usage.samples("K", Timestamp::ZERO, Timestamp::MAX).await.unwrap(), all);
    let two =
        objects.usage.samples("K", Timestamp(first + HOUR_MICROS), Timestamp(first + 2 * HOUR_MICROS)).await.unwrap();
    assert_eq!(two, all[1..3]);
    objects.usage.count("K", "KeyRead", counts(1, 0));
    objects.usage.flush().await.unwrap();
    assert_eq!(objects.usage.samples("K", Timestamp::ZERO, Timestamp::MAX).await.unwrap().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn storage_counts_no_deleted_objects() {
    let stores = S3TestStore::new();
    let objects = stores.gateway().await;
    let (foo, bar) = (new_caller(&objects, "foo").await, new_caller(&objects, "bar").await);
    for (caller, name) in [(&foo, "tea"), (&foo, "milk"), (&bar, "zoo")] {
        objects.buckets.create(caller, name, AclChoice::Private, None).await.unwrap();
    }
    let tea = objects.buckets.find("tea").await.unwrap();
    for at in 0..10_u64 {
        write_versions(
            &objects,
            &tea,
            format!("key{at}").as_bytes(),
            &[version(Timestamp(9), true, Some(at as usize))],
        )
        .await;
    }
    write_versions(
        &objects,
        &tea,
        b"key1",
        &[version(Timestamp(10), false, None), version(Timestamp(9), true, Some(1))],
    )
    .await;
    let stored = objects.usage.user_storage(foo.id()).await.unwrap();
    let expected =
        [("milk", 0, 0), ("tea", 9, 44)].map(|(name, objects, bytes)| (name.to_owned(), Storage { objects, bytes }));
    assert_eq!(stored, BTreeMap::from(expected));
}

#[test]
fn row_names_round_trip_and_sort_by_hour() {
    let counted = |hour, node: &str, operation: &str| UsageRowKey {
        hour,
        node: node.into(),
        actor: ActorId(0x0100_0000_0000_00ff),
        operation: operation.into(),
    };
    let all = [counted(1, "z\0", "A"), counted(2, "", ""), counted(2, "larder@127.0.0.1", "KeyRead")];
    let names: Vec<_> = all.iter().map(UsageRowKey::row_name).collect();
    assert!(names.is_sorted());
    for (counted, name) in all.iter().zip(names) {
        assert_eq!(UsageRowKey::from_row_name(&name).as_ref(), Ok(counted));
        for end in 0..8 {
            assert!(UsageRowKey::from_row_name(&name[..end]).is_err());
        }
    }
    assert_eq!(decode(&encode(&counts(1, 2))), Ok(counts(1, 2)));
    assert!(decode(b"\x02{}").is_err() && decode(b"").is_err() && decode(b"\x01{").is_err());
}
