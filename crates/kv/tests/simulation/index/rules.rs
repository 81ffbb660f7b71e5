//! One schedule per rule of the indexes on one machine.

use bytes::Bytes;
use larder_core::Error;
use larder_core::body::PutBody;
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::index::IndexQuery;
use larder_kv::views::CheckMode;
use larder_kv::{KvPut, Quorums};
use larder_rows::content::{KvContent, Term};
use larder_rows::limits::INDEX_BYTES_MAX;
use larder_rows::{Batch, BucketEpochs, Change, EpochShard};
use larder_store::{CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, Store};
use larder_testkit::faulty::StoreFaults;

use super::walk::hits;
use crate::simulation::world::{SimWorld, address, bucket, run};

const SEEDS: u64 = 20;

/// A put with these terms.
pub(super) fn put_of(kind: &'static str, key: &str, terms: &[&str], context: Option<&Bytes>) -> KvPut {
    let term = |value: &&str| Term { field: "t_bin".into(), value: Bytes::copy_from_slice(value.as_bytes()) };
    KvPut {
        address: address(kind, key),
        context: context.cloned(),
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent { terms: terms.iter().map(term).collect(), ..KvContent::default() },
        upload: PutBody::Bytes(terms.concat().into()),
        quorums: Quorums::default(),
        return_body: true,
        timeout: None,
    }
}

/// All terms of the index.
pub(super) fn all_terms(kind: &'static str) -> IndexQuery {
    IndexQuery::range(bucket(kind), &"t_bin".into(), &"".into(), &"z".into()).unwrap()
}

async fn shown_terms(world: &SimWorld, kind: &'static str) -> Vec<Bytes> {
    let found = hits(&world.nodes[0].gateway, &all_terms(kind), None, usize::MAX).await.unwrap();
    found.into_iter().map(|(_, (term, _))| term).collect()
}

/// Two puts replace one version without `allow_mult`: both rows stay, and the hidden one has a term [invariant 120].
#[test]
fn of_two_puts_that_replace_one_version_only_the_shown_one_is_found() {
    for seed in 0..SEEDS {
        run(async {
            let world = SimWorld::new(seed, 2).await;
            let first = world.nodes[0].gateway.kv.put(put_of("default", "k", &["a"], None)).await.unwrap();
            let context = first.unwrap().context;
            world.set_faults(StoreFaults { pause_ms_max: 20, pause_per_mille: 1000, ..StoreFaults::none() });
            let (b, c) = tokio::join!(
                world.nodes[0].gateway.kv.put(put_of("default", "k", &["b"], context.as_ref())),
                world.nodes[1].gateway.kv.put(put_of("default", "k", &["c"], context.as_ref())),
            );
            assert!(b.is_ok() && c.is_ok(), "seed {seed}");
            world.set_faults(StoreFaults::none());
            let shown = world.read(0, "default", "k").await.unwrap().texts;
            assert_eq!(shown_terms(&world, "default").await, [Bytes::from(shown[0].clone())], "seed {seed}");
        });
    }
}

fn index_shard(kind: &'static str, key: &str) -> Partition {
    let EpochShard { epoch, shard, .. } = BucketEpochs::ONE.newest_shard(key.as_bytes());
    Partition::index(&bucket(kind), b"t_bin", epoch, shard, Partition::DEFAULT_COPIES)
}

fn options() -> CallOptions {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Disk)
}

