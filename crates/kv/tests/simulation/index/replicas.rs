//! Schedules of indexes over nodes that fail one by one.

use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::rules::props::Quorum;
use larder_kv::views::CheckMode;
use larder_kv::{KvPut, Quorums};
use larder_rows::limits::INDEX_BYTES_MAX;
use larder_testkit::case_seeds;
use larder_testkit::replicas::{ClusterSetup, NetworkFaults};

use super::rules::{all_terms, put_of};
use super::walk::{IndexWalk, TYPES, hits};
use crate::simulation::replicas::ring::SimRing;
use crate::simulation::world::{address, get_of, run};

const SEEDS: u64 = 30;
const SCHEDULES: u64 = 140;
/// Schedules that share a cluster.
const TOGETHER: usize = 50;
const STEPS: usize = 10;

/// A put reaches one replica alone, and a client that read it there replaces it. A quorum of the other replicas knows nothing
/// of its terms, so nothing removes them [invariant 121].
#[test]
fn a_term_whose_row_was_replaced_unseen_is_not_found() {
    for seed in 0..SEEDS {
        run(async {
            let ring = SimRing::new(seed, ClusterSetup::default(), &[0]).await;
            ring.add_type("sib", "{}").await;
            ring.replicas.kill(0);
            ring.replicas.kill(1);
            let one = Quorums { w: Some(Quorum::One), r: Some(Quorum::One), ..Quorums::default() };
            let kv = &ring.members[0].gateway.kv;
            let put = KvPut { quorums: one, ..put_of("sib", "k", &["lost"], None) };
            let context = kv.put(put).await.unwrap().unwrap().context;
            ring.replicas.kill(2);
            ring.replicas.revive(0);
            ring.replicas.revive(1);
            ring.advance(1_000).await;
            kv.put(put_of("sib", "k", &["new"], context.as_ref())).await.unwrap();
            ring.replicas.revive(2);
            ring.advance(60_000).await;
            ring.replicas.repair();
            let found = hits(&ring.members[0].gateway, &all_terms("sib"), None, usize::MAX).await.unwrap();
            let terms: Vec<_> = found.into_iter().map(|(_, (term, _))| term).collect();
            assert_eq!(terms, ["new"], "seed {seed}");
        });
    }
}

/// The largest terms of an object are removed with the row that has them, in one logged batch [invariant 125].
#[test]
fn the_terms_of_one_object_are_replaced_in_one_batch() {
    run(async {
        let ring = SimRing::new(1, ClusterSetup::default(), &[0, 0]).await;
        ring.add_type("sib", "{}").await;
        let many: Vec<String> = (0..200).map(|at| format!("{at:035}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = "x".repeat(INDEX_BYTES_MAX - 5);
        let mut context = None;
        for (at, terms) in [&[long.as_str()][..], &many, &[long.as_str()], &[]].into_iter().enumerate() {
            let upload = PutBody::Bytes("v".into());
            let put = KvPut { upload, ..put_of("sib", "k", terms, context.as_ref()) };
            let found = ring.members[at % 2].gateway.kv.put(put).await;
            context = found.unwrap_or_else(|error| panic!("put {at}: {error}")).unwrap().context;
            let found = hits(&ring.members[0].gateway, &all_terms("sib"), None, usize::MAX).await.unwrap();
            assert_eq!(found.len(), terms.len(), "put {at}");
        }
    });
}

/// A coordinator dies while it sends the batch of a put: some replicas have the object, and none its entry. The check that one
/// gateway makes by itself lists it.
#[test]
fn a_key_that_a_dead_coordinator_left_unlisted_is_listed_by_the_check() {
    let mut unlisted = 0;
    for seed in 0..SEEDS {
        run(async {
            let ring = SimRing::new(seed, ClusterSetup::default(), &[0]).await;
            ring.add_type("sib", "{}").await;
            let kv = &ring.members[0].gateway.kv;
            ring.replicas.set_network_faults(NetworkFaults { stop_per_mille: 700, ..NetworkFaults::none() });
            let keys = ["k0", "k1", "k2", "k3"];
            for key in keys {
                // Without an answer it may be there or not.
                let _ = kv.put(put_of("sib", key, &["t"], None)).await;
            }
            ring.replicas.set_network_faults(NetworkFaults::none());
            ring.advance(60_000).await;
            ring.replicas.repair();
            unlisted += kv.check_indexes(CheckMode::Background, |_, _| true).await.unwrap().unlisted;
            let mut stored = Vec::new();
            for key in keys {
                stored.extend(kv.get(get_of("sib", key)).await.is_ok().then(|| Bytes::from(key)));
            }
            let listed = kv.list_keys(&address("sib", "k").bucket, None, None).await.unwrap().names;
            assert_eq!(listed, stored, "seed {seed}");
        });
    }
    assert!(unlisted > 0, "no coordinator left a key unlisted");
}

/// Random schedules through two gateways that reuse slots, over nodes that are all up: the indexes show the terms of the objects.
#[test]
fn random_schedules_over_replicas_leave_indexes_that_show_the_terms_of_the_objects() {
    for begin in case_seeds(SCHEDULES, 100 * SCHEDULES).step_by(TOGETHER) {
        run(async {
            // Every other cluster splits indexes in the midst of the schedules.
            let rows = begin / TOGETHER as u64 % 2;
            let ring = SimRing::splitting(begin, ClusterSetup::default(), &[0, 0], rows).await;
            for (name, props) in TYPES {
                ring.add_type(name, props).await;
            }
            for seed in begin..begin + TOGETHER as u64 {
                let mut walk = IndexWalk::new(seed, &format!("b{seed}"));
                for _ in 0..STEPS {
                    let at = walk.dice.below(2);
                    walk.step(&ring.members[at].gateway).await;
                    if rows > 0 {
                        ring.advance(walk.dice.below(500) as u64).await;
                    }
                }
                // A repair of the cluster brings late copies.
                ring.advance(1_000).await;
                let wrong = walk.check(&ring.members[0].gateway).await;
                assert_eq!(wrong, Ok(()), "seed {seed}");
            }
            let split = ring.members[1].gateway.kv.split_buckets().await.unwrap();
            assert_eq!(split.is_empty(), rows == 0);
        });
    }
}
