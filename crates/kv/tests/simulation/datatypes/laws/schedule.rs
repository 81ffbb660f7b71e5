//! One schedule: clients of one key, in turn and at once, while gateways restart and replicas come and go.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::Error;
use larder_kv::datatypes::{DatatypeChange, DatatypeFetch};
use larder_kv::rules::datatypes::{DatatypeError, DatatypeValue};
use larder_kv::{KvDelete, KvDeleteOutcome};
use larder_testkit::SplitMix64;
use larder_testkit::faulty::StoreFaults;
use larder_testkit::replicas::NetworkFaults;
use parking_lot::Mutex;

use super::super::client::{change_of, fetch_of};
use super::edits::{EditDraw, EffectKind, LawEdit, RemovalTarget};
use super::engine::LawEngineKind;
use super::facts::ValueFacts;
use super::record::{LawAnswer, LawRecord};
use super::world::LawWorld;
use crate::simulation::world::{bucket, delete_of};

/// Keys of a world, each of them with a schedule of its own.
pub(super) const KEYS: usize = 5;
const CLIENTS: usize = 3;
const STEPS: usize = 7;
/// Tries of a request with an id, until its answer is clear.
const TRIES_MAX: usize = 20;
/// Time in which every request has come to its end, and every late batch.
const QUIET_MS: u64 = 4_000;
const LATE_MS: u64 = 45_000;

/// The state that the clients of one key share.
struct LawSchedule {
    world: Arc<LawWorld>,
    kind: &'static str,
    key: String,
    is_large: bool,
    record: Mutex<LawRecord>,
    /// Contexts that clients were shown, each with the number of its read.
    contexts: Mutex<Vec<(usize, Bytes)>>,
    digits: Mutex<usize>,
}

/// Runs the schedules of a seed: [`KEYS`] of them at once, each on its own key.
///
/// # Errors
/// The law that is broken.
pub(super) async fn run_world(engine: LawEngineKind, kind: &'static str, seed: u64) -> Result<(), String> {
    let mut dice = SplitMix64::new(seed);
    let count = 1 + dice.below(3);
    let world = Arc::new(LawWorld::new(engine, seed, count).await);
    world.add_type(kind).await;
    world.set_skews(|| skew(&mut dice));
    world.set_faults(faults(&mut dice, engine, count == 1));
    world.set_network_faults(network_faults(&mut dice));
    let schedules: Vec<_> = (0..KEYS).map(|at| LawSchedule::new(&world, kind, at, &mut dice)).collect();
    let mut clients = tokio::task::JoinSet::new();
    for schedule in schedules.iter().flat_map(|schedule| std::iter::repeat_n(schedule, CLIENTS)) {
        let (schedule, dice) = (Arc::clone(schedule), SplitMix64::new(dice.number()));
        clients.spawn(async move { schedule.client(dice).await });
    }
    disturb(&world, engine, &mut dice).await;
    clients.join_all().await;
    let late = world.set_faults(StoreFaults::none()).late_per_mille;
    world.set_network_faults(NetworkFaults::none());
    world.advance(if late > 0 || world.is_replicated() { LATE_MS } else { QUIET_MS }).await;
    // What a gateway sent before it was killed may be on one replica.
    world.repair();
    for schedule in schedules {
        schedule.end().await?;
    }
    Ok(())
}

/// Restarts, kills and replicas that come and go, while the clients work.
async fn disturb(world: &LawWorld, engine: LawEngineKind, dice: &mut SplitMix64) {
    for _ in 0..dice.below(4) {
        world.advance(dice.below(400) as u64).await;
        let at = dice.below(world.count());
        match (engine, dice.below(4)) {
            (LawEngineKind::Embedded, 0) => world.kill(&[skew(dice), skew(dice)]).await,
            (LawEngineKind::Replicated { .. }, 0..=2) => {
                let (replica, others) = (dice.below(3), dice.below(4) == 0);
                world.set_replica(replica, false, false);
                if others {
                    world.set_replica((replica + 1) % 3, false, false);
                }
                world.advance(dice.below(2000) as u64).await;
                world.set_replica((replica + 1) % 3, true, false);
                world.set_replica(replica, true, dice.below(2) == 0);
            }
            (_, forgets) => world.restart(at, skew(dice), forgets == 1).await,
        }
    }
}

