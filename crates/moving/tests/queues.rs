//! Moves that follow the replication queues of a Riak of three nodes: one case each.

use std::time::Duration;

use larder_moving::{MovePhase, MoveStatus, NewMove};
use tokio::time::{Instant, sleep};

use crate::move_world::{MoveWorld, new_move};
use crate::riak_cluster::{Place, RiakCluster, RiakFaults};

pub(crate) const SOURCE: &str = "riak://node0,node1,node2";
/// How long passes take at the most to notice that a queue lost elements.
const NOTICED: Duration = Duration::from_secs(25);

pub(crate) async fn world(seed: u64) -> MoveWorld<RiakCluster> {
    MoveWorld::over(|clock| RiakCluster::new(seed, move || clock.now().0)).await
}

fn place(key: &str) -> Place {
    ("teas".to_owned(), key.to_owned())
}

fn is_followed(status: &MoveStatus) -> bool {
    status.progress.phase == MovePhase::Follow && status.progress.queue.is_whole()
}

#[tokio::test(start_paused = true)]
async fn a_change_in_a_queue_is_here_within_a_second_without_a_pass() {
    let world = world(1).await;
    world.source.put(&place("old"), "1", true);
    world.start(SOURCE).await;
    let status = world.await_status("followed", is_followed).await;
    let note = "the source is followed by queue larder of its 3 nodes, and all keys are checked once an hour: stop its \
                writers at the end, verify, then finish";
    assert_eq!(status.progress.notes, [note]);
    let sweeps = status.progress.sweeps;
    for at in 0..20 {
        world.source.put(&place("k"), &format!("v{at}"), true);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.get("teas", "k").await.0, [format!("v{at}")]);
    }
    world.source.delete(&place("k"));
    world.source.delete(&place("old"));
    sleep(Duration::from_secs(1)).await;
    assert!(world.get("teas", "k").await.0.is_empty() && world.get("teas", "old").await.0.is_empty());
    let status = world.mover.status().await.unwrap().unwrap();
    assert_eq!((status.progress.sweeps, status.progress.queue.gaps), (sweeps, 0));
    assert!(status.progress.queue.elements >= 20, "{:?}", status.progress.queue);
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn elements_that_a_restart_lost_come_with_the_next_pass() {
    let world = world(2).await;
    world.source.put(&place("old"), "1", true);
    world.start(SOURCE).await;
    let before = world.await_status("followed", is_followed).await.progress;
    (0..40).for_each(|at| world.source.put(&place(&format!("k{at}")), "x", true));
    (0..3).for_each(|node| world.source.restart(node, Duration::from_secs(3)));
    sleep(NOTICED).await;
    let after = world.await_status("followed again", is_followed).await.progress;
    assert!(after.sweeps > before.sweeps && after.queue.gaps > 0, "{after:?}");
    for at in 0..40 {
        assert_eq!(world.get("teas", &format!("k{at}")).await.0, ["x"], "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn elements_that_a_full_queue_discarded_come_with_the_next_pass() {
    let world = world(3).await;
    world.start(SOURCE).await;
    let before = world.await_status("followed", is_followed).await.progress;
    sleep(Duration::from_secs(20)).await;
    world.source.set_overflow(2);
    (0..40).for_each(|at| world.source.put(&place(&format!("k{at}")), "x", true));
    sleep(NOTICED).await;
    let after = world.await_status("followed again", is_followed).await.progress;
    assert!(after.sweeps > before.sweeps && after.queue.gap.contains("a full queue discarded"), "{after:?}");
    for at in 0..40 {
        assert_eq!(world.get("teas", &format!("k{at}")).await.0, ["x"], "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_is_behind_closes_no_gap() {
    let world = world(3).await;
    (0..40).for_each(|at| world.source.put(&place(&format!("k{at}")), "x", true));
    world.start(SOURCE).await;
    let before = world.await_status("followed", is_followed).await.progress;
    sleep(Duration::from_secs(20)).await;
    world.source.freeze_trees();
    world.source.set_overflow(2);
    (0..40).for_each(|at| world.source.put(&place(&format!("k{at}")), "y", true));
    sleep(NOTICED).await;
    let after = world.await_status("followed again", is_followed).await.progress;
    assert!(after.sweeps > before.sweeps && after.queue.gaps > 0, "{after:?}");
    for at in 0..40 {
        assert_eq!(world.get("teas", &format!("k{at}")).await.0, ["y"], "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_pass_over_trees_costs_a_request_for_many_keys() {
    let world = world(2).await;
    (0..3).for_each(|node| world.source.set_queue(node, false));
    (0..400).for_each(|at| world.source.put(&place(&format!("k{at:03}")), "x", true));
    world.start(SOURCE).await;
    let seeded = |status: &MoveStatus| status.progress.phase == MovePhase::Follow && status.progress.sweeps > 1;
    let sweeps = world.await_status("seeded", seeded).await.progress.sweeps;
    let requests = world.source.requests();
    world.source.put(&place("k007"), "y", true);
    world.source.delete(&place("k008"));
    let passed = world.await_status("passed", |status| status.progress.sweeps > sweeps + 1).await.progress;
    assert_eq!(world.get("teas", "k007").await.0, ["y"]);
    assert!(world.get("teas", "k008").await.0.is_empty());
    let (passes, requests) = (passed.sweeps - sweeps, world.source.requests() - requests);
    assert!(requests < 60 * (passes + 1), "{requests} requests in {passes} passes");
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn elements_in_the_hands_of_a_killed_job_come_with_the_next_pass() {
    let mut world = world(4).await;
    // The keys are there before the queue is switched on.
    (0..3).for_each(|node| world.source.set_queue(node, false));
    (0..400).for_each(|at| world.source.put(&place(&format!("k{at:03}")), "x", true));
    (0..3).for_each(|node| world.source.set_queue(node, true));
    let slowly = NewMove { rate: 100, ..new_move(SOURCE, &["default"]) };
    world.mover.start(slowly).await.unwrap();
    let seeds = |status: &MoveStatus| status.progress.phase == MovePhase::Seed && status.progress.sweep.keys > 60;
    world.await_status("seeding", seeds).await;
    // Keys that are copied change. Their elements are taken, and the answers are under way.
    (0..12).for_each(|at| world.source.put(&place(&format!("k{at:03}")), "y", true));
    world.source.set_faults(RiakFaults { slow: 1000, ..RiakFaults::default() });
    sleep(Duration::from_millis(3500)).await;
    world.source.set_faults(RiakFaults::default());
    world.restart();
    world.await_status("followed", is_followed).await;
    sleep(Duration::from_secs(10)).await;
    for at in 0..12 {
        assert_eq!(world.get("teas", &format!("k{at:03}")).await.0, ["y"], "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn an_element_that_lies_is_set_aside_and_stops_nothing() {
    let world = world(5).await;
    world.start(SOURCE).await;
    world.await_status("followed", is_followed).await;
    world.source.set_faults(RiakFaults { damaged: 1000, ..RiakFaults::default() });
    (0..20).for_each(|at| world.source.put(&place(&format!("k{at}")), "x", true));
    let aside = |status: &MoveStatus| !status.asides.is_empty();
    let status = world.await_status("set aside", aside).await;
    assert!(status.asides[0].starts_with("an element of queue larder of node"), "{:?}", status.asides);
    sleep(Duration::from_secs(5)).await;
    world.source.set_faults(RiakFaults::default());
    let status = world.await_status("followed again", is_followed).await;
    assert_eq!(status.asides, [""; 0], "a pass read every key");
    for at in 0..20 {
        assert_eq!(world.get("teas", &format!("k{at}")).await.0, ["x"], "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_some_nodes_lack_is_named_and_passes_go_on() {
    let world = world(6).await;
    world.source.set_queue(1, false);
    world.start(SOURCE).await;
    let passes = |status: &MoveStatus| status.progress.phase == MovePhase::Follow && status.progress.sweeps > 3;
    let status = world.await_status("passing", passes).await;
    let note = &status.progress.notes[0];
    assert!(note.contains("node1:8098 have no queue larder") && note.contains("passes over all keys"), "{note}");
    world.source.set_queue(1, true);
    let status = world.await_status("followed", is_followed).await;
    assert!(status.progress.notes[0].contains("followed by queue larder"), "{:?}", status.progress.notes);
    world.source.set_queue(1, false);
    let lost = |status: &MoveStatus| status.progress.notes[0].contains("node1:8098 have no queue");
    world.await_status("lost again", lost).await;
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn nodes_that_the_address_does_not_name_are_told_and_passes_go_on() {
    let world = world(7).await;
    world.start("riak://node0,node1").await;
    let passes = |status: &MoveStatus| status.progress.phase == MovePhase::Follow && status.progress.sweeps > 3;
    let status = world.await_status("passing", passes).await;
    let note = &status.progress.notes[0];
    assert!(note.contains("It has 1 nodes that the address does not name"), "{note}");
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn an_idle_queue_is_asked_politely() {
    let world = world(8).await;
    world.start(SOURCE).await;
    world.await_status("followed", is_followed).await;
    sleep(Duration::from_secs(5)).await;
    let before = world.source.requests();
    sleep(Duration::from_secs(100)).await;
    let requests = world.source.requests() - before;
    assert!(requests < 100 * 3 * 4, "{requests} requests in 100 s to 3 nodes");
    let status = world.mover.status().await.unwrap().unwrap();
    let lag = world.gateway.context().now().since(status.progress.here_until());
    assert!(lag < 2_000_000, "{lag} microseconds");
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn an_element_of_before_the_move_once_hid_a_change_that_no_queue_has() {
    let world = world(12).await;
    (0..20).for_each(|at| world.source.put(&place(&format!("k{at}")), "old", true));
    sleep(Duration::from_secs(1)).await;
    (0..3).for_each(|node| world.source.set_queue(node, false));
    (0..20).for_each(|at| world.source.put(&place(&format!("k{at}")), "new", true));
    (0..3).for_each(|node| world.source.set_queue(node, true));
    world.start(SOURCE).await;
    world.await_status("followed", is_followed).await;
    for at in 0..20 {
        assert_eq!(world.get("teas", &format!("k{at}")).await.0, ["new"], "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_comes_after_its_deletion_once_brought_the_key_back() {
    let world = world(13).await;
    world.start(SOURCE).await;
    world.await_status("followed", is_followed).await;
    sleep(Duration::from_secs(2)).await;
    for at in 0..200 {
        world.source.put(&place(&format!("k{at}")), "x", true);
        world.source.delete(&place(&format!("k{at}")));
    }
    sleep(Duration::from_secs(5)).await;
    // A node that had not seen the write yet has left it beside the tombstone.
    let there = world.source.values();
    assert!(there.len() < 150, "{}", there.len());
    for at in 0..200 {
        let place = place(&format!("k{at}"));
        let expected = there.get(&place).cloned().unwrap_or_default();
        assert_eq!(world.get("teas", &place.1).await.0, expected, "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_pass_writes_nothing_older_over_what_a_queue_brought_meanwhile() {
    let world = world(11).await;
    (0..24).for_each(|at| world.source.put(&place(&format!("k{at}")), "100", true));
    // Passes go on beside two queues, and get answers that are old when they arrive.
    world.source.set_queue(2, false);
    world.start(SOURCE).await;
    world.await_status("following", |status| status.progress.phase == MovePhase::Follow).await;
    world.source.set_faults(RiakFaults { slow: 100, ..RiakFaults::default() });
    let mut shown = [0; 24];
    for round in 101..300 {
        (0..24).for_each(|at| world.source.put(&place(&format!("k{at}")), &round.to_string(), true));
        for _ in 0..2 {
            sleep(Duration::from_millis(60)).await;
            for (at, before) in shown.iter_mut().enumerate() {
                let values = world.get("teas", &format!("k{at}")).await.0;
                let value: u32 = values.first().map_or(*before, |value| value.parse().unwrap());
                assert!(value >= *before && values.len() < 2, "k{at} shows {values:?} after {before}");
                *before = value;
            }
        }
    }
    world.source.set_faults(RiakFaults::default());
    world.source.set_queue(2, true);
    world.await_status("followed", is_followed).await;
    for at in 0..24 {
        assert_eq!(world.get("teas", &format!("k{at}")).await.0, ["299"], "k{at}");
    }
    world.job.abort();
}

#[tokio::test(start_paused = true)]
async fn a_pass_closes_no_gap_that_opened_while_it_was_under_way() {
    let world = world(10).await;
    (0..600).for_each(|at| world.source.put(&place(&format!("k{at:03}")), "x", true));
    let slowly = NewMove { rate: 100, ..new_move(SOURCE, &["default"]) };
    world.mover.start(slowly).await.unwrap();
    world.await_status("followed", is_followed).await;
    // A pass of six seconds begins with this gap.
    world.source.set_faults(RiakFaults { broken: 1000, ..RiakFaults::default() });
    sleep(Duration::from_secs(2)).await;
    world.source.set_faults(RiakFaults::default());
    let passes = |status: &MoveStatus| (100..250).contains(&status.progress.sweep.keys);
    world.await_status("passing", passes).await;
    // Its first keys change, and the elements are lost.
    (0..30).for_each(|at| world.source.put(&place(&format!("k{at:03}")), "y", true));
    (0..3).for_each(|node| world.source.restart(node, Duration::from_millis(600)));
    sleep(NOTICED).await;
    world.await_status("followed again", is_followed).await;
    for at in 0..30 {
        assert_eq!(world.get("teas", &format!("k{at:03}")).await.0, ["y"], "k{at}");
    }
    world.job.abort();
}

/// 500 writes a second: each is here within a second.
#[tokio::test(start_paused = true)]
async fn the_lag_at_500_writes_a_second_is_below_a_second() {
    let world = world(9).await;
    world.start(SOURCE).await;
    world.await_status("followed", is_followed).await;
    let began = Instant::now();
    let (mut worst, mut written) = (Duration::ZERO, 0_u32);
    for round in 0..40 {
        for at in 0..50 {
            world.source.put(&place(&format!("k{at}")), &format!("r{round}"), true);
            written += 1;
            sleep(Duration::from_millis(2)).await;
        }
        let sent = Instant::now();
        if round % 8 == 7 {
            while world.get("teas", "k49").await.0 != [format!("r{round}")] {
                sleep(Duration::from_millis(5)).await;
                assert!(sent.elapsed() < Duration::from_secs(10), "round {round} does not come");
            }
            worst = worst.max(sent.elapsed());
        }
    }
    let rate = f64::from(written) / began.elapsed().as_secs_f64();
    larder_testkit::figure("lag of a followed queue", &format!("{worst:?} at {rate:.0} writes a second"));
    assert!(worst < Duration::from_secs(1) && rate > 400.0, "{worst:?} at {rate}");
    world.job.abort();
}
