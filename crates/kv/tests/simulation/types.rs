//! Propagation of a type to every running node.

use bytes::Bytes;
use larder_core::Error;
use larder_core::types::{TypeStage, TypeStateError};

use crate::simulation::world::{SimWorld, run};

#[test]
fn activation_waits_for_every_running_gateway_but_not_for_dead_ones() {
    run(async {
        let world = SimWorld::new(1, 3).await;
        let name = Bytes::from_static(b"t");
        world.nodes[2].faulty.freeze();
        let first = &world.nodes[0].gateway;
        first.types().create(&name, &serde_json::Map::new()).await.unwrap();
        assert_eq!(first.types().status(&name).await.unwrap().stage, TypeStage::Created);
        assert!(matches!(first.types().activate(&name).await, Err(Error::Type(TypeStateError::NotReady))));
        world.advance(3_000).await;
        assert_eq!(
            first.types().status(&name).await.unwrap().stage,
            TypeStage::Created,
            "one gateway has an old catalogue"
        );
        world.advance(10_000).await;
        assert_eq!(first.types().status(&name).await.unwrap().stage, TypeStage::Ready, "its heartbeat expired");
        first.types().activate(&name).await.unwrap();
        assert!(matches!(world.put(1, "t", "k", "a", None).await, Ok(())), "every gateway serves the type at once");
        world.nodes[2].faulty.thaw();
        world.put(2, "t", "k", "b", None).await.unwrap();
    });
}

#[test]
fn a_type_is_served_nowhere_before_it_is_active() {
    run(async {
        let world = SimWorld::new(1, 2).await;
        let name = Bytes::from_static(b"t");
        world.nodes[0].gateway.types().create(&name, &serde_json::Map::new()).await.unwrap();
        for at in 0..2 {
            assert!(matches!(world.put(at, "t", "k", "a", None).await, Err(Error::UnknownType(_))));
        }
    });
}

#[test]
fn of_two_racing_creations_one_survives_whole() {
    run(async {
        let world = SimWorld::new(7, 2).await;
        let name = Bytes::from_static(b"t");
        let (two, four) = (serde_json::json!({"n_val": 2}), serde_json::json!({"n_val": 4}));
        let (a, b) = (two.as_object().unwrap(), four.as_object().unwrap());
        let (a, b) = tokio::join!(
            world.nodes[0].gateway.types().create(&name, a),
            world.nodes[1].gateway.types().create(&name, b)
        );
        a.unwrap();
        b.unwrap();
        world.advance(3_000).await;
        let status = |at: usize| world.nodes[at].gateway.types().status(&name);
        let (one, other) = (status(0).await.unwrap().props, status(1).await.unwrap().props);
        assert_eq!(one, other);
        let n_val = one.iter().find(|(name, _)| *name == "n_val").map(|(_, value)| value.console());
        assert!(n_val == Some("2".into()) || n_val == Some("4".into()), "{n_val:?}");
        world.nodes[0].gateway.types().activate(&name).await.unwrap();
    });
}
