//! Schedules over a cluster whose nodes fail one by one: each holds with its rule and fails without it. The number is the row of
//! the list of holes; what needs no gateway is proven beside the cluster itself, in the store crate.

mod ring;
mod walk;

use bytes::Bytes;
use larder_gateway::types::{Refusal, Stage};
use larder_gateway::{Error, Rule, Rules};
use larder_store::replicas::{Setup, Weather};
use tokio::time::Instant;

use crate::world::run;
use ring::{Care, Ring};

const SLOPPY: (usize, Care) = (0, Care::Sloppy);

async fn calm(setup: Setup, sides: &[usize]) -> Ring {
    let ring = Ring::new(1, Rules::default(), setup, sides).await;
    ring.add_type("sib", "{}").await;
    ring
}

/// Row 18. Writes a large object where bodies up to `inline_max` are in their rows; whether it is there.
async fn large_object(inline_max: usize) -> bool {
    let ring = calm(Setup { inline_max, ..Setup::default() }, &[0]).await;
    let text = "x".repeat(5 << 20);
    let put = ring.put(SLOPPY, "sib", "k", &text, None).await;
    put.is_ok() && ring.read(0, "sib", "k").await.unwrap().texts == [text]
}

#[test]
fn row_18_an_object_larger_than_a_mutation_is_no_row() {
    run(async {
        assert!(large_object(16 * 1024).await);
        assert!(!large_object(8 << 20).await, "as a row it is refused");
    });
}

/// Row 19. Two gateways overwrite an object of the greatest size that is kept inside a row. As a rule that is no logged batch;
/// here the entries of what is replaced go with it, as those do that no cover can name.
async fn large_rows(inline_max: usize) -> Result<(), Error> {
    let rules = Rules::without(Rule::LeaveKeyRows);
    let ring = Ring::new(1, rules, Setup { inline_max, ..Setup::default() }, &[0, 0]).await;
    ring.add_type("sib", "{}").await;
    let text = "x".repeat(inline_max - 512);
    for round in 0..6 {
        let at = round % 2;
        let seen = ring.read(at, "sib", "k").await?.context;
        ring.put((at, Care::Strict), "sib", "k", &text, seen.as_ref()).await?;
    }
    Ok(())
}

#[test]
fn row_19_a_batch_with_the_largest_row_fits_the_batch_log() {
    run(async {
        large_rows(16 * 1024).await.unwrap();
        assert!(large_rows(64 * 1024).await.is_err(), "a larger one is refused");
    });
}

/// Row 23. A write whose replicas fail under way and that is sent again to fewer of them; what is read in the end.
async fn stepped_down(rules: Rules, seed: u64) -> Result<(), String> {
    let ring = Ring::new(seed, rules, Setup::default(), &[0]).await;
    ring.add_type("sib", "{}").await;
    ring.replicas.set_weather(Weather { lose_per_mille: 300, ..Weather::calm() });
    let put = ring.put(SLOPPY, "sib", "k", "a", None).await;
    ring.replicas.set_weather(Weather::calm());
    ring.pass(10_000).await;
    ring.replicas.repair();
    let texts = ring.read(0, "sib", "k").await.map_err(|error| error.to_string())?.texts;
    if texts == ["a"] || (put.is_err() && texts.is_empty()) { Ok(()) } else { Err(format!("{put:?}, then {texts:?}")) }
}

#[test]
fn row_23_a_write_that_steps_down_is_one_write() {
    for seed in 0..30 {
        assert_eq!(run(stepped_down(Rules::default(), seed)), Ok(()), "seed {seed}");
    }
    let without = Rules::without(Rule::SameStampStepDown);
    assert!((0..30).any(|seed| run(stepped_down(without, seed)).is_err()), "the rule is not needed by this schedule");
}

#[test]
fn row_23_with_two_nodes_down_plain_writes_and_reads_go_on_and_strict_ones_say_why() {
    run(async {
        let ring = calm(Setup::default(), &[0, 0]).await;
        ring.put(SLOPPY, "sib", "k", "before", None).await.unwrap();
        ring.pass(100).await;
        ring.replicas.kill(0);
        ring.replicas.kill(1);
        for minute in 0..3 {
            ring.put(SLOPPY, "sib", "k", &format!("m{minute}"), None).await.unwrap();
            let texts = ring.read(1, "sib", "k").await.unwrap().texts;
            assert_eq!(texts.len(), minute + 2, "{texts:?}");
            let strict = ring.put((1, Care::Strict), "sib", "k", "strict", None).await;
            let refused = strict.unwrap_err();
            assert!(!matches!(refused, Error::TimedOut), "{refused}");
            ring.pass(60_000).await;
        }
        ring.replicas.revive(0);
        ring.replicas.revive(1);
        ring.pass(1_000).await;
        assert_eq!(ring.read(0, "sib", "k").await.unwrap().texts.len(), 4, "all is there after recovery");
    });
}

