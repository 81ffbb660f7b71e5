//! Random schedules of clients at a Riak with replication queues and of clients here, with nodes that restart, overflow, lie,
//! refuse and are slow, and with a job that is killed: at the end every key is as at the source, by its queues alone, and at no
//! time an older value is shown over a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use larder_moving::{MovePhase, MoveStatus};
use larder_rows::MoveWish;
use larder_testkit::{SplitMix64, case_seeds};
use tokio::time::sleep;

use crate::move_world::MoveWorld;
use crate::queues::{SOURCE, world};
use crate::riak_cluster::{NODES, Place, RiakCluster, RiakFaults};

const KEYS: usize = 3;
const STEPS: usize = 45;

/// What a client has seen here.
#[derive(Default)]
struct Witness {
    /// Every value that a key showed.
    shown: BTreeMap<Place, BTreeSet<String>>,
    /// The values that were there when the key showed none.
    gone: BTreeMap<Place, BTreeSet<String>>,
    /// What clients wrote here last. Their keys may show again what they replaced here.
    mine: BTreeMap<Place, String>,
}

impl Witness {
    async fn look(&mut self, world: &MoveWorld<RiakCluster>, place: &Place, seed: u64) {
        let values = world.get(&place.0, &place.1).await.0;
        if self.mine.contains_key(place) {
            let mine = &self.mine[place];
            assert!(values.contains(mine), "seed {seed}: {place:?} lost {mine}: {values:?}");
            return;
        }
        let shown = self.shown.entry(place.clone()).or_default();
        for value in &values {
            let newer = shown.iter().find(|newer| world.source.is_replaced_by(value, newer));
            assert_eq!(newer, None, "seed {seed}: {place:?} shows {value} again");
            let was_gone = self.gone.get(place).is_some_and(|gone| gone.contains(value));
            assert!(!was_gone || !world.source.is_deleted(value), "seed {seed}: deleted {value} is back");
        }
        if values.is_empty() {
            self.gone.entry(place.clone()).or_default().extend(shown.iter().cloned());
        }
        shown.extend(values);
    }
}

fn random_place(random: &mut SplitMix64) -> Place {
    ((*random.pick(&["teas", "b /ü"])).to_owned(), format!("k{}", random.below(KEYS)))
}

/// One step of the clients of the source, or of its nodes.
fn step_at_source(source: &RiakCluster, random: &mut SplitMix64, at: usize) {
    let (place, text) = (random_place(random), format!("s{at}"));
    match random.below(40) {
        0..7 => source.delete(&place),
        7..11 => source.put(&place, &text, false),
        11 => source.put_ahead(&place, &text),
        12 => source.restart(random.below(NODES), Duration::from_millis(3000 + random.number_below(6000))),
        13 => source.set_overflow(1 + random.below(3)),
        14 => source.set_overflow(1000),
        15 => {
            let [refused, broken, damaged, slow] = [0; 4].map(|_| 50 * u32::from(random.chance(300)));
            source.set_faults(RiakFaults { refused, broken, damaged, slow });
        }
        _ => source.put(&place, &text, true),
    }
}

async fn run_schedule(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut world = world(seed).await;
    for at in 0..12 {
        step_at_source(&world.source, &mut random, at);
    }
    world.start(SOURCE).await;
    let mut witness = Witness::default();
    for at in 100..100 + STEPS {
        match random.below(30) {
            0 => world.restart(),
            1 => {
                let (place, text) = (random_place(&mut random), format!("h{at}"));
                let context = world.get(&place.0, &place.1).await.1;
                world.put(&place.0, &place.1, &text, context).await;
                witness.mine.insert(place, text);
            }
            _ => step_at_source(&world.source, &mut random, at),
        }
        // Half of the steps come before the nodes have agreed on the one before.
        let pause = if random.chance(500) { 30 } else { 400 };
        sleep(Duration::from_millis(random.number_below(pause))).await;
        witness.look(&world, &random_place(&mut random), seed).await;
    }
    world.source.set_faults(RiakFaults::default());
    world.source.set_overflow(1000);
    let status = followed(&world, &mut witness, seed).await;
    let context = || format!("seed {seed}: {:?}", status.progress.queue);
    let there = world.source.values();
    for bucket in ["teas", "b /ü"] {
        for key in (0..KEYS).map(|key| format!("k{key}")) {
            let place = (bucket.to_owned(), key);
            let mut expected = there.get(&place).cloned().unwrap_or_default();
            let here = world.get(bucket, &place.1).await.0;
            let Some(text) = witness.mine.get(&place) else {
                assert_eq!(here, expected, "{place:?} {}", context());
                continue;
            };
            assert!(here.contains(text), "{place:?} lost {text}: {here:?} {}", context());
            // What the source had when the client read it here was replaced by it.
            expected.push(text.clone());
            assert!(here.iter().all(|value| expected.contains(value)), "{place:?} {here:?} {expected:?} {}", context());
        }
    }
    if seed.is_multiple_of(4) {
        verify_and_finish(&world, seed).await;
    }
    world.job.abort();
}

/// Waits until the queues bring every change and are drained, and looks at keys meanwhile.
async fn followed(world: &MoveWorld<RiakCluster>, witness: &mut Witness, seed: u64) -> MoveStatus {
    // A restart and a full queue are noticed by then.
    for second in 0..16 {
        sleep(Duration::from_secs(1)).await;
        let place = (["teas", "b /ü"][second % 2].to_owned(), format!("k{}", second / 2 % KEYS));
        witness.look(world, &place, seed).await;
    }
    let is_followed = |status: &MoveStatus| {
        status.progress.phase == MovePhase::Follow && status.progress.queue.is_whole() && world.source.queued() == 0
    };
    world.await_status("followed", is_followed).await;
    sleep(Duration::from_secs(2)).await;
    world.mover.status().await.unwrap().unwrap()
}

async fn verify_and_finish(world: &MoveWorld<RiakCluster>, seed: u64) {
    let status = world.verify().await;
    let verified = status.progress.verified.clone().unwrap();
    let found = (verified.differs, verified.changed_there, status.progress.asides);
    assert_eq!(found, (0, 0, 0), "seed {seed}: {verified:?} {:?} {:?}", status.differences, status.asides);
    world.mover.wish(MoveWish::Finish, false).await.unwrap();
    world.await_status("finished", MoveStatus::has_ended).await;
}

#[test]
fn random_schedules_end_with_every_key_as_at_the_source_and_never_show_an_older_value_over_a_newer_one() {
    for seed in case_seeds(200, 20_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run_schedule(seed));
    }
}
