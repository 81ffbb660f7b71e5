//! The Cassandra stages of a test run: one over a node that the stage starts, one over clusters that tests start themselves.

use std::fs;

use larder_cassandra_nodes::{CassandraCluster, ClusterOptions, Error};

use crate::product::with_product_paths;
use crate::report::StageEnd;
use crate::shell::{Result, Shell};
use crate::test_targets::{self, CLUSTERS, PRODUCT, TestTargets};

/// The data folder of the one node, until the run ends.
const DATA: &str = "target/cassandra/test";
/// Its heap in MiB.
const HEAP_MIB: u32 = 768;
/// The tests of the indexes of gateways over a node.
const INDEXES: &str = "cassandra_index";
/// Product tests that run at a time: each has a server of its own, and all share one node.
const THREADS: &str = "4";

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
    done.map(|()| StageEnd::Passed)
}

/// Runs the tests. The node ends with its value, or with this process.
fn over_one_node(shell: &Shell, dir: &std::path::Path) -> Result<()> {
    let cluster =
        ClusterOptions::bound(dir, 1, HEAP_MIB).and_then(CassandraCluster::new).map_err(|error| error.to_string())?;
    cluster.up().map_err(|error| error.to_string())?;
    println!("a node of Cassandra answers on {}", cluster.contact_points());
    let shell = shell.clone().with_variable("LARDER_CASSANDRA", cluster.contact_points());
    let targets = TestTargets::read(&shell)?;
    let conformance = [targets.of("larder-store-cassandra"), vec!["--test".to_owned(), INDEXES.to_owned()]].concat();
    let conformance = test_targets::run(&shell, &conformance, &[]);
    let shell = with_product_paths(shell).with_variable("LARDER_TEST_ENGINE", "cassandra");
    let product = test_targets::run(&shell, &targets.of(PRODUCT), &["--", "--test-threads", THREADS]);
    conformance.and(product)
}

/// Runs the tests whose nodes and gateways fail.
///
/// # Errors
/// When a test fails.
pub(crate) fn clusters(shell: &Shell) -> Result<StageEnd> {
    if let Some(skipped) = cannot_run()? {
        return Ok(skipped);
    }
    let shell = with_product_paths(shell.clone()).with_variable("LARDER_TEST_CLUSTERS", "1");
    test_targets::run(&shell, &["--test".to_owned(), CLUSTERS.to_owned()], &["--", "--test-threads", "1"])?;
    Ok(StageEnd::Passed)
}

/// The cause when this machine cannot run Cassandra.
fn cannot_run() -> Result<Option<StageEnd>> {
    match CassandraCluster::prepare() {
        Ok(()) => Ok(None),
        Err(Error::Unavailable(why)) => Ok(Some(StageEnd::Skipped(format!("no test over Cassandra: {why}")))),
        Err(Error::Failed(why)) => Err(why),
    }
}
