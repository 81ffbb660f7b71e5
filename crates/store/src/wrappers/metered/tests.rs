use super::*;
use crate::conformance::{ManualClock, blob_conformance, conformance};
use crate::memory::MemoryStore;
use crate::wrappers::faulty::{Faults, Faulty, History};
use crate::{Durability, Level};

fn options() -> Options {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    Options::new(Level::One, deadline, Durability::Buffered)
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
    assert_eq!((counts.of(Verb::Read).calls, counts.of(Verb::Read).errors), (2, 1));
    assert_eq!((counts.of(Verb::Now).calls, counts.of(Verb::Now).errors), (1, 0));
    assert_eq!((counts.of(Verb::BlobOpen).calls, counts.of(Verb::BlobOpen).errors), (1, 1));
    assert_eq!(counts.iter().map(|(_, count)| count.calls).sum::<u64>(), 4);
}

#[tokio::test(start_paused = true)]
async fn time_is_that_of_the_clock() {
    let clock = Arc::new(ManualClock::default());
    let slow = Arc::new(Faulty::new(Arc::new(MemoryStore::new(clock.clone())), History::none(), 1));
    slow.set_faults(Faults { pause_ms_max: 1, pause_per_mille: 1000, ..Faults::none() });
    let store = Metered::new(slow, clock.clone());
    let options = options();
    let call = store.now(&options);
    let moved = async { clock.advance(Duration::from_millis(7)) };
    let (answer, ()) = tokio::join!(call, moved);
    answer.unwrap();
    assert_eq!(store.counts().of(Verb::Now).time, Duration::from_millis(7));
}

#[test]
fn every_verb_has_its_place_and_its_name() {
    for (place, verb) in Verb::ALL.into_iter().enumerate() {
        assert_eq!(verb as usize, place);
        assert_eq!(Verb::ALL.into_iter().filter(|other| other.name() == verb.name()).count(), 1);
    }
}
