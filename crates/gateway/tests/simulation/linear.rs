//! Consistent types are linearizable: whatever fails, all that clients saw of a key fits in one order.

use larder_gateway::{Error, Rule, Rules};
use larder_store::wrappers::faulty::Faults;
use larder_tests::{Act, Op, Value, is_linearizable};

use crate::world::{World, run};

const SEEDS: u64 = 30;
const GATEWAYS: usize = 3;
const KEYS: [&str; 3] = ["x", "y", "z"];
/// Reads and puts of one client of one key.
const ROUNDS: u64 = 12;

/// What the clients of one key did.
type History = Vec<Op>;

#[test]
fn consistent_types_are_linearizable() {
    let mut operations = 0;
    for seed in 0..SEEDS {
        for (key, history) in KEYS.iter().zip(run(histories(seed, Rules::default()))) {
            operations += history.len();
            assert!(is_linearizable(&history), "seed {seed}, key {key}: {history:?}");
        }
    }
    assert!(operations > 5_000, "{operations} operations");
}

#[test]
fn without_the_guard_they_are_not() {
    let broken =
        |seed| run(histories(seed, Rules::without(Rule::RefuseConflicts))).iter().any(|one| !is_linearizable(one));
    assert!((0..SEEDS).any(broken), "the guard seems not to be needed");
}

async fn histories(seed: u64, rules: Rules) -> Vec<History> {
    let world = World::new(seed, rules, GATEWAYS).await;
    world.add_type("cas", r#"{"consistent":true}"#).await;
    world.nodes[1].clock.set_skew(200_000);
    world.set_faults(Faults {
        pause_ms_max: 40,
        pause_per_mille: 600,
        fail_per_mille: 20,
        lose_per_mille: 60,
        stale_per_mille: 500,
        ..Faults::none()
    });
    let key = |at| Box::pin(key(&world, at));
    let (x, y, z) = tokio::join!(key(0), key(1), key(2));
    vec![x, y, z]
}

/// Six clients of one key, two at each gateway.
async fn key(world: &World, key: usize) -> History {
    // Boxed: eighteen clients on one stack are too many.
    let client = |number| Box::pin(client(world, KEYS[key], number));
    let (a, b, c, d, e, f) = tokio::join!(client(0), client(1), client(2), client(3), client(4), client(5));
    [a, b, c, d, e, f].concat()
}

async fn client(world: &World, key: &str, number: u64) -> History {
    let at = number as usize % GATEWAYS;
    let mut history = Vec::new();
    for round in 0..ROUNDS {
        let called = world.micros();
        let Ok(seen) = world.read(at, "cas", key).await else { continue };
        let value = seen.texts.first().map_or(0, |text| text.parse().expect("a number"));
        history.push(Op { act: Act::Read(value), called, returned: Some(world.micros()) });
        let new = 1 + number + 10 * round;
        let called = world.micros();
        let put = world.put(at, "cas", key, &new.to_string(), seen.context.as_ref()).await;
        history.push(outcome(put, value, new, called, world.micros()));
    }
    history
}

fn outcome(put: Result<(), Error>, expected: Value, new: Value, called: u64, returned: u64) -> Op {
    match put {
        Ok(()) => Op { act: Act::Swap { expected, new }, called, returned: Some(returned) },
        Err(Error::Superseded) => Op { act: Act::Refused(expected), called, returned: Some(returned) },
        Err(_) => Op { act: Act::Swap { expected, new }, called, returned: None },
    }
}
