//! Schedules drawn from seeds: clients that put, read, resolve and delete through several faulty gateways.
//!
//! Promised, whatever happens: an acknowledged write is there at the end unless somebody who saw it went on to write; what an
//! acknowledged writer replaced does not come back; nothing appears that was never sent; all gateways show the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_gateway::Rules;
use larder_store::wrappers::faulty::Faults;

use crate::world::{Shown, World, run};

const KEYS: [&str; 2] = ["x", "y"];
const STEPS: usize = 40;
const CLIENTS: usize = 3;
const SCHEDULES: u64 = 500;

/// SplitMix64: all the chance there is.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// What happened to one key.
#[derive(Default)]
struct Record {
    sent: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    /// Seen by somebody who then sent a write.
    may_be_gone: BTreeSet<String>,
    /// Seen by somebody whose write was acknowledged.
    must_be_gone: BTreeSet<String>,
}

/// How many schedules are walked; `default` unless the environment says.
pub(crate) fn schedules(default: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "how long the soak runs is said from outside")]
    std::env::var("LARDER_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

/// The first seed of a walk.
pub(crate) fn first() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "which schedule is looked at is said from outside")]
    std::env::var("LARDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

#[test]
fn random_schedules_lose_nothing_and_bring_nothing_back() {
    walk(async |seed, count| World::new(seed, Rules::default(), count).await);
}

#[test]
fn random_schedules_with_slots_taken_again_lose_nothing_and_bring_nothing_back() {
    walk(async |seed, count| World::keeping_tombstones(seed, Rules::default(), count).await);
}

#[test]
fn a_put_in_the_microsecond_of_a_write_once_delete_once_lost_its_listing_entry() {
    walk_one(51_345, &async |seed, count| World::new(seed, Rules::default(), count).await);
}

fn walk(world: impl AsyncFn(u64, usize) -> World) {
    (first()..first() + schedules(SCHEDULES)).for_each(|seed| walk_one(seed, &world));
}

fn walk_one(seed: u64, world: &impl AsyncFn(u64, usize) -> World) {
    let mut dice = Dice(seed);
    let count = 2 + dice.below(2);
    if let Err(wrong) = run(async { schedule(world(seed, count).await, dice).await }) {
        panic!("seed {seed}: {wrong}");
    }
}

async fn schedule(mut world: World, mut dice: Dice) -> Result<(), String> {
    world.add_type("sib", "{}").await;
    world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
    world.add_type("once", r#"{"write_once":true}"#).await;
    let kind = ["sib", "sib", "default", "default", "lww", "once"][dice.below(6)];
    for node in &world.nodes {
        node.clock.set_skew(dice.below(480_000) as i64 - 240_000);
    }
    world.set_faults(Faults {
        pause_ms_max: 1 + dice.below(50) as u64,
        pause_per_mille: 500,
        fail_per_mille: dice.below(60) as u32,
        lose_per_mille: dice.below(60) as u32,
        // Where only the newest is shown, one that comes late may hide what was acknowledged meanwhile.
        late_per_mille: if kind == "sib" { [0, 0, 30][dice.below(3)] } else { 0 },
        stale_per_mille: 500,
    });
    let mut records = BTreeMap::from(KEYS.map(|key| (key, Record::default())));
    let mut seen: Vec<BTreeMap<&str, Shown>> = vec![BTreeMap::new(); CLIENTS];
    for at in 0..STEPS {
        if dice.below(25) == 0 {
            let victim = dice.below(world.nodes.len());
            let skew = dice.below(480_000) as i64 - 240_000;
            let faults = world.nodes[victim].faulty.faults();
            world.restart(victim, skew).await;
            world.nodes[victim].faulty.set_faults(faults);
        }
        if dice.below(20) == 0 {
            let _ = world.nodes[0].gateway.sweep_blobs().await;
        }
        step(&world, &mut dice, &mut records, &mut seen, kind, at).await;
    }
    world.set_faults(Faults::none());
    world.pass(400_000).await;
    world.nodes[0].gateway.sweep_blobs().await.map_err(|error| error.to_string())?;
    check_listing(&world, kind).await?;
    for (key, record) in &records {
        check(&world, kind, key, record).await.map_err(|wrong| format!("{kind}/{key}: {wrong}"))?;
    }
    Ok(())
}

/// One client does one thing, sometimes two clients at once.
async fn step<'a>(
    world: &World,
    dice: &mut Dice,
    records: &mut BTreeMap<&'a str, Record>,
    seen: &mut [BTreeMap<&'a str, Shown>],
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
            record.sends(&a, kind, &known);
            record.sends(&b, kind, &Shown::default());
            if kind != "sib" {
                // Of two at once one is shown.
                record.may_be_gone.extend([a.clone(), b.clone()]);
            }
            let (first, second) = tokio::join!(
                world.put(node, kind, key, &a, known.context.as_ref()),
                world.put(other, kind, key, &b, None)
            );
            if first.is_ok() {
                record.acknowledges(&a, &known);
            }
            if second.is_ok() {
                record.acknowledges(&b, &Shown::default());
            }
        }
        _ => {
            let blind = dice.below(2) == 0;
            let basis = if blind { Shown::default() } else { known };
            let text = format!("v{at}");
            record.sends(&text, kind, &basis);
            if world.put(node, kind, key, &text, basis.context.as_ref()).await.is_ok() {
                record.acknowledges(&text, &basis);
            }
        }
    }
}

async fn remove(world: &World, node: usize, kind: &'static str, key: &str, known: &Shown, record: &mut Record) {
    let context: Option<&Bytes> = known.context.as_ref();
    match context {
        Some(_) => record.may_be_gone.extend(known.texts.iter().cloned()),
        // Without a context it deletes what it reads, which may be anything sent so far.
        None => record.may_be_gone.extend(record.sent.iter().cloned()),
    }
    if world.delete(node, kind, key, context).await.is_ok() && context.is_some() && kind == "sib" {
        record.must_be_gone.extend(known.texts.iter().cloned());
    }
}

impl Record {
    fn sends(&mut self, text: &str, kind: &str, basis: &Shown) {
        // Without allow_mult a blind put replaces whatever it reads.
        if kind != "sib" {
            self.may_be_gone.extend(self.sent.iter().cloned());
        }
        // Where the greatest clock or the smallest digest decides, the last to come need not be the one shown.
        if kind == "lww" || kind == "once" {
            self.may_be_gone.insert(text.into());
        }
        // A context that is not the current one may leave a newer value in front, as in Riak.
        if kind == "default" && basis.context.is_some() {
            self.may_be_gone.insert(text.into());
        }
        self.may_be_gone.extend(basis.texts.iter().cloned());
        self.sent.insert(text.into());
    }

    fn acknowledges(&mut self, text: &str, basis: &Shown) {
        self.acknowledged.insert(text.into());
        self.must_be_gone.extend(basis.texts.iter().cloned());
    }
}

/// What is listed can be read, and what can be read is listed.
async fn check_listing(world: &World, kind: &'static str) -> Result<(), String> {
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

async fn check(world: &World, kind: &'static str, key: &str, record: &Record) -> Result<(), String> {
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
