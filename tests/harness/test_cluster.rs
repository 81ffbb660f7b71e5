//! A cluster that fails: nodes of Cassandra that one test starts, and gateways over them.
//!
//! ```text
//! let Some(cluster) = TestCluster::start(3) else { return };
//! let (mut one, other) = (cluster.gateway(&[]), cluster.gateway(&[]));
//! cluster.node(2).kill()         the node is down, its data stays
//! cluster.node(2).start()        it is up again, and has answered
//! cluster.node(3).stop()         it is paused: SIGSTOP; cont() continues it
//! one.kill(); one.restart();     the same for a gateway, which comes back on other ports
//! ```
//!
//! Declare the gateways after the cluster: then they end before its nodes. No process outlives the test.

use larder_cassandra_nodes::{self as cassandra, CassandraCluster, ClusterOptions};
use tempfile::TempDir;

use crate::harness::engine::gateway_args;
use crate::harness::home::Home;
use crate::harness::node::LarderNode;
use crate::harness::process::ProcessEnd;

/// Heap of each node in MiB.
const HEAP_MIB: u32 = 768;
/// The prefix of the keyspaces.
const KEYSPACE: &str = "larder";

/// A cluster that belongs to one test.
#[derive(Debug)]
pub struct TestCluster {
    // The nodes end before their data is removed.
    cluster: CassandraCluster,
    _dir: TempDir,
}

impl TestCluster {
    /// Starts 1 to 3 nodes; with three, each holds a copy of every row. A node takes about 12 s.
    ///
    /// Without `LARDER_TEST_CLUSTERS=1` it prints a line and returns `None`: clusters need Java, and memory for a JVM per
    /// node.
    ///
    /// # Panics
    /// When a node does not start.
    #[must_use]
    pub fn start(nodes: usize) -> Option<Self> {
        Self::start_with(nodes, |options| options)
    }

    /// As [`Self::start`], with options that `change` has changed.
    ///
    /// # Panics
    /// When a node does not start.
    #[must_use]
    pub fn start_with(nodes: usize, change: impl FnOnce(ClusterOptions) -> ClusterOptions) -> Option<Self> {
        if std::env::var_os("LARDER_TEST_CLUSTERS").is_none() {
            eprintln!("skipped: this run starts no clusters, `cargo xtask test --only clusters` does");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("larder-cassandra-").tempdir().expect("a temporary directory");
        let options = ClusterOptions::bound(dir.path(), nodes, HEAP_MIB).expect("ports are free");
        let cluster = CassandraCluster::new(change(options)).expect("there is room for a cluster");
        cluster.up().unwrap_or_else(|error| panic!("{error}"));
        Some(Self { cluster, _dir: dir })
    }

    /// Starts a gateway over all nodes with these additional arguments. A test may start several.
    #[must_use]
    pub fn gateway(&self, args: &[&str]) -> LarderNode {
        self.gateway_with(&self.cluster.contact_points(), args)
    }

    /// Starts a gateway with these contact points (`host:port,…`); it finds the other nodes through them.
    #[must_use]
    pub fn gateway_with(&self, nodes: &str, args: &[&str]) -> LarderNode {
        let started = self.try_gateway_of(nodes, args);
        started.unwrap_or_else(|ended| panic!("no gateway over {nodes}: {ended:?}"))
    }

    /// As [`Self::gateway_with`], when the nodes may refuse the gateway.
    ///
    /// # Errors
    /// The end of a gateway that does not start.
    pub fn try_gateway_of(&self, nodes: &str, args: &[&str]) -> Result<LarderNode, ProcessEnd> {
        LarderNode::try_start(Home::new(), &[&gateway_args(nodes, KEYSPACE), args].concat())
    }

    /// Node `number`, counted from 1: a test kills, starts, pauses and continues it.
    ///
    /// # Panics
    /// When there is no node of this number.
    #[must_use]
    #[track_caller]
    pub fn node(&self, number: usize) -> &cassandra::CassandraNode {
        self.cluster.node(number).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The nodes as one cluster: to start those that are down, to ask for addresses.
    #[must_use]
    pub fn cluster(&self) -> &CassandraCluster {
        &self.cluster
    }
}
