//! Schedules over a cluster whose nodes fail one by one. A schedule that shows a rule of the gateway fails under the rule's
//! mutation in `tests/mutants`. Schedules that need no gateway are in the store crate, beside the simulated cluster.

pub(crate) mod ring;
mod walk;

use bytes::Bytes;
use larder_core::Error;
use larder_core::types::{TypeStage, TypeStateError};
use larder_testkit::replicas::{ClusterSetup, NetworkFaults};
use tokio::time::Instant;

use crate::simulation::world::run;
use ring::{SimRing, WriteStrictness};

const SLOPPY: (usize, WriteStrictness) = (0, WriteStrictness::Sloppy);

async fn calm(setup: ClusterSetup, sides: &[usize]) -> SimRing {
    let ring = SimRing::new(1, setup, sides).await;
    ring.add_type("sib", "{}").await;
    ring
}

/// Writes a large object where bodies up to `inline_max` are in their rows; whether it can be read. As a row it would exceed
/// the largest mutation [invariant 18].
async fn large_object(inline_max: usize) -> bool {
    let ring = calm(ClusterSetup { inline_max, ..ClusterSetup::default() }, &[0]).await;
    let text = "x".repeat(5 << 20);
    let put = ring.put(SLOPPY, "sib", "k", &text, None).await;
    put.is_ok() && ring.read(0, "sib", "k").await.unwrap().texts == [text]
}

#[test]
fn an_object_larger_than_a_mutation_is_not_stored_as_a_row() {
    run(async {
        assert!(large_object(16 * 1024).await);
        assert!(!large_object(8 << 20).await, "as a row it is refused");
    });
}

/// Replaces siblings by a value of the largest inline size. Most overwrites are no logged batches. This one also removes the
/// entries of slots that its full vector drops, and such a batch must fit the batch log [invariant 19].
async fn large_row(inline_max: usize) -> Result<(), Error> {
    let ring = calm(ClusterSetup { inline_max, ..ClusterSetup::default() }, &[0]).await;
    for at in 0..30 {
        ring.put(SLOPPY, "sib", "k", &format!("v{at}"), None).await?;
    }
    let seen = ring.read(0, "sib", "k").await?.context;
    let text = "x".repeat(inline_max - 512);
    ring.put((0, WriteStrictness::Strict), "sib", "k", &text, seen.as_ref()).await
}

#[test]
fn a_batch_with_the_largest_row_fits_the_batch_log() {
    run(async {
        large_row(16 * 1024).await.unwrap();
        assert!(large_row(64 * 1024).await.is_err(), "a larger one is refused");
    });
}

/// A write whose replicas fail in flight and that is repeated at fewer: some took the first try, and the repeat must be the
/// same write [invariant 23].
async fn downgraded(seed: u64) -> Result<(), String> {
    let ring = SimRing::new(seed, ClusterSetup::default(), &[0]).await;
    ring.add_type("sib", "{}").await;
    ring.replicas.set_network_faults(NetworkFaults { lose_per_mille: 300, ..NetworkFaults::none() });
    let put = ring.put(SLOPPY, "sib", "k", "a", None).await;
    ring.replicas.set_network_faults(NetworkFaults::none());
    ring.advance(10_000).await;
    ring.replicas.repair();
    let texts = ring.read(0, "sib", "k").await.map_err(|error| error.to_string())?.texts;
    if texts == ["a"] || (put.is_err() && texts.is_empty()) { Ok(()) } else { Err(format!("{put:?}, then {texts:?}")) }
}

#[test]
fn a_downgraded_write_makes_no_sibling() {
    for seed in 0..30 {
        assert_eq!(run(downgraded(seed)), Ok(()), "seed {seed}");
    }
}

/// One replica is left: requests without strict values go on, and strict ones must not wait for a time-out [invariant
/// 23].
#[test]
fn with_two_nodes_down_sloppy_requests_succeed_and_strict_ones_fail_at_once() {
    run(async {
        let ring = calm(ClusterSetup::default(), &[0, 0]).await;
        ring.put(SLOPPY, "sib", "k", "before", None).await.unwrap();
        ring.advance(100).await;
        ring.replicas.kill(0);
        ring.replicas.kill(1);
        for minute in 0..3 {
            ring.put(SLOPPY, "sib", "k", &format!("m{minute}"), None).await.unwrap();
            let texts = ring.read(1, "sib", "k").await.unwrap().texts;
            assert_eq!(texts.len(), minute + 2, "{texts:?}");
            let strict = ring.put((1, WriteStrictness::Strict), "sib", "k", "strict", None).await;
            let refused = strict.unwrap_err();
            assert!(!matches!(refused, Error::TimedOut), "{refused}");
            ring.advance(60_000).await;
        }
        ring.replicas.revive(0);
        ring.replicas.revive(1);
        ring.advance(1_000).await;
        assert_eq!(ring.read(0, "sib", "k").await.unwrap().texts.len(), 4, "all writes are readable after recovery");
    });
}

