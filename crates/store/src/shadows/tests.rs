use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::form::DAY;
use super::*;
use crate::Clock;
use crate::conformance::{ManualClock, conformance};
use crate::memory::MemoryStore;
use crate::wrappers::faulty::{Faults, Faulty, History};
use crate::wrappers::random::SplitMix64;

/// A writer's way to the store, on which its steps are let through one by one.
struct Stepped {
    inner: Arc<MemoryStore>,
    allowed: Semaphore,
    done: watch::Sender<usize>,
}

impl Stepped {
    fn new(inner: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { inner: inner.clone(), allowed: Semaphore::new(0), done: watch::Sender::new(0) })
    }

    /// Lets `writes` through and waits until they are done.
    async fn step(&self, writes: usize) {
        let end = *self.done.borrow() + writes;
        self.allowed.add_permits(writes);
        self.done.subscribe().wait_for(|done| *done == end).await.unwrap();
    }

    async fn write<T>(&self, write: impl Future<Output = T> + Send) -> T {
        self.allowed.acquire().await.unwrap().forget();
        let answer = write.await;
        self.done.send_modify(|done| *done += 1);
        answer
    }
}

#[async_trait]
impl Store for Stepped {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        self.inner.read(partition, query, options).await
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        self.write(self.inner.apply(batch, options)).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        assert_eq!(head.shadow, None, "the store below knows no shadows");
        self.write(self.inner.apply_if(partition, expected, head, changes, options)).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        self.inner.partitions(table, after, limit, options).await
    }

    /// Only a writer without [`Rule::ConfirmAtHeadStamp`] asks, before it confirms.
    async fn now(&self, options: &Options) -> Result<Micros> {
        self.write(self.inner.now(options)).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

fn options() -> Options {
    Options::new(Level::Quorum, Instant::now() + Duration::from_secs(60), Durability::Buffered)
}

fn at() -> Partition {
    Partition::own(Table::Heads, "key")
}

fn entries() -> Partition {
    Partition::own(Table::Entries, "bucket")
}

/// A head whose value is what its shadow reads as; `-` for none.
fn head(value: &str, stamp: Stamp) -> Head {
    let text = Bytes::copy_from_slice(value.as_bytes());
    let says = (value != "-").then(|| text.clone());
    Head {
        row: Row { name: Bytes::new(), value: text, stamp, expires: None },
        shadow: Some(Shadow { partition: entries(), name: "key".into(), value: says }),
    }
}

async fn swap(store: &impl Store, expected: Option<Stamp>, value: &str, stamp: Stamp) -> Result<Swap> {
    store.apply_if(&at(), expected, head(value, stamp), Vec::new(), &options()).await
}

async fn one(store: &impl Store, partition: &Partition) -> Result<Option<Row>> {
    Ok(store.read(partition, &ReadQuery::all(9), &options()).await?.rows.pop())
}

/// A value and its stamp; `None` for nothing.
type Said = Option<(String, Stamp)>;

/// Whether both are the same text: what a lister sees of it.
fn alike(one: &Said, other: &Said) -> bool {
    one.as_ref().map(|(value, _)| value) == other.as_ref().map(|(value, _)| value)
}

/// What the head says, and what the shadow reads as.
async fn both(store: &impl Store) -> (Said, Said) {
    let text = |row: Option<Row>| row.map(|row| (String::from_utf8(row.value.to_vec()).unwrap(), row.stamp));
    let says = text(one(store, &at()).await.unwrap()).filter(|(value, _)| value != "-");
    (says, text(one(store, &entries()).await.unwrap()))
}

/// A store with its clock, and its reader.
struct World {
    clock: Arc<ManualClock>,
    memory: Arc<MemoryStore>,
    rule: Option<Rule>,
}

impl World {
    fn new(rule: Option<Rule>) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { memory: Arc::new(MemoryStore::new(clock.clone())), clock, rule }
    }

    fn way<S: Store>(&self, inner: Arc<S>) -> Arc<Shadowed<S>> {
        Arc::new(self.rule.map_or_else(|| Shadowed::new(inner.clone()), |rule| Shadowed::without(inner.clone(), rule)))
    }

    fn reader(&self) -> Arc<Shadowed<MemoryStore>> {
        self.way(self.memory.clone())
    }

    fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// What is stored of the shadow.
    async fn stored(&self) -> Option<Entry> {
        let row = one(&*self.memory, &entries()).await.unwrap()?;
        Some(form::of_entry(row.value).unwrap())
    }
}

