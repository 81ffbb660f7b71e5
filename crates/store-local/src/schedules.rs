//! Orders of the engine's threads, as a seed chooses them: writers, the committer, the syncer, the flusher, compactors and readers over
//! small memtables, with copies of the directory in between as a kill or a power cut leaves it.
//!
//! A failure prints its seed; `LARDER_TEST_SEED=N LARDER_TEST_CASES=1` runs that order again.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use larder_store::{
    Batch, CasResult, Change, Durability, Partition, PartitionChanges, ReadQuery, Row, Store as _, Table, Timestamp,
};
use larder_testkit::{SplitMix64, case_seeds, figure};
use parking_lot::Mutex;
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use crate::journal::{self, HEADER_BYTES, JournalFrame, SyncedFile, numbers};
use crate::tests::{FrozenClock, call, options};
use crate::{EngineSizes, LocalStore, OpenOptions};

const WRITERS: u64 = 3;
const WRITES: u64 = 14;
/// Copies of the directory in a schedule.
const COPIES: usize = 2;
/// The partition whose head all writers swap.
const SHARED: u64 = 1000;
const MEMTABLE_BYTES: u64 = 2048;

/// The answered writes of each writer, and the answered swaps.
#[derive(Debug, Clone, Default)]
struct AnsweredWrites {
    /// The last write that each writer had an answer for.
    any: BTreeMap<u64, u64>,
    /// The last durable one.
    durable: BTreeMap<u64, u64>,
    /// The stamps of the swaps that were answered.
    swapped: BTreeSet<u64>,
    /// The highest one of those that were durable.
    swapped_durably: u64,
}

impl AnsweredWrites {
    fn last_swap(&self) -> u64 {
        self.swapped.last().copied().unwrap_or(0)
    }
}

/// A copy of the directory, and what it must hold.
struct DirectoryCopy {
    dir: PathBuf,
    writes: BTreeMap<u64, u64>,
    swapped: u64,
}

/// A schedule: the store, and what was answered.
#[derive(Clone)]
struct Schedule {
    store: LocalStore,
    clock: Arc<FrozenClock>,
    answered: Arc<Mutex<AnsweredWrites>>,
}

fn small(dir: &Path, clock: Arc<FrozenClock>) -> OpenOptions {
    let sizes = Some(EngineSizes::from_memtable(MEMTABLE_BYTES));
    OpenOptions { sizes, clock, cache_bytes: 64 * 1024, ..options(dir) }
}

fn wide(key: u64) -> Partition {
    Partition::new(Table::Keys, Bytes::copy_from_slice(&key.to_be_bytes()))
}

fn packed(key: u64) -> Partition {
    Partition::new(Table::Objects, Bytes::copy_from_slice(&key.to_be_bytes()))
}

fn guarded(key: u64) -> Partition {
    Partition::new(Table::Consistent, Bytes::copy_from_slice(&key.to_be_bytes()))
}

/// A row whose value and stamp is the number of its write.
fn numbered_row(name: &'static str, number: u64) -> Row {
    let value = [&number.to_be_bytes()[..], &[b'.'; 120]].concat();
    Row { name: name.into(), value: value.into(), stamp: Timestamp(number), expires: None }
}

fn stored_numbers(store: &LocalStore, partition: &Partition) -> Vec<u64> {
    let page = block_on(store.read(partition, &ReadQuery::all(10), &call(Durability::Buffered)));
    page.unwrap().rows.iter().map(|row| row.stamp.0).collect()
}

fn stored_number(store: &LocalStore, partition: &Partition) -> u64 {
    stored_numbers(store, partition).first().copied().unwrap_or(0)
}

impl Schedule {
    fn open(dir: &Path) -> Self {
        let clock = Arc::new(FrozenClock(AtomicU64::new(1_000_000)));
        let store = LocalStore::open(small(dir, clock.clone())).unwrap();
        Self { store, clock, answered: Arc::default() }
    }