/// A repair finds an object without its index row; an overwrite comes before the repair adds it.
#[test]
fn a_repair_beside_overwrites_adds_no_term_of_a_replaced_value() {
    for seed in 0..SEEDS * 5 {
        run(async {
            let world = SimWorld::new(seed, 2).await;
            world.add_type("sib", "{}").await;
            let kv = &world.nodes[0].gateway.kv;
            let first = kv.put(put_of("sib", "k", &["a"], None)).await.unwrap().unwrap();
            let shard = index_shard("sib", "k");
            let row = world.store.read(&shard, &ReadQuery::all(1), &options()).await.unwrap().rows.remove(0);
            let gone = Change::Remove { name: row.name, stamp: row.stamp };
            world.store.apply(Batch::single(shard, vec![gone]), &options()).await.unwrap();
            world.set_faults(StoreFaults { pause_ms_max: 20, pause_per_mille: 700, ..StoreFaults::none() });
            let (repaired, put) = tokio::join!(
                world.nodes[1].gateway.kv.check_indexes(CheckMode::Repair, |_, _| true),
                kv.put(put_of("sib", "k", &["b"], first.context.as_ref())),
            );
            assert!(repaired.is_ok() && put.is_ok(), "seed {seed}: {repaired:?}");
            world.set_faults(StoreFaults::none());
            assert_eq!(shown_terms(&world, "sib").await, ["b"], "seed {seed}");
        });
    }
}

/// Writers of one key without `allow_mult` do not wait for each other, and none of them is refused.
#[test]
fn many_writers_of_terms_of_one_key_are_all_answered() {
    run(async {
        let world = SimWorld::new(1, 2).await;
        world.set_faults(StoreFaults { pause_ms_max: 20, pause_per_mille: 700, ..StoreFaults::none() });
        let kv = &world.nodes[0].gateway.kv;
        let writer = |at: usize| async move {
            for round in 0..5 {
                let term = format!("{at}-{round}");
                kv.put(put_of("default", "k", &[&term], None)).await.unwrap();
            }
        };
        futures_util::future::join_all((0..32).map(writer)).await;
        world.set_faults(StoreFaults::none());
        let shown = world.read(0, "default", "k").await.unwrap().texts;
        assert_eq!(shown_terms(&world, "default").await, [Bytes::from(shown[0].clone())]);
    });
}

/// Each sibling has its terms; a term that two siblings have is one hit, and a put that resolves them leaves its own.
#[test]
fn siblings_show_their_terms_until_they_are_resolved() {
    run(async {
        let world = SimWorld::new(1, 1).await;
        world.add_type("sib", "{}").await;
        let kv = &world.nodes[0].gateway.kv;
        kv.put(put_of("sib", "k", &["a", "both"], None)).await.unwrap();
        let found = kv.put(put_of("sib", "k", &["b", "both"], None)).await.unwrap().unwrap();
        assert_eq!(shown_terms(&world, "sib").await, ["a", "b", "both"]);
        kv.put(put_of("sib", "k", &["c"], found.context.as_ref())).await.unwrap();
        assert_eq!(shown_terms(&world, "sib").await, ["c"]);
    });
}

/// More terms than one batch with the object takes would be removed in several, and a crash in between leaves some of them
/// [invariant 125].
#[test]
fn terms_that_do_not_fit_one_batch_are_refused() {
    run(async {
        let world = SimWorld::new(1, 1).await;
        let kv = &world.nodes[0].gateway.kv;
        let long = "x".repeat(INDEX_BYTES_MAX - 5);
        kv.put(put_of("default", "k", &[&long], None)).await.unwrap();
        for terms in [vec![long.as_str(), "y"], vec![&long; 2]] {
            let refused = kv.put(put_of("default", "l", &terms, None)).await.unwrap_err();
            assert!(matches!(refused, Error::IndexTooLarge { max: INDEX_BYTES_MAX, .. }), "{refused}");
        }
        assert_eq!(shown_terms(&world, "default").await, [Bytes::from(long)]);
    });
}

/// A query ends at its deadline, wherever it stands.
#[test]
fn a_query_ends_at_its_deadline() {
    run(async {
        let world = SimWorld::new(1, 1).await;
        world.nodes[0].gateway.kv.put(put_of("default", "k", &["a"], None)).await.unwrap();
        let timeout = Some(std::time::Duration::from_millis(50));
        let mut reader = world.nodes[0].gateway.kv.query_index(all_terms("default"), None, timeout);
        assert_eq!(reader.next(1).await.unwrap().hits.len(), 1);
        world.advance(100).await;
        assert!(matches!(reader.next(1).await, Err(Error::TimedOut)));
    });
}