fn skew(dice: &mut SplitMix64) -> i64 {
    dice.below(480_000) as i64 - 240_000
}

fn faults(dice: &mut SplitMix64, engine: LawEngineKind, is_single: bool) -> StoreFaults {
    let pauses = StoreFaults { pause_ms_max: 1 + dice.below(60) as u64, pause_per_mille: 500, ..StoreFaults::none() };
    if dice.below(3) == 0 {
        return pauses;
    }
    // A batch of the embedded engine is decided before the next one of its key: it is never late. Nor is one that a retry by its
    // id relies on, nor one of replicas: the page on data types says why.
    let is_decided = is_single || engine != LawEngineKind::Memory;
    StoreFaults {
        fail_per_mille: dice.below(40) as u32,
        lose_per_mille: dice.below(60) as u32,
        late_per_mille: if is_decided { 0 } else { [0, 20][dice.below(2)] },
        ..pauses
    }
}

/// Messages that are lost, coordinators that die half way, and hints that never come.
fn network_faults(dice: &mut SplitMix64) -> NetworkFaults {
    let some = dice.below(3) > 0;
    let below = |dice: &mut SplitMix64, most| if some { dice.below(most) as u32 } else { 0 };
    NetworkFaults {
        delay_ms_max: 1 + dice.below(30) as u64,
        lose_per_mille: below(dice, 60),
        stop_per_mille: below(dice, 40),
        hints_lost_per_mille: below(dice, 500),
        hint_ms_max: 500,
        ..NetworkFaults::none()
    }
}

