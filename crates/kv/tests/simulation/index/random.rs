//! Schedules drawn from seeds, over an engine that loses and repeats answers: whatever happened, the indexes show exactly the
//! terms of the objects.

use larder_testkit::case_seeds;
use larder_testkit::faulty::StoreFaults;

use super::walk::{IndexWalk, TYPES};
use crate::simulation::random::SOAK_SCHEDULES;
use crate::simulation::world::{SimWorld, run};

const SCHEDULES: u64 = 3_300;
/// Schedules that share a world, each in a bucket of its own.
const TOGETHER: u64 = 100;
const STEPS: usize = 10;

#[test]
fn random_schedules_leave_indexes_that_show_the_terms_of_the_objects() {
    let mut left = case_seeds(SCHEDULES, SOAK_SCHEDULES);
    while !left.is_empty() {
        let begin = left.start;
        let seeds = begin..left.end.min(begin + TOGETHER);
        run(async {
            // One of twenty worlds splits indexes in the midst of the schedules.
            let splits = (begin / TOGETHER).is_multiple_of(20);
            let mut world = match splits {
                true => SimWorld::splitting(begin, 2, 1).await,
                false => SimWorld::new(begin, 2).await,
            };
            for (name, props) in TYPES {
                world.add_type(name, props).await;
            }
            for seed in seeds.clone() {
                if let Err(wrong) = schedule(&mut world, seed, splits).await {
                    panic!("seed {seed}: {wrong}");
                }
            }
            let split = world.nodes[0].gateway.kv.split_buckets().await.unwrap();
            assert_eq!(split.len() > 10, splits && seeds.end - begin == TOGETHER, "{} buckets split", split.len());
        });
        left.start = seeds.end;
    }
}

async fn schedule(world: &mut SimWorld, seed: u64, splits: bool) -> Result<(), String> {
    let mut walk = IndexWalk::new(seed, &format!("b{seed}"));
    let is_faulty = walk.dice.below(2) == 0;
    world.set_faults(StoreFaults {
        pause_ms_max: 1 + walk.dice.below(20) as u64,
        pause_per_mille: 500,
        fail_per_mille: if is_faulty { 30 } else { 0 },
        lose_per_mille: if is_faulty { 30 } else { 0 },
        late_per_mille: 0,
        stale_per_mille: 0,
    });
    for _ in 0..STEPS {
        match walk.dice.below(40) {
            0 => {
                let (at, skew) = (walk.dice.below(2), walk.dice.below(400_000) as i64 - 200_000);
                let faults = world.nodes[at].faulty.faults();
                world.restart(at, skew).await;
                world.nodes[at].faulty.set_faults(faults);
            }
            1 => world.advance(walk.dice.below(5_000) as u64).await,
            _ => {
                let at = walk.dice.below(2);
                walk.step(&world.nodes[at].gateway).await;
                if splits {
                    world.advance(walk.dice.below(500) as u64).await;
                }
            }
        }
    }
    world.set_faults(StoreFaults::none());
    let at = walk.dice.below(2);
    walk.check(&world.nodes[at].gateway).await
}
