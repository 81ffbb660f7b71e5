//! Consistent types are linearizable: under any faults, the reads and puts of a key fit into one order.

use larder_core::Error;
use larder_testkit::faulty::StoreFaults;
use larder_testkit::{RegisterAction, RegisterOperation, RegisterValue, is_linearizable};

use crate::simulation::world::{SimWorld, run};

const SEEDS: u64 = 30;
const GATEWAYS: usize = 3;
const KEYS: [&str; 3] = ["x", "y", "z"];
/// Reads and puts of one client of one key.
const ROUNDS: u64 = 12;

/// Operations of all clients of one key.
type RegisterHistory = Vec<RegisterOperation>;

#[test]
fn consistent_types_are_linearizable() {
    let mut operations = 0;
    for seed in 0..SEEDS {
        for (key, history) in KEYS.iter().zip(run(histories(seed))) {
            operations += history.len();
            assert!(is_linearizable(&history), "seed {seed}, key {key}: {history:?}");
        }
    }
    assert!(operations > 5_000, "{operations} operations");
}

async fn histories(seed: u64) -> Vec<RegisterHistory> {
    let world = SimWorld::new(seed, GATEWAYS).await;
    world.add_type("cas", r#"{"consistent":true}"#).await;
    world.nodes[1].clock.set_skew(200_000);
    world.set_faults(StoreFaults {
        pause_ms_max: 40,
        pause_per_mille: 600,
        fail_per_mille: 20,
        lose_per_mille: 60,
        stale_per_mille: 500,
        ..StoreFaults::none()
    });
    let key = |at| Box::pin(key(&world, at));
    let (x, y, z) = tokio::join!(key(0), key(1), key(2));
    vec![x, y, z]
}

/// Six clients of one key, two at each gateway.
async fn key(world: &SimWorld, key: usize) -> RegisterHistory {
    // Boxed: eighteen clients overflow one stack.
    let client = |number| Box::pin(client(world, KEYS[key], number));
    let (a, b, c, d, e, f) = tokio::join!(client(0), client(1), client(2), client(3), client(4), client(5));
    [a, b, c, d, e, f].concat()
}

async fn client(world: &SimWorld, key: &str, number: u64) -> RegisterHistory {
    let at = number as usize % GATEWAYS;
    let mut history = Vec::new();
    for round in 0..ROUNDS {
        let called = world.micros();
        let Ok(seen) = world.read(at, "cas", key).await else { continue };
        let value = seen.texts.first().map_or(0, |text| text.parse().expect("a number"));
        history.push(RegisterOperation { act: RegisterAction::Read(value), called, returned: Some(world.micros()) });
        let new = 1 + number + 10 * round;
        let called = world.micros();
        let put = world.put(at, "cas", key, &new.to_string(), seen.context.as_ref()).await;
        history.push(outcome(put, value, new, called, world.micros()));
    }
    history
}

fn outcome(
    put: Result<(), Error>,
    expected: RegisterValue,
    new: RegisterValue,
    called: u64,
    returned: u64,
) -> RegisterOperation {
    match put {
        Ok(()) => RegisterOperation { act: RegisterAction::Swap { expected, new }, called, returned: Some(returned) },
        Err(Error::Superseded) => {
            RegisterOperation { act: RegisterAction::Refused(expected), called, returned: Some(returned) }
        }
        Err(_) => RegisterOperation { act: RegisterAction::Swap { expected, new }, called, returned: None },
    }
}
