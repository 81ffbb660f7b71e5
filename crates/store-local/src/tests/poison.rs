//! Failing appends and syncs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use larder_store::{Batch, CallOptions, Change, ConsistencyLevel, Durability, Kind, Row, Store, Table, Timestamp};
use tokio::time::Instant;

use super::{call, is_there, options, place, put};
use crate::LocalStore;
use crate::journal::{Journal, JournalError, JournalFile, JournalSync, WriteGroup};

const APPEND_FAILS: u8 = 1;
const SYNC_FAILS: u8 = 2;
const FULL: u8 = 3;
const SYNC_PANICS: u8 = 4;
/// The longest time for which a test holds a sync: one that failed on a full disk once held the whole run.
const HELD_MAX: Duration = Duration::from_secs(60);

/// The real journal with injected faults.
struct FaultyJournal {
    below: JournalFile,
    fault: Arc<AtomicU8>,
}

impl Journal for FaultyJournal {
    fn append(&mut self, group: &WriteGroup) -> Result<(), JournalError> {
        match self.fault.load(Ordering::SeqCst) {
            APPEND_FAILS => Err(JournalError::Failed("injected".into())),
            FULL => Err(JournalError::Full),
            _ => self.below.append(group),
        }
    }

    fn syncs(&self) -> Arc<dyn JournalSync> {
        Arc::new(FaultySync { below: self.below.syncs(), fault: self.fault.clone() })
    }
}

/// The real syncs with injected faults.
struct FaultySync {
    below: Arc<dyn JournalSync>,
    fault: Arc<AtomicU8>,
}

impl JournalSync for FaultySync {
    fn sync(&self) -> Result<bool, JournalError> {
        match self.fault.load(Ordering::SeqCst) {
            SYNC_FAILS => Err(JournalError::Failed("injected".into())),
            SYNC_PANICS => panic!("injected"),
            _ => self.below.sync(),
        }
    }
}

