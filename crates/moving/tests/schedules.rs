//! Random schedules of clients at a stand-in for Riak and of clients here, with faults of the source and restarts of the job: at
//! the end every key that no client changed here is as at the source, and what clients wrote here is there.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_moving::rules::SourceAddress;
use larder_moving::{MovePhase, MoveStatus, NewMove};
use larder_rows::{MoveWish, S3MoveTerms};
use larder_testkit::{SplitMix64, case_seeds};
use tokio::time::sleep;

use crate::move_world::{MoveWorld, new_move};
use crate::stand_in::StandIn;

const BUCKETS: [&str; 2] = ["teas", "b /ü"];
const KEYS: usize = 12;

const SOURCE: &str = "riak://stand-in";

async fn world(seed: u64, faults: u32) -> MoveWorld<StandIn> {
    MoveWorld::over(|clock| StandIn::new(seed, faults, move || clock.now().as_secs())).await
}

#[tokio::test(start_paused = true)]
async fn a_move_that_ends_keeps_no_secret_of_its_source() {
    let world = world(1, 0).await;
    let terms = S3MoveTerms { secret: "hidden".into(), ..S3MoveTerms::default() };
    let source = SourceAddress::parse("s3://key@stand-in").unwrap();
    let new = NewMove { source, types: Vec::new(), rate: 1000, queue: String::new(), s3: Some(terms) };
    assert_eq!(world.mover.start(new).await.unwrap().s3.unwrap().secret, "hidden");
    let paused = world.mover.wish(MoveWish::Pause, false).await.unwrap();
    assert_eq!(paused.order.s3.unwrap().secret, "hidden");
    let cancelled = world.mover.wish(MoveWish::Cancel, false).await.unwrap();
    assert_eq!(cancelled.order.s3.unwrap().secret, "");
    assert_eq!(world.mover.status().await.unwrap().unwrap().order.s3.unwrap().secret, "");
}

/// One step of the clients of the source.
fn step_at_source(source: &StandIn, random: &mut SplitMix64, at: usize) {
    let (bucket, key) = (*random.pick(&BUCKETS), format!("k{}", random.below(KEYS)));
    match random.below(10) {
        0 => source.delete(bucket, &key, true),
        1 => source.delete(bucket, &key, false),
        2 => source.reap(),
        3..6 => source.put(bucket, &key, &format!("s{at}"), false),
        _ => source.put(bucket, &key, &format!("s{at}"), true),
    }
}

async fn run_schedule(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut world = world(seed, 60).await;
    for at in 0..40 {
        step_at_source(&world.source, &mut random, at);
    }
    world.start(SOURCE).await;
    // What clients wrote here last, by place.
    let mut mine = BTreeMap::new();
    for at in 100..400 {
        match random.below(20) {
            0 => world.restart(),
            1 => {
                let (bucket, key) = (*random.pick(&BUCKETS), format!("k{}", random.below(KEYS)));
                let text = format!("h{at}");
                let context = world.get(bucket, &key).await.1;
                world.put(bucket, &key, &text, context).await;
                mine.insert((bucket.to_owned(), key), text);
            }
            _ => step_at_source(&world.source, &mut random, at),
        }
        sleep(Duration::from_millis(random.number_below(400))).await;
    }
    // The nodes of the source agree again.
    world.source.set_faults(0);
    world.source.reap();
    let sweeps = world.mover.status().await.unwrap().unwrap().progress.sweeps;
    let follows =
        |status: &MoveStatus| status.progress.phase == MovePhase::Follow && status.progress.sweeps > sweeps + 2;
    world.await_status("following", follows).await;
    let status = world.verify().await;
    let verified = status.progress.verified.clone().unwrap();
    assert_eq!(
        (verified.differs, verified.changed_there),
        (0, 0),
        "seed {seed}: {verified:?} {:?}",
        status.differences
    );
    assert_eq!(status.progress.asides, 0, "seed {seed}: {:?}", status.asides);
    let there = world.source.values();
    for bucket in BUCKETS {
        for key in (0..KEYS).map(|key| format!("k{key}")) {
            let place = (bucket.to_owned(), key.clone());
            let mut expected = there.get(&place).cloned().unwrap_or_default();
            let here = world.get(bucket, &key).await.0;
            let Some(text) = mine.get(&place) else {
                assert_eq!(here, expected, "seed {seed}: {place:?}");
                continue;
            };
            assert!(here.contains(text), "seed {seed}: {place:?} lost {text}: {here:?}");
            // What the source had when the client read it here was replaced by it.
            expected.push(text.clone());
            assert!(here.iter().all(|value| expected.contains(value)), "seed {seed}: {place:?} {here:?} {expected:?}");
        }
    }
    world.mover.wish(MoveWish::Finish, false).await.unwrap();
    world.await_status("finished", MoveStatus::has_ended).await;
    world.job.abort();
}

