//! Machines that fail: nodes of Cassandra that a test starts for itself, and gateways over them.
//!
//! ```text
//! let Some(machines) = Machines::start(3) else { return };
//! let (mut one, other) = (machines.gateway(&[]), machines.gateway(&[]));
//! machines.node(2).kill()        the node is gone, its data stays
//! machines.node(2).start()       it is back, and has answered
//! machines.node(3).stop()        it is held: SIGSTOP; cont() lets it go on
//! one.kill(); one.restart();     the same for a gateway, which comes back on other ports
//! ```
//!
//! Gateways are ended before the nodes when they are declared after them. Nothing of it outlives the test, however that ends.

use larder_cassandra_nodes::{self as cassandra, Cluster, Options};
use tempfile::TempDir;

use crate::engine::gateway_args;
use crate::node::{Home, Node};
use crate::process::Ended;

/// Heap of each node in MiB.
const HEAP_MIB: u32 = 768;
/// Beginning of the names of the keyspaces.
const KEYSPACE: &str = "larder";

/// A cluster of a test's own.
#[derive(Debug)]
pub struct Machines {
    // The nodes end before their data is removed.
    cluster: Cluster,
    _dir: TempDir,
}

impl Machines {
    /// Starts so many nodes, 1 to 3, each with a copy of everything when there are three. It takes about 12 s for each.
    ///
    /// `None`, and a line that says so, unless the run is told to start clusters (`LARDER_TEST_CLUSTERS=1`): they need Java,
    /// and memory for as many Javas.
    ///
    /// # Panics
    /// When a node does not start.
    #[must_use]
    pub fn start(nodes: usize) -> Option<Self> {
        Self::start_with(nodes, |options| options)
    }

    /// As [`Self::start`], of a cluster whose options are changed first.
    ///
    /// # Panics
    /// When a node does not start.
    #[must_use]
    pub fn start_with(nodes: usize, change: impl FnOnce(Options) -> Options) -> Option<Self> {
        if std::env::var_os("LARDER_TEST_CLUSTERS").is_none() {
            eprintln!("skipped: this run starts no clusters, `cargo xtask test --only clusters` does");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("larder-cassandra-").tempdir().expect("a temporary directory");
        let options = Options::bound(dir.path(), nodes, HEAP_MIB).expect("ports are free");
        let cluster = Cluster::new(change(options)).expect("there is room for a cluster");
        cluster.up().unwrap_or_else(|error| panic!("{error}"));
        Some(Self { cluster, _dir: dir })
    }

    /// Starts a gateway over it, which asks all nodes, with these arguments besides; as many as wanted.
    #[must_use]
    pub fn gateway(&self, args: &[&str]) -> Node {
        self.gateway_of(&self.cluster.contact_points(), args)
    }

    /// Starts a gateway that is told these nodes alone (`host:port,…`); it finds the others through them.
    #[must_use]
    pub fn gateway_of(&self, nodes: &str, args: &[&str]) -> Node {
        let started = self.try_gateway_of(nodes, args);
        started.unwrap_or_else(|ended| panic!("no gateway over {nodes}: {ended:?}"))
    }

    /// As [`Self::gateway_of`], where the nodes may not let it in.
    ///
    /// # Errors
    /// How it ended and what it said.
    pub fn try_gateway_of(&self, nodes: &str, args: &[&str]) -> Result<Node, Ended> {
        Node::try_start(Home::new(), &[&gateway_args(nodes, KEYSPACE), args].concat())
    }

    /// Node `number`, counted from 1: to be killed, started, held and let go.
    ///
    /// # Panics
    /// When there is none of this number.
    #[must_use]
    #[track_caller]
    pub fn node(&self, number: usize) -> &cassandra::Node {
        self.cluster.node(number).unwrap_or_else(|error| panic!("{error}"))
    }

    /// All of it: to start what does not run, to ask for addresses.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}
