//! Imports of data types over replicas that lose messages: states in any order, through two gateways, while clients write.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_core::Result;
use larder_kv::ImportOutcome;
use larder_kv::datatypes::{DatatypeChange, DatatypeImport};
use larder_kv::rules::datatypes::{
    Datatype, DatatypePath, DatatypeUpdate, DatatypeValue, SetEdit, SourceDatatype, SourceDot,
};
use larder_testkit::SplitMix64;
use larder_testkit::replicas::{ClusterSetup, NetworkFaults};

use super::client::{change_of, fetch_of};
use crate::simulation::replicas::ring::SimRing;
use crate::simulation::world::{address, run};

const SEEDS: u64 = 40;
const STEPS: usize = 30;
const ELEMENTS: [&str; 3] = ["a", "b", "c"];
const WRITERS: [&str; 2] = ["w", "x"];

/// A set at the source: its clock, and the write that added each element last.
#[derive(Debug, Clone, Default)]
struct SourceSet {
    clock: BTreeMap<&'static str, u64>,
    elements: BTreeMap<&'static str, (&'static str, u64)>,
}

/// What is known of a write at the source: the steps of the first import that had it, and of the first that was answered.
#[derive(Debug, Clone, Copy, Default)]
struct KnownWrite {
    tried: Option<usize>,
    answered: Option<usize>,
}

impl SourceSet {
    fn step(&mut self, random: &mut SplitMix64) {
        let (element, writer) = (*random.pick(&ELEMENTS), *random.pick(&WRITERS));
        if random.chance(600) {
            let count = self.clock.entry(writer).or_default();
            *count += 1;
            self.elements.insert(element, (writer, *count));
        } else {
            self.elements.remove(element);
        }
    }

    fn state(&self) -> SourceDatatype {
        let clock = self.clock.iter().map(|(writer, count)| (Bytes::from(*writer), *count)).collect();
        let mut state = SourceDatatype::new(Datatype::Set, clock);
        for (element, (writer, count)) in &self.elements {
            let dot = SourceDot { actor: (*writer).into(), count: *count };
            state.add_element(&DatatypePath::root(), (*element).into(), dot);
        }
        state
    }
}

async fn ring(seed: u64) -> SimRing {
    let setup = ClusterSetup { read_repair: seed.is_multiple_of(2), ..ClusterSetup::default() };
    let ring = SimRing::new(seed, setup, &[0, 0]).await;
    for kind in ["set", "counter"] {
        ring.add_type(kind, &format!("{{\"datatype\":\"{kind}\"}}")).await;
    }
    ring
}

async fn import(ring: &SimRing, at: usize, kind: &'static str, state: SourceDatatype) -> Result<ImportOutcome> {
    let import = DatatypeImport {
        address: address(kind, "k"),
        state: Some(state),
        is_whole: false,
        is_doubted: false,
        is_repair: false,
        concurrent: false,
        clock: "c".into(),
    };
    ring.members[at].gateway.kv.import_datatype(import).await
}

/// An import of which messages may be lost; whether it was answered.
async fn lossy(ring: &SimRing, random: &mut SplitMix64, kind: &'static str, state: SourceDatatype) -> bool {
    let lose_per_mille = *random.pick(&[0, 100, 300]);
    let faults =
        NetworkFaults { delay_ms_max: 20, lose_per_mille, hints_lost_per_mille: 1000, ..NetworkFaults::none() };
    ring.replicas.set_network_faults(faults);
    let answer = import(ring, random.below(2), kind, state).await;
    ring.replicas.set_network_faults(NetworkFaults { delay_ms_max: 20, ..NetworkFaults::none() });
    answer.is_ok()
}

async fn update(ring: &SimRing, at: usize, kind: &'static str, update: DatatypeUpdate, context: Option<Bytes>) {
    let change = DatatypeChange { context, ..change_of(kind, "k", update) };
    ring.members[at].gateway.kv.update_datatype(change).await.unwrap();
}

async fn value(ring: &SimRing, at: usize, kind: &'static str) -> Option<(DatatypeValue, Option<Bytes>)> {
    let reader = ring.members[at].gateway.kv.fetch_datatype(fetch_of(kind, "k")).await.unwrap()?;
    Some(reader.whole(usize::MAX).await.unwrap())
}