fn open(dir: &std::path::Path) -> (LocalStore, Arc<AtomicU8>) {
    let fault = Arc::new(AtomicU8::new(0));
    let handle = fault.clone();
    let store = LocalStore::open_with(options(dir), |below| Box::new(FaultyJournal { below, fault }));
    (store.unwrap(), handle)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_append_or_sync_poisons_until_a_reopen_and_reads_go_on() {
    for fault in [APPEND_FAILS, SYNC_FAILS, SYNC_PANICS] {
        let dir = tempfile::tempdir().unwrap();
        let (store, handle) = open(dir.path());
        put(&store, 1, Durability::Disk).await.unwrap();
        handle.store(fault, Ordering::SeqCst);
        let writers = (2..40).map(|key| {
            let store = store.clone();
            tokio::spawn(async move { put(&store, key, Durability::Disk).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            assert_eq!(writer.await.unwrap().unwrap_err().kind, Kind::Poisoned);
        }
        handle.store(0, Ordering::SeqCst);
        let later = put(&store, 50, Durability::Buffered).await.unwrap_err();
        assert_eq!(later.kind, Kind::Poisoned);
        let reason = if fault == SYNC_PANICS { "the syncer panicked" } else { "injected" };
        assert!(later.context.contains(reason), "{later}");
        assert!(!store.is_ready());
        assert!(is_there(&store, 1).await);
        assert_eq!(store.bulk_rows().put("k".into(), "v".into()).await.unwrap_err().kind, Kind::Poisoned);
        assert_eq!(store.close().await.unwrap_err().kind, Kind::Poisoned);
        drop(store);

        let store = LocalStore::open(options(dir.path())).unwrap();
        assert!(store.is_ready() && is_there(&store, 1).await && !is_there(&store, 50).await);
        put(&store, 50, Durability::Disk).await.unwrap();
    }
}

#[tokio::test]
async fn a_buffered_write_before_a_failed_sync_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let (store, handle) = open(dir.path());
    handle.store(SYNC_FAILS, Ordering::SeqCst);
    put(&store, 1, Durability::Buffered).await.unwrap();
    assert!(store.is_ready());
    assert_eq!(put(&store, 2, Durability::Disk).await.unwrap_err().kind, Kind::Poisoned);
}

/// A journal whose syncs wait until the test lets them go.
struct HeldJournal {
    below: JournalFile,
    held: Arc<AtomicBool>,
    entered: Arc<AtomicU64>,
}

struct HeldSync {
    below: Arc<dyn JournalSync>,
    held: Arc<AtomicBool>,
    entered: Arc<AtomicU64>,
}

impl Journal for HeldJournal {
    fn append(&mut self, group: &WriteGroup) -> Result<(), JournalError> {
        self.below.append(group)
    }

    fn syncs(&self) -> Arc<dyn JournalSync> {
        let (held, entered) = (self.held.clone(), self.entered.clone());
        Arc::new(HeldSync { below: self.below.syncs(), held, entered })
    }
}

impl JournalSync for HeldSync {
    fn sync(&self) -> Result<bool, JournalError> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let until = Instant::now() + HELD_MAX;
        while self.held.load(Ordering::SeqCst) {
            assert!(Instant::now() < until, "the test that holds this sync has failed");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.below.sync()
    }
}

#[tokio::test]
async fn writes_that_arrive_during_a_sync_share_the_next_group() {
    let dir = tempfile::tempdir().unwrap();
    let (held, entered) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (gate, count) = (held.clone(), entered.clone());
    let store = LocalStore::open_with(options(dir.path()), |below| Box::new(HeldJournal { below, held, entered }));
    let store = store.unwrap();
    let put_soon = |key| {
        let store = store.clone();
        tokio::spawn(async move { put(&store, key, Durability::Disk).await })
    };
    let mut writers = vec![put_soon(0)];
    let until = Instant::now() + HELD_MAX;
    while count.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "no sync began");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    writers.extend((1..=20).map(put_soon));
    // Each writer runs up to its wait for the reply.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!is_there(&store, 20).await, "a group was appended before the sync of the one before it ended");
    gate.store(false, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert_eq!((store.stats().groups, store.stats().syncs), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn full_groups_without_end_once_starved_a_key_of_many_siblings() {
    let dir = tempfile::tempdir().unwrap();
    let (held, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let gate = held.clone();
    let store = LocalStore::open_with(options(dir.path()), |below| Box::new(HeldJournal { below, held, entered }));
    let store = store.unwrap();
    let put = |key: u64, name: &'static str, stamp: u64, bytes: usize| {
        let row = Row { name: name.into(), value: vec![7; bytes].into(), stamp: Timestamp(stamp), expires: None };
        Batch::single(place(Table::Objects, key), vec![Change::Put(row)])
    };
    store.apply(put(0, "sibling", 1, 600 * 1024), &call(Durability::Disk)).await.unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    // Together they have more in flight than a group takes, and a sync takes longer than their way back.
    let writers = (1..=600_u64).map(|key| {
        let (store, ended) = (store.clone(), ended.clone());
        tokio::spawn(async move {
            for stamp in (1..).take_while(|_| !ended.load(Ordering::SeqCst)) {
                store.apply(put(key, "row", stamp, 60_000), &call(Durability::Disk)).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let slow = tokio::spawn({
        let ended = ended.clone();
        async move {
            while !ended.load(Ordering::SeqCst) {
                gate.store(true, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(40)).await;
                gate.store(false, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = store.stats().groups;
    let written = store.apply(put(0, "another", 2, 100), &call(Durability::Disk)).await;
    let passed = store.stats().groups - before;
    ended.store(true, Ordering::SeqCst);
    for task in writers.into_iter().chain([slow]) {
        task.await.unwrap();
    }
    written.unwrap();
    // The requests that had arrived before it make some five groups.
    assert!(passed < 16, "{passed} groups of light requests went before it");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_without_poisoning() {
    let dir = tempfile::tempdir().unwrap();
    let (store, handle) = open(dir.path());
    handle.store(FULL, Ordering::SeqCst);
    assert_eq!(put(&store, 1, Durability::Disk).await.unwrap_err().kind, Kind::Full);
    assert!(store.is_ready() && !is_there(&store, 1).await);
    handle.store(0, Ordering::SeqCst);
    put(&store, 1, Durability::Disk).await.unwrap();
    assert!(is_there(&store, 1).await);
}

#[tokio::test]
async fn a_durable_write_that_changes_nothing_still_syncs_earlier_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    put(&store, 1, Durability::Buffered).await.unwrap();
    assert_eq!(store.stats().syncs, 0);
    put(&store, 1, Durability::Disk).await.unwrap();
    assert_eq!(store.stats().syncs, 1);
    put(&store, 1, Durability::Disk).await.unwrap();
    assert_eq!((store.stats().syncs, store.stats().groups), (1, 1));
    put(&store, 2, Durability::Buffered).await.unwrap();
    let deadline = Instant::now() + std::time::Duration::from_secs(10);
    let options = CallOptions::new(ConsistencyLevel::One, deadline, Durability::Disk);
    store.apply(Batch::default(), &options).await.unwrap();
    assert_eq!(store.stats().syncs, 2, "an empty batch syncs, too");
}

#[tokio::test]
async fn a_sync_barrier_syncs_a_store_without_durability() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(crate::OpenOptions { durable: false, ..options(dir.path()) }).unwrap();
    put(&store, 1, Durability::Disk).await.unwrap();
    assert_eq!(store.stats().syncs, 0);
    let deadline = Instant::now() + std::time::Duration::from_secs(10);
    let barrier = CallOptions::new(ConsistencyLevel::One, deadline, Durability::Forced);
    store.apply(Batch::default(), &barrier).await.unwrap();
    store.apply(Batch::default(), &barrier).await.unwrap();
    assert_eq!(store.stats().syncs, 1, "a barrier without writes does not sync");
}
