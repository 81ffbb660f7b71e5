//! Random schedules of clients at a model of Riak and of clients here, with imports of any state of any replica, in any order and
//! more than once, of which some are lost before or after they are stored: at the end counters are exact, and sets and maps are
//! what both sides added and nobody removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::types::NoProductRows;
use larder_core::{Config, GatewayPorts};
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch, DatatypeImport};
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::datatypes::{
    DatatypeUpdate, DatatypeValue, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldEdit, FieldName, FieldValue,
    HllPlace, MapEdits, SetEdit,
};
use larder_kv::{Gateway, ImportComparison, KvDelete, KvGet, Quorums};
use larder_moving::rules::RiakDatatype;
use larder_rows::ActorId;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvBody;
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Clock, Error, Kind, Result, Store, Table};
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use larder_testkit::{Scale, SplitMix64, VirtualClock, unique_bytes};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

use crate::riak_model::{ModelCounter, ModelEdit, ModelKind, ModelLeaf, ModelMap, ModelSet};

const REPLICAS: usize = 3;
const MEMBERS: [&str; 3] = ["a", "b", "c"];
const STEPS: usize = 40;

/// What becomes of the batch of the next import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MergeFate {
    Stored,
    /// It never arrives.
    Lost,
    /// It is stored, and its answer is lost.
    Unanswered,
}

/// A store in memory that loses some imports.
struct LosingStore {
    inner: MemoryStore,
    fate: Mutex<MergeFate>,
}

impl StoreHook for LosingStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let is_import = |part: &larder_store::PartitionChanges| part.partition.table == Table::Moves;
        let fate = match call {
            StoreCall::Apply(batch) if batch.partitions.iter().any(is_import) => *self.fate.lock(),
            _ => MergeFate::Stored,
        };
        let lost = || Error::new(Kind::TimedOut, "lost");
        match fate {
            MergeFate::Stored => make(options).await,
            MergeFate::Lost => Err(lost()),
            MergeFate::Unanswered => make(options).await.and_then(|_| Err(lost())),
        }
    }
}

/// A gateway with a key of a data type.
struct DatatypeWorld {
    gateway: Arc<Gateway>,
    store: Arc<LosingStore>,
    clock: Arc<VirtualClock>,
    address: Address,
}

impl DatatypeWorld {
    async fn new(datatype: &'static str) -> Self {
        Self::first_run_by(datatype, ActorId(7)).await
    }

    async fn first_run_by(datatype: &'static str, actor: ActorId) -> Self {
        let clock = Arc::new(VirtualClock::start());
        let inner = MemoryStore::new(clock.clone());
        let store = Arc::new(LosingStore { inner, fate: Mutex::new(MergeFate::Stored) });
        let gateway = gateway_over(&store, &clock, actor).await;
        let name = Bytes::from_static(b"t");
        let mut props = json!({ "datatype": datatype });
        if datatype == "hll" {
            // All registers are in one row.
            props["hll_precision"] = 8.into();
        }
        gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
        gateway.types().activate(&name).await.unwrap();
        let address = Address::new(BucketAddress::new(name, "b".into()).unwrap(), "k".into()).unwrap();
        Self { gateway, store, clock, address }
    }

    async fn restart(&mut self) {
        self.gateway = gateway_over(&self.store, &self.clock, ActorId(8)).await;
    }

    fn import(&self, state: Option<RiakDatatype>) -> DatatypeImport {
        DatatypeImport {
            address: self.address.clone(),
            state: state.map(|state| state.into_state().unwrap()),
            is_whole: false,
            is_doubted: false,
            is_repair: false,
            concurrent: false,
            clock: "c".into(),
        }
    }

    /// Whether the state was imported.
    async fn import_with(&self, state: Option<RiakDatatype>, fate: MergeFate) -> bool {
        *self.store.fate.lock() = fate;
        let result = self.gateway.kv.import_datatype(self.import(state)).await;
        *self.store.fate.lock() = MergeFate::Stored;
        assert_eq!(result.is_ok(), fate == MergeFate::Stored, "{result:?}");
        fate != MergeFate::Lost
    }

    async fn update(&self, update: DatatypeUpdate, context: Option<Bytes>) -> bool {
        let (address, quorums) = (self.address.clone(), Quorums::default());
        let change = DatatypeChange { address, update, context, request_id: None, quorums, timeout: None };
        self.gateway.kv.update_datatype(change).await.is_ok()
    }

    async fn read(&self) -> Option<(DatatypeValue, Option<Bytes>)> {
        let fetch = DatatypeFetch {
            address: self.address.clone(),
            quorums: Quorums::default(),
            include_context: true,
            begin: DatatypeBegin::First,
            timeout: None,
        };
        let reader = self.gateway.kv.fetch_datatype(fetch).await.unwrap()?;
        Some(reader.whole(1 << 20).await.unwrap())
    }

