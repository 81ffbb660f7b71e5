//! Objects of consistent types: writers append to one value by read and put; no acknowledged append may be missing.

use larder_testkit::faulty::StoreFaults;

use crate::simulation::world::{SimWorld, run};

const SEEDS: u64 = 60;
const ROUNDS: usize = 12;

#[test]
fn every_acknowledged_append_is_in_the_value() {
    for seed in 0..SEEDS {
        if let Err(wrong) = run(appends(seed)) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

async fn appends(seed: u64) -> Result<(), String> {
    let world = SimWorld::new(seed, 3).await;
    world.add_type("cas", r#"{"consistent":true}"#).await;
    world.nodes[1].clock.set_skew(300_000);
    world.set_faults(StoreFaults {
        pause_ms_max: 30,
        pause_per_mille: 700,
        fail_per_mille: 30,
        lose_per_mille: 50,
        stale_per_mille: 500,
        ..StoreFaults::none()
    });
    let (a, b, c) = tokio::join!(writer(&world, 0), writer(&world, 1), writer(&world, 2));
    world.set_faults(StoreFaults::none());
    world.advance(10_000).await;
    let value = world.read(0, "cas", "k").await.map_err(|error| error.to_string())?;
    let found: Vec<_> = value.texts.first().map(|text| text.split(' ').collect()).unwrap_or_default();
    for done in [a, b, c].concat() {
        if !found.contains(&done.as_str()) {
            return Err(format!("{done} was acknowledged and is not in {found:?}"));
        }
    }
    match found.len() {
        0 => Err("nothing was ever written".into()),
        _ => Ok(()),
    }
}

/// Appends its marks in a number of rounds; answers the acknowledged ones.
async fn writer(world: &SimWorld, at: usize) -> Vec<String> {
    let mut done = Vec::new();
    for round in 0..ROUNDS {
        let Ok(seen) = world.read(at, "cas", "k").await else { continue };
        let mark = format!("g{at}r{round}");
        let text = seen.texts.first().map_or(mark.clone(), |text| format!("{text} {mark}"));
        if world.put(at, "cas", "k", &text, seen.context.as_ref()).await.is_ok() {
            done.push(mark);
        }
    }
    done
}

#[test]
fn a_put_without_the_current_context_is_refused() {
    run(async {
        let world = SimWorld::new(1, 2).await;
        world.add_type("cas", r#"{"consistent":true}"#).await;
        world.put(0, "cas", "k", "a", None).await.unwrap();
        let first = world.read(1, "cas", "k").await.unwrap().context;
        assert!(world.put(1, "cas", "k", "blind", None).await.is_err());
        world.put(1, "cas", "k", "b", first.as_ref()).await.unwrap();
        assert!(world.put(0, "cas", "k", "stale", first.as_ref()).await.is_err());
        assert!(world.delete(0, "cas", "k", first.as_ref()).await.is_err());
        assert!(world.delete(0, "cas", "k", None).await.unwrap());
        assert!(world.read(1, "cas", "k").await.unwrap().texts.is_empty());
        world.put(1, "cas", "k", "again", None).await.unwrap();
        assert_eq!(world.read(0, "cas", "k").await.unwrap().texts, ["again"]);
    });
}
