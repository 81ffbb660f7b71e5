//! Damage to a stopped store, at random: a start answers everything, says what is damaged, or is refused and changes nothing.
//!
//! ```text
//! plan    what is written, and what must be read      base    stopped stores: closed, killed
//! harm    one thing that goes wrong with one file     case    a copy, a harm, and the verdict
//! tree    a directory in memory                       judge   reads everything
//! ```
//! `LARDER_TEST_SCALE=soak` tries 10,000 harms instead of 300. A failed case prints its seed and leaves its directory;
//! `LARDER_TEST_SEED` with `LARDER_TEST_CASES=1` runs it again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "a test fails by panicking, and is told by the environment how long to run"
)]

mod base;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod harm;
mod judge;
mod opened;
mod plan;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Base, Ended};
use case::{Failure, Outcome};
use harm::{Harm, Random, sort_of};
use tokio::runtime::Runtime;

/// Directories of failed cases that are kept.
const KEPT_MAX: usize = 20;

#[test]
fn damage_to_a_store_that_was_closed_is_never_hidden_and_never_made_worse() {
    attack(Ended::Closed);
}

#[test]
fn damage_to_a_store_that_was_killed_is_never_hidden_and_never_made_worse() {
    attack(Ended::Killed);
}

#[test]
#[ignore = "it is the child of a test, which kills it"]
fn the_child_that_is_killed() {
    base::child();
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Many cases over one base, and a table of how they ended.
fn attack(ended: Ended) {
    case::watch_panics();
    let first = number("LARDER_TEST_SEED")
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64));
    let soak = std::env::var("LARDER_TEST_SCALE").is_ok_and(|scale| scale == "soak");
    let cases = number("LARDER_TEST_CASES").unwrap_or(if soak { 5000 } else { 150 });
    eprintln!("{ended:?}: LARDER_TEST_SEED={first} LARDER_TEST_CASES={cases}");
    let base = Base::new(ended);
    let work = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("damage-{ended:?}-{}", std::process::id()).to_lowercase());
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work).unwrap();
    let whole = case::run(&base, None, &Random(first), &work.join("whole"));
    assert_eq!(whole.unwrap(), Outcome::Whole, "an unharmed store is whole");

    let mut report = Report::default();
    for seed in (0..cases).map(|at| first.wrapping_add(at)) {
        let mut random = Random(seed);
        let harm = Harm::random(&base.tree, &mut random);
        // Where the process itself ends, this is the case that ended it.
        std::fs::write(work.join("current"), format!("LARDER_TEST_SEED={seed}: {harm}\n")).unwrap();
        let dir = work.join(seed.to_string());
        let outcome = case::run(&base, Some(&harm), &random, &dir);
        if report.note(seed, &harm, outcome) {
            keep_harmed(&base, &harm, &dir, report.failures.len());
        } else {
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    let sorts: Vec<String> = base.tree.files().map(|(path, _)| sort_of(path)).collect();
    report.finish(&work, cases, &sorts);
}

/// Leaves the directory of a failed case as it was before it was opened.
fn keep_harmed(base: &Base, harm: &Harm, dir: &Path, failures: usize) {
    std::fs::remove_dir_all(dir).unwrap();
    if failures <= KEPT_MAX {
        std::fs::create_dir_all(dir).unwrap();
        base.tree.write(dir).unwrap();
        harm.apply(dir).unwrap();
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// How the cases ended.
#[derive(Default)]
struct Report {
    /// By sort of file: refused, whole, damaged, failed.
    by_sort: BTreeMap<String, [usize; 4]>,
    failures: Vec<(u64, String, Failure)>,
    cost_max: usize,
}

impl Report {
    /// Notes a case; answers whether it failed.
    fn note(&mut self, seed: u64, harm: &Harm, outcome: Result<Outcome, Failure>) -> bool {
        let counts = self.by_sort.entry(sort_of(&harm.path)).or_default();
        match outcome {
            Ok(Outcome::Refused) => counts[0] += 1,
            Ok(Outcome::Whole) => counts[1] += 1,
            Ok(Outcome::Damaged(cost)) => {
                counts[2] += 1;
                self.cost_max = self.cost_max.max(cost);
            }
            Err(failure) => {
                counts[3] += 1;
                self.failures.push((seed, harm.to_string(), failure));
                return true;
            }
        }
        false
    }

    fn finish(self, work: &Path, cases: u64, sorts: &[String]) {
        eprintln!("{:>8} {:>8} {:>8} {:>8}  of", "refused", "whole", "damaged", "failed");
        for (sort, [refused, whole, damaged, failed]) in &self.by_sort {
            eprintln!("{refused:>8} {whole:>8} {damaged:>8} {failed:>8}  {sort}");
        }
        eprintln!("most reads that one harm damaged: {}", self.cost_max);
        let mut by_failure: BTreeMap<&str, usize> = BTreeMap::new();
        for (seed, harm, failure) in &self.failures {
            *by_failure.entry(failure.sort).or_default() += 1;
            eprintln!("LARDER_TEST_SEED={seed} LARDER_TEST_CASES=1: {harm}: {}: {}", failure.sort, failure.what);
        }
        assert!(
            self.failures.is_empty(),
            "{} of {cases} failed: {by_failure:?}; see {}",
            self.failures.len(),
            work.display()
        );
        let missed = sorts.iter().filter(|sort| !self.by_sort.contains_key(*sort)).count();
        assert!(cases < 100 || missed == 0, "{missed} sorts of files were not tried: {:?}", self.by_sort.keys());
        let refused_or_damaged = self.by_sort.values().any(|counts| counts[0] + counts[2] > 0);
        assert!(cases < 100 || refused_or_damaged, "no harm was noticed: the harms were no harm");
        std::fs::remove_dir_all(work).unwrap();
    }
}