    async fn context(&self) -> Option<Bytes> {
        self.read().await.and_then(|(_, context)| context)
    }

    async fn delete(&self) {
        let (address, quorums) = (self.address.clone(), Quorums::default());
        let delete = KvDelete { address, context: None, conditions: Conditions::default(), quorums, timeout: None };
        self.gateway.kv.delete(delete).await.unwrap();
    }
}

/// Hands the value here back to its source: it shows there what it shows here, and nothing counts twice.
async fn assert_goes_back(world: &DatatypeWorld, datatype: &'static str, there: RiakDatatype, seed: u64) {
    let shown = |value: Option<(DatatypeValue, Option<Bytes>)>| value.map(|(value, _)| value);
    let held = match world.gateway.kv.held_values(&world.address, 1 << 24).await {
        Ok(held) => held,
        // The key is being removed.
        Err(larder_core::Error::Overloaded { .. }) => return,
        Err(error) => panic!("seed {seed}: {error}"),
    };
    let Some(value) = held.first() else { return assert_eq!(shown(world.read().await), None, "seed {seed}") };
    let KvBody::Inline(body) = value.content.body.clone() else { panic!("it is inline") };
    let here = RiakDatatype::decode(body).unwrap().into_state().unwrap();
    let mut merged = there.into_state().unwrap();
    // An element may be handed out more than once.
    (0..2).for_each(|_| merged.merge(here.clone()));
    let copy = DatatypeWorld::new(datatype).await;
    let import = DatatypeImport { state: Some(merged.clone()), ..copy.import(None) };
    // Each restart puts the clock of a store ten seconds ahead, and a copy refuses what its own clock has not seen yet.
    let mut tries = 0;
    while let Err(error) = copy.gateway.kv.import_datatype(import.clone()).await {
        tries += 1;
        assert!(tries < 60, "seed {seed}: {error} {merged:?}");
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(shown(copy.read().await), shown(world.read().await), "seed {seed}: {here:?} {merged:?}");
    assert!(merged.shows_as(&here), "seed {seed}");
}

async fn gateway_over(store: &Arc<LosingStore>, clock: &Arc<VirtualClock>, actor: ActorId) -> Arc<Gateway> {
    let hooked = Arc::new(Hooked(store.clone()));
    let ports = GatewayPorts {
        store: hooked,
        blobs: Arc::new(MemoryStore::new(clock.clone())),
        clock: clock.clone(),
        actor,
        random: unique_bytes,
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        product: Arc::new(NoProductRows),
        webhooks: None,
    };
    Gateway::start(ports, Config { single_process: true, ..Config::default() }).await.unwrap()
}

fn fate(random: &mut SplitMix64) -> MergeFate {
    match random.below(8) {
        0 => MergeFate::Lost,
        1 => MergeFate::Unanswered,
        _ => MergeFate::Stored,
    }
}

/// The replicas of a value, and states that some of them once had.
struct ModelCluster<T> {
    replicas: Vec<T>,
    older: Vec<T>,
    merge: fn(&mut T, &T),
}

impl<T: Clone + Default> ModelCluster<T> {
    fn new(merge: fn(&mut T, &T)) -> Self {
        Self { replicas: vec![T::default(); REPLICAS], older: Vec::new(), merge }
    }

    /// A client of a replica, and now and then what the replicas tell each other.
    fn step(&mut self, random: &mut SplitMix64, update: impl FnOnce(&mut SplitMix64, usize, &mut T)) {
        let (at, from) = (random.below(REPLICAS), random.below(REPLICAS));
        if random.chance(300) {
            let other = self.replicas[from].clone();
            (self.merge)(&mut self.replicas[at], &other);
        } else {
            update(random, at, &mut self.replicas[at]);
        }
        self.older.push(self.replicas[at].clone());
    }

    /// A state that a read shows: of a replica, of two, or one of before.
    fn any_state(&self, random: &mut SplitMix64) -> T {
        match random.below(4) {
            0 if !self.older.is_empty() => random.pick(&self.older).clone(),
            1 => self.replicas[random.below(REPLICAS)].clone(),
            _ => {
                let mut state = self.replicas[random.below(REPLICAS)].clone();
                (self.merge)(&mut state, &self.replicas[random.below(REPLICAS)]);
                state
            }
        }
    }

    /// The state once all replicas have told each other.
    fn settled(&self) -> T {
        let mut state = self.replicas[0].clone();
        self.replicas.iter().for_each(|other| (self.merge)(&mut state, other));
        state
    }
}

async fn run_counter(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut world = DatatypeWorld::new("counter").await;
    let mut there = ModelCluster::<ModelCounter>::new(|state, other| state.merge(other));
    let (mut here, mut epoch, mut taken) = (0_i128, 0, 0_i128);
    for _ in 0..STEPS {
        sleep(Duration::from_millis(10)).await;
        match random.below(12) {
            0 => world.restart().await,
            1 if random.chance(200) => {
                // Deleted and reaped; its writers have other names then.
                there = ModelCluster::new(|state, other| state.merge(other));
                (epoch, taken) = (epoch + 100, 0);
                while !world.import_with(None, fate(&mut random)).await {}
            }
            2 if random.chance(300) => {
                // A client here removes all that it has seen of both sides.
                let seen = world.read().await.map(|(value, _)| value);
                world.delete().await;
                if let Some(DatatypeValue::Counter(seen)) = seen {
                    (taken, here) = (taken + seen - here, 0);
                }
            }
            1..4 => {
                let by = random.number_below(9).cast_signed() - 4;
                assert!(world.update(DatatypeUpdate::Counter(by), None).await);
                here += i128::from(by);
            }
            4..7 => {
                let state = there.any_state(&mut random);
                world.import_with(Some(state.to_riak()), fate(&mut random)).await;
            }
            _ => there.step(&mut random, |random, at, counter| {
                counter.add(epoch + at as u64, random.number_below(9).cast_signed() - 4);
            }),
        }
    }
    let settled = there.settled();
    world.import_with(Some(settled.to_riak()), MergeFate::Stored).await;
    let expected = settled.value() + here - taken;
    for _ in 0..2 {
        let shown = world.read().await.map(|(value, _)| value).unwrap_or(DatatypeValue::Counter(0));
        assert_eq!(shown, DatatypeValue::Counter(expected), "seed {seed}");
        world.import_with(Some(there.any_state(&mut random).to_riak()), MergeFate::Stored).await;
    }
    let compared = world.gateway.kv.compare_datatype(&world.import(Some(settled.to_riak()))).await.unwrap();
    assert_ne!(compared, ImportComparison::Differs, "seed {seed}");
    assert_goes_back(&world, "counter", settled.to_riak(), seed).await;
}

/// A HyperLogLog as a Riak has it: it counts eight zeros at most.
fn hyperloglog(elements: &BTreeSet<usize>) -> RiakDatatype {
    let register = |element: &usize| {
        let place = HllPlace::for_element(element.to_string().as_bytes(), 8);
        (place.register.into(), place.rank.min(9))
    };
    RiakDatatype::HyperLogLog { precision: 8, registers: elements.iter().map(register).collect() }
}

fn hashed(elements: impl IntoIterator<Item = usize>) -> DatatypeUpdate {
    DatatypeUpdate::Hll(elements.into_iter().map(|element| element.to_string().into()).collect())
}

async fn run_hyperloglog(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut world = DatatypeWorld::new("hll").await;
    let mut there = ModelCluster::<BTreeSet<usize>>::new(|state, other| state.extend(other));
    let (mut here, mut brought) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..STEPS {
        sleep(Duration::from_millis(10)).await;
        match random.below(12) {
            0 => world.restart().await,
            1 if random.chance(200) => {
                // Deleted and reaped: what it brought goes, and what clients here added stays.
                there = ModelCluster::new(|state, other| state.extend(other));
                brought.clear();
                while !world.import_with(None, fate(&mut random)).await {}
            }
            1..4 => {
                let element = random.below(300);
                assert!(world.update(hashed([element]), None).await);
                here.insert(element);
            }
            4..7 => {
                let state = there.any_state(&mut random);
                if world.import_with(Some(hyperloglog(&state)), fate(&mut random)).await {
                    brought.extend(state);
                }
            }
            _ => there.step(&mut random, |random, _, elements| {
                elements.insert(random.below(300));
            }),
        }
    }
    let settled = there.settled();
    let shown = async |world: &DatatypeWorld| world.read().await.map(|(value, _)| value);
    for state in [there.any_state(&mut random), settled.clone(), there.any_state(&mut random)] {
        world.import_with(Some(hyperloglog(&state)), MergeFate::Stored).await;
        brought.extend(state);
        let expected = DatatypeWorld::new("hll").await;
        expected.import_with(Some(hyperloglog(&brought)), MergeFate::Stored).await;
        assert!(expected.update(hashed(here.clone()), None).await);
        assert_eq!(shown(&world).await, shown(&expected).await, "seed {seed}: {brought:?} {here:?}");
    }
    let compared = world.gateway.kv.compare_datatype(&world.import(Some(hyperloglog(&settled)))).await.unwrap();
    assert_ne!(compared, ImportComparison::Differs, "seed {seed}");
    assert_goes_back(&world, "hll", hyperloglog(&settled), seed).await;
}

/// What clients here did, as far as the end shows it.
#[derive(Default)]
struct HereTruth {
    /// What imports brought.
    imported: BTreeSet<ModelLeaf>,
    /// What clients here removed of it.
    removed: BTreeSet<ModelLeaf>,
    /// The places that clients here wrote.
    added: BTreeSet<String>,
    /// The value of the register, if a client here assigned it, and when.
    assigned: Option<(u64, String)>,
}

impl HereTruth {
    /// A client here removes all that is there at these places.
    fn remove(&mut self, is_there: impl Fn(&str) -> bool) {
        self.removed.extend(self.imported.iter().filter(|(place, _)| is_there(place)).cloned());
        self.added.retain(|place| !is_there(place));
    }

    /// The places that are there at the end.
    fn places(&self, settled: &BTreeSet<ModelLeaf>) -> BTreeSet<String> {
        let stays = settled.iter().filter(|leaf| !self.removed.contains(leaf));
        stays.map(|(place, _)| place.clone()).chain(self.added.iter().cloned()).collect()
    }
}

async fn run_set(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut world = DatatypeWorld::new("set").await;
    let mut there = ModelCluster::<ModelSet>::new(|state, other| state.merge(other));
    let mut truth = HereTruth::default();
    for _ in 0..STEPS {
        sleep(Duration::from_millis(10)).await;
        let member = *random.pick(&MEMBERS);
        let place = format!("={member}");
        match random.below(12) {
            0 => world.restart().await,
            1 if random.chance(200) => {
                world.delete().await;
                truth.remove(|_| true);
            }
            1 => {
                assert!(world.update(DatatypeUpdate::Set(vec![SetEdit::Add(member.into())]), None).await);
                truth.added.insert(place);
            }
            2 | 3 => {
                let context = if random.chance(500) { world.context().await } else { None };
                if world.update(DatatypeUpdate::Set(vec![SetEdit::Remove(member.into())]), context).await {
                    truth.remove(|other| other == place);
                }
            }
            4..7 => {
                let state = there.any_state(&mut random);
                if world.import_with(Some(state.to_riak()), fate(&mut random)).await {
                    truth.imported.extend(state.leaves(""));
                }
            }
            _ => there.step(&mut random, |random, at, set| {
                let member = *random.pick(&MEMBERS);
                if random.chance(600) {
                    let count = set.clock.get(&(at as u64)).copied().unwrap_or_default() + 1;
                    set.add(member, (at as u64, count));
                } else {
                    set.members.remove(member);
                }
            }),
        }
    }
    let settled = there.settled();
    world.import_with(Some(settled.to_riak()), MergeFate::Stored).await;
    let expected: Vec<Bytes> =
        truth.places(&settled.leaves("")).into_iter().map(|place| Bytes::from(place[1..].to_owned())).collect();
    for _ in 0..2 {
        let shown = world.read().await.map(|(value, _)| value).unwrap_or(DatatypeValue::Set(Vec::new()));
        assert_eq!(shown, DatatypeValue::Set(expected.clone()), "seed {seed}");
        world.import_with(Some(there.any_state(&mut random).to_riak()), MergeFate::Stored).await;
        world.import_with(Some(settled.to_riak()), MergeFate::Stored).await;
    }
    let compared = world.gateway.kv.compare_datatype(&world.import(Some(settled.to_riak()))).await.unwrap();
    assert_ne!(compared, ImportComparison::Differs, "seed {seed}");
    assert_goes_back(&world, "set", settled.to_riak(), seed).await;
}

fn source_edit(random: &mut SplitMix64, map: &ModelMap, now: u64) -> ModelEdit {
    let member = *random.pick(&MEMBERS);
    let set = |random: &mut SplitMix64| match random.below(3) {
        0 => ModelEdit::Remove("s", member),
        _ => ModelEdit::Add("s", member),
    };
    match random.below(9) {
        0 => ModelEdit::Increment("n", random.number_below(9).cast_signed() - 4),
        1 => ModelEdit::Enable("f"),
        2 => ModelEdit::Disable("f"),
        3 => ModelEdit::Assign("r", now, format!("s{now}")),
        4 | 5 => set(random),
        6 => ModelEdit::Within("m", Box::new(set(random))),
        _ => {
            let kinds = [ModelKind::Counter, ModelKind::Flag, ModelKind::Register, ModelKind::Set, ModelKind::Map];
            let at = random.below(kinds.len());
            ModelEdit::Drop((["n", "f", "r", "s", "m"][at], kinds[at]), map.clock.clone())
        }
    }
}

/// An update here, and what it does to the truth.
async fn update_here(world: &DatatypeWorld, random: &mut SplitMix64, truth: &mut HereTruth, here: &mut i128) {
    let member = *random.pick(&MEMBERS);
    let name = |text: &'static str| Bytes::from_static(text.as_bytes());
    let edit = |text, update| MapEdits { removes: Vec::new(), updates: vec![FieldEdit { name: name(text), update }] };
    let context = if random.chance(500) { world.context().await } else { None };
    let now = world.clock.now().0;
    let set = |edits| EmbeddedUpdate::Set(vec![edits]);
    match random.below(8) {
        0 => {
            let by = random.number_below(9).cast_signed() - 4;
            assert!(world.update(DatatypeUpdate::Map(edit("n", EmbeddedUpdate::Counter(by))), None).await);
            *here += i128::from(by);
            truth.added.insert("/n".into());
        }
        1 => {
            assert!(world.update(DatatypeUpdate::Map(edit("f", EmbeddedUpdate::Flag(true))), None).await);
            truth.added.extend(["/f".into(), "/f=".into()]);
        }
        2 => {
            assert!(world.update(DatatypeUpdate::Map(edit("f", EmbeddedUpdate::Flag(false))), context).await);
            truth.remove(|place| place == "/f=");
            truth.added.insert("/f".into());
        }
        3 => {
            let text = format!("h{now}");
            let assigned = EmbeddedUpdate::Register(text.clone().into());
            assert!(world.update(DatatypeUpdate::Map(edit("r", assigned)), None).await);
            truth.remove(|place| place == "/r=");
            truth.added.extend(["/r".into(), "/r=".into()]);
            truth.assigned = Some((now, text));
        }
        4 => {
            assert!(world.update(DatatypeUpdate::Map(edit("s", set(SetEdit::Add(member.into())))), None).await);
            truth.added.extend(["/s".into(), format!("/s={member}")]);
        }
        5 => {
            if world.update(DatatypeUpdate::Map(edit("s", set(SetEdit::Remove(member.into())))), context).await {
                truth.remove(|place| place == format!("/s={member}"));
                truth.added.insert("/s".into());
            }
        }
        6 => {
            let inner = edit("s", set(SetEdit::Add(member.into())));
            assert!(world.update(DatatypeUpdate::Map(edit("m", EmbeddedUpdate::Map(inner))), None).await);
            truth.added.extend(["/m".into(), "/m/s".into(), format!("/m/s={member}")]);
        }
        _ => {
            let fields = [EmbeddedType::Flag, EmbeddedType::Register, EmbeddedType::Set, EmbeddedType::Map];
            let at = random.below(fields.len());
            let (text, removes) =
                (["f", "r", "s", "m"][at], vec![FieldName::new(["f", "r", "s", "m"][at], fields[at])]);
            if world.update(DatatypeUpdate::Map(MapEdits { removes, updates: Vec::new() }), context).await {
                let place = format!("/{text}");
                truth.remove(|other| {
                    other.strip_prefix(&place).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
                });
                if text == "r" {
                    truth.assigned = None;
                }
            }
        }
    }
}

/// The places of what a map shows, its counter and its register.
fn shown_places(fields: &[FieldValue], place: &str, shown: &mut BTreeSet<String>) -> (i128, Option<String>) {
    let (mut counter, mut register) = (0, None);
    for FieldValue { field, value } in fields {
        let place = format!("{place}/{}", field.name.escape_ascii());
        shown.insert(place.clone());
        match value {
            EmbeddedValue::Counter(value) => counter = *value,
            EmbeddedValue::Flag(true) => drop(shown.insert(format!("{place}="))),
            EmbeddedValue::Flag(false) | EmbeddedValue::Register(None) => {}
            EmbeddedValue::Register(Some(text)) => {
                shown.insert(format!("{place}="));
                register = Some(text.escape_ascii().to_string());
            }
            EmbeddedValue::Set(elements) => {
                shown.extend(elements.iter().map(|element| format!("{place}={}", element.escape_ascii())));
            }
            EmbeddedValue::Map(fields) => drop(shown_places(fields, &place, shown)),
        }
    }
    (counter, register)
}

async fn run_map(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut world = DatatypeWorld::new("map").await;
    let mut there = ModelCluster::<ModelMap>::new(|state, other| state.merge(other));
    let (mut truth, mut here) = (HereTruth::default(), 0);
    for _ in 0..STEPS * 2 {
        sleep(Duration::from_millis(10)).await;
        let now = world.clock.now().0;
        match random.below(12) {
            0 => {
                world.restart().await;
                // Its clock begins at a stored mark, ten seconds ahead.
                sleep(Duration::from_secs(11)).await;
            }
            1..4 => update_here(&world, &mut random, &mut truth, &mut here).await,
            4..7 => {
                let state = there.any_state(&mut random);
                if world.import_with(Some(state.to_riak()), fate(&mut random)).await {
                    truth.imported.extend(state.leaves("").into_keys());
                }
            }
            _ => there.step(&mut random, |random, at, map| {
                let edit = source_edit(random, map, now);
                map.update(at as u64, &edit);
            }),
        }
    }
    let settled = there.settled();
    world.import_with(Some(settled.to_riak()), MergeFate::Stored).await;
    let leaves: BTreeMap<_, _> = settled.leaves("");
    let mut expected = truth.places(&leaves.keys().cloned().collect());
    let assigned = leaves.iter().filter(|(leaf, _)| leaf.0 == "/r=" && !truth.removed.contains(leaf));
    let latest = assigned.map(|(_, text)| text.clone()).chain(truth.assigned.clone()).max();
    // What is in a field shows it.
    let parents: Vec<String> = expected
        .iter()
        .flat_map(|place| {
            let ends = place.match_indices(['/', '=']).map(|(at, _)| place[..at].to_owned());
            ends.filter(|parent| !parent.is_empty()).collect::<Vec<_>>()
        })
        .collect();
    expected.extend(parents);
    let value = world.read().await.map(|(value, _)| value).unwrap_or(DatatypeValue::Map(Vec::new()));
    let DatatypeValue::Map(fields) = value else { panic!("it is a map") };
    let mut shown = BTreeSet::new();
    let (counter, register) = shown_places(&fields, "", &mut shown);
    assert_eq!(shown, expected, "seed {seed}: {fields:?}");
    assert_eq!(counter, settled.counter("n") + here, "seed {seed}: {fields:?}");
    assert_eq!(register, latest.map(|(_, text)| text), "seed {seed}: {fields:?}");
    let compared = world.gateway.kv.compare_datatype(&world.import(Some(settled.to_riak()))).await.unwrap();
    assert_ne!(compared, ImportComparison::Differs, "seed {seed}");
    assert_goes_back(&world, "map", settled.to_riak(), seed).await;
}

/// The state that a read of the key as an object shows.
async fn served_state(world: &DatatypeWorld) -> Option<RiakDatatype> {
    let (address, quorums) = (world.address.clone(), Quorums::default());
    let object = world.gateway.kv.get(KvGet { address, quorums, bodies: true, timeout: None }).await.unwrap();
    let mut body = object.bodies.into_iter().next()?;
    let bytes = body.piece(0, 1 << 20).await.unwrap();
    Some(RiakDatatype::decode(bytes).unwrap())
}

/// A Larder is the source: each state that it serves is the whole truth.
async fn run_larder(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let datatype = *random.pick(&["counter", "set", "map"]);
    let (there, world) = (DatatypeWorld::new(datatype).await, DatatypeWorld::new(datatype).await);
    let (mut truth, mut here) = (HereTruth::default(), 0);
    for _ in 0..STEPS {
        sleep(Duration::from_millis(10)).await;
        match random.below(10) {
            0 => there.delete().await,
            1..4 => {
                let is_deleted = there.read().await.is_none();
                let state = if is_deleted { None } else { served_state(&there).await };
                let import = DatatypeImport { is_whole: true, ..world.import(state) };
                world.gateway.kv.import_datatype(import).await.unwrap();
            }
            _ => match datatype {
                "map" => update_here(&there, &mut random, &mut truth, &mut here).await,
                "set" => {
                    let member = Bytes::from(*random.pick(&MEMBERS));
                    let edit = if random.chance(600) { SetEdit::Add(member) } else { SetEdit::Remove(member) };
                    let context = if random.chance(500) { there.context().await } else { None };
                    there.update(DatatypeUpdate::Set(vec![edit]), context).await;
                }
                _ => {
                    let by = random.number_below(9).cast_signed() - 4;
                    assert!(there.update(DatatypeUpdate::Counter(by), None).await);
                }
            },
        }
    }
    let state = if there.read().await.is_some() { served_state(&there).await } else { None };
    let import = DatatypeImport { is_whole: true, ..world.import(state) };
    world.gateway.kv.import_datatype(import.clone()).await.unwrap();
    let values = |read: Option<(DatatypeValue, Option<Bytes>)>| read.map(|(value, _)| value);
    let (expected, shown) = (values(there.read().await), values(world.read().await));
    assert_eq!(shown, expected, "seed {seed}");
    let compared = world.gateway.kv.compare_datatype(&import).await.unwrap();
    assert_eq!(compared, ImportComparison::Equal, "seed {seed}");
}

fn run_schedules<F: Future<Output = ()>>(run: impl Fn(u64) -> F) {
    for seed in 0..Scale::current().pick(200, 20_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed));
    }
}

