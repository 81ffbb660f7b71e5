//! Random damage to a stopped store: a start reads everything, reports the damage, or is refused and changes nothing.
//!
//! ```text
//! plan             the writes, and the expected reads     base      stopped stores: closed, killed
//! file_corruption  one fault of one file                  case      a copy, a fault, and the verdict
//! dir_snapshot     a directory in memory                  readings  reads everything
//! ```
//! `LARDER_TEST_SCALE=soak` tries 10,000 faults instead of 100. A failed case prints its seed and leaves its directory;
//! `LARDER_TEST_SEED` with `LARDER_TEST_CASES=1` runs it again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "a test fails by panicking, and reads its length from the environment"
)]

mod base;
mod case;
mod dir_snapshot;
mod file_corruption;
mod opened;
mod plan;
mod readings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::{StoppedStore, StoreEnd};
use case::{CaseFailure, CaseOutcome};
use file_corruption::{FileCorruption, file_class};
use larder_testkit::{SplitMix64, case_seeds};
use tokio::runtime::Runtime;

/// Directories of failed cases that are kept.
const KEPT_MAX: usize = 20;

#[test]
fn damage_to_a_closed_store_is_reported_and_does_not_spread() {
    attack(StoreEnd::Closed);
}

#[test]
fn damage_to_a_killed_store_is_reported_and_does_not_spread() {
    attack(StoreEnd::Killed);
}

#[test]
#[ignore = "it is the child of a test, which kills it"]
fn the_child_that_is_killed() {
    base::child();
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs many cases over one stopped store, and prints a table of their outcomes.
fn attack(ended: StoreEnd) {
    case::watch_panics();
    let seeds = case_seeds(50, 5_000);
    let (first, cases) = (seeds.start, seeds.end - seeds.start);
    eprintln!("{ended:?}: LARDER_TEST_SEED={first} LARDER_TEST_CASES={cases}");
    let base = StoppedStore::new(ended);
    let work = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("damage-{ended:?}-{}", std::process::id()).to_lowercase());
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work).unwrap();
    let whole = case::run(&base, None, &SplitMix64::new(first), &work.join("whole"));
    assert_eq!(whole.unwrap(), CaseOutcome::Whole, "an undamaged store is whole");

    let mut report = DamageReport::default();
    for seed in seeds {
        let mut random = SplitMix64::new(seed);
        let fault = FileCorruption::random(&base.tree, &mut random);
        // If the process aborts, this file names the case.
        std::fs::write(work.join("current"), format!("LARDER_TEST_SEED={seed}: {fault}\n")).unwrap();
        let dir = work.join(seed.to_string());
        let outcome = case::run(&base, Some(&fault), &random, &dir);
        if report.note(seed, &fault, outcome) {
            keep_damaged(&base, &fault, &dir, report.failures.len());
        } else {
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    let classes: Vec<String> = base.tree.files().map(|(path, _)| file_class(path)).collect();
    report.finish(&work, cases, &classes);
}

/// Restores the directory of a failed case to its state before the open.
fn keep_damaged(base: &StoppedStore, fault: &FileCorruption, dir: &Path, failures: usize) {
    std::fs::remove_dir_all(dir).unwrap();
    if failures <= KEPT_MAX {
        std::fs::create_dir_all(dir).unwrap();
        base.tree.write(dir).unwrap();
        fault.apply(dir).unwrap();
    }
}

/// The outcomes of the cases.
#[derive(Default)]
struct DamageReport {
    /// By class of file: refused, whole, damaged, failed.
    by_class: BTreeMap<String, [usize; 4]>,
    failures: Vec<(u64, String, CaseFailure)>,
    cost_max: usize,
}

impl DamageReport {
    /// Notes a case; returns whether it failed.
    fn note(&mut self, seed: u64, fault: &FileCorruption, outcome: Result<CaseOutcome, CaseFailure>) -> bool {
        let counts = self.by_class.entry(file_class(&fault.path)).or_default();
        match outcome {
            Ok(CaseOutcome::Refused) => counts[0] += 1,
            Ok(CaseOutcome::Whole) => counts[1] += 1,
            Ok(CaseOutcome::Damaged(cost)) => {
                counts[2] += 1;
                self.cost_max = self.cost_max.max(cost);
            }
            Err(failure) => {
                counts[3] += 1;
                self.failures.push((seed, fault.to_string(), failure));
                return true;
            }
        }
        false
    }

    fn finish(self, work: &Path, cases: u64, classes: &[String]) {
        eprintln!("{:>8} {:>8} {:>8} {:>8}  of", "refused", "whole", "damaged", "failed");
        for (class, [refused, whole, damaged, failed]) in &self.by_class {
            eprintln!("{refused:>8} {whole:>8} {damaged:>8} {failed:>8}  {class}");
        }
        eprintln!("most reads that one fault damaged: {}", self.cost_max);
        let mut by_failure: BTreeMap<&str, usize> = BTreeMap::new();
        for (seed, fault, failure) in &self.failures {
            *by_failure.entry(failure.class).or_default() += 1;
            eprintln!("LARDER_TEST_SEED={seed} LARDER_TEST_CASES=1: {fault}: {}: {}", failure.class, failure.what);
        }
        assert!(
            self.failures.is_empty(),
            "{} of {cases} failed: {by_failure:?}; see {}",
            self.failures.len(),
            work.display()
        );
        let missed = classes.iter().filter(|class| !self.by_class.contains_key(*class)).count();
        assert!(cases < 1000 || missed == 0, "{missed} classes of files were not tried: {:?}", self.by_class.keys());
        let refused_or_damaged = self.by_class.values().any(|counts| counts[0] + counts[2] > 0);
        assert!(cases < 100 || refused_or_damaged, "no fault was noticed: the faults were no fault");
        std::fs::remove_dir_all(work).unwrap();
    }
}
