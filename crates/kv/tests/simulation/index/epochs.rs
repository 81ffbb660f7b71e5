//! Schedules of epochs that open while clients write and read.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::index::{IndexQuery, IndexScope};
use larder_kv::views::CheckMode;
use larder_kv::{KvDelete, KvDeleteOutcome};
use larder_rows::EpochStage;
use larder_testkit::SplitMix64;
use larder_testkit::faulty::StoreFaults;
use larder_testkit::replicas::ClusterSetup;

use super::rules::{all_terms, put_of};
use crate::simulation::datatypes::client::adds;
use crate::simulation::replicas::ring::SimRing;
use crate::simulation::world::{SimWorld, address, bucket, delete_of, run};

const SEEDS: u64 = 12;
/// Rows of a full shard.
const ROWS: u64 = 3;

async fn splitting_world(seed: u64, count: usize) -> SimWorld {
    let world = SimWorld::splitting(seed, count, ROWS).await;
    world.add_type("sib", "{}").await;
    world.set_faults(StoreFaults { pause_ms_max: 8, pause_per_mille: 500, ..StoreFaults::none() });
    world
}

/// The keys that a query shows, read by pages of two.
async fn bucket_keys(world: &SimWorld, at: usize, query: IndexQuery) -> BTreeSet<Bytes> {
    let mut reader = world.nodes[at].gateway.kv.query_index(query, None, None);
    let mut keys = BTreeSet::new();
    loop {
        let page = reader.next(2).await.unwrap();
        for hit in page.hits {
            assert!(keys.insert(hit.key.clone()), "{:?} twice", hit.key);
        }
        if page.is_last {
            return keys;
        }
    }
}

/// The keys of the bucket by its terms, by `$key`, and as a listing.
async fn shown_keys(world: &SimWorld, at: usize) -> [BTreeSet<Bytes>; 3] {
    let by_term = bucket_keys(world, at, all_terms("sib")).await;
    let by_key = bucket_keys(world, at, IndexQuery::new(bucket("sib"), IndexScope::AllKeys)).await;
    let listed = world.nodes[at].gateway.kv.list_keys(&bucket("sib"), None, None).await.unwrap().names;
    [by_term, by_key, listed.into_iter().collect()]
}

async fn epochs(world: &SimWorld) -> usize {
    let split = world.nodes[0].gateway.kv.split_buckets().await.unwrap();
    split.first().map_or(1, |(_, epochs)| epochs.counts().len())
}

/// G1 opens an epoch and writes to it; G2 lists and deletes with the catalogue that it had [invariant 132].
#[test]
fn keys_written_to_a_new_epoch_are_listed_and_deleted_by_every_gateway() {
    for seed in 0..SEEDS {
        run(async {
            let world = splitting_world(seed, 2).await;
            let (mut dice, mut stand) = (SplitMix64::new(seed), BTreeSet::new());
            for number in 0..90 {
                let key = format!("key {number}");
                world.nodes[0].gateway.kv.put(put_of("sib", &key, &[&key], None)).await.unwrap();
                stand.insert(Bytes::from(key.clone()));
                world.advance(dice.below(60) as u64).await;
                for (keys, by) in shown_keys(&world, 1).await.into_iter().zip(["term", "$key", "listing"]) {
                    assert_eq!(keys, stand, "seed {seed}: after {key}, by {by} in {} epochs", epochs(&world).await);
                }
                if dice.below(3) == 0 {
                    let gone = world.nodes[1].gateway.kv.delete(delete_of("sib", &key, None)).await.unwrap();
                    assert!(matches!(gone, KvDeleteOutcome::Done), "seed {seed}");
                    stand.remove(key.as_bytes());
                }
            }
            assert_eq!(shown_keys(&world, 0).await, [stand.clone(), stand.clone(), stand.clone()], "seed {seed}");
            assert!(epochs(&world).await > 1, "seed {seed}: nothing was split");
        });
    }
}

