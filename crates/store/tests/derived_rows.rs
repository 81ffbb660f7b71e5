//! Schedules of the listing protocol. Those of writers that stop between two writes fail without the rule they show.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_store::derived_rows::DerivedRowStore;
use larder_store::memory::MemoryStore;
use larder_store::{
    CallOptions, CasResult, Clock, ConsistencyLevel, DerivedRow, Durability, HeadWrite, Partition, ReadQuery, Result,
    Row, Stopped, Store, Table, Timestamp,
};
use larder_testkit::SplitMix64;
use larder_testkit::conformance::{ManualClock, conformance};
use larder_testkit::faulty::{Faulty, StoreFaults, StoreHistory};
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long an absent row and the intent of a head that is not there are kept, in seconds.
const DAY: u64 = 24 * 3600;
/// The first byte of an intent, in its stored form.
const INTENT: u8 = 3;

/// A store that lets the writes of one writer through one by one.
struct SteppedStore {
    inner: Arc<MemoryStore>,
    allowed: Semaphore,
    done: watch::Sender<usize>,
}

impl SteppedStore {
    fn new(inner: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { inner: inner.clone(), allowed: Semaphore::new(0), done: watch::Sender::new(0) })
    }

    /// Lets `writes` through and waits until they are done.
    async fn step(&self, writes: usize) {
        let end = *self.done.borrow() + writes;
        self.allowed.add_permits(writes);
        self.done.subscribe().wait_for(|done| *done == end).await.unwrap();
    }
}

impl StoreHook for SteppedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        if let StoreCall::ApplyIf(_, head) = call {
            assert_eq!(head.derived, None, "the wrapped store gets no derived rows");
        }
        if !call.is_write() {
            return make(options).await;
        }
        self.allowed.acquire().await.unwrap().forget();
        let answer = make(options).await;
        self.done.send_modify(|done| *done += 1);
        answer
    }
}

fn options() -> CallOptions {
    CallOptions::new(ConsistencyLevel::Quorum, Instant::now() + Duration::from_secs(60), Durability::Buffered)
}

fn at() -> Partition {
    Partition::new(Table::Heads, "key")
}

fn entries() -> Partition {
    Partition::new(Table::Entries, "bucket")
}

/// A head whose derived row has the same value; `-` for an absent row.
fn head(value: &str, stamp: Timestamp) -> HeadWrite {
    let text = Bytes::copy_from_slice(value.as_bytes());
    let expected = (value != "-").then(|| text.clone());
    HeadWrite {
        row: Row { name: Bytes::new(), value: text, stamp, expires: None },
        derived: Some(DerivedRow { partition: entries(), name: "key".into(), value: expected }),
        beside: None,
    }
}

async fn cas(store: &impl Store, expected: Option<Timestamp>, value: &str, stamp: Timestamp) -> Result<CasResult> {
    store.apply_if(&at(), expected, head(value, stamp), Vec::new(), &options()).await
}

async fn read_row(store: &impl Store, partition: &Partition) -> Result<Option<Row>> {
    Ok(store.read(partition, &ReadQuery::all(9), &options()).await?.rows.pop())
}

/// A value and its stamp; `None` when absent.
type StampedValue = Option<(String, Timestamp)>;

/// Whether both have the same text, which is all that a listing shows.
fn has_same_text(one: &StampedValue, other: &StampedValue) -> bool {
    one.as_ref().map(|(value, _)| value) == other.as_ref().map(|(value, _)| value)
}

/// The value of the head, and that of the derived row.
async fn head_and_derived_row(store: &impl Store) -> (StampedValue, StampedValue) {
    let text = |row: Option<Row>| row.map(|row| (String::from_utf8(row.value.to_vec()).unwrap(), row.stamp));
    let expected = text(read_row(store, &at()).await.unwrap()).filter(|(value, _)| value != "-");
    (expected, text(read_row(store, &entries()).await.unwrap()))
}

/// A memory store with its clock, and wrappers for writers and readers.
struct DerivedRowFixture {
    clock: Arc<ManualClock>,
    memory: Arc<MemoryStore>,
}