#[test]
fn counters_of_both_sides_end_at_the_exact_sum() {
    run_schedules(run_counter);
}

#[test]
fn sets_end_with_what_was_added_and_not_removed_on_either_side() {
    run_schedules(run_set);
}

#[test]
fn values_of_a_larder_end_as_they_are_there() {
    run_schedules(run_larder);
}

#[test]
fn maps_end_with_what_was_written_and_not_removed_on_either_side() {
    run_schedules(run_map);
}

#[test]
fn hyperloglogs_count_the_elements_of_both_sides_once() {
    run_schedules(run_hyperloglog);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_client_deleted_stays_deleted_until_the_source_writes_it() {
    let mut world = DatatypeWorld::new("set").await;
    let mut there = ModelSet::default();
    there.add("a", (1, 1));
    world.import_with(Some(there.to_riak()), MergeFate::Stored).await;
    let compare = async |world: &DatatypeWorld, state: &ModelSet| {
        world.gateway.kv.compare_datatype(&world.import(Some(state.to_riak()))).await.unwrap()
    };
    assert_eq!(compare(&world, &there).await, ImportComparison::Equal);
    world.delete().await;
    world.restart().await;
    world.import_with(Some(there.to_riak()), MergeFate::Stored).await;
    assert!(world.read().await.is_none(), "the same state once more");
    assert_eq!(compare(&world, &there).await, ImportComparison::ChangedHere);
    there.add("b", (1, 2));
    assert_eq!(compare(&world, &there).await, ImportComparison::Differs);
    world.import_with(Some(there.to_riak()), MergeFate::Stored).await;
    let shown = world.read().await.map(|(value, _)| value);
    assert_eq!(shown, Some(DatatypeValue::Set(vec!["b".into()])));
    // The source deletes it: what it brought goes, and what a client added stays.
    assert!(world.update(DatatypeUpdate::Set(vec![SetEdit::Add("mine".into())]), None).await);
    world.import_with(None, MergeFate::Stored).await;
    let shown = world.read().await.map(|(value, _)| value);
    assert_eq!(shown, Some(DatatypeValue::Set(vec!["mine".into()])));
}

#[tokio::test(start_paused = true)]
async fn a_set_that_only_grows_is_the_union_and_an_empty_value_is_there() {
    let world = DatatypeWorld::new("gset").await;
    let grown =
        |members: &[&'static str]| RiakDatatype::GrowOnlySet(members.iter().map(|name| (*name).into()).collect());
    let shown = async |world: &DatatypeWorld| world.read().await.map(|(value, _)| value);
    world.import_with(Some(grown(&[])), MergeFate::Stored).await;
    assert_eq!(shown(&world).await, Some(DatatypeValue::Gset(Vec::new())));
    assert!(world.update(DatatypeUpdate::Gset(vec!["mine".into()]), None).await);
    for members in [&["a", "b"][..], &["a", "c"], &["a"], &["a", "b", "c"]] {
        world.import_with(Some(grown(members)), MergeFate::Stored).await;
    }
    let all = ["a", "b", "c", "mine"].map(Bytes::from).to_vec();
    assert_eq!(shown(&world).await, Some(DatatypeValue::Gset(all)));
    let compared = world.gateway.kv.compare_datatype(&world.import(Some(grown(&["a", "b", "c"])))).await.unwrap();
    assert_eq!(compared, ImportComparison::ChangedHere);
}

#[test]
fn siblings_of_a_set_that_only_grows_once_lost_what_one_of_them_lacked() {
    let state = |members: &[&'static str]| {
        let members = members.iter().map(|name| (*name).into()).collect();
        RiakDatatype::GrowOnlySet(members).into_state().unwrap()
    };
    let mut merged = state(&["a", "b"]);
    merged.merge(state(&["a", "c"]));
    assert!(merged.shows_as(&state(&["a", "b", "c"])), "{merged:?}");
    let counted = |elements: &[usize]| hyperloglog(&elements.iter().copied().collect()).into_state().unwrap();
    let mut merged = counted(&[1, 2, 4]);
    merged.merge(counted(&[1, 3]));
    assert_eq!(merged, counted(&[1, 2, 3, 4]));
}

#[tokio::test(start_paused = true)]
async fn the_context_of_another_server_once_removed_what_its_client_never_saw() {
    let (mut here, there) = (DatatypeWorld::new("set").await, DatatypeWorld::first_run_by("set", ActorId(9)).await);
    let edit = |edit| DatatypeUpdate::Set(vec![edit]);
    assert!(here.update(edit(SetEdit::Add("here".into())), None).await);
    sleep(Duration::from_secs(1)).await;
    assert!(there.update(edit(SetEdit::Add("there".into())), None).await);
    let foreign = there.context().await;
    here.update(edit(SetEdit::Remove("here".into())), foreign.clone()).await;
    let delete = |context| KvDelete {
        address: here.address.clone(),
        context,
        conditions: Conditions::default(),
        quorums: Quorums::default(),
        timeout: None,
    };
    let _ = here.gateway.kv.delete(delete(foreign)).await;
    let shown = Some(DatatypeValue::Set(vec!["here".into()]));
    assert_eq!(here.read().await.map(|(value, _)| value), shown);
    // The next run goes on as the same actor, so a context of before still covers what it showed.
    let own = here.context().await;
    here.restart().await;
    assert!(here.update(edit(SetEdit::Remove("here".into())), own).await);
    assert_eq!(here.read().await.map(|(value, _)| value), Some(DatatypeValue::Set(Vec::new())));
}

#[tokio::test(start_paused = true)]
async fn registers_of_two_states_once_outlived_their_deletion_at_the_source() {
    let world = DatatypeWorld::new("hll").await;
    for elements in [[1, 2], [3, 4]] {
        world.import_with(Some(hyperloglog(&elements.into())), MergeFate::Stored).await;
    }
    assert_eq!(world.read().await.map(|(value, _)| value), Some(DatatypeValue::Hll(4)));
    world.import_with(None, MergeFate::Stored).await;
    assert!(world.update(hashed([9]), None).await);
    assert_eq!(world.read().await.map(|(value, _)| value), Some(DatatypeValue::Hll(1)));
}

#[tokio::test(start_paused = true)]
async fn a_hyperloglog_of_another_precision_and_of_impossible_registers() {
    let world = DatatypeWorld::new("hll").await;
    assert!(world.update(hashed(0..5), None).await);
    let places = (3..8).map(|element: usize| HllPlace::for_element(element.to_string().as_bytes(), 14));
    let registers =
        places.map(|place| (u32::from(place.chunk) * 256 + u32::from(place.register), place.rank)).collect();
    world.import_with(Some(RiakDatatype::HyperLogLog { precision: 14, registers }), MergeFate::Stored).await;
    let expected = DatatypeWorld::new("hll").await;
    assert!(expected.update(hashed(0..8), None).await);
    let shown = async |world: &DatatypeWorld| world.read().await.map(|(value, _)| value);
    assert_eq!(shown(&world).await, shown(&expected).await);
    for (precision, index, rank) in [(14, 1 << 14, 1), (14, 0, 64), (3, 0, 1), (17, 0, 1), (255, 0, 1)] {
        let state = RiakDatatype::HyperLogLog { precision, registers: vec![(index, rank)] };
        assert!(state.into_state().is_err(), "{precision} {index} {rank}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_rows_cannot_hold_is_refused_by_name() {
    let world = DatatypeWorld::new("set").await;
    let mut future = ModelSet::default();
    future.add("a", (1, u64::MAX));
    let refused = world.gateway.kv.import_datatype(world.import(Some(future.to_riak()))).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the data type at the source has a clock of the future that this server does not take"
    );
    let counter = ModelCounter::default().to_riak();
    let refused = world.gateway.kv.import_datatype(world.import(Some(counter))).await.unwrap_err();
    assert_eq!(refused.to_string(), "the values of this bucket are no such data type");
    assert!(world.read().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_is_made_anew_counts_from_zero() {
    let world = DatatypeWorld::new("counter").await;
    let totals = |up| ModelCounter([(1, (up, 0))].into()).to_riak();
    world.import_with(Some(totals(10)), MergeFate::Stored).await;
    assert!(world.update(DatatypeUpdate::Counter(5), None).await);
    world.import_with(None, MergeFate::Stored).await;
    // A Riak before 2.1 gives its writer the name that it had.
    world.import_with(Some(totals(3)), MergeFate::Stored).await;
    assert_eq!(world.read().await.map(|(value, _)| value), Some(DatatypeValue::Counter(8)));
    // One that was not seen deleted: its writer is another one, and knows nothing of those before.
    let anew = DatatypeImport { is_doubted: true, ..world.import(Some(ModelCounter([(9, (2, 0))].into()).to_riak())) };
    world.gateway.kv.import_datatype(anew).await.unwrap();
    assert_eq!(world.read().await.map(|(value, _)| value), Some(DatatypeValue::Counter(7)));
}

#[tokio::test(start_paused = true)]
async fn an_element_removed_after_an_import_that_broke_off_does_not_come_back() {
    for fate in [MergeFate::Lost, MergeFate::Unanswered] {
        let world = DatatypeWorld::new("set").await;
        let mut there = ModelSet::default();
        there.add("a", (1, 1));
        world.import_with(Some(there.to_riak()), fate).await;
        let is_removed = world.update(DatatypeUpdate::Set(vec![SetEdit::Remove("a".into())]), None).await;
        world.import_with(Some(there.to_riak()), MergeFate::Stored).await;
        let expected = if is_removed { Vec::new() } else { vec!["a".into()] };
        assert_eq!(world.read().await.map(|(value, _)| value), Some(DatatypeValue::Set(expected)), "{fate:?}");
        assert_eq!(is_removed, fate == MergeFate::Unanswered);
    }
}
