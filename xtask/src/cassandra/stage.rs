//! The Cassandra stages of a test run: one over a node that the stage starts, one over clusters that tests start themselves.

use std::fs;
use std::path::Path;
use std::time::Duration;

use larder_cassandra_nodes::{CassandraCluster, ClusterOptions, Error};

use crate::product::{self, ProductTests};
use crate::report::StageEnd;
use crate::shell::{Result, Shell};
use crate::test_programs::TestBuild;
use crate::test_runner::{self, TestCase, TestPace};
use crate::test_summary::TestSummary;

/// The data folder of the one node, until the run ends.
const DATA: &str = "target/cassandra/test";
/// Its heap in MiB.
const HEAP_MIB: u32 = 768;
/// The tests of gateways and of the engine that use the node.
const OVER_A_NODE: &[&str] = &["store_cassandra_tests ", "server_tests cassandra_index::"];
/// These share one node.
const PACE: TestPace = TestPace { at_a_time: 2, deadline: Duration::from_secs(600) };

/// Runs conformance and the product tests over one node.
///
/// # Errors
/// When a test fails, or the node does not start.
pub(crate) fn one_node(shell: &Shell) -> Result<StageEnd> {
    if let Some(skipped) = cannot_run()? {
        return Ok(skipped);
    }
    let dir = shell.path(DATA);
    let _ = fs::remove_dir_all(&dir);
    let done = over_one_node(shell, &dir);
    let _ = fs::remove_dir_all(&dir);
    done.map(StageEnd::Passed)
}

/// Runs the tests. The node ends with its value, or with this process.
fn over_one_node(shell: &Shell, dir: &Path) -> Result<TestSummary> {
    let cluster =
        ClusterOptions::bound(dir, 1, HEAP_MIB).and_then(CassandraCluster::new).map_err(|error| error.to_string())?;
    cluster.up().map_err(|error| error.to_string())?;
    println!("a node of Cassandra answers on {}", cluster.contact_points());
    let shell = shell.clone().with_variable("LARDER_CASSANDRA", cluster.contact_points());
    let mut cases = TestCase::of_programs(&shell, &TestBuild::of_workspace(&shell)?.tests)?;
    cases.retain(|case| OVER_A_NODE.iter().any(|part| case.full_name().starts_with(part)));
    let conformance = test_runner::run(&shell.with_seed_of_commit(), cases, PACE);
    let shell = shell.with_variable("LARDER_TEST_ENGINE", "cassandra");
    let product = product::run(&shell, ProductTests::OverCassandra);
    let mut tests = conformance?;
    tests.merge(product?);
    Ok(tests)
}

/// Runs the tests whose nodes and gateways fail.
///
/// # Errors
/// When a test fails.
pub(crate) fn clusters(shell: &Shell) -> Result<StageEnd> {
    if let Some(skipped) = cannot_run()? {
        return Ok(skipped);
    }
    let shell = shell.clone().with_variable("LARDER_TEST_CLUSTERS", "1");
    product::run(&shell, ProductTests::Clusters).map(StageEnd::Passed)
}

/// The cause when this machine cannot run Cassandra.
fn cannot_run() -> Result<Option<StageEnd>> {
    match CassandraCluster::prepare() {
        Ok(()) => Ok(None),
        Err(Error::Unavailable(why)) => Ok(Some(StageEnd::Skipped(format!("no test over Cassandra: {why}")))),
        Err(Error::Failed(why)) => Err(why),
    }
}
