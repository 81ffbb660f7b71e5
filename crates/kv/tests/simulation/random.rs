//! Schedules drawn from seeds: clients that put, read, resolve and delete through several faulty gateways.
//!
//! Promises under any faults: an acknowledged write is readable at the end unless a client that saw it wrote again; a value
//! that an acknowledged write replaced does not return; no value appears that was never sent; all gateways show the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_testkit::faulty::StoreFaults;
use larder_testkit::{SplitMix64, case_seeds};

use crate::simulation::world::{ShownObject, SimWorld, run};

const KEYS: [&str; 2] = ["x", "y"];
const STEPS: usize = 40;
const CLIENTS: usize = 3;
const SCHEDULES: u64 = 160;

/// Writes to one key and their fates.
#[derive(Default)]
struct KeyRecord {
    sent: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    /// Values seen by a client that then sent a write.
    may_be_gone: BTreeSet<String>,
    /// Values seen by a client whose write was acknowledged.
    must_be_gone: BTreeSet<String>,
}

/// The schedules of a soak, of each random walk.
pub(crate) const SOAK_SCHEDULES: u64 = 100_000;

#[test]
fn random_schedules_lose_nothing_and_bring_nothing_back() {
    walk(SimWorld::new);
}

#[test]
fn random_schedules_with_reused_slots_lose_nothing_and_bring_nothing_back() {
    walk(SimWorld::keeping_tombstones);
}

fn walk(world: impl AsyncFn(u64, usize) -> SimWorld) {
    case_seeds(SCHEDULES, SOAK_SCHEDULES).for_each(|seed| walk_one(seed, &world));
}

fn walk_one(seed: u64, world: &impl AsyncFn(u64, usize) -> SimWorld) {
    let mut dice = SplitMix64::new(seed);
    let count = 2 + dice.below(2);
    if let Err(wrong) = run(async { schedule(world(seed, count).await, dice).await }) {
        panic!("seed {seed}: {wrong}");
    }
}

