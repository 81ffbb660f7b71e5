//! Gateways that come, stop and go.

use bytes::Bytes;
use larder_gateway::Rules;
use larder_gateway::types::Stage;
use larder_store::wrappers::faulty::Faults;

use crate::world::{World, run};

#[test]
fn what_a_killed_and_restarted_gateway_answers_is_taken_by_the_others_at_once() {
    run(async {
        let mut world = World::new(1, Rules::default(), 2).await;
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
        let world = World::new(3, Rules::default(), 3).await;
        world.set_props(0, "default", r#"{"n_val":2}"#).await.unwrap();
        let changed = tokio::time::Instant::now();
        let name = Bytes::from_static(b"t");
        world.nodes[1].gateway.create_type(&name, &serde_json::Map::new()).await.unwrap();
        assert!(changed.elapsed().as_millis() <= 2_000, "{:?}", changed.elapsed());
        let stage = world.nodes[2].gateway.type_status(&name).await.unwrap().stage;
        assert_eq!(stage, Stage::Ready, "create answers when all running gateways show the type");
    });
}

#[test]
fn a_second_gateway_of_the_same_name_does_not_start_while_the_first_runs() {
    run(async {
        let mut world = World::new(4, Rules::default(), 2).await;
        let begun = tokio::time::Instant::now();
        let error = world.start_twin(0).await.unwrap_err();
        assert!(error.to_string().contains("g0"), "{error}");
        assert!(begun.elapsed().as_secs() <= 4);
        world.nodes[0].gateway.shutdown().await;
        world.start_twin(0).await.unwrap();
    });
}

#[test]
fn the_last_heartbeat_of_a_killed_gateway_once_kept_its_name_when_it_arrived_late() {
    for seed in 0..50 {
        run(async {
            let mut world = World::new(seed, Rules::default(), 1).await;
            world.set_faults(Faults { late_per_mille: 1000, ..Faults::none() });
            world.pass(2_100).await;
            world.restart(0, 0).await;
        });
    }
}

#[test]
fn the_gateway_that_leads_is_the_same_for_all_and_another_one_when_it_is_gone() {
    run(async {
        let world = World::new(5, Rules::default(), 3).await;
        let leads = async || {
            let mut leads = Vec::new();
            for node in &world.nodes {
                leads.push(node.gateway.leads().await.unwrap());
            }
            leads
        };
        assert_eq!(leads().await, [true, false, false]);
        world.nodes[0].gateway.abandon();
        world.pass(11_000).await;
        assert_eq!(leads().await, [false, true, false]);
    });
}

#[test]
fn a_gateway_that_was_stopped_in_order_is_gone_at_once_whatever_its_clock() {
    run(async {
        let world = World::new(6, Rules::default(), 2).await;
        world.nodes[0].clock.set_skew(-400_000);
        world.pass(2_010).await;
        world.nodes[0].gateway.shutdown().await;
        assert_eq!(world.nodes[1].gateway.members().await.unwrap().len(), 1);
    });
}