/// Two writers whose heads are in one order and whose confirmations are in the other.
async fn late_confirmation(rule: Option<Rule>, values: [&'static str; 2]) -> bool {
    let world = World::new(rule);
    let (slow, now) = (Stepped::new(&world.memory), world.clock.now());
    let writer = world.way(slow.clone());
    let writer = tokio::spawn(async move { swap(&*writer, None, values[0], now).await });
    slow.step(2).await;
    world.wait(1);
    assert_eq!(swap(&*world.reader(), Some(now), values[1], now + 2).await.unwrap(), Swap::Applied);
    world.wait(1);
    slow.step(if rule.is_some() { 2 } else { 1 }).await;
    assert_eq!(writer.await.unwrap().unwrap(), Swap::Applied);
    let (says, reads) = both(&*world.reader()).await;
    assert!(rule.is_some() || says == reads, "{says:?}, {reads:?}: the stamp is the head's too");
    alike(&says, &reads)
}

#[tokio::test(start_paused = true)]
async fn a_late_confirmation_loses() {
    assert!(late_confirmation(None, ["v1", "v2"]).await);
    assert!(late_confirmation(None, ["v1", "-"]).await, "nor does it bring back what was removed");
    assert!(late_confirmation(None, ["-", "v2"]).await);
    assert!(!late_confirmation(Some(Rule::ConfirmAtHeadStamp), ["v1", "v2"]).await);
}

/// A writer that pauses behind its announcement while the shadow is read `seconds` later, then writes its head and dies.
async fn paused_writer(rule: Option<Rule>, seconds: u64) -> (Swap, bool) {
    let world = World::new(rule);
    let now = world.clock.now();
    swap(&*world.reader(), None, "v0", now).await.unwrap();
    let slow = Stepped::new(&world.memory);
    let writer = world.way(slow.clone());
    let writer = tokio::spawn(async move { swap(&*writer, Some(now), "v1", now + 10).await });
    slow.step(1).await;
    world.wait(seconds);
    let (says, reads) = both(&*world.reader()).await;
    assert_eq!((says.unwrap().0, reads.unwrap().0), ("v0".into(), "v0".into()), "nothing else was written yet");
    let head = slow.inner.read(&at(), &ReadQuery::all(1), &options()).await.unwrap().rows[0].stamp;
    slow.step(1).await;
    let answer = if head == now { Swap::Applied } else { writer.await.unwrap().unwrap() };
    let (says, reads) = both(&*world.reader()).await;
    assert!(rule.is_some() || says == reads, "{says:?}, {reads:?}: the stamp is the head's too");
    (answer, alike(&says, &reads))
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_too_slow_is_fenced_before_its_entry_goes() {
    let (answer, agree) = paused_writer(None, 60).await;
    assert!(matches!(answer, Swap::Conflict(Some(row)) if row.value == "v0"), "it is told to look again");
    assert!(agree);
    let (answer, agree) = paused_writer(Some(Rule::TouchBeforeDiscard), 60).await;
    assert_eq!(answer, Swap::Applied);
    assert!(!agree, "without the rule its entry is lost");
}

#[tokio::test(start_paused = true)]
async fn a_writer_on_its_way_is_not_disturbed() {
    assert_eq!(paused_writer(None, 1).await, (Swap::Applied, true));
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_died_before_its_head_leaves_nothing() {
    let world = World::new(None);
    let (slow, now) = (Stepped::new(&world.memory), world.clock.now());
    let writer = world.way(slow.clone());
    let writer = tokio::spawn(async move { swap(&*writer, None, "v", now).await });
    slow.step(1).await;
    writer.abort();
    for (seconds, kept) in [(0, true), (60, true), (DAY / 1_000_000, false)] {
        world.wait(seconds);
        assert_eq!(both(&*world.reader()).await, (None, None));
        assert_eq!(world.reader().partitions(Table::Entries, None, 9, &options()).await.unwrap().partitions.len(), 0);
        assert_eq!(world.stored().await.is_some(), kept, "after {seconds} seconds more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_settles_what_a_dead_writer_left() {
    for value in ["v", "-"] {
        let world = World::new(None);
        let (slow, now) = (Stepped::new(&world.memory), world.clock.now());
        let writer = world.way(slow.clone());
        let writer = tokio::spawn(async move { swap(&*writer, None, value, now).await });
        slow.step(2).await;
        writer.abort();
        assert!(matches!(world.stored().await, Some(Entry::Pending(_))));
        let (says, reads) = both(&*world.reader()).await;
        assert_eq!((&says, says.is_some()), (&reads, value == "v"));
        let settled = if value == "v" { Entry::Confirmed(value.into()) } else { Entry::Absent };
        assert_eq!(world.stored().await, Some(settled));
    }
}

#[tokio::test(start_paused = true)]
async fn many_rows_that_are_not_there_do_not_end_a_page() {
    let world = World::new(None);
    let (store, now) = (world.reader(), world.clock.now());
    for which in 0..500_u64 {
        let at = Partition::own(Table::Heads, format!("{which}"));
        let mut head = head(if which == 499 { "v" } else { "-" }, now);
        head.shadow.as_mut().unwrap().name = format!("{which:03}").into();
        store.apply_if(&at, None, head, Vec::new(), &options()).await.unwrap();
    }
    let page = store.read(&entries(), &ReadQuery::all(1), &options()).await.unwrap();
    assert_eq!((page.rows.len(), page.stopped), (1, Stopped::End));
}

/// Writers with failing ways to one head, and a reader with a good one; whether head and shadow agreed all the time.
async fn storm(rule: Option<Rule>, seed: u64) -> bool {
    let world = World::new(rule);
    let mut tasks = JoinSet::new();
    for writer in 0..3_u64 {
        let faulty = Arc::new(Faulty::new(world.memory.clone(), History::none(), seed * 10 + writer));
        let faults = Faults { pause_ms_max: 100, pause_per_mille: 500, fail_per_mille: 100, ..Faults::none() };
        faulty.set_faults(Faults { lose_per_mille: 100, ..faults });
        let (way, reader, clock) = (world.way(faulty), world.reader(), world.clock.clone());
        let mut random = SplitMix64::new(seed * 10 + writer);
        tasks.spawn(async move {
            let mut agreed = true;
            for round in 0..40 {
                clock.advance(Duration::from_millis(random.below(20_000)));
                let Ok(seen) = one(&*way, &at()).await else { continue };
                let expected = seen.map(|row| row.stamp);
                let stamp = clock.now().max(expected.unwrap_or(0) + 2);
                let value = if random.chance(250) { "-".to_owned() } else { format!("{writer} {round}") };
                let _ = swap(&*way, expected, &value, stamp).await;
                let (before, reads) = both(&*reader).await;
                let (after, _) = both(&*reader).await;
                agreed &= before != after || alike(&after, &reads) && (rule.is_some() || after == reads);
                let _ = one(&*way, &entries()).await;
            }
            agreed
        });
    }
    let agreed = tasks.join_all().await.into_iter().all(|agreed| agreed);
    world.wait(60);
    let (says, reads) = both(&*world.reader()).await;
    let settled = !matches!(world.stored().await, Some(Entry::Pending(_)));
    agreed && settled && alike(&says, &reads)
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_shadows_read_as_their_heads_say() {
    for seed in 0..100 {
        assert!(storm(None, seed).await, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_breaks_what_lacks_a_rule() {
    for rule in [Rule::ConfirmAtHeadStamp, Rule::TouchBeforeDiscard] {
        let mut broken = false;
        for seed in 0..100 {
            broken = broken || !storm(Some(rule), seed).await;
        }
        assert!(broken, "{rule:?} seems not to be needed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_protocol_keeps_every_promise() {
    let world = World::new(None);
    conformance(world.reader(), world.clock.clone()).await;
}

#[tokio::test(start_paused = true)]
async fn it_keeps_them_where_every_step_may_pause() {
    let faults = Faults { pause_ms_max: 20, pause_per_mille: 500, ..Faults::none() };
    let world = World::new(None);
    let below = Arc::new(Faulty::new(world.memory.clone(), History::none(), 1));
    below.set_faults(faults);
    let above = Arc::new(Faulty::new(world.way(below), History::none(), 2));
    above.set_faults(faults);
    conformance(above, world.clock.clone()).await;
}
