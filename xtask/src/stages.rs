//! The stages of a test run, as one table.

use std::time::Duration;

use crate::background_job::BackgroundJob;
use crate::cassandra::stage as cassandra;
use crate::clients;
use crate::deny;
use crate::mutants::{self, MutantOptions};
use crate::package;
use crate::product::{self, ProductTests};
use crate::report::StageEnd;
use crate::shell::{Result, Shell};
use crate::test_order;
use crate::test_programs::{PRODUCT, TestBuild};
use crate::test_runner::{self, TestCase, TestPace};
use crate::test_summary::TestSummary;
use crate::tidy;

/// Mutations of a run; `soak` tries all.
const MUTANTS: usize = 6;
/// The longest time of a test within its own process.
const UNIT_TEST_MAX: Duration = Duration::from_secs(300);

/// One stage.
pub(crate) struct Stage {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The property that it shows when it passes.
    pub(crate) shows: &'static str,
    /// Whether a first look, `--quick`, has it.
    pub(crate) is_quick: bool,
    /// Runs it.
    pub(crate) run: fn(&Shell) -> Result<StageEnd>,
    /// Its work that begins earlier.
    pub(crate) early: Option<EarlyWork>,
}

/// Work of a stage that goes on beside earlier ones, which wait more than they compute.
pub(crate) struct EarlyWork {
    /// The stage with which it begins.
    pub(crate) with: &'static str,
    /// Begins it.
    pub(crate) begin: fn(&Shell) -> Result<BackgroundJob>,
}

/// All stages in order: those that are cheap and fail often come first.
pub(crate) static STAGES: &[Stage] = &[
    Stage {
        name: "tidy",
        shows: "the rules of this repository",
        is_quick: true,
        run: |shell| passed(tidy::tidy(shell)),
        early: None,
    },
    Stage {
        name: "fmt",
        shows: "formatting",
        is_quick: true,
        run: |shell| passed(shell.cargo(&["fmt", "--all", "--check"])),
        early: None,
    },
    Stage {
        name: "deny",
        shows: "licences, sources and bans of dependencies",
        is_quick: true,
        run: |shell| passed(deny::deny(shell)),
        early: None,
    },
    Stage {
        name: "build",
        shows: "programs and tests compile, no warning and no lint",
        is_quick: true,
        run: |shell| passed(TestBuild::of_workspace(shell).map(drop)),
        early: None,
    },
    Stage {
        name: "unit",
        shows: "unit, property, conformance and simulation tests",
        is_quick: true,
        run: |shell| tested(unit(shell)),
        early: None,
    },
    Stage {
        name: "schedules",
        shows: "orders of the engine's threads that a seed chooses",
        is_quick: false,
        run: |shell| tested(schedules(shell)),
        early: None,
    },
    Stage {
        name: "mutants",
        shows: "rules of the design: a test fails without each of a sample",
        is_quick: false,
        run: sample_mutants,
        early: None,
    },
    Stage {
        name: "clients",
        shows: "clients of Riak and of S3, as they are published",
        is_quick: true,
        run: clients::prepare,
        early: None,
    },
    Stage {
        name: "clusters",
        shows: "nodes and gateways that fail, over three nodes",
        is_quick: false,
        run: cassandra::clusters,
        early: None,
    },
    Stage {
        name: "release",
        shows: "the programs as they ship, and their size",
        is_quick: false,
        run: |shell| passed(package::build(shell).and_then(|()| package::check_sizes(shell))),
        early: Some(EarlyWork { with: "clients", begin: package::begin_build }),
    },
    Stage {
        name: "product",
        shows: "the two programs, from outside",
        is_quick: true,
        run: |shell| {
            let tests = if shell.is_first_look() { ProductTests::FirstLook } else { ProductTests::Embedded };
            tested(product::run(shell, tests))
        },
        early: None,
    },
    Stage {
        name: "cassandra",
        shows: "conformance and answers that depend on the engine, over a node of Cassandra",
        is_quick: false,
        run: cassandra::one_node,
        early: None,
    },
];

/// The stage of this name.
pub(crate) fn named(name: &str) -> Option<&'static Stage> {
    STAGES.iter().find(|stage| stage.name == name)
}

fn passed(done: Result<()>) -> Result<StageEnd> {
    tested(done.map(|()| TestSummary::default()))
}

fn tested(done: Result<TestSummary>) -> Result<StageEnd> {
    done.map(StageEnd::Passed)
}

/// Every test that needs no running product. Some compute and some wait: two for each core.
fn unit(shell: &Shell) -> Result<TestSummary> {
    let mut build = TestBuild::of_workspace(shell)?;
    build.tests.retain(|program| program.package != PRODUCT);
    run_units(shell, &build, |_| true)
}

/// The tests of one crate, or those of them whose names contain a text.
///
/// # Errors
/// A test fails, or something does not compile.
pub(crate) fn unit_of(shell: &Shell, krate: &str, filter: &str) -> Result<()> {
    let build = TestBuild::of_crate(shell, krate)?;
    run_units(shell, &build, |name| name.contains(filter)).map(drop)
}

fn run_units(shell: &Shell, build: &TestBuild, is_wanted: impl Fn(&str) -> bool) -> Result<TestSummary> {
    let mut cases = TestCase::of_programs(shell, &build.tests)?;
    let is_too_long = |case: &TestCase| shell.is_first_look() && test_order::is_long(&case.full_name());
    cases.retain(|case| is_wanted(&case.name) && !is_too_long(case));
    let at_a_time = 2 * std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    test_runner::run(&shell.with_seed_of_commit(), cases, TestPace { at_a_time, deadline: UNIT_TEST_MAX })
}

/// Only these tests: under `shuttle` the others have no threads.
fn schedules(shell: &Shell) -> Result<TestSummary> {
    run_units(shell, &TestBuild::of_schedules(shell)?, |name| name.starts_with("schedules::"))
}

/// The commit chooses the sample, so each push tries other rules.
fn sample_mutants(shell: &Shell) -> Result<StageEnd> {
    match shell.commit_number() {
        Some(seed) => passed(mutants::mutants(shell, &MutantOptions::sample(MUTANTS, seed))),
        None => Ok(StageEnd::Skipped("the copy of the sources needs git and its history".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (number, stage) in STAGES.iter().enumerate() {
            assert_eq!(STAGES.iter().position(|other| other.name == stage.name), Some(number));
            assert!(named(stage.name).is_some());
        }
        assert!(named("nosuch").is_none());
    }

    #[test]
    fn programs_and_clients_are_made_before_they_are_used() {
        let at = |name: &str| STAGES.iter().position(|stage| stage.name == name);
        for stage in ["product", "cassandra"] {
            assert!(at("release") < at(stage) && at("clients") < at(stage), "{stage}");
        }
        assert!(at("build") < at("clusters"));
    }

    #[test]
    fn early_work_begins_with_a_stage_before_its_own() {
        for (number, stage) in STAGES.iter().enumerate() {
            let first = stage.early.as_ref().map(|early| STAGES.iter().position(|other| other.name == early.with));
            assert!(first.is_none_or(|first| first.is_some_and(|first| first < number)), "{}", stage.name);
        }
    }
}