/// A `write_once` key is put again, through a gateway whose clock is late, once its delete was answered.
async fn put_again_through_a_late_gateway(rules: Rules) -> Result<(), String> {
    let ring = Ring::new(1, rules, Setup::default(), &[0, 0]).await;
    ring.add_type("once", r#"{"write_once":true}"#).await;
    ring.gates[0].clock.set_skew(450_000);
    ring.gates[1].clock.set_skew(-450_000);
    let failed = |error: Error| error.to_string();
    ring.put(SLOPPY, "once", "k", "a", None).await.map_err(failed)?;
    ring.delete(0, "once", "k", None).await.map_err(failed)?;
    ring.put((1, Care::Sloppy), "once", "k", "a", None).await.map_err(failed)?;
    let texts = ring.read(0, "once", "k").await.map_err(failed)?.texts;
    if texts == ["a"] { Ok(()) } else { Err(format!("acknowledged, then {texts:?}")) }
}

#[test]
fn a_put_behind_a_write_once_delete_was_once_answered_and_never_seen() {
    assert_eq!(run(put_again_through_a_late_gateway(Rules::default())), Ok(()));
    let without = Rules::without(Rule::OutwaitLateClocks);
    assert!(run(put_again_through_a_late_gateway(without)).is_err(), "the rule is not needed by this schedule");
}

/// Row 27. All keys of a bucket but one are deleted; the listing.
async fn emptied_bucket(halves: bool) -> Result<Vec<Bytes>, Error> {
    let ring = calm(Setup { tombstones_max: 20, halves, ..Setup::default() }, &[0]).await;
    for at in 0..200 {
        ring.put(SLOPPY, "sib", &format!("logs/2024/{at:03}"), "a", None).await?;
    }
    for at in 0..199 {
        ring.delete(0, "sib", &format!("logs/2024/{at:03}"), None).await?;
    }
    ring.keys(0, "sib").await
}

#[test]
fn row_27_a_bucket_that_was_emptied_can_be_listed() {
    run(async {
        assert_eq!(emptied_bucket(true).await.unwrap(), ["logs/2024/199"]);
        assert!(emptied_bucket(false).await.is_err(), "without halving no page is read");
    });
}

/// Row 67. A gateway with a fast clock activates a type while another one is cut off and cannot know it; whether it may.
async fn activated_early(judges_alone: bool) -> bool {
    let mut ring = Ring::new(1, Rules::default(), Setup::default(), &[0, 0, 1]).await;
    ring.gates[0].clock.set_skew(60_000_000);
    if judges_alone {
        ring.judge_alone(0).await;
    }
    ring.pass(12_000).await;
    ring.replicas.cut(&[0, 0, 0]);
    let cut = Instant::now();
    let name = Bytes::from_static(b"t");
    let first = &ring.gates[0].gateway;
    first.create_type(&name, &serde_json::Map::new()).await.unwrap();
    let activated = first.activate_type(&name).await;
    assert!(cut.elapsed().as_secs() < 8, "the heartbeat of the one that was cut off holds: {:?}", cut.elapsed());
    if activated.is_err() {
        assert!(matches!(activated, Err(Error::Type(Refusal::NotReady))));
        ring.pass(15_000).await;
        first.activate_type(&name).await.expect("by the cluster's own clock it is gone now");
    }
    activated.is_ok()
}

#[test]
fn row_67_who_runs_is_judged_by_the_clusters_clock() {
    run(async {
        assert!(!activated_early(false).await);
        assert!(activated_early(true).await, "by a clock that is ahead everybody is gone");
    });
}

/// Row 69. A lone gateway is killed and started again; whether a type can be used at once.
async fn at_once_after_a_kill(alone: bool) -> bool {
    let mut ring = Ring::new(1, Rules::default(), Setup { nodes: 1, ..Setup::default() }, &[0]).await;
    ring.gates[0].gateway.abandon();
    ring.restart(0, 0, alone).await.unwrap();
    let begun = Instant::now();
    let name = Bytes::from_static(b"t");
    let gateway = &ring.gates[0].gateway;
    gateway.create_type(&name, &serde_json::Map::new()).await.unwrap();
    let ready = gateway.type_status(&name).await.unwrap().stage == Stage::Ready;
    ready && begun.elapsed().as_secs() < 3
}

#[test]
fn row_69_a_gateway_that_is_alone_waits_for_no_dead_one() {
    run(async {
        assert!(at_once_after_a_kill(true).await);
        assert!(!at_once_after_a_kill(false).await, "the heartbeat of the dead one is in the way");
    });
}

#[test]
fn after_a_partition_there_are_siblings_where_both_sides_wrote_and_nowhere_else() {
    run(async {
        let ring = calm(Setup::default(), &[0, 1]).await;
        for key in ["both", "one", "gone", "kept"] {
            ring.put(SLOPPY, "sib", key, "old", None).await.unwrap();
        }
        ring.pass(1_000).await;
        ring.replicas.cut(&[0, 0, 1]);
        let left = (0, Care::Sloppy);
        let right = (1, Care::Sloppy);
        let seen = async |at, key| ring.read(at, "sib", key).await.unwrap().context;
        ring.put(left, "sib", "both", "left", seen(0, "both").await.as_ref()).await.unwrap();
        ring.put(right, "sib", "both", "right", seen(1, "both").await.as_ref()).await.unwrap();
        ring.put(right, "sib", "one", "right", seen(1, "one").await.as_ref()).await.unwrap();
        assert!(ring.delete(1, "sib", "gone", seen(1, "gone").await.as_ref()).await.unwrap());
        assert!(ring.delete(1, "sib", "kept", seen(1, "kept").await.as_ref()).await.unwrap());
        ring.put(left, "sib", "kept", "left", seen(0, "kept").await.as_ref()).await.unwrap();
        ring.replicas.heal();
        ring.pass(10_000).await;
        for at in 0..2 {
            let texts = async |key| {
                let mut texts = ring.read(at, "sib", key).await.unwrap().texts;
                texts.sort_unstable();
                texts
            };
            assert_eq!(texts("both").await, ["left", "right"]);
            assert_eq!(texts("one").await, ["right"]);
            assert_eq!(texts("gone").await, [""; 0], "a delete does not come back");
            assert_eq!(texts("kept").await, ["left"], "a put that a delete did not see stays");
            assert_eq!(ring.keys(at, "sib").await.unwrap(), ["both", "kept", "one"]);
        }
    });
}