#[test]
fn random_schedules_end_with_every_key_as_at_the_source() {
    for seed in case_seeds(40, 20_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run_schedule(seed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_of_a_proxy_once_deleted_the_key_here() {
    let world = world(1, 0).await;
    world.source.put("teas", "proxied", "x", true);
    world.start(SOURCE).await;
    let follows = |status: &MoveStatus| status.progress.phase == MovePhase::Follow && status.progress.sweeps > 1;
    let sweeps = world.await_status("following", follows).await.progress.sweeps;
    assert_eq!(world.get("teas", "proxied").await.0, ["x"]);
    world.source.break_key("proxied");
    let status = world.await_status("set aside", |status| status.progress.sweeps > sweeps + 2).await;
    assert_eq!(
        status.asides,
        ["/types/default/buckets/teas/keys/proxied: the source answers 404: <html>no server</html>"]
    );
    assert_eq!(world.get("teas", "proxied").await.0, ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_copied_is_named_and_stops_nothing() {
    let world = world(1, 0).await;
    world.source.put("teas", "bad", "x", true);
    world.source.put("teas", "good", "x", true);
    world.source.put("teas", "cut", "x", true);
    world.source.break_key("bad");
    world.source.break_key("cut");
    world.start(SOURCE).await;
    let follows = |status: &MoveStatus| status.progress.phase == MovePhase::Follow && status.progress.sweeps > 1;
    let status = world.await_status("following", follows).await;
    assert_eq!(
        status.asides,
        [
            "/types/default/buckets/teas/keys/bad: the answer has no valid clock",
            "/types/default/buckets/teas/keys/cut: the answer broke off: connection reset"
        ]
    );
    assert_eq!(world.get("teas", "good").await.0, ["x"]);
    world.verify().await;
    let refused = world.mover.wish(MoveWish::Finish, false).await.unwrap_err();
    assert!(refused.to_string().starts_with("2 keys could not be copied"), "{refused}");
    world.source.mend_keys();
    let status = world.await_status("mended", |status| status.progress.asides == 0).await;
    assert_eq!(status.asides, [""; 0]);
    assert_eq!(world.get("teas", "bad").await.0, ["x"]);
    world.verify().await;
    world.mover.wish(MoveWish::Finish, false).await.unwrap();
    world.await_status("finished", MoveStatus::has_ended).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_move_reads_nothing_and_a_cancelled_one_goes_on_from_the_same_source() {
    let world = world(2, 0).await;
    world.source.put("teas", "a", "1", true);
    world.start(SOURCE).await;
    world.await_status("following", |status| status.progress.sweeps > 1).await;
    world.mover.wish(MoveWish::Pause, false).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    world.source.put("teas", "a", "2", true);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.get("teas", "a").await.0, ["1"]);
    world.mover.wish(MoveWish::Run, false).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.get("teas", "a").await.0, ["2"]);
    world.mover.wish(MoveWish::Cancel, false).await.unwrap();
    world.await_status("cancelled", MoveStatus::has_ended).await;
    world.source.put("teas", "a", "3", true);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.get("teas", "a").await.0, ["2"]);
    world.start(SOURCE).await;
    world.await_status("following", |status| status.progress.sweeps > 1).await;
    assert_eq!(world.get("teas", "a").await.0, ["3"], "its rows are known, so they are replaced");
}

#[tokio::test(start_paused = true)]
async fn an_absent_type_is_waited_for_with_its_name() {
    let world = world(3, 0).await;
    world.mover.start(new_move(SOURCE, &["default", "carts"])).await.unwrap();
    let status = world.await_status("refused", |status| !status.progress.error.is_empty()).await;
    assert_eq!(status.progress.error, "the source has no active type carts");
    assert_eq!(status.progress.phase, MovePhase::Check);
}
