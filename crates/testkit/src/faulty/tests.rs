use std::time::Duration;

use larder_rows::content::BlobId;
use larder_store::memory::MemoryStore;
use larder_store::{BlobOwner, Blobs, Durability, Row};
use tokio::time::{Instant, timeout};

use super::*;
use crate::conformance::{ManualClock, blob_conformance, conformance};

type FaultyMemory = Faulty<MemoryStore>;

/// Two connections to one store.
fn two_connections(seed: u64) -> (FaultyMemory, FaultyMemory) {
    let memory = Arc::new(MemoryStore::new(Arc::new(ManualClock::default())));
    let history = StoreHistory::new(Duration::from_millis(500));
    (Faulty::new(memory.clone(), history.clone(), seed), Faulty::new(memory, history, seed + 1))
}

fn options(level: ConsistencyLevel) -> CallOptions {
    CallOptions::new(level, Instant::now() + Duration::from_secs(1), Durability::Buffered)
}

fn write(stamp: Timestamp) -> Batch {
    let row = Row { name: "a".into(), value: stamp.to_string().into(), stamp, expires: None };
    Batch::single(Partition::marks(), vec![Change::Put(row)])
}

/// The stamp of the row; 0 when absent.
async fn read_stamp(store: &FaultyMemory, level: ConsistencyLevel) -> Result<Timestamp> {
    let page = store.read(&Partition::marks(), &ReadQuery::all(9), &options(level)).await?;
    Ok(page.rows.first().map_or(Timestamp::ZERO, |row| row.stamp))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_faulty_store_without_faults_conforms() {
    let clock = Arc::new(ManualClock::default());
    let memory = Arc::new(MemoryStore::new(clock.clone()));
    let store = Arc::new(Faulty::new(memory, StoreHistory::new(Duration::from_secs(1)), 1));
    conformance(store.clone(), clock).await;
    blob_conformance(store).await;
}

#[tokio::test(start_paused = true)]
async fn a_faulty_store_with_pauses_and_lag_conforms() {
    let clock = Arc::new(ManualClock::default());
    let memory = Arc::new(MemoryStore::new(clock.clone()));
    let store = Arc::new(Faulty::new(memory, StoreHistory::none(), 1));
    store.set_faults(StoreFaults {
        pause_ms_max: 20,
        pause_per_mille: 500,
        stale_per_mille: 1000,
        ..StoreFaults::none()
    });
    conformance(store, clock).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_not_made() {
    let (one, other) = two_connections(1);
    one.set_faults(StoreFaults { fail_per_mille: 1000, ..StoreFaults::none() });
    let mut kinds = Vec::new();
    for stamp in 1..20 {
        kinds.push(one.apply(write(Timestamp(stamp)), &options(ConsistencyLevel::Quorum)).await.unwrap_err().kind);
    }
    assert!(kinds.contains(&Kind::TimedOut));
    assert!(kinds.contains(&Kind::Unavailable { alive: 0, required: 2 }));
    assert_eq!(read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap(), Timestamp::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_is_lost_was_made() {
    let (one, other) = two_connections(1);
    one.set_faults(StoreFaults { lose_per_mille: 1000, ..StoreFaults::none() });
    let answer = one.apply(write(Timestamp(1)), &options(ConsistencyLevel::One)).await;
    assert_eq!(answer.unwrap_err().kind, Kind::TimedOut);
    assert_eq!(read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap(), Timestamp(1));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_is_made_after_its_answer() {
    let (one, other) = two_connections(1);
    one.set_faults(StoreFaults { late_per_mille: 1000, ..StoreFaults::none() });
    let mut late = 0;
    for stamp in 1..20 {
        let answer = one.apply(write(Timestamp(stamp)), &options(ConsistencyLevel::Quorum)).await;
        assert_eq!(answer.unwrap_err().kind, Kind::TimedOut);
        late += u32::from(read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap() < Timestamp(stamp));
        tokio::time::sleep(LATE_MAX).await;
        assert_eq!(read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap(), Timestamp(stamp), "it arrives");
    }
    assert!(late > 15, "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_late_write_loses_to_a_newer_one() {
    let (one, other) = two_connections(1);
    one.set_faults(StoreFaults { late_per_mille: 1000, ..StoreFaults::none() });
    one.apply(write(Timestamp(1)), &options(ConsistencyLevel::Quorum)).await.unwrap_err();
    other.apply(write(Timestamp(2)), &options(ConsistencyLevel::Quorum)).await.unwrap();
    tokio::time::sleep(LATE_MAX).await;
    assert_eq!(read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap(), Timestamp(2));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_does_not_undo_a_removal() {
    let (one, other) = two_connections(1);
    one.set_faults(StoreFaults { late_per_mille: 1000, ..StoreFaults::none() });
    for (stamp, left) in [(5, 0), (6, 6)] {
        one.apply(write(Timestamp(stamp)), &options(ConsistencyLevel::Quorum)).await.unwrap_err();
        let gone = Batch::single(Partition::marks(), vec![Change::Remove { name: "a".into(), stamp: Timestamp(5) }]);
        other.apply(gone, &options(ConsistencyLevel::Quorum)).await.unwrap();
        tokio::time::sleep(LATE_MAX).await;
        assert_eq!(read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap(), Timestamp(left));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_at_the_deadline() {
    let (one, other) = two_connections(3);
    one.set_faults(StoreFaults { pause_ms_max: 1_000_000, pause_per_mille: 1000, ..StoreFaults::none() });
    let start = Instant::now();
    let answer = one.apply(write(Timestamp(1)), &options(ConsistencyLevel::One)).await;
    assert_eq!(answer.unwrap_err().kind, Kind::TimedOut);
    assert!(start.elapsed() <= Duration::from_millis(1001), "{:?}", start.elapsed());
    assert_eq!(read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap(), Timestamp::ZERO);
}

#[tokio::test(start_paused = true)]
async fn while_cut_every_call_fails() {
    let (one, other) = two_connections(1);
    one.cut(true);
    assert_eq!(
        read_stamp(&one, ConsistencyLevel::All).await.unwrap_err().kind,
        Kind::Unavailable { alive: 0, required: 3 }
    );
    assert_eq!(
        one.now(&options(ConsistencyLevel::One)).await.unwrap_err().kind,
        Kind::Unavailable { alive: 0, required: 1 }
    );
    assert_eq!(one.open(BlobId([0; 24])).await.err().unwrap().kind, Kind::Io);
    other.apply(write(Timestamp(1)), &options(ConsistencyLevel::Quorum)).await.unwrap();
    one.cut(false);
    assert_eq!(read_stamp(&one, ConsistencyLevel::Quorum).await.unwrap(), Timestamp(1));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_call_hangs_until_it_is_thawed() {
    let (one, other) = two_connections(1);
    one.freeze();
    let soon = options(ConsistencyLevel::Quorum);
    let late = CallOptions { deadline: Instant::now() + Duration::from_secs(100_000), ..soon };
    let thaw = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(
            read_stamp(&other, ConsistencyLevel::Quorum).await.unwrap(),
            Timestamp::ZERO,
            "a frozen store makes no calls"
        );
        one.thaw();
    };
    let ((), hurried, patient) =
        tokio::join!(thaw, one.apply(write(Timestamp(1)), &soon), one.apply(write(Timestamp(2)), &late));
    assert_eq!(hurried.unwrap_err().kind, Kind::TimedOut, "it wakes up after its deadline");
    patient.unwrap();
    one.freeze();
    assert!(timeout(Duration::from_secs(10), read_stamp(&one, ConsistencyLevel::One)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn reads_at_one_are_stale_and_reads_at_quorum_are_not() {
    let (one, other) = two_connections(5);
    one.set_faults(StoreFaults { stale_per_mille: 500, ..StoreFaults::none() });
    let (mut fresh, mut stale) = (0, 0);
    for stamp in 1..200 {
        other.apply(write(Timestamp(stamp)), &options(ConsistencyLevel::Quorum)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(read_stamp(&one, ConsistencyLevel::Quorum).await.unwrap(), Timestamp(stamp));
        let lag = Timestamp(stamp).since(read_stamp(&one, ConsistencyLevel::One).await.unwrap());
        assert!(lag <= 10, "500 ms are ten writes, not {lag}");
        if lag == 0 { fresh += 1 } else { stale += 1 }
    }
    assert!(fresh > 50 && stale > 50, "{fresh} fresh, {stale} stale");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(read_stamp(&one, ConsistencyLevel::One).await.unwrap(), Timestamp(199), "in the end all agree");
}

#[tokio::test(start_paused = true)]
async fn one_seed_makes_one_series_of_faults() {
    async fn run(seed: u64) -> Vec<(Duration, std::result::Result<Timestamp, Kind>)> {
        let (one, other) = two_connections(seed);
        let percent = |percent: u32| percent * 10;
        one.set_faults(StoreFaults {
            pause_ms_max: 300,
            pause_per_mille: percent(50),
            fail_per_mille: percent(10),
            lose_per_mille: percent(10),
            stale_per_mille: percent(50),
            late_per_mille: percent(10),
        });
        assert_eq!(one.faults().pause_ms_max, 300);
        let (start, mut events) = (Instant::now(), Vec::new());
        for stamp in 1..100 {
            other.apply(write(Timestamp(stamp)), &options(ConsistencyLevel::Quorum)).await.unwrap();
            let answer = read_stamp(&one, ConsistencyLevel::One).await.map_err(|error: Error| error.kind);
            events.push((start.elapsed(), answer));
        }
        events
    }
    assert_eq!(run(11).await, run(11).await);
    assert_ne!(run(11).await, run(13).await);
}

#[tokio::test(start_paused = true)]
async fn a_blob_that_fails_at_any_point_leaves_nothing() {
    let (one, _) = two_connections(7);
    let owner = BlobOwner { partition: Partition::marks(), row: "a".into() };
    let mut finished = 0;
    for id in 0..100 {
        one.set_faults(StoreFaults { fail_per_mille: 300, ..StoreFaults::none() });
        let id = BlobId([id; 24]);
        let Ok(mut writer) = one.create(id, owner.clone()).await else { continue };
        let failed = writer.write("piece".into()).await.is_err() || writer.finish(Durability::Disk).await.is_err();
        one.set_faults(StoreFaults::none());
        assert_eq!(one.open(id).await.is_err(), failed);
        finished += u32::from(!failed);
    }
    assert!((20..60).contains(&finished), "{finished}");
    assert_eq!(one.list(None, 1000).await.unwrap().len(), finished as usize);
}
