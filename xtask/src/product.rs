//! The tests of the programs from outside: which of them a run takes, and the paths of programs and clients.

use std::time::Duration;

use crate::clients;
use crate::package;
use crate::shell::{Result, Shell};
use crate::test_programs::{PRODUCT, TestBuild};
use crate::test_runner::{self, TestCase, TestPace};
use crate::test_summary::TestSummary;

/// Tests at a time: most of them wait for a disk, a timer or another process.
const EMBEDDED_PACE: TestPace = TestPace { at_a_time: 4, deadline: Duration::from_secs(600) };
/// The same over Cassandra: each has a server of its own, and all share one node.
const CASSANDRA_PACE: TestPace = TestPace { at_a_time: 4, deadline: Duration::from_secs(600) };
/// Each test of a cluster has three nodes.
const CLUSTER_PACE: TestPace = TestPace { at_a_time: 1, deadline: Duration::from_secs(1200) };

/// Product tests of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProductTests {
    /// All over the embedded engine.
    Embedded,
    /// One client for each protocol, and a server that is killed.
    FirstLook,
    /// Those whose answers can differ by the engine.
    OverCassandra,
    /// Those that start clusters: faults of nodes and gateways always, of the others one that the commit chooses.
    Clusters,
}

/// The modules of tests that start clusters.
const CLUSTERS: &str = "clusters::";
/// Of these, the ones that every run has.
const ALWAYS: &[&str] = &["clusters::faults::"];
/// The modules of a first look.
const FIRST_LOOK: &[&str] = &["riak_clients::python::", "s3::sdk::", "startup::", "kill9::", "props::"];
/// The modules, or the begin of their tests, whose answers can differ by the engine; the others are about protocols, edges and
/// pages, which no engine sees.
const OVER_CASSANDRA: &[&str] = &[
    "admin::",
    "bodies::",
    "bucket_types::",
    "commit_hooks::",
    "kill9::",
    "kill9_datatypes::",
    "listing::",
    "members::",
    "objects::",
    "props::",
    "requests::",
    "riak_clients::java::it_updates_",
    "riak_clients::node::it_updates_",
    "riak_clients::python::it_lists_",
    "riak_clients::python::it_queries_",
    "riak_clients::python::it_runs_",
    "riak_clients::python::it_sees_",
    "riak_clients::python::it_stores_",
    "riak_clients::python::it_updates_",
    "s3::events::every_",
    "s3::kill9::",
    "s3::list_parts::",
    "s3::model::",
    "s3::quotas::",
    "s3::sdk::",
    "s3::startup::",
    "s3::streams::",
    "siblings::",
    "startup::",
    "transfer::",
    "transfer_datatypes::",
    "webhook_notices::",
];

impl ProductTests {
    fn has(self, test: &str) -> bool {
        let is_named_in = |parts| is_named_in(test, parts);
        let is_cluster = test.starts_with(CLUSTERS);
        match self {
            Self::Embedded => !is_cluster,
            Self::FirstLook => is_named_in(FIRST_LOOK),
            Self::OverCassandra => !is_cluster && is_named_in(OVER_CASSANDRA),
            Self::Clusters => is_cluster,
        }
    }

    /// The folder of the programs.
    fn programs(self) -> &'static str {
        match self {
            Self::Embedded | Self::OverCassandra => "target/release",
            Self::FirstLook | Self::Clusters => "target/debug",
        }
    }

    fn pace(self) -> TestPace {
        match self {
            Self::Embedded | Self::FirstLook => EMBEDDED_PACE,
            Self::OverCassandra => CASSANDRA_PACE,
            Self::Clusters => CLUSTER_PACE,
        }
    }
}

/// Runs product tests with the programs that ship. A first look, and the tests of clusters, take those that the build of the tests
/// made: clusters mostly wait, and the programs that ship are built beside them.
///
/// # Errors
/// A test fails, or the tests do not compile.
pub(crate) fn run(shell: &Shell, tests: ProductTests) -> Result<TestSummary> {
    let programs = shell.path(tests.programs());
    let mut build = TestBuild::of_workspace(shell)?;
    build.tests.retain(|program| program.package == PRODUCT);
    let mut cases = TestCase::of_programs(shell, &build.tests)?;
    cases.retain(|case| tests.has(&case.name));
    if tests == ProductTests::Clusters && !shell.is_soak() {
        cases = sample_clusters(cases, shell.commit_number().unwrap_or_default());
    }
    // Of the other kinds none looks at an installed package.
    let package = match tests {
        ProductTests::Embedded => package::make(shell, &programs, false)?,
        _ => None,
    };
    let shell = clients::with_places(shell.with_seed_of_commit())
        .with_variable("LARDER_BIN", programs.join("larder"))
        .with_variable("LARDER_KV_ADMIN_BIN", programs.join("kv-admin"));
    let shell = match package {
        Some(package) => shell.with_variable("LARDER_PACKAGE", package),
        None => shell,
    };
    test_runner::run(&shell, cases, tests.pace())
}

/// The tests that every run has, and one other; `number` chooses it.
fn sample_clusters(cases: Vec<TestCase>, number: u64) -> Vec<TestCase> {
    let (mut chosen, mut others): (Vec<_>, Vec<_>) =
        cases.into_iter().partition(|case| is_named_in(&case.name, ALWAYS));
    if !others.is_empty() {
        chosen.push(others.swap_remove(number as usize % others.len()));
    }
    chosen
}

fn is_named_in(test: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| test.starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_module_and_test_exists() {
        let folder = Shell::at_root().path("tests");
        for part in [ALWAYS, FIRST_LOOK, OVER_CASSANDRA, &[CLUSTERS]].concat() {
            let (module, test) = part.rsplit_once("::").unwrap();
            let module = module.replace("::", "/");
            let files = [format!("{module}.rs"), format!("{module}/mod.rs")].map(|file| folder.join(file));
            let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
            let has = |text: String| test.is_empty() || text.contains(&format!("fn {test}"));
            assert!(text.is_some_and(has), "{part}");
        }
    }

    #[test]
    fn tests_of_clusters_run_in_their_own_stage_alone() {
        let (cluster, other) = ("clusters::faults::a", "objects::a");
        let have = |test: &str| {
            let all = [ProductTests::Embedded, ProductTests::OverCassandra, ProductTests::Clusters];
            all.map(|tests| tests.has(test))
        };
        assert_eq!((have(cluster), have(other)), ([false, false, true], [true, true, false]));
        assert_eq!(have("attacks::a"), [true, false, false]);
    }
}
