//! The memory engine: conformance, and the promises that only this engine makes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::memory::MemoryStore;
use larder_store::{
    Batch, BlobOwner, Blobs, CallOptions, Change, ConsistencyLevel, Durability, Kind, ListedBlob, Partition,
    PartitionChanges, ReadQuery, Row, Store, Timestamp,
};
use larder_testkit::conformance::{ManualClock, blob_conformance, conformance, random_changes_match_the_model};
use tokio::time::Instant;

fn engine() -> (Arc<MemoryStore>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (Arc::new(MemoryStore::new(clock.clone())), clock)
}

fn options() -> CallOptions {
    let deadline = Instant::now() + Duration::from_secs(10);
    CallOptions::new(ConsistencyLevel::One, deadline, Durability::Buffered)
}

fn put(name: &'static str, stamp: Timestamp) -> Change {
    Change::Put(Row { name: name.into(), value: Bytes::new(), stamp, expires: None })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_engine_conforms() {
    let (store, clock) = engine();
    conformance(store.clone(), clock.clone()).await;
    conformance(store, clock).await;
}

#[tokio::test]
async fn the_memory_engine_conforms_on_one_thread_and_with_large_rows() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::with_inline_max(clock.clone(), 64 * 1024));
    conformance(store.clone(), clock).await;
    blob_conformance(store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_blobs_conform() {
    let (store, _) = engine();
    blob_conformance(store.clone()).await;
    blob_conformance(store).await;
}

#[tokio::test]
async fn a_long_walk_matches_the_model() {
    let (store, clock) = engine();
    for seed in 100..120 {
        random_changes_match_the_model(store.clone(), clock.clone(), seed, 1000).await;
    }
}

#[tokio::test]
async fn a_partition_named_twice_in_a_batch_is_counted_once() {
    let (store, _) = engine();
    let one = |name, rows_max| PartitionChanges {
        rows_max,
        ..PartitionChanges::new(Partition::marks(), vec![put(name, Timestamp(1))])
    };
    let batch = Batch { partitions: vec![one("a", Some(1)), one("b", None)] };
    let answer = store.apply(batch, &options()).await;
    assert_eq!(answer.unwrap_err().kind, Kind::TooManyRows { rows: 2 });
}

#[tokio::test]
async fn a_write_after_its_deadline_is_refused() {
    let (store, _) = engine();
    let past = CallOptions { deadline: Instant::now(), ..options() };
    let answer = store.apply(Batch::single(Partition::marks(), vec![put("a", Timestamp(1))]), &past).await;
    assert_eq!(answer.unwrap_err().kind, Kind::TimedOut);
    let page = store.read(&Partition::marks(), &ReadQuery::all(1), &options()).await.unwrap();
    assert_eq!(page.rows, []);
}

#[tokio::test]
async fn another_process_sees_rows_and_blobs_but_no_leases() {
    let (one, clock) = engine();
    let other = Arc::new(one.as_other_process());
    conformance(other.clone(), clock).await;
    let owner = BlobOwner { partition: Partition::marks(), row: "a".into() };
    let writer = one.create(BlobId([1; 24]), owner.clone()).await.unwrap();
    let lease = writer.finish(Durability::Disk).await.unwrap();
    let listed = |leased| [ListedBlob { id: BlobId([1; 24]), owner: owner.clone(), leased }];
    assert_eq!(one.list(None, 9).await.unwrap(), listed(true));
    assert_eq!(other.list(None, 9).await.unwrap(), listed(false));
    drop(lease);
    assert_eq!(one.list(None, 9).await.unwrap(), listed(false));
    one.apply(Batch::single(Partition::marks(), vec![put("a", Timestamp(1))]), &options()).await.unwrap();
    let page = other.read(&Partition::marks(), &ReadQuery::one("a".into()), &options()).await.unwrap();
    assert_eq!(page.rows.len(), 1);
}