/// Puts a `write_once` key again through a late clock after its delete was answered: the put is older than the tombstone, which
/// would hide it.
async fn put_again_through_a_late_gateway() -> Result<(), String> {
    let ring = SimRing::new(1, ClusterSetup::default(), &[0, 0]).await;
    ring.add_type("once", r#"{"write_once":true}"#).await;
    ring.members[0].clock.set_skew(450_000);
    ring.members[1].clock.set_skew(-450_000);
    let failed = |error: Error| error.to_string();
    ring.put(SLOPPY, "once", "k", "a", None).await.map_err(failed)?;
    ring.delete(0, "once", "k", None).await.map_err(failed)?;
    ring.put((1, WriteStrictness::Sloppy), "once", "k", "a", None).await.map_err(failed)?;
    let texts = ring.read(0, "once", "k").await.map_err(failed)?.texts;
    if texts == ["a"] { Ok(()) } else { Err(format!("acknowledged, then {texts:?}")) }
}

#[test]
fn a_put_after_a_write_once_delete_through_a_late_clock_is_not_lost() {
    assert_eq!(run(put_again_through_a_late_gateway()), Ok(()));
}

/// Lists a bucket after all keys but one were deleted: a page over too many tombstones fails and is bisected [invariant 27].
async fn emptied_bucket(bisects_ranges: bool) -> Result<Vec<Bytes>, Error> {
    let ring = calm(ClusterSetup { tombstones_max: 20, bisects_ranges, ..ClusterSetup::default() }, &[0]).await;
    for at in 0..200 {
        ring.put(SLOPPY, "sib", &format!("logs/2024/{at:03}"), "a", None).await?;
    }
    for at in 0..199 {
        ring.delete(0, "sib", &format!("logs/2024/{at:03}"), None).await?;
    }
    ring.keys(0, "sib").await
}

#[test]
fn an_emptied_bucket_can_be_listed() {
    run(async {
        assert_eq!(emptied_bucket(true).await.unwrap(), ["logs/2024/199"]);
        assert!(emptied_bucket(false).await.is_err(), "without bisection no page can be read");
    });
}

/// A gateway with a fast clock activates a type while another one is cut off; whether it succeeds. By the fast clock the other
/// heartbeat has expired, but that gateway still serves [invariant 67].
async fn activated_early(expires_by_own_clock: bool) -> bool {
    let mut ring = SimRing::new(1, ClusterSetup::default(), &[0, 0, 1]).await;
    ring.members[0].clock.set_skew(60_000_000);
    if expires_by_own_clock {
        ring.expire_by_own_clock(0).await;
    }
    ring.advance(12_000).await;
    ring.replicas.cut(&[0, 0, 0]);
    let cut = Instant::now();
    let name = Bytes::from_static(b"t");
    let first = &ring.members[0].gateway;
    first.types().create(&name, &serde_json::Map::new()).await.unwrap();
    let activated = first.types().activate(&name).await;
    assert!(
        cut.elapsed().as_secs() < 8,
        "the heartbeat of the gateway that was cut off is still valid: {:?}",
        cut.elapsed()
    );
    if activated.is_err() {
        assert!(matches!(activated, Err(Error::Type(TypeStateError::NotReady))));
        ring.advance(15_000).await;
        first.types().activate(&name).await.expect("by the cluster's clock the heartbeat has expired now");
    }
    activated.is_ok()
}

#[test]
fn a_fast_gateway_does_not_expire_the_heartbeats_of_others() {
    run(async {
        assert!(!activated_early(false).await);
        assert!(activated_early(true).await, "by a fast clock all heartbeats have expired");
    });
}

/// Kills and restarts a single gateway; whether a type can be used at once. The heartbeat of the dead run would delay it for ten
/// seconds [invariant 69].
async fn at_once_after_a_kill(single_process: bool) -> bool {
    let mut ring = SimRing::new(1, ClusterSetup { nodes: 1, ..ClusterSetup::default() }, &[0]).await;
    ring.members[0].gateway.abandon();
    ring.restart(0, 0, single_process).await.unwrap();
    let begun = Instant::now();
    let name = Bytes::from_static(b"t");
    let gateway = &ring.members[0].gateway;
    gateway.types().create(&name, &serde_json::Map::new()).await.unwrap();
    let ready = gateway.types().status(&name).await.unwrap().stage == TypeStage::Ready;
    ready && begun.elapsed().as_secs() < 3
}

#[test]
fn a_single_gateway_waits_for_no_dead_one() {
    run(async {
        assert!(at_once_after_a_kill(true).await);
        assert!(!at_once_after_a_kill(false).await, "the heartbeat of the dead run delays it");
    });
}

#[test]
fn after_a_partition_there_are_siblings_where_both_sides_wrote_and_nowhere_else() {
    run(async {
        let ring = calm(ClusterSetup::default(), &[0, 1]).await;
        for key in ["both", "one", "gone", "kept"] {
            ring.put(SLOPPY, "sib", key, "old", None).await.unwrap();
        }
        ring.advance(1_000).await;
        ring.replicas.cut(&[0, 0, 1]);
        let left = (0, WriteStrictness::Sloppy);
        let right = (1, WriteStrictness::Sloppy);
        let seen = async |at, key| ring.read(at, "sib", key).await.unwrap().context;
        ring.put(left, "sib", "both", "left", seen(0, "both").await.as_ref()).await.unwrap();
        ring.put(right, "sib", "both", "right", seen(1, "both").await.as_ref()).await.unwrap();
        ring.put(right, "sib", "one", "right", seen(1, "one").await.as_ref()).await.unwrap();
        assert!(ring.delete(1, "sib", "gone", seen(1, "gone").await.as_ref()).await.unwrap());
        assert!(ring.delete(1, "sib", "kept", seen(1, "kept").await.as_ref()).await.unwrap());
        ring.put(left, "sib", "kept", "left", seen(0, "kept").await.as_ref()).await.unwrap();
        ring.replicas.heal();
        ring.advance(10_000).await;
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