async fn sets_of_both_sides(seed: u64) {
    let ring = ring(seed).await;
    let mut random = SplitMix64::new(seed);
    let (mut source, mut states) = (SourceSet::default(), vec![SourceSet::default()]);
    let mut writes: BTreeMap<(&str, u64), KnownWrite> = BTreeMap::new();
    let (mut added, mut removed) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, usize>::new());
    for step in 1..=STEPS {
        let (at, element) = (random.below(2), *random.pick(&ELEMENTS));
        match random.below(8) {
            0 => {
                update(&ring, at, "set", DatatypeUpdate::Set(vec![SetEdit::Add(element.into())]), None).await;
                added.insert(element, step);
            }
            1 => {
                let Some((_, context)) = value(&ring, at, "set").await else { continue };
                let remove = DatatypeUpdate::Set(vec![SetEdit::Remove(element.into())]);
                update(&ring, random.below(2), "set", remove, context).await;
                removed.insert(element, step);
            }
            2..5 => {
                let set = if random.chance(300) { random.pick(&states).clone() } else { source.clone() };
                let is_answered = lossy(&ring, &mut random, "set", set.state()).await;
                for write in set.elements.values() {
                    let known = writes.entry(*write).or_default();
                    known.tried = known.tried.or(Some(step));
                    known.answered = known.answered.or(is_answered.then_some(step));
                }
            }
            _ => {
                source.step(&mut random);
                states.push(source.clone());
            }
        }
    }
    // Batches without an answer are sent again.
    ring.advance(120_000).await;
    import(&ring, 0, "set", source.state()).await.unwrap();
    let shown = match value(&ring, 1, "set").await {
        Some((DatatypeValue::Set(elements), _)) => elements,
        other => panic!("seed {seed}: {other:?}"),
    };
    for element in ELEMENTS {
        let last = removed.get(element).copied().unwrap_or_default();
        let is_added = added.get(element).is_some_and(|step| *step > last);
        let write = source.elements.get(element).map(|write| writes.get(write).copied().unwrap_or_default());
        let is_unseen = write.is_some_and(|write| write.tried.is_none_or(|step| step > last));
        let is_seen = write.is_none_or(|write| last > 0 && write.answered.is_some_and(|step| step <= last));
        let is_shown = shown.contains(&element.into());
        assert!(is_shown || !is_added && !is_unseen, "seed {seed}: {element} is lost: {shown:?}");
        assert!(!is_shown || is_added || !is_seen, "seed {seed}: {element} is back: {shown:?}");
    }
}

async fn counters_of_both_sides(seed: u64) {
    let ring = ring(seed).await;
    let mut random = SplitMix64::new(seed);
    let (mut totals, mut here) = (BTreeMap::<&'static str, (u64, u64)>::new(), 0_i128);
    let mut states = vec![totals.clone()];
    let state = |totals: &BTreeMap<&'static str, (u64, u64)>| {
        SourceDatatype::counter(totals.iter().map(|(writer, (up, down))| ((*writer).into(), *up, *down))).unwrap()
    };
    for _ in 0..STEPS {
        match random.below(8) {
            0 | 1 => {
                let by = random.number_below(9).cast_signed() - 4;
                update(&ring, random.below(2), "counter", DatatypeUpdate::Counter(by), None).await;
                here += i128::from(by);
            }
            2..5 => {
                let chosen = if random.chance(300) { random.pick(&states).clone() } else { totals.clone() };
                lossy(&ring, &mut random, "counter", state(&chosen)).await;
            }
            _ => {
                let total = totals.entry(*random.pick(&WRITERS)).or_default();
                *total = (total.0 + random.number_below(5), total.1 + random.number_below(5));
                states.push(totals.clone());
            }
        }
    }
    ring.advance(120_000).await;
    import(&ring, 0, "counter", state(&totals)).await.unwrap();
    let there: i128 = totals.values().map(|(up, down)| i128::from(*up) - i128::from(*down)).sum();
    for at in [0, 1] {
        let shown = value(&ring, at, "counter").await.map(|(value, _)| value);
        let shown = shown.unwrap_or(DatatypeValue::Counter(0));
        assert_eq!(shown, DatatypeValue::Counter(there + here), "seed {seed}");
    }
}

#[test]
fn imported_sets_over_replicas_lose_nothing_and_bring_nothing_back() {
    for seed in 0..SEEDS {
        run(sets_of_both_sides(seed));
    }
}

