//! The stages of a test run, as one table.

use crate::cassandra::stage as cassandra;
use crate::clients;
use crate::mutants::{self, MutantOptions};
use crate::product::with_product_paths;
use crate::report::StageEnd;
use crate::shell::{Result, Shell};
use crate::test_targets::{self, PRODUCT, TestTargets};
use crate::tidy;

/// Mutations of a run; `soak` tries all.
const MUTANTS: usize = 6;

/// One stage.
pub(crate) struct Stage {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The property that it shows when it passes.
    pub(crate) shows: &'static str,
    /// Runs it.
    pub(crate) run: fn(&Shell) -> Result<StageEnd>,
}

/// All stages in order: those that are cheap and fail often come first.
pub(crate) static STAGES: &[Stage] = &[
    Stage { name: "tidy", shows: "the rules of this repository", run: |shell| passed(tidy::tidy(shell)) },
    Stage { name: "fmt", shows: "formatting", run: |shell| passed(shell.cargo(&["fmt", "--all", "--check"])) },
    Stage { name: "clippy", shows: "lints, no warning", run: clippy },
    Stage { name: "unit", shows: "unit, property, conformance and simulation tests", run: unit },
    Stage { name: "mutants", shows: "rules of the design: a test fails without each of a sample", run: sample_mutants },
    Stage { name: "build", shows: "the product, as it ships", run: build },
    Stage { name: "clients", shows: "clients of Riak and of S3, as they are published", run: clients::prepare },
    Stage { name: "product", shows: "the two programs, from outside", run: product },
    Stage {
        name: "cassandra",
        shows: "conformance and the product, over a node of Cassandra",
        run: cassandra::one_node,
    },
    Stage { name: "clusters", shows: "nodes and gateways that fail, over three nodes", run: cassandra::clusters },
    Stage { name: "deny", shows: "licences and sources of dependencies", run: deny },
];

/// The stage of this name.
pub(crate) fn named(name: &str) -> Option<&'static Stage> {
    STAGES.iter().find(|stage| stage.name == name)
}

fn passed(done: Result<()>) -> Result<StageEnd> {
    done.map(|()| StageEnd::Passed)
}

fn clippy(shell: &Shell) -> Result<StageEnd> {
    passed(shell.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn unit(shell: &Shell) -> Result<StageEnd> {
    test_targets::run(shell, &TestTargets::read(shell)?.of_crates(), &["--lib", "--bins"])?;
    passed(shell.cargo(&["test", "--workspace", "--doc"]))
}

/// The commit chooses the sample, so each push tries other rules.
fn sample_mutants(shell: &Shell) -> Result<StageEnd> {
    let Ok(commit) = shell.output("git", &["rev-parse", "HEAD"]) else {
        return Ok(StageEnd::Skipped("the copy of the sources needs git and its history".to_owned()));
    };
    let seed = commit.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default();
    passed(mutants::mutants(shell, &MutantOptions::sample(MUTANTS, seed)))
}

fn build(shell: &Shell) -> Result<StageEnd> {
    passed(shell.cargo(&["build", "--release", "-p", "larder-server", "-p", "larder-kv-admin"]))
}

fn product(shell: &Shell) -> Result<StageEnd> {
    passed(test_targets::run(&with_product_paths(shell.clone()), &TestTargets::read(shell)?.of(PRODUCT), &[]))
}

fn deny(shell: &Shell) -> Result<StageEnd> {
    if !shell.has_cargo_subcommand("deny") {
        return Ok(StageEnd::Skipped("cargo-deny is not installed".to_owned()));
    }
    passed(shell.cargo(&["deny", "--workspace", "check", "bans", "licenses", "sources"]))
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
    fn the_programs_are_built_before_they_are_tested() {
        let at = |name: &str| STAGES.iter().position(|stage| stage.name == name);
        assert!(at("product") < at("cassandra") && at("product") < at("clusters"));
        assert!(at("build") < at("product") && at("clients") < at("product"));
    }
}
