//! Gateways that start, stop and are killed.

use bytes::Bytes;
use larder_core::types::TypeStage;
use larder_testkit::faulty::StoreFaults;

use crate::simulation::world::{SimWorld, run};

#[test]
fn other_gateways_accept_contexts_of_a_restarted_gateway_at_once() {
    run(async {
        let mut world = SimWorld::new(1, 2).await;
        world.add_type("sib", "{}").await;
        for round in 0..5 {
            world.put(0, "sib", "k", "before", None).await.unwrap();
            world.restart(0, 0).await;
            world.put(0, "sib", "k", "after", None).await.unwrap();
            let seen = world.read(0, "sib", "k").await.unwrap().context;
            world.put(1, "sib", "k", "other", seen.as_ref()).await.unwrap_or_else(|error| panic!("{round}: {error}"));
            assert_eq!(world.read(0, "sib", "k").await.unwrap().texts, ["other"], "{round}");
        }
    });
}

#[test]
fn a_change_is_shown_by_every_gateway_within_two_seconds() {
    run(async {
        let world = SimWorld::new(3, 3).await;
        world.set_props(0, "default", r#"{"n_val":2}"#).await.unwrap();
        let changed = tokio::time::Instant::now();
        let name = Bytes::from_static(b"t");
        world.nodes[1].gateway.types().create(&name, &serde_json::Map::new()).await.unwrap();
        assert!(changed.elapsed().as_millis() <= 2_000, "{:?}", changed.elapsed());
        let stage = world.nodes[2].gateway.types().status(&name).await.unwrap().stage;
        assert_eq!(stage, TypeStage::Ready, "create waits until all running gateways show the type");
    });
}

#[test]
fn a_second_gateway_of_the_same_name_does_not_start_while_the_first_runs() {
    run(async {
        let mut world = SimWorld::new(4, 2).await;
        let begun = tokio::time::Instant::now();
        let error = world.start_twin(0).await.unwrap_err();
        assert!(error.to_string().contains("g0"), "{error}");
        assert!(begun.elapsed().as_secs() <= 4);
        world.nodes[0].gateway.shutdown().await;
        world.start_twin(0).await.unwrap();
    });
}

#[test]
fn a_late_heartbeat_of_a_killed_gateway_does_not_block_its_restart() {
    for seed in 0..50 {
        run(async {
            let mut world = SimWorld::new(seed, 1).await;
            world.set_faults(StoreFaults { late_per_mille: 1000, ..StoreFaults::none() });
            world.advance(2_100).await;
            world.restart(0, 0).await;
        });
    }
}

#[test]
fn all_gateways_agree_on_the_leader_and_replace_it_when_it_is_gone() {
    run(async {
        let world = SimWorld::new(5, 3).await;
        let leads = async || {
            let mut leads = Vec::new();
            for node in &world.nodes {
                leads.push(node.gateway.members().is_leader().await.unwrap());
            }
            leads
        };
        assert_eq!(leads().await, [true, false, false]);
        world.nodes[0].gateway.abandon();
        world.advance(11_000).await;
        assert_eq!(leads().await, [false, true, false]);
    });
}

#[test]
fn a_gateway_that_shuts_down_leaves_the_members_at_once_despite_a_slow_clock() {
    run(async {
        let world = SimWorld::new(6, 2).await;
        world.nodes[0].clock.set_skew(-400_000);
        world.advance(2_010).await;
        world.nodes[0].gateway.shutdown().await;
        assert_eq!(world.nodes[1].gateway.members().list().await.unwrap().len(), 1);
    });
}