    /// Writes that go into several partitions at once, each with its number.
    fn write(&self, writer: u64, random: &mut SplitMix64) {
        for number in 1..=WRITES {
            let durability = [Durability::Buffered, Durability::Disk][random.below(2)];
            let put = |name| Change::Put(numbered_row(name, number));
            let own_partition = wide(100 * (writer + 1) + number);
            let mut partitions = vec![
                PartitionChanges::new(wide(writer), vec![put("a"), put("b")]),
                PartitionChanges::new(packed(writer), vec![put("a")]),
                PartitionChanges::new(own_partition, vec![put("a")]),
            ];
            if number > 2 && random.below(2) == 0 {
                let before = wide(100 * (writer + 1) + number - 2);
                let removed = Change::Remove { name: "a".into(), stamp: Timestamp(number) };
                partitions.push(PartitionChanges::new(before, vec![removed]));
            }
            block_on(self.store.apply(Batch { partitions }, &call(durability))).unwrap();
            let mut answered = self.answered.lock();
            answered.any.insert(writer, number);
            if durability == Durability::Disk {
                answered.durable.insert(writer, number);
            }
            drop(answered);
            if random.below(3) == 0 {
                self.swap(durability);
            }
        }
    }

    /// Adds one to the shared head, unless another writer does.
    fn swap(&self, durability: Durability) {
        let seen = stored_number(&self.store, &guarded(SHARED));
        let expected = (seen > 0).then_some(Timestamp(seen));
        let head = numbered_row("", seen + 1).into();
        let (shared, options) = (guarded(SHARED), call(durability));
        let swap = self.store.apply_if(&shared, expected, head, Vec::new(), &options);
        match block_on(swap).unwrap() {
            CasResult::Applied => {
                let mut answered = self.answered.lock();
                assert!(answered.swapped.insert(seen + 1), "two writers swapped {seen}");
                if durability == Durability::Disk {
                    answered.swapped_durably = answered.swapped_durably.max(seen + 1);
                }
            }
            CasResult::Conflict(head) => assert!(head.unwrap().stamp.0 > seen, "refused by what was expected"),
        }
    }

    /// Reads see whole groups, and never an older one than before.
    fn read(&self, random: &mut SplitMix64) {
        let mut last = BTreeMap::new();
        for _ in 0..10 {
            let writer = random.number_below(WRITERS);
            let answered = self.answered.lock().any.get(&writer).copied().unwrap_or(0);
            let rows = stored_numbers(&self.store, &wide(writer));
            assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "half a group: {rows:?}");
            let first = rows.first().copied().unwrap_or(0);
            let second = stored_number(&self.store, &packed(writer));
            let third = stored_number(&self.store, &wide(writer));
            let seen = last.insert(writer, third).unwrap_or(0).max(answered);
            assert!(seen <= first && first <= second && second <= third, "{seen} {first} {second} {third}");
        }
    }

    /// Lets the store rest now and then, so that it seals memtables and reclaims space.
    fn pass_time(&self, random: &mut SplitMix64) {
        for _ in 0..6 {
            (0..random.below(40)).for_each(|_| thread::yield_now());
            self.clock.0.fetch_add(11_000_000, Ordering::SeqCst);
        }
    }

    /// Copies the directory as the end of the process leaves it; of a power cut, that is without some unsynced end of the journal.
    fn copy(&self, from: &Path, to: PathBuf, cut: Option<&mut SplitMix64>) -> DirectoryCopy {
        // No other thread runs until the end.
        copy_dir(from, &to);
        let answered = self.answered.lock().clone();
        let Some(random) = cut else {
            return DirectoryCopy { dir: to, swapped: answered.last_swap(), writes: answered.any };
        };
        cut_journal(&to, random);
        DirectoryCopy { dir: to, writes: answered.durable, swapped: answered.swapped_durably }
    }
}