async fn schedule(mut world: SimWorld, mut dice: SplitMix64) -> Result<(), String> {
    world.add_type("sib", "{}").await;
    world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
    world.add_type("once", r#"{"write_once":true}"#).await;
    let kind = ["sib", "sib", "default", "default", "lww", "once"][dice.below(6)];
    for node in &world.nodes {
        node.clock.set_skew(dice.below(480_000) as i64 - 240_000);
    }
    world.set_faults(StoreFaults {
        pause_ms_max: 1 + dice.below(50) as u64,
        pause_per_mille: 500,
        fail_per_mille: dice.below(60) as u32,
        lose_per_mille: dice.below(60) as u32,
        // Where only the newest value is shown, a late write may hide one acknowledged before it arrived.
        late_per_mille: if kind == "sib" { [0, 0, 30][dice.below(3)] } else { 0 },
        stale_per_mille: 500,
    });
    let mut records = BTreeMap::from(KEYS.map(|key| (key, KeyRecord::default())));
    let mut seen: Vec<BTreeMap<&str, ShownObject>> = vec![BTreeMap::new(); CLIENTS];
    for at in 0..STEPS {
        if dice.below(25) == 0 {
            let victim = dice.below(world.nodes.len());
            let skew = dice.below(480_000) as i64 - 240_000;
            let faults = world.nodes[victim].faulty.faults();
            world.restart(victim, skew).await;
            world.nodes[victim].faulty.set_faults(faults);
        }
        if dice.below(20) == 0 {
            let _ = world.nodes[0].gateway.kv.sweep_blobs().await;
        }
        step(&world, &mut dice, &mut records, &mut seen, kind, at).await;
    }
    world.set_faults(StoreFaults::none());
    world.advance(400_000).await;
    world.nodes[0].gateway.kv.sweep_blobs().await.map_err(|error| error.to_string())?;
    check_listing(&world, kind).await?;
    for (key, record) in &records {
        check(&world, kind, key, record).await.map_err(|wrong| format!("{kind}/{key}: {wrong}"))?;
    }
    Ok(())
}

/// One operation of one client, or two at once.
async fn step<'a>(
    world: &SimWorld,
    dice: &mut SplitMix64,
    records: &mut BTreeMap<&'a str, KeyRecord>,
    seen: &mut [BTreeMap<&'a str, ShownObject>],
    kind: &'static str,
    at: usize,
) {
    let key = KEYS[dice.below(KEYS.len())];
    let (client, node) = (dice.below(CLIENTS), dice.below(world.nodes.len()));
    let known = seen[client].get(key).cloned().unwrap_or_default();
    let record = records.get_mut(key).expect("every key has a record");
    match dice.below(10) {
        0..=2 => {
            if let Ok(shown) = world.read(node, kind, key).await {
                seen[client].insert(key, shown);
            }
        }
        3 => remove(world, node, kind, key, &known, record).await,
        4..=5 => {
            let other = dice.below(world.nodes.len());
            let (a, b) = (format!("v{at}a"), format!("v{at}b"));
            record.note_sent(&a, kind, &known);
            record.note_sent(&b, kind, &ShownObject::default());
            if kind != "sib" {
                // Of two concurrent puts one is shown.
                record.may_be_gone.extend([a.clone(), b.clone()]);
            }
            let (first, second) = tokio::join!(
                world.put(node, kind, key, &a, known.context.as_ref()),
                world.put(other, kind, key, &b, None)
            );
            if first.is_ok() {
                record.note_acknowledged(&a, &known);
            }
            if second.is_ok() {
                record.note_acknowledged(&b, &ShownObject::default());
            }
        }
        _ => {
            let blind = dice.below(2) == 0;
            let basis = if blind { ShownObject::default() } else { known };
            let text = format!("v{at}");
            record.note_sent(&text, kind, &basis);
            if world.put(node, kind, key, &text, basis.context.as_ref()).await.is_ok() {
                record.note_acknowledged(&text, &basis);
            }
        }
    }
}

async fn remove(
    world: &SimWorld,
    node: usize,
    kind: &'static str,
    key: &str,
    known: &ShownObject,
    record: &mut KeyRecord,
) {
    let context: Option<&Bytes> = known.context.as_ref();
    match context {
        Some(_) => record.may_be_gone.extend(known.texts.iter().cloned()),
        // Without a context it deletes what it reads, which may be any value sent so far.
        None => record.may_be_gone.extend(record.sent.iter().cloned()),
    }
    if world.delete(node, kind, key, context).await.is_ok() && context.is_some() && kind == "sib" {
        record.must_be_gone.extend(known.texts.iter().cloned());
    }
}

impl KeyRecord {
    fn note_sent(&mut self, text: &str, kind: &str, basis: &ShownObject) {
        // Without allow_mult a blind put replaces whatever it reads.
        if kind != "sib" {
            self.may_be_gone.extend(self.sent.iter().cloned());
        }
        // Where the greatest clock or the smallest digest wins, the last put need not be shown.
        if kind == "lww" || kind == "once" {
            self.may_be_gone.insert(text.into());
        }
        // A put with an old context may leave a newer value in front, as in Riak.
        if kind == "default" && basis.context.is_some() {
            self.may_be_gone.insert(text.into());
        }
        self.may_be_gone.extend(basis.texts.iter().cloned());
        self.sent.insert(text.into());
    }

    fn note_acknowledged(&mut self, text: &str, basis: &ShownObject) {
        self.acknowledged.insert(text.into());
        self.must_be_gone.extend(basis.texts.iter().cloned());
    }
}

/// Listed keys can be read, and readable keys are listed.
async fn check_listing(world: &SimWorld, kind: &'static str) -> Result<(), String> {
    let mut readable = Vec::new();
    for key in KEYS {
        let shown = world.read(0, kind, key).await.map_err(|error| error.to_string())?;
        readable.extend((!shown.texts.is_empty()).then(|| Bytes::from_static(key.as_bytes())));
    }
    let (keys, buckets) = world.list(0, kind).await.map_err(|error| error.to_string())?;
    if keys != readable || buckets.is_empty() != readable.is_empty() {
        return Err(format!("{kind}: {keys:?} in {buckets:?} are listed, {readable:?} can be read"));
    }
    Ok(())
}

async fn check(world: &SimWorld, kind: &'static str, key: &str, record: &KeyRecord) -> Result<(), String> {
    let mut views = Vec::new();
    for at in 0..world.nodes.len() {
        views.push(world.read(at, kind, key).await.map_err(|error| error.to_string())?.texts);
    }
    if views.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(format!("gateways differ: {views:?}"));
    }
    let shown: BTreeSet<_> = views[0].iter().cloned().collect();
    if let Some(stranger) = shown.difference(&record.sent).next() {
        return Err(format!("{stranger} was never sent"));
    }
    let ghost = shown.intersection(&record.must_be_gone).next();
    if let Some(ghost) = ghost.filter(|_| kind == "sib" || kind == "default") {
        return Err(format!("{ghost} was replaced and is back"));
    }
    let lost = record.acknowledged.iter().find(|text| !shown.contains(*text) && !record.may_be_gone.contains(*text));
    if let Some(lost) = lost {
        return Err(format!("{lost} was acknowledged and is gone"));
    }
    if kind != "sib" && shown.len() > 1 {
        return Err(format!("siblings without allow_mult: {shown:?}"));
    }
    Ok(())
}
