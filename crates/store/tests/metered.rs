//! Counting the calls of a store.

use std::sync::Arc;
use std::time::Duration;

use larder_rows::content::BlobId;
use larder_store::memory::MemoryStore;
use larder_store::metered::{Metered, StoreVerb};
use larder_store::{Blobs, CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, Store};
use larder_testkit::conformance::{ManualClock, blob_conformance, conformance};
use larder_testkit::faulty::{Faulty, StoreFaults, StoreHistory};

fn options() -> CallOptions {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    CallOptions::new(ConsistencyLevel::One, deadline, Durability::Buffered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_metered_store_conforms() {
    let clock = Arc::new(ManualClock::default());
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    conformance(Arc::new(Metered::new(memory, clock.clone())), clock.clone()).await;
    let memory = Arc::new(MemoryStore::new(clock.clone()));
    blob_conformance(Arc::new(Metered::new(memory, clock))).await;
}

#[tokio::test]
async fn calls_and_errors_are_counted_by_verb() {
    let clock = Arc::new(ManualClock::default());
    let store = Metered::new(Arc::new(MemoryStore::new(clock.clone())), clock);
    store.now(&options()).await.unwrap();
    store.read(&Partition::marks(), &ReadQuery::all(1), &options()).await.unwrap();
    store.read(&Partition::marks(), &ReadQuery::all(0), &options()).await.unwrap_err();
    assert!(store.open(BlobId([0; 24])).await.is_err());
    let counts = store.counts();
    assert_eq!((counts.verb(StoreVerb::Read).calls, counts.verb(StoreVerb::Read).errors), (2, 1));
    assert_eq!((counts.verb(StoreVerb::Now).calls, counts.verb(StoreVerb::Now).errors), (1, 0));
    assert_eq!((counts.verb(StoreVerb::BlobOpen).calls, counts.verb(StoreVerb::BlobOpen).errors), (1, 1));
    assert_eq!(counts.iter().map(|(_, count)| count.calls).sum::<u64>(), 4);
}

#[tokio::test(start_paused = true)]
async fn durations_are_measured_by_the_clock() {
    let clock = Arc::new(ManualClock::default());
    let slow = Arc::new(Faulty::new(Arc::new(MemoryStore::new(clock.clone())), StoreHistory::none(), 1));
    slow.set_faults(StoreFaults { pause_ms_max: 1, pause_per_mille: 1000, ..StoreFaults::none() });
    let store = Metered::new(slow, clock.clone());
    let options = options();
    let call = store.now(&options);
    let moved = async { clock.advance(Duration::from_millis(7)) };
    let (answer, ()) = tokio::join!(call, moved);
    answer.unwrap();
    assert_eq!(store.counts().verb(StoreVerb::Now).time, Duration::from_millis(7));
}

#[test]
fn every_verb_has_its_index_and_its_own_name() {
    for (place, verb) in StoreVerb::ALL.into_iter().enumerate() {
        assert_eq!(verb as usize, place);
        assert_eq!(StoreVerb::ALL.into_iter().filter(|other| other.name() == verb.name()).count(), 1);
    }
}