impl DerivedRowFixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { memory: Arc::new(MemoryStore::new(clock.clone())), clock }
    }

    fn wrap<S: Store>(&self, inner: Arc<S>) -> Arc<DerivedRowStore<S>> {
        Arc::new(DerivedRowStore::new(inner))
    }

    fn reader(&self) -> Arc<DerivedRowStore<MemoryStore>> {
        self.wrap(self.memory.clone())
    }

    fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// The stored value of the derived row, which begins with its format byte.
    async fn stored(&self) -> Option<Bytes> {
        Some(read_row(&*self.memory, &entries()).await.unwrap()?.value)
    }

    async fn is_intent_stored(&self) -> bool {
        self.stored().await.is_some_and(|value| value[0] == INTENT)
    }
}

/// Runs two writers whose confirmed rows arrive in the opposite order of their heads.
async fn late_confirmation(values: [&'static str; 2]) {
    let fixture = DerivedRowFixture::new();
    let (slow, now) = (SteppedStore::new(&fixture.memory), fixture.clock.now());
    let writer = fixture.wrap(Arc::new(Hooked(slow.clone())));
    let writer = tokio::spawn(async move { cas(&*writer, None, values[0], now).await });
    slow.step(2).await;
    fixture.wait(1);
    assert_eq!(cas(&*fixture.reader(), Some(now), values[1], now + 2).await.unwrap(), CasResult::Applied);
    fixture.wait(1);
    slow.step(1).await;
    assert_eq!(writer.await.unwrap().unwrap(), CasResult::Applied);
    let (expected, reads) = head_and_derived_row(&*fixture.reader()).await;
    assert_eq!(expected, reads, "value and stamp are the head's");
}

#[tokio::test(start_paused = true)]
async fn a_late_confirmed_row_loses_to_the_row_of_a_newer_head() {
    for values in [["v1", "v2"], ["v1", "-"], ["-", "v2"]] {
        late_confirmation(values).await;
    }
}

/// A writer that pauses after its intent while a reader reads the derived row `seconds` later. Then it writes its head
/// and dies.
async fn paused_writer(seconds: u64) -> CasResult {
    let fixture = DerivedRowFixture::new();
    let now = fixture.clock.now();
    cas(&*fixture.reader(), None, "v0", now).await.unwrap();
    let slow = SteppedStore::new(&fixture.memory);
    let writer = fixture.wrap(Arc::new(Hooked(slow.clone())));
    let writer = tokio::spawn(async move { cas(&*writer, Some(now), "v1", now + 10).await });
    slow.step(1).await;
    fixture.wait(seconds);
    let (expected, reads) = head_and_derived_row(&*fixture.reader()).await;
    assert_eq!((expected.unwrap().0, reads.unwrap().0), ("v0".into(), "v0".into()), "the new head is not written yet");
    let head = slow.inner.read(&at(), &ReadQuery::all(1), &options()).await.unwrap().rows[0].stamp;
    slow.step(1).await;
    let answer = if head == now { CasResult::Applied } else { writer.await.unwrap().unwrap() };
    let (expected, reads) = head_and_derived_row(&*fixture.reader()).await;
    assert_eq!(expected, reads, "value and stamp are the head's");
    answer
}

#[tokio::test(start_paused = true)]
async fn a_slow_writer_is_fenced_before_its_intent_is_replaced() {
    let answer = paused_writer(60).await;
    assert!(matches!(answer, CasResult::Conflict(Some(row)) if row.value == "v0"), "the slow writer gets a conflict");
}

#[tokio::test(start_paused = true)]
async fn a_writer_with_a_young_intent_is_not_fenced() {
    assert_eq!(paused_writer(1).await, CasResult::Applied);
}

#[tokio::test(start_paused = true)]
async fn the_intent_of_a_writer_that_died_before_its_head_goes_after_a_day() {
    let fixture = DerivedRowFixture::new();
    let (slow, now) = (SteppedStore::new(&fixture.memory), fixture.clock.now());
    let writer = fixture.wrap(Arc::new(Hooked(slow.clone())));
    let writer = tokio::spawn(async move { cas(&*writer, None, "v", now).await });
    slow.step(1).await;
    writer.abort();
    for (seconds, kept) in [(0, true), (60, true), (DAY, false)] {
        fixture.wait(seconds);
        assert_eq!(head_and_derived_row(&*fixture.reader()).await, (None, None));
        assert_eq!(fixture.reader().partitions(Table::Entries, None, 9, &options()).await.unwrap().partitions.len(), 0);
        assert_eq!(fixture.stored().await.is_some(), kept, "after {seconds} seconds more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_replaces_the_intent_of_a_dead_writer() {
    for value in ["v", "-"] {
        let fixture = DerivedRowFixture::new();
        let (slow, now) = (SteppedStore::new(&fixture.memory), fixture.clock.now());
        let writer = fixture.wrap(Arc::new(Hooked(slow.clone())));
        let writer = tokio::spawn(async move { cas(&*writer, None, value, now).await });
        slow.step(2).await;
        writer.abort();
        assert!(fixture.is_intent_stored().await);
        let (expected, reads) = head_and_derived_row(&*fixture.reader()).await;
        assert_eq!((&expected, expected.is_some()), (&reads, value == "v"));
        let settled = if value == "v" { "\x01v" } else { "\x02" };
        assert_eq!(fixture.stored().await.unwrap(), settled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_reads_on_past_many_absent_rows() {
    let fixture = DerivedRowFixture::new();
    let (store, now) = (fixture.reader(), fixture.clock.now());
    for which in 0..500_u64 {
        let at = Partition::new(Table::Heads, format!("{which}"));
        let mut head = head(if which == 499 { "v" } else { "-" }, now);
        head.derived.as_mut().unwrap().name = format!("{which:03}").into();
        store.apply_if(&at, None, head, Vec::new(), &options()).await.unwrap();
    }
    let page = store.read(&entries(), &ReadQuery::all(1), &options()).await.unwrap();
    assert_eq!((page.rows.len(), page.stopped), (1, Stopped::End));
}

/// Writers that reach one head through faulty stores, and a reader without faults. Answers whether head and derived row
/// agreed all the time.
async fn random_faults(seed: u64) -> bool {
    let fixture = DerivedRowFixture::new();
    let mut tasks = JoinSet::new();
    for writer in 0..3_u64 {
        let faulty = Arc::new(Faulty::new(fixture.memory.clone(), StoreHistory::none(), seed * 10 + writer));
        let faults =
            StoreFaults { pause_ms_max: 100, pause_per_mille: 500, fail_per_mille: 100, ..StoreFaults::none() };
        faulty.set_faults(StoreFaults { lose_per_mille: 100, ..faults });
        let (store, reader, clock) = (fixture.wrap(faulty), fixture.reader(), fixture.clock.clone());
        let mut random = SplitMix64::new(seed * 10 + writer);
        tasks.spawn(async move {
            let mut agreed = true;
            for round in 0..40 {
                clock.advance(Duration::from_millis(random.number_below(20_000)));
                let Ok(current) = read_row(&*store, &at()).await else { continue };
                let expected = current.map(|row| row.stamp);
                let stamp = clock.now().max(expected.unwrap_or(Timestamp::ZERO) + 2);
                let value = if random.chance(250) { "-".to_owned() } else { format!("{writer} {round}") };
                let _ = cas(&*store, expected, &value, stamp).await;
                let (before, reads) = head_and_derived_row(&*reader).await;
                let (after, _) = head_and_derived_row(&*reader).await;
                agreed &= before != after || after == reads;
                let _ = read_row(&*store, &entries()).await;
            }
            agreed
        });
    }
    let agreed = tasks.join_all().await.into_iter().all(|agreed| agreed);
    fixture.wait(60);
    let (expected, reads) = head_and_derived_row(&*fixture.reader()).await;
    agreed && !fixture.is_intent_stored().await && has_same_text(&expected, &reads)
}

#[tokio::test(start_paused = true)]
async fn derived_rows_follow_their_heads_whatever_fails() {
    for seed in 0..100 {
        assert!(random_faults(seed).await, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_protocol_conforms() {
    let fixture = DerivedRowFixture::new();
    conformance(fixture.reader(), fixture.clock.clone()).await;
}

#[tokio::test(start_paused = true)]
async fn the_protocol_conforms_with_a_pause_at_every_step() {
    let faults = StoreFaults { pause_ms_max: 20, pause_per_mille: 500, ..StoreFaults::none() };
    let fixture = DerivedRowFixture::new();
    let below = Arc::new(Faulty::new(fixture.memory.clone(), StoreHistory::none(), 1));
    below.set_faults(faults);
    let above = Arc::new(Faulty::new(fixture.wrap(below), StoreHistory::none(), 2));
    above.set_faults(faults);
    conformance(above, fixture.clock.clone()).await;
}