#[test]
fn imported_counters_over_replicas_end_at_the_exact_sum() {
    for seed in 0..SEEDS {
        run(counters_of_both_sides(seed));
    }
}

/// An import that breaks off, and the same import through another gateway, which knows of the first what replicas tell.
async fn imports_through_two_gateways(seed: u64, faults: NetworkFaults) {
    let ring = ring(seed).await;
    let mut source = SourceSet::default();
    for (element, count) in ELEMENTS.into_iter().zip(1..) {
        source.clock.insert("w", count);
        source.elements.insert(element, ("w", count));
    }
    ring.replicas.set_network_faults(NetworkFaults { delay_ms_max: 20, hints_lost_per_mille: 1000, ..faults });
    let _ = import(&ring, 0, "set", source.state()).await;
    ring.replicas.set_network_faults(NetworkFaults { delay_ms_max: 20, ..NetworkFaults::none() });
    import(&ring, 1, "set", source.state()).await.unwrap();
    // Any two replicas answer a read.
    for _ in 0..6 {
        let Some((DatatypeValue::Set(shown), _)) = value(&ring, 1, "set").await else { panic!("seed {seed}: no set") };
        assert_eq!(shown.len(), ELEMENTS.len(), "seed {seed}: elements are lost: {shown:?}");
    }
}

#[test]
fn an_import_whose_rows_no_quorum_has_is_made_again() {
    for seed in 0..100 {
        run(imports_through_two_gateways(seed, NetworkFaults { lose_per_mille: 350, ..NetworkFaults::none() }));
    }
}

#[test]
fn an_import_whose_rows_one_replica_has_is_made_again() {
    for seed in 0..150 {
        run(imports_through_two_gateways(seed, NetworkFaults { stop_per_mille: 1000, ..NetworkFaults::none() }));
    }
}

/// A reader of one element repairs the clocks of an import that a minority took, and not its rows. Another reader sees the clock
/// alone; its context must not cover the rows.
async fn imported_clocks_apart_from_their_rows(seed: u64) {
    let ring = SimRing::new(seed, ClusterSetup { read_repair: true, ..ClusterSetup::default() }, &[0, 0]).await;
    ring.add_type("set", "{\"datatype\":\"set\"}").await;
    update(&ring, 1, "set", DatatypeUpdate::Set(vec![SetEdit::Add("first".into())]), None).await;
    let names: Vec<Bytes> = (0..30).map(|at| Bytes::from(format!("missed{at}"))).collect();
    let mut state = SourceDatatype::new(Datatype::Set, [(Bytes::from("w"), 30)].into());
    for (at, name) in names.iter().enumerate() {
        let dot = SourceDot { actor: "w".into(), count: at as u64 + 1 };
        state.add_element(&DatatypePath::root(), name.clone(), dot);
    }
    let faults =
        NetworkFaults { delay_ms_max: 20, lose_per_mille: 350, hints_lost_per_mille: 1000, ..NetworkFaults::none() };
    ring.replicas.set_network_faults(faults);
    let _ = import(&ring, 0, "set", state.clone()).await;
    ring.replicas.set_network_faults(NetworkFaults { delay_ms_max: 20, ..NetworkFaults::none() });
    for _ in 0..3 {
        let _ = ring.members[1].gateway.kv.has_element(fetch_of("set", "k"), &"first".into()).await;
    }
    let Some((DatatypeValue::Set(shown), context)) = value(&ring, 1, "set").await else { panic!("seed {seed}") };
    // The gateway sends the batch again, and the next pass imports it whole.
    ring.advance(120_000).await;
    import(&ring, 0, "set", state).await.unwrap();
    let removes = DatatypeUpdate::Set(names.iter().cloned().map(SetEdit::Remove).collect());
    update(&ring, 1, "set", removes, context).await;
    let Some((DatatypeValue::Set(left), _)) = value(&ring, 0, "set").await else { panic!("seed {seed}") };
    for name in names.iter().filter(|name| !shown.contains(name)) {
        assert!(left.contains(name), "seed {seed}: {name:?} was removed, and its remover never saw it");
    }
}

#[test]
fn a_context_covers_no_import_that_a_quorum_is_not_known_to_have() {
    for seed in 0..150 {
        run(imported_clocks_apart_from_their_rows(seed));
    }
}
