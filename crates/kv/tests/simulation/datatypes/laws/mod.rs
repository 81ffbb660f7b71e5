//! The laws of data types over random schedules: every acknowledged update is there until a request that saw it removes it, and
//! no more than once; what was removed stays away; all gateways show the same, whatever the order.
//!
//! ```text
//! schedule   clients at once: updates, reads, removals with contexts of any age, deletes; restarts, kills, skewed clocks, faults
//! edits      random updates, each with effects that have names of their own
//! record     moments of requests and reads; it knows no rows, and says which answers are right
//! engine     memory · embedded, killed and started again · replicas, one of which is down at a time
//! ```
//! A failure prints its seed; `LARDER_TEST_SEED=N LARDER_TEST_CASES=1` runs it again. A run tries 3,330 schedules, a soak three hundred
//! times as many.

mod edits;
mod engine;
mod facts;
mod record;
mod schedule;
mod world;

use engine::LawEngineKind;
use larder_testkit::case_seeds;

use crate::simulation::world::run;

/// Worlds of each test in a run, 666 in all: each has five keys with a schedule of their own.
const OF_COUNTERS: u64 = 100;
const OF_SETS: u64 = 100;
const OF_HLLS: u64 = 33;
const OF_MAPS: u64 = 200;
const EMBEDDED: u64 = 66;
const REPLICATED: u64 = 167;
/// A soak is so many times as long.
const SOAK: u64 = 300;

const REPLICAS: LawEngineKind = LawEngineKind::Replicated { repairs: true };
const REPLICAS_WITHOUT_REPAIR: LawEngineKind = LawEngineKind::Replicated { repairs: false };

fn walk(engines: &[LawEngineKind], kinds: &[&'static str], count: u64) {
    for seed in case_seeds(count, count * SOAK) {
        let guard = SeedGuard(seed);
        let engine = engines[seed as usize % engines.len()];
        let kind = kinds[seed as usize / engines.len() % kinds.len()];
        if let Err(wrong) = run(schedule::run_world(engine, kind, seed)) {
            panic!("{kind} on {engine:?}: {wrong}");
        }
        drop(guard);
    }
}

/// Prints the seed of a schedule that panics.
struct SeedGuard(u64);

impl Drop for SeedGuard {
    #[allow(clippy::print_stderr, reason = "a test that fails names its seed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("LARDER_TEST_SEED={} LARDER_TEST_CASES=1 runs this schedule again", self.0);
        }
    }
}

#[test]
fn counters_count_every_increment_once_in_any_schedule() {
    walk(&[LawEngineKind::Memory], &["counter"], OF_COUNTERS);
}

#[test]
fn sets_keep_what_no_remover_saw_in_any_schedule() {
    walk(&[LawEngineKind::Memory], &["set", "set", "gset"], OF_SETS);
}

#[test]
fn hyperloglogs_count_every_element_in_any_schedule() {
    walk(&[LawEngineKind::Memory], &["hll"], OF_HLLS);
}

#[test]
fn maps_keep_what_no_remover_saw_in_any_schedule() {
    walk(&[LawEngineKind::Memory], &["map"], OF_MAPS);
}

#[test]
fn the_laws_hold_on_the_embedded_engine_that_is_killed() {
    walk(&[LawEngineKind::Embedded], &["map", "counter", "set", "map", "hll", "gset"], EMBEDDED);
}

#[test]
fn the_laws_hold_over_replicas_that_come_and_go() {
    walk(&[REPLICAS, REPLICAS_WITHOUT_REPAIR], &["map", "counter", "set", "map", "hll", "gset"], REPLICATED);
}