/// Cuts the last journal of a directory somewhere after the last group that is known to be synced. The others were synced whole.
fn cut_journal(dir: &Path, random: &mut SplitMix64) {
    let (journals, synced) = (dir.join("journal"), SyncedFile::read(dir).unwrap().unwrap());
    let active = journal::path(&journals, *numbers(&journals).unwrap().last().unwrap());
    let bytes = Bytes::from(fs::read(&active).unwrap());
    let (mut least, mut end) = (HEADER_BYTES, HEADER_BYTES);
    while let Some(frame) = JournalFrame::decode(&bytes.slice(end..)) {
        end += frame.length();
        if frame.group <= synced {
            least = end;
        }
    }
    let length = (least + random.below(end - least + 1)) as u64;
    fs::File::options().write(true).open(&active).unwrap().set_len(length).unwrap();
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Opens a copy: it has every answered write, and each write whole.
fn check(copy: &DirectoryCopy) {
    let clock = Arc::new(FrozenClock(AtomicU64::new(1_000_000)));
    let store = LocalStore::open(small(&copy.dir, clock)).unwrap();
    for writer in 0..WRITERS {
        let (rows, packed) = (stored_numbers(&store, &wide(writer)), stored_number(&store, &packed(writer)));
        let least = copy.writes.get(&writer).copied().unwrap_or(0);
        assert!(rows.iter().all(|number| *number == packed), "a write in parts: {rows:?}, {packed}");
        assert!(packed >= least, "writer {writer}: {packed} of {least} answered");
        let own_number = |number: u64| stored_number(&store, &wide(100 * (writer + 1) + number));
        // A later write may remove those before the last two.
        for number in packed.saturating_sub(1).max(1)..=WRITES {
            assert_eq!(own_number(number), if number <= packed { number } else { 0 }, "write {number} of {packed}");
        }
    }
    assert!(stored_number(&store, &guarded(SHARED)) >= copy.swapped, "a swap is lost");
    close(&store);
}

fn close(store: &LocalStore) {
    block_on(store.close()).unwrap();
}

/// One schedule over an empty directory.
fn run_schedule(seed: u64, empty: &Path) {
    let mut random = SplitMix64::new(seed);
    let top = tempfile::tempdir_in(empty.parent().unwrap()).unwrap();
    let dir = top.path().join("store");
    copy_dir(empty, &dir);
    let schedule = Schedule::open(&dir);
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (schedule, mut random) = (schedule.clone(), SplitMix64::new(random.number()));
        threads.push(thread::spawn(move || schedule.write(writer, &mut random)));
    }
    let (reader, mut choices) = (schedule.clone(), SplitMix64::new(random.number()));
    threads.push(thread::spawn(move || reader.read(&mut choices)));
    let (timer, mut choices) = (schedule.clone(), SplitMix64::new(random.number()));
    threads.push(thread::spawn(move || timer.pass_time(&mut choices)));
    let copies: Vec<DirectoryCopy> = (0..COPIES)
        .map(|number| {
            (0..random.below(300)).for_each(|_| thread::yield_now());
            let loses_power = random.below(2) == 0;
            schedule.copy(&dir, top.path().join(number.to_string()), loses_power.then_some(&mut random))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    close(&schedule.store);
    let answered = schedule.answered.lock().clone();
    assert!((0..WRITERS).all(|writer| answered.any.get(&writer) == Some(&WRITES)), "{answered:?}");
    drop(schedule);
    copies.iter().for_each(check);
    check(&DirectoryCopy { dir, swapped: answered.last_swap(), writes: answered.any });
}

/// Says which order failed.
struct NamedSeed(u64);

impl Drop for NamedSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            figure("the order that failed", &format!("LARDER_TEST_SEED={} LARDER_TEST_CASES=1", self.0));
        }
    }
}

fn run_ordered(scheduler: impl Scheduler + 'static, run: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 8 << 20;
    // The seed says it.
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(run);
}

/// One schedule. Priorities find orders in which one thread is long away; a random choice finds quick changes.
fn run_seed(seed: u64, empty: PathBuf) {
    let _named = NamedSeed(seed);
    let schedule = move || run_schedule(seed, &empty);
    match seed % 2 {
        0 => run_ordered(RandomScheduler::new_from_seed(seed, 1), schedule),
        _ => run_ordered(PctScheduler::new_from_seed(seed, 6, 1), schedule),
    }
}

#[test]
fn no_order_of_the_threads_loses_an_answered_write_or_shows_half_a_group() {
    let top = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap();
    let empty = top.path().join("empty");
    let dir = empty.clone();
    run_ordered(RandomScheduler::new(1), move || drop(crate::open::open(&options(&dir)).unwrap()));
    let seeds = Mutex::new(case_seeds(200, 100_000));
    let run = || {
        loop {
            let Some(seed) = seeds.lock().next() else { return };
            run_seed(seed, empty.clone());
        }
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(run)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
