//! The stages of a test run, as one table.

use crate::cassandra::stage as cassandra;
use crate::clients;
use crate::python;
use crate::shell::{Result, Shell};
use crate::tidy;

/// The feature that lets the simulation switch rules off. The product is built without it.
const RULES: &str = "larder-gateway/rules";

/// How a stage ended, when it did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Everything it checks holds.
    Passed,
    /// It was not run, and why.
    Skipped(String),
}

/// One stage.
pub(crate) struct Stage {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it shows when it passes.
    pub(crate) shows: &'static str,
    /// Runs it.
    pub(crate) run: fn(&Shell) -> Result<Ended>,
}

/// All stages, in order: cheap and telling ones first.
pub(crate) static STAGES: &[Stage] = &[
    Stage { name: "tidy", shows: "the rules of this repository", run: |shell| passed(tidy::tidy(shell)) },
    Stage { name: "fmt", shows: "formatting", run: |shell| passed(shell.cargo(&["fmt", "--all", "--check"])) },
    Stage { name: "clippy", shows: "lints, no warning", run: clippy },
    Stage { name: "unit", shows: "unit, property, conformance and simulation tests", run: unit },
    Stage { name: "build", shows: "the product, as it ships", run: build },
    Stage { name: "python", shows: "an environment with the unmodified Python client", run: python::prepare },
    Stage { name: "clients", shows: "S3 clients, as they are published", run: clients::prepare },
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

fn passed(done: Result<()>) -> Result<Ended> {
    done.map(|()| Ended::Passed)
}

fn clippy(shell: &Shell) -> Result<Ended> {
    passed(shell.cargo(&["clippy", "--workspace", "--all-targets", "--features", RULES, "--", "-D", "warnings"]))
}

fn unit(shell: &Shell) -> Result<Ended> {
    let packages = ["--workspace", "--exclude", "larder-tests", "--features", RULES];
    if shell.has_cargo("nextest") {
        shell.cargo(&[&["nextest", "run", "--no-fail-fast"], &packages[..]].concat())?;
        return passed(shell.cargo(&[&["test", "--doc"], &packages[..]].concat()));
    }
    passed(shell.cargo(&[&["test", "--no-fail-fast"], &packages[..]].concat()))
}

fn build(shell: &Shell) -> Result<Ended> {
    passed(shell.cargo(&["build", "--release", "-p", "larder-server", "-p", "larder-kv-admin"]))
}

fn product(shell: &Shell) -> Result<Ended> {
    passed(told(shell.clone()).cargo(&["test", "-p", "larder-tests", "--no-fail-fast"]))
}

/// The shell with variables that tell the product tests where the programs and the clients are.
pub(crate) fn told(shell: Shell) -> Shell {
    let (larder, admin) = (shell.path("target/release/larder"), shell.path("target/release/kv-admin"));
    let shell = clients::told(shell).with("LARDER_BIN", larder).with("LARDER_KV_ADMIN_BIN", admin);
    match python::interpreter(&shell) {
        Some(python) => shell.with("LARDER_PYTHON", python),
        None => shell,
    }
}

fn deny(shell: &Shell) -> Result<Ended> {
    if !shell.has_cargo("deny") {
        return Ok(Ended::Skipped("cargo-deny is not installed".to_owned()));
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
    fn the_programs_are_built_before_they_are_tried() {
        let at = |name: &str| STAGES.iter().position(|stage| stage.name == name);
        assert!(at("product") < at("cassandra") && at("product") < at("clusters"));
        assert!(at("build") < at("product") && at("python") < at("product") && at("clients") < at("product"));
    }
}
