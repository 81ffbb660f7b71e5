//! What the test run does over Cassandra: over one node that is started for it, and over clusters that tests start themselves.

use std::fs;

use larder_cassandra_nodes::{Cluster, Error, Options};

use crate::shell::{Result, Shell};
use crate::stages::{self, Ended};

/// Where the data of the one node is, until the run ends.
const DATA: &str = "target/cassandra/test";
/// Its heap in MiB.
const HEAP_MIB: u32 = 768;
/// Product tests that run at a time: each has a server of its own, and all have one node.
const THREADS: &str = "4";
/// Tests that start clusters of their own.
const CLUSTERS: &str = "clusters";

/// Conformance, and the product tests, over one node.
///
/// # Errors
/// When something fails, the node included.
pub(crate) fn one_node(shell: &Shell) -> Result<Ended> {
    if let Some(skipped) = cannot_run()? {
        return Ok(skipped);
    }
    let dir = shell.path(DATA);
    let _ = fs::remove_dir_all(&dir);
    let done = over_one_node(shell, &dir);
    let _ = fs::remove_dir_all(&dir);
    done.map(|()| Ended::Passed)
}

/// The node ends with the value that stands for it, or with this process.
fn over_one_node(shell: &Shell, dir: &std::path::Path) -> Result<()> {
    let cluster = Options::bound(dir, 1, HEAP_MIB).and_then(Cluster::new).map_err(|error| error.to_string())?;
    cluster.up().map_err(|error| error.to_string())?;
    println!("a node of Cassandra answers on {}", cluster.contact_points());
    let shell = shell.clone().with("LARDER_CASSANDRA", cluster.contact_points());
    let conformance = shell.cargo(&["test", "-p", "larder-store-cassandra", "--no-fail-fast"]);
    let shell = stages::told(shell).with("LARDER_TEST_ENGINE", "cassandra");
    let product = shell.cargo(&["test", "-p", "larder-tests", "--no-fail-fast", "--", "--test-threads", THREADS]);
    conformance.and(product)
}

/// Nodes that fail, gateways that fail.
///
/// # Errors
/// When a test fails.
pub(crate) fn clusters(shell: &Shell) -> Result<Ended> {
    if let Some(skipped) = cannot_run()? {
        return Ok(skipped);
    }
    let shell = stages::told(shell.clone()).with("LARDER_TEST_CLUSTERS", "1");
    shell.cargo(&["test", "-p", "larder-tests", "--test", CLUSTERS, "--", "--test-threads", "1"])?;
    Ok(Ended::Passed)
}

/// Why there is no Cassandra on this machine.
fn cannot_run() -> Result<Option<Ended>> {
    match Cluster::prepare() {
        Ok(()) => Ok(None),
        Err(Error::Unavailable(why)) => Ok(Some(Ended::Skipped(format!("no test over Cassandra: {why}")))),
        Err(Error::Failed(why)) => Err(why),
    }
}