impl LawSchedule {
    fn new(world: &Arc<LawWorld>, kind: &'static str, at: usize, dice: &mut SplitMix64) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            kind,
            key: format!("k{at}"),
            // A marker takes the counters in it whole, which is exact with one gateway only: sets have none.
            is_large: kind == "set" && dice.below(100) == 0,
            record: Mutex::default(),
            contexts: Mutex::default(),
            digits: Mutex::default(),
        })
    }

    async fn client(&self, mut dice: SplitMix64) {
        for _ in 0..STEPS {
            let at = dice.below(self.world.count());
            match dice.below(20) {
                0..=5 => self.read(at).await,
                6 => self.delete(at, &mut dice).await,
                7 => self.world.advance(dice.below(300) as u64).await,
                _ => self.update(at, &mut dice).await,
            }
        }
    }

    async fn update(&self, at: usize, dice: &mut SplitMix64) {
        let context = self.context(dice);
        let has_context = context.is_some() && matches!(self.kind, "set" | "map");
        let number = self.record.lock().now() as usize;
        let (update, edit) = {
            let mut digits = self.digits.lock();
            let mut draw = EditDraw::new(dice, &mut digits, number);
            (draw.has_context, draw.is_large) = (has_context, self.is_large);
            draw.update(self.kind)
        };
        let read = context.as_ref().filter(|_| has_context).map(|(read, _)| *read);
        let is_exact = self.world.is_single() || self.world.is_replicated();
        let is_repeated = self.kind == "counter" && is_exact && dice.below(2) == 0;
        let change = DatatypeChange {
            context: context.map(|(_, bytes)| bytes),
            request_id: is_repeated.then(|| format!("{number}").into()),
            timeout: timeout(dice),
            ..change_of(self.kind, &self.key, update)
        };
        let request = self.record.lock().begin(edit, read);
        let mut answer = LawAnswer::Unknown;
        for _ in 0..if is_repeated { TRIES_MAX } else { 1 } {
            // Each try may be at a gateway that was started since.
            let result = self.world.gateway(at).kv.update_datatype(change.clone()).await;
            answer = answer_of(&result);
            if answer != LawAnswer::Unknown {
                break;
            }
        }
        self.record.lock().end(request, answer);
        // A client that is not sure that it was heard sends it again.
        if is_repeated && answer == LawAnswer::Acknowledged && dice.below(3) == 0 {
            self.repeat(at, change).await;
        }
    }

    /// Sends an answered increment again. It adds nothing; over replicas it makes a key that was deleted meanwhile again.
    async fn repeat(&self, at: usize, change: DatatypeChange) {
        let effects = vec![(Vec::new(), EffectKind::Touched)];
        let touch = LawEdit { effects, ..LawEdit::default() };
        let request = self.world.is_replicated().then(|| self.record.lock().begin(touch, None));
        let _ = self.world.gateway(at).kv.update_datatype(change).await;
        if let Some(request) = request {
            self.record.lock().end(request, LawAnswer::Unknown);
        }
    }

    async fn delete(&self, at: usize, dice: &mut SplitMix64) {
        let context = self.context(dice);
        let edit = LawEdit { removals: vec![RemovalTarget::Key], ..LawEdit::default() };
        let request = self.record.lock().begin(edit, context.as_ref().map(|(read, _)| *read));
        let bytes = context.map(|(_, bytes)| bytes);
        let delete = KvDelete { timeout: timeout(dice), ..delete_of(self.kind, &self.key, bytes.as_ref()) };
        let answer = match self.world.gateway(at).kv.delete(delete).await {
            Ok(KvDeleteOutcome::Done) => LawAnswer::Acknowledged,
            Ok(KvDeleteOutcome::NotFound(_)) => LawAnswer::Refused,
            Err(_) => LawAnswer::Unknown,
        };
        self.record.lock().end(request, answer);
    }

    async fn read(&self, at: usize) {
        let begun = self.record.lock().now();
        if let Ok((value, context)) = self.fetch(at).await {
            let read = self.record.lock().note_read(begun, ValueFacts::of(value), context.as_ref());
            self.contexts.lock().extend(context.map(|context| (read, context)));
        }
    }

    async fn fetch(&self, at: usize) -> Result<(Option<DatatypeValue>, Option<Bytes>), Error> {
        let fetch = DatatypeFetch { timeout: None, ..fetch_of(self.kind, &self.key) };
        match self.world.gateway(at).kv.fetch_datatype(fetch).await? {
            Some(reader) => reader.whole(usize::MAX).await.map(|(value, context)| (Some(value), context)),
            None => Ok((None, None)),
        }
    }

    /// No context, the last one that was shown, or an older one.
    fn context(&self, dice: &mut SplitMix64) -> Option<(usize, Bytes)> {
        let contexts = self.contexts.lock();
        match dice.below(5) {
            0 | 1 => None,
            2 if !contexts.is_empty() => Some(dice.pick(&contexts).clone()),
            _ => contexts.last().cloned(),
        }
    }

    /// Reads the last value through every gateway, and checks every answer of the schedule.
    async fn end(&self) -> Result<(), String> {
        let mut last: Option<ValueFacts> = None;
        for at in (0..self.world.count()).chain(0..self.world.count()) {
            let begun = self.record.lock().now();
            let value = self.fetch(at).await.map_err(|error| error.to_string())?.0;
            let facts = ValueFacts::of(value);
            if let Some(last) = last.as_ref().filter(|last| **last != facts) {
                return Err(format!("gateways differ: {last:?} and {facts:?}"));
            }
            last = Some(facts.clone());
            self.record.lock().note_read(begun, facts, None);
        }
        let exists = last.is_some_and(|facts| facts.exists);
        let listed = self.world.gateway(0).kv.list_keys(&bucket(self.kind), None, None).await;
        let is_listed = listed.map_err(|error| error.to_string())?.names.iter().any(|name| *name == self.key);
        // A coordinator that dies half way may leave a batch that nobody answered without its entry, or the entry alone.
        let is_left_over = self.world.is_replicated() && self.record.lock().has_unknown_fates();
        if exists != is_listed && !is_left_over {
            return Err(format!("the key exists: {exists}, and is listed: {is_listed}"));
        }
        self.record.lock().check()
    }
}

fn answer_of(result: &Result<(), Error>) -> LawAnswer {
    match result {
        Ok(()) => LawAnswer::Acknowledged,
        Err(Error::Datatype(DatatypeError::NotPresent(_))) => LawAnswer::Refused,
        Err(_) => LawAnswer::Unknown,
    }
}

/// A client's own deadline, often shorter than a batch takes.
fn timeout(dice: &mut SplitMix64) -> Option<Duration> {
    (dice.below(4) == 0).then(|| Duration::from_millis(1 + dice.below(120) as u64))
}
