//! Schedules drawn from seeds: clients that update, read, remove and delete through several faulty gateways.
//!
//! Promises under any faults: an acknowledged add stays unless a client that saw it sent a removal; an element whose removal was
//! acknowledged to a client that saw it is gone; nothing appears that was never sent; counters hold every acknowledged increment
//! once; a key with content is listed; all gateways show the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_kv::rules::datatypes::DatatypeUpdate;
use larder_testkit::faulty::StoreFaults;
use larder_testkit::{SplitMix64, case_seeds};

use super::client::{add_types, adds, removes};
use crate::simulation::random::SOAK_SCHEDULES;
use crate::simulation::world::{SimWorld, run};

const STEPS: usize = 40;
const CLIENTS: usize = 3;
const SCHEDULES: u64 = 100;

/// A client's last read of the set.
#[derive(Default, Clone)]
struct SeenSet {
    elements: BTreeSet<String>,
    context: Option<Bytes>,
}

/// Updates and their fates.
#[derive(Default)]
struct DatatypeRecord {
    added: BTreeSet<String>,
    sent: BTreeSet<String>,
    may_be_gone: BTreeSet<String>,
    must_be_gone: BTreeSet<String>,
    counted: i128,
    uncertain: i128,
}

#[test]
fn random_schedules_of_data_types_lose_nothing_and_bring_nothing_back() {
    case_seeds(SCHEDULES, SOAK_SCHEDULES).for_each(|seed| {
        let mut dice = SplitMix64::new(seed);
        let count = 1 + dice.below(3);
        let outcome = run(async {
            let world = if count == 1 { SimWorld::alone(seed).await } else { SimWorld::new(seed, count).await };
            schedule(world, dice, count == 1).await
        });
        if let Err(wrong) = outcome {
            panic!("seed {seed}: {wrong}");
        }
    });
}

async fn schedule(mut world: SimWorld, mut dice: SplitMix64, single: bool) -> Result<(), String> {
    add_types(&world).await;
    for node in &world.nodes {
        node.clock.set_skew(dice.below(480_000) as i64 - 240_000);
    }
    world.set_faults(StoreFaults {
        pause_ms_max: 1 + dice.below(50) as u64,
        pause_per_mille: 500,
        fail_per_mille: dice.below(60) as u32,
        lose_per_mille: dice.below(60) as u32,
        late_per_mille: [0, 0, 30][dice.below(3)],
        stale_per_mille: 500,
    });
    let mut record = DatatypeRecord::default();
    let mut seen = vec![SeenSet::default(); CLIENTS];
    for at in 0..STEPS {
        if dice.below(20) == 0 {
            let victim = dice.below(world.nodes.len());
            let faults = world.nodes[victim].faulty.faults();
            // A single gateway starts after all writes of the last one: its engine is in its process.
            world.advance(if single { 40_000 } else { 0 }).await;
            world.restart(victim, dice.below(480_000) as i64 - 240_000).await;
            world.nodes[victim].faulty.set_faults(faults);
        }
        step(&world, &mut dice, &mut record, &mut seen, at).await;
    }
    world.set_faults(StoreFaults::none());
    world.advance(400_000).await;
    check(&world, &record).await
}

async fn step(world: &SimWorld, dice: &mut SplitMix64, record: &mut DatatypeRecord, seen: &mut [SeenSet], at: usize) {
    let node = dice.below(world.nodes.len());
    let client = dice.below(CLIENTS);
    match dice.below(10) {
        0..=2 => {
            let (one, two) = (format!("e{at}a"), format!("e{at}b"));
            record.sent.extend([one.clone(), two.clone()]);
            if world.update(node, "set", "k", adds(&[&one, &two]), None).await.is_ok() {
                record.added.extend([one, two]);
            }
        }
        3 | 4 => {
            if let Ok((elements, context)) = world.elements(node, "k").await {
                seen[client] = SeenSet { elements: elements.into_iter().collect(), context };
            }
        }
        5 => remove(world, node, record, &seen[client], dice).await,
        6 if dice.below(3) == 0 => {
            // A delete takes what it finds: everything sent until now may be gone.
            record.may_be_gone.extend(record.sent.iter().cloned());
            let _ = world.delete(node, "set", "k", None).await;
        }
        _ => {
            // Two at once, which share a batch or not.
            let increment = |by| world.update(node, "counter", "k", DatatypeUpdate::Counter(by), None);
            let (small, large) = tokio::join!(increment(1), increment(100));
            for (by, result) in [(1, small), (100, large)] {
                match result {
                    Ok(()) => record.counted += by,
                    Err(_) => record.uncertain += by,
                }
            }
        }
    }
}

async fn remove(world: &SimWorld, node: usize, record: &mut DatatypeRecord, seen: &SeenSet, dice: &mut SplitMix64) {
    let Some(context) = &seen.context else { return };
    // Also elements that the client did not see: those must stay.
    let mut named: Vec<&str> = seen.elements.iter().filter(|_| dice.below(2) == 0).map(String::as_str).collect();
    let unseen: Vec<_> = record.sent.difference(&seen.elements).map(String::as_str).collect();
    named.extend(unseen.iter().filter(|_| dice.below(2) == 0));
    let gone: BTreeSet<String> =
        named.iter().filter(|name| seen.elements.contains(**name)).map(|name| (*name).to_owned()).collect();
    let result = world.update(node, "set", "k", removes(&named), Some(context)).await;
    if result.is_ok() {
        record.must_be_gone.extend(gone.iter().cloned());
    }
    record.may_be_gone.extend(gone);
}

async fn check(world: &SimWorld, record: &DatatypeRecord) -> Result<(), String> {
    let text = |error: larder_core::Error| error.to_string();
    let mut shown = BTreeMap::new();
    for at in 0..world.nodes.len() {
        let elements: BTreeSet<String> = world.elements(at, "k").await.map_err(text)?.0.into_iter().collect();
        let total = world.total(at, "counter", "k").await.map_err(text)?.unwrap_or(0);
        shown.insert((elements, total), at);
    }
    if shown.len() > 1 {
        return Err(format!("the gateways differ: {shown:?}"));
    }
    let Some(((elements, total), _)) = shown.pop_first() else { return Ok(()) };
    let lost: Vec<_> = record.added.difference(&record.may_be_gone).filter(|one| !elements.contains(*one)).collect();
    let back: Vec<_> = record.must_be_gone.intersection(&elements).collect();
    let strange: Vec<_> = elements.difference(&record.sent).collect();
    if !(lost.is_empty() && back.is_empty() && strange.is_empty()) {
        return Err(format!("lost {lost:?}, back {back:?}, never sent {strange:?}"));
    }
    if !(record.counted..=record.counted + record.uncertain).contains(&total) {
        return Err(format!("counted {total}, but acknowledged {} and perhaps {}", record.counted, record.uncertain));
    }
    let listed = world.list(0, "set").await.map_err(text)?.0;
    if !elements.is_empty() && listed != ["k"] {
        return Err("a set with elements is not listed".into());
    }
    Ok(())
}
