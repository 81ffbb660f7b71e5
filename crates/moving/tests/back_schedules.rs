//! The way back: random schedules of clients here, and of some at the Riak that fetches what changes here, with elements that are
//! lost, a Riak that is away, nodes that restart, and a job that is killed. At the end the Riak has every key as it is here, and
//! nothing that its clients wrote is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use larder_kv::HeldKey;
use larder_moving::{MovePhase, MoveRefusal, MoveStatus};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::{ActorId, MoveWish, Timestamp};
use larder_testkit::{SplitMix64, case_seeds};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::move_world::MoveWorld;
use crate::queues::{SOURCE, world};
use crate::riak_cluster::sink::fetch;
use crate::riak_cluster::{NODES, Place, RiakCluster, RiakFaults};

const KEYS: usize = 4;
const STEPS: usize = 40;
const BUCKETS: [&str; 2] = ["teas", "b /ü"];

fn random_place(random: &mut SplitMix64) -> Place {
    ((*random.pick(&BUCKETS)).to_owned(), format!("k{}", random.below(KEYS)))
}

fn spawn_sink(world: &MoveWorld<RiakCluster>) -> JoinHandle<()> {
    tokio::spawn(world.source.clone().run_sink(world.gateway.clone()))
}

/// Waits for the first passes of a move, verifies it, and opens its way back.
async fn turn_back(world: &MoveWorld<RiakCluster>) {
    world.start(SOURCE).await;
    world.await_status("followed", |status| status.progress.phase == MovePhase::Follow).await;
    world.verify().await;
    world.mover.wish(MoveWish::Back, false).await.unwrap();
    world.await_status("back", |status| status.progress.phase == MovePhase::Back).await;
}

async fn step_here(world: &MoveWorld<RiakCluster>, random: &mut SplitMix64, at: usize) -> Place {
    let place = random_place(random);
    match random.below(5) {
        0 => world.delete(&place.0, &place.1).await,
        1 => world.put(&place.0, &place.1, &format!("h{at}"), None).await,
        _ => {
            let context = world.get(&place.0, &place.1).await.1;
            world.put(&place.0, &place.1, &format!("h{at}"), context).await;
        }
    }
    place
}

async fn run_schedule(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut world = world(seed).await;
    for at in 0..10 {
        let place = random_place(&mut random);
        let is_context = random.chance(800);
        match random.chance(200) {
            true => world.source.delete(&place),
            false => world.source.put(&place, &format!("s{at}"), is_context),
        }
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_secs(5)).await;
    turn_back(&world).await;
    let sink = spawn_sink(&world);
    // The last value that a client of the Riak wrote to a key since.
    let mut theirs: BTreeMap<Place, String> = BTreeMap::new();
    for at in 100..100 + STEPS {
        match random.below(16) {
            0 => world.restart(),
            1 => {
                let [refused, broken] =
                    [(200, 900), (300, 400)].map(|(chance, rate)| rate * u32::from(random.chance(chance)));
                world.source.set_faults(RiakFaults { refused, broken, ..RiakFaults::default() });
            }
            2 => world.source.restart(random.below(NODES), Duration::from_millis(500 + random.number_below(3000))),
            3 if seed.is_multiple_of(3) => {
                let (place, text) = (random_place(&mut random), format!("t{at}"));
                if world.source.is_up() {
                    world.source.put(&place, &text, true);
                    theirs.insert(place, text);
                }
            }
            _ => drop(step_here(&world, &mut random, at).await),
        }
        let pause = if random.chance(500) { 30 } else { 1500 };
        sleep(Duration::from_millis(random.number_below(pause))).await;
    }
    world.source.set_faults(RiakFaults::default());
    sleep(Duration::from_secs(10)).await;
    let status = world.verify().await;
    let verified = status.progress.verified.clone().unwrap();
    let asides = (status.asides.clone(), status.differences.clone());
    assert_eq!((verified.differs, status.progress.asides), (0, 0), "seed {seed}: {verified:?} {asides:?}");
    // Tombstones are reaped, and the nodes agree.
    sleep(Duration::from_secs(5)).await;
    let there = world.source.values();
    for bucket in BUCKETS {
        for key in (0..KEYS).map(|key| format!("k{key}")) {
            let here = world.get(bucket, &key).await.0;
            let place = (bucket.to_owned(), key);
            let shown = there.get(&place).cloned().unwrap_or_default();
            match theirs.get(&place) {
                None => assert_eq!(shown, here, "seed {seed}: {place:?}"),
                Some(text) => {
                    let has_it = shown.contains(text) || shown.iter().any(|new| world.source.is_replaced_by(text, new));
                    assert!(has_it, "seed {seed}: {place:?} lost {text}: {shown:?}, here {here:?}");
                    let replaced = |value: &&String| world.source.is_replaced_by(value, text);
                    let lost: Vec<_> = here.iter().filter(|value| !shown.contains(value) && !replaced(value)).collect();
                    assert!(lost.is_empty(), "seed {seed}: {place:?} lost {lost:?}: {shown:?}");
                }
            }
        }
    }
    world.mover.wish(MoveWish::Finish, false).await.unwrap();
    world.await_status("finished", MoveStatus::has_ended).await;
    assert_eq!(world.gateway.kv.next_in_queue(b"back").await.unwrap(), None, "seed {seed}");
    sink.abort();
    world.job.abort();
}