/// Two gateways overwrite keys while epochs open: a key that stands throughout is in every answer, wherever its rows move
/// [invariants 133, 134, 135].
#[test]
fn a_key_that_is_overwritten_while_an_epoch_opens_is_in_every_answer() {
    for seed in 0..SEEDS {
        run(async {
            let world = splitting_world(seed, 3).await;
            let stand: Vec<String> = (0..14).map(|number| format!("key {number:02}")).collect();
            for key in &stand {
                world.nodes[0].gateway.kv.put(put_of("sib", key, &["t"], None)).await.unwrap();
            }
            let end = world.micros() + 9_000_000;
            let writer = |at: usize| {
                let (world, stand, mut dice) = (&world, &stand, SplitMix64::new(seed * 7 + at as u64));
                async move {
                    while world.micros() < end {
                        let key = &stand[dice.below(stand.len())];
                        let kv = &world.nodes[at].gateway.kv;
                        let context = world.read(at, "sib", key).await.unwrap().context;
                        kv.put(put_of("sib", key, &["t"], context.as_ref())).await.unwrap();
                        tokio::time::sleep(Duration::from_millis(dice.below(30) as u64)).await;
                    }
                }
            };
            let expected: BTreeSet<Bytes> = stand.iter().map(|key| key.clone().into()).collect();
            let reader = |at: usize| {
                let (world, expected) = (&world, &expected);
                async move {
                    while world.micros() < end {
                        for (keys, by) in shown_keys(world, at).await.into_iter().zip(["term", "$key", "listing"]) {
                            assert_eq!(keys, *expected, "seed {seed}: by {by} in {} epochs", epochs(world).await);
                        }
                    }
                }
            };
            tokio::join!(writer(0), writer(1), reader(0), reader(2));
            assert!(epochs(&world).await > 1, "seed {seed}: nothing was split");
            world.set_faults(StoreFaults::none());
            for key in &stand {
                let request = KvDelete {
                    address: address("sib", key),
                    context: None,
                    conditions: Conditions::default(),
                    ..delete_of("sib", key, None)
                };
                world.nodes[2].gateway.kv.delete(request).await.unwrap();
            }
            let nothing = BTreeSet::new();
            assert_eq!(shown_keys(&world, 1).await, [nothing.clone(), nothing.clone(), nothing], "seed {seed}");
            let checked = world.nodes[0].gateway.kv.check_indexes(CheckMode::Report, |_, _| true).await.unwrap();
            assert_eq!((checked.missing, checked.index_rows), (0, 0), "seed {seed}: {checked:?}");
        });
    }
}

/// A client reads a page and waits; an epoch opens, and keys that the client has not read yet move there [invariant 135].
#[test]
fn a_query_that_waits_while_an_epoch_opens_misses_no_key() {
    run(async {
        let world = splitting_world(5, 2).await;
        let kv = &world.nodes[0].gateway.kv;
        let stand: Vec<String> = (0..40).map(|number| format!("key {number:02}")).collect();
        let put = async |key: &String| {
            let context = world.read(0, "sib", key).await.unwrap().context;
            kv.put(put_of("sib", key, &["t"], context.as_ref())).await.unwrap();
        };
        let (first, rest) = stand.split_at(6);
        for key in first {
            put(key).await;
        }
        let mut readers = [0, 1].map(|at| world.nodes[at].gateway.kv.query_index(all_terms("sib"), None, None));
        let mut shown = [BTreeSet::new(), BTreeSet::new()];
        for (reader, shown) in readers.iter_mut().zip(&mut shown) {
            shown.extend(reader.next(1).await.unwrap().hits.into_iter().map(|hit| hit.key));
        }
        assert_eq!(epochs(&world).await, 1, "the readers begin before an epoch opens");
        for key in rest {
            put(key).await;
        }
        world.advance(10_000).await;
        assert!(epochs(&world).await > 1, "nothing was split");
        for key in first {
            put(key).await;
        }
        for (reader, shown) in readers.iter_mut().zip(&mut shown) {
            loop {
                let page = reader.next(1).await.unwrap();
                shown.extend(page.hits.into_iter().map(|hit| hit.key));
                if page.is_last {
                    break;
                }
            }
            let missing: Vec<_> = first.iter().filter(|key| !shown.contains(key.as_bytes())).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    });
}

/// The key of a data type is listed by an entry of its writer, which may be in several epochs.
#[test]
fn a_deleted_data_type_is_listed_by_no_epoch() {
    run(async {
        let world = SimWorld::splitting(1, 2, ROWS).await;
        world.add_type("set", r#"{"datatype":"set"}"#).await;
        for number in 0..20 {
            world.update(0, "set", &format!("key {number}"), adds(&["a"]), None).await.unwrap();
        }
        world.advance(10_000).await;
        assert!(epochs(&world).await > 1, "nothing was split");
        for number in 0..20 {
            let key = format!("key {number}");
            if number % 2 == 0 {
                world.update(1, "set", &key, adds(&["b"]), None).await.unwrap();
            }
            assert!(world.delete(number % 2, "set", &key, None).await.unwrap());
        }
        assert_eq!(world.list(0, "set").await.unwrap(), (Vec::new(), Vec::new()));
    });
}

/// A bucket grows, its gateway restarts and has counted nothing yet: its next writes lead to the count.
#[test]
fn a_bucket_that_grew_before_a_restart_is_split_after_it() {
    run(async {
        let mut world = SimWorld::new(1, 1).await;
        for number in 0..40 {
            world.put(0, "default", &format!("key {number}"), "v", None).await.unwrap();
        }
        world.advance(5_000).await;
        assert_eq!(epochs(&world).await, 1, "the engine needs no split");
        world.split_above(0, ROWS).await;
        world.put(0, "default", "one more", "v", None).await.unwrap();
        world.advance(5_000).await;
        let split = world.nodes[0].gateway.kv.split_buckets().await.unwrap();
        assert_eq!(split[0].1.counts(), [4, 16], "{split:?}");
        assert_eq!(world.list(0, "default").await.unwrap().0.len(), 41);
        assert_eq!(world.list(0, "default").await.unwrap().1, [Bytes::from("b")]);
    });
}

/// The gateway that opens an epoch dies in a stage; another one goes on with it.
#[test]
fn an_opening_that_its_gateway_left_is_finished_by_another() {
    run(async {
        let world = SimWorld::splitting(3, 2, ROWS).await;
        world.nodes[1].faulty.freeze();
        for number in 0..20 {
            world.put(0, "default", &format!("key {number}"), "v", None).await.unwrap();
        }
        world.advance(100).await;
        world.nodes[0].gateway.abandon();
        world.nodes[1].faulty.thaw();
        let stage = || async { world.nodes[1].gateway.kv.split_buckets().await.unwrap()[0].1.stage() };
        world.advance(1_000).await;
        assert_ne!(stage().await, EpochStage::Open);
        world.advance(200_000).await;
        assert_eq!(stage().await, EpochStage::Open);
        assert_eq!(world.list(1, "default").await.unwrap().0.len(), 20);
    });
}

/// A gateway that is cut off with one replica checks its catalogue there while the others open epochs. Right after the cut it deletes a key
/// whose entry is in one of these: the entry stays in lists, until the check that one gateway makes by itself.
#[test]
fn what_a_gateway_with_an_old_catalogue_leaves_in_lists_goes_with_the_check() {
    let mut left = 0;
    for seed in 0..SEEDS {
        run(async {
            let ring = SimRing::splitting(seed, ClusterSetup::default(), &[0, 1], ROWS).await;
            ring.add_type("sib", "{}").await;
            ring.replicas.cut(&[0, 0, 1]);
            for number in 0..80 {
                ring.members[0].gateway.kv.put(put_of("sib", &format!("key {number}"), &["t"], None)).await.unwrap();
                ring.advance(500).await;
            }
            ring.members[0].gateway.kv.put(put_of("sib", "late", &["t"], None)).await.unwrap();
            ring.advance(100).await;
            ring.replicas.heal();
            let gone = ring.delete(1, "sib", "late", None).await.unwrap();
            assert!(gone, "seed {seed}");
            ring.advance(60_000).await;
            ring.replicas.repair();
            left += usize::from(ring.keys(0, "sib").await.unwrap().contains(&Bytes::from("late")));
            // An entry may precede its row for a day.
            ring.advance(90_000_000).await;
            let kv = &ring.members[0].gateway.kv;
            kv.check_indexes(CheckMode::Background, |_, _| true).await.unwrap();
            assert!(!ring.keys(0, "sib").await.unwrap().contains(&Bytes::from("late")), "seed {seed}");
        });
    }
    assert!(left > 0, "no gateway left an entry in a list");
}