#[test]
fn random_schedules_of_the_way_back_end_with_every_key_at_the_riak() {
    for seed in case_seeds(60, 20_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run_schedule(seed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_turns_back_only_when_it_is_verified_and_finishes_only_when_the_riak_has_all() {
    let world = world(1).await;
    let place = ("teas".to_owned(), "k0".to_owned());
    world.source.put(&place, "s", true);
    world.start(SOURCE).await;
    world.await_status("followed", |status| status.progress.phase == MovePhase::Follow).await;
    let refused = world.mover.wish(MoveWish::Back, false).await.unwrap_err();
    assert!(matches!(&refused, MoveRefusal::Refused(text) if text.contains("was not verified")), "{refused}");
    world.verify().await;
    world.mover.wish(MoveWish::Back, false).await.unwrap();
    world.await_status("back", |status| status.progress.phase == MovePhase::Back).await;
    let refused = world.mover.wish(MoveWish::Back, true).await.unwrap_err();
    assert!(matches!(&refused, MoveRefusal::Refused(text) if text.contains("open already")), "{refused}");
    let refused = world.mover.wish(MoveWish::Repair, false).await.unwrap_err();
    assert!(matches!(&refused, MoveRefusal::Refused(text) if text.contains("by itself")), "{refused}");
    world.put("teas", "k0", "h", None).await;
    world.put("new", "k1", "n", None).await;
    let status = world.await_status("silent", |status| !status.progress.error.is_empty()).await;
    assert_eq!(status.progress.error, "1 keys wait in the queue back, and no Riak fetches them");
    let sink = spawn_sink(&world);
    let status = world.verify().await;
    let verified = status.progress.verified.clone().unwrap();
    assert_eq!((verified.keys, verified.equal, verified.differs), (2, 2, 0), "{:?}", status.asides);
    // What a client of the Riak writes from now on does not hold up the end.
    world.source.put(&place, "t", true);
    sleep(Duration::from_secs(1)).await;
    let verified = world.verify().await.progress.verified.unwrap();
    assert_eq!((verified.equal, verified.changed_there, verified.differs), (1, 1, 0));
    world.mover.wish(MoveWish::Finish, false).await.unwrap();
    world.await_status("finished", MoveStatus::has_ended).await;
    sink.abort();
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_write_once_value_once_had_no_newest_write_and_stayed_here() {
    let world = world(2).await;
    let (name, props) = (Bytes::from_static(b"wo"), json!({ "write_once": true }));
    world.gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
    world.gateway.types().activate(&name).await.unwrap();
    let address = Address::new(BucketAddress::new(name, "b".into()).unwrap(), "k".into()).unwrap();
    let key = HeldKey { address: &address, actor: ActorId(9), before: None };
    let absent = world.gateway.kv.held_state(key).await.unwrap();
    assert_eq!((absent.latest, absent.is_live, absent.is_changed), (Timestamp::ZERO, false, false));
    world.put_at(address.clone(), "v", None).await;
    let held = world.gateway.kv.held_state(key).await.unwrap();
    assert!(held.latest > Timestamp::ZERO && held.is_live && held.is_changed, "{held:?}");
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_deleted_before_its_return_was_noted_once_stayed_at_the_riak() {
    let mut world = world(3).await;
    world.source.put(&("teas".to_owned(), "k0".to_owned()), "s", true);
    sleep(Duration::from_secs(1)).await;
    turn_back(&world).await;
    world.put("teas", "new", "h", None).await;
    let element = loop {
        match fetch(&world.gateway).await {
            Some(element) => break element,
            None => sleep(Duration::from_millis(10)).await,
        }
    };
    // The server is killed before it asks for the key, and the deletion's own row is gone when it goes on.
    world.job.abort();
    world.source.take_element(element);
    world.delete("teas", "new").await;
    sleep(Duration::from_secs(60)).await;
    assert!(world.source.values().contains_key(&("teas".to_owned(), "new".to_owned())));
    world.restart();
    let sink = spawn_sink(&world);
    assert_eq!(world.verify().await.progress.verified.unwrap().differs, 0);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.source.values().into_keys().map(|(_, key)| key).collect::<Vec<_>>(), ["k0"]);
    sink.abort();
    world.job.abort();
}
