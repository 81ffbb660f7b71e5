//! A cluster of Apache Cassandra on this machine, for trying: it runs on after this program ends. `stage` has the clusters of
//! the tests.

pub(crate) mod stage;

use larder_cassandra_nodes::{CassandraCluster, CassandraNode, CassandraPorts, ClusterOptions, NODES_MAX, NodeState};

use crate::shell::Result;

/// Heap of a node without `--heap`, in MiB.
const HEAP_MIB: u32 = 768;

/// An action on the cluster or on one of its nodes.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum CassandraCommand {
    /// Start the nodes that do not run, and wait until they answer.
    Up(UpArgs),
    /// End all nodes; their data stays in target/cassandra.
    Down,
    /// End a node at once (SIGKILL).
    Kill {
        /// Which, counted from 1.
        node: usize,
    },
    /// Hold a node (SIGSTOP).
    Stop {
        /// Which, counted from 1.
        node: usize,
    },
    /// Let a node that is held go on (SIGCONT).
    Cont {
        /// Which, counted from 1.
        node: usize,
    },
    /// Show every node: its process, its address, its state and the size of its data.
    Status,
}

/// The cluster to start.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct UpArgs {
    /// How many nodes, on 127.0.0.1 to 127.0.0.3; without it as many as the last time, or one.
    #[arg(value_parser = clap::value_parser!(u8).range(1..=3))]
    nodes: Option<u8>,
    /// Added to Cassandra's own port numbers, of which 9042 is the one for clients.
    #[arg(long, env = "LARDER_CASSANDRA_PORT_BASE", value_name = "NUMBER")]
    port_base: Option<u16>,
    /// Heap of each node in MiB; without it 768.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..=65_536))]
    heap: Option<u32>,
}

/// Runs a command.
///
/// # Errors
/// When this machine cannot run Cassandra, or a node does not reach the state of the command.
pub(crate) fn cassandra(what: &CassandraCommand) -> Result<()> {
    let done = match what {
        CassandraCommand::Up(args) => return up(args),
        CassandraCommand::Down => CassandraCluster::open(&CassandraCluster::home()).and_then(|cluster| cluster.down()),
        CassandraCommand::Kill { node } => with(*node, CassandraNode::kill),
        CassandraCommand::Stop { node } => with(*node, CassandraNode::stop),
        CassandraCommand::Cont { node } => with(*node, CassandraNode::cont),
        CassandraCommand::Status => {
            CassandraCluster::open(&CassandraCluster::home()).map(|cluster| print!("{}", status(&cluster)))
        }
    };
    done.map_err(|error| error.to_string())
}

fn with(
    number: usize,
    act: fn(&CassandraNode) -> larder_cassandra_nodes::Result<()>,
) -> larder_cassandra_nodes::Result<()> {
    act(CassandraCluster::open(&CassandraCluster::home())?.node(number)?)
}

/// Starts the nodes; an option that is not given keeps its value of the last time.
fn up(args: &UpArgs) -> Result<()> {
    let text = |error: larder_cassandra_nodes::Error| error.to_string();
    let before = CassandraCluster::open(&CassandraCluster::home()).ok();
    let options = options(args, before.as_ref()).map_err(text)?;
    if let Some(before) = before.as_ref().map(|before| before.options().nodes).filter(|before| *before > options.nodes)
    {
        return Err(fewer(options.nodes, before));
    }
    if before.is_some_and(|before| before.options().ports != options.ports && before.nodes().iter().any(runs)) {
        return Err("the cluster runs on other ports: end it with `down` first".to_owned());
    }
    if !CassandraCluster::is_prepared() {
        println!("Maven downloads Cassandra: this takes a minute, the first time only");
    }
    CassandraCluster::prepare().map_err(text)?;
    let cluster = CassandraCluster::new(options).map_err(text)?;
    cluster.up_with(|node| println!("node {} answers on {}", node.number(), node.address())).map_err(text)?;
    println!("try:  larder --engine cassandra --cassandra {}", cluster.contact_points());
    Ok(())
}

/// The error of fewer nodes than before: a cluster keeps its nodes, and one that is not started counts as down.
fn fewer(wanted: usize, before: usize) -> String {
    let home = CassandraCluster::home();
    format!(
        "{} holds a cluster of {before} nodes: run `up {before}`, or remove its node* for {wanted} new nodes",
        home.display()
    )
}

fn runs(node: &CassandraNode) -> bool {
    node.pid().is_some()
}

fn options(args: &UpArgs, before: Option<&CassandraCluster>) -> larder_cassandra_nodes::Result<ClusterOptions> {
    let before = before.map(CassandraCluster::options);
    let ports = match (args.port_base, before) {
        (Some(base), _) => CassandraPorts::at(base)?,
        (None, Some(before)) => before.ports,
        (None, None) => CassandraPorts::at(0)?,
    };
    let had = before.map_or(1, |before| before.nodes);
    let nodes = args.nodes.map_or(had, usize::from).min(NODES_MAX);
    let heap_mib = args.heap.or(before.map(|before| before.heap_mib)).unwrap_or(HEAP_MIB);
    Ok(ClusterOptions::detached(CassandraCluster::home(), nodes, ports, heap_mib))
}

/// A line for each node.
fn status(cluster: &CassandraCluster) -> String {
    cluster.nodes().iter().map(|node| line(node.number(), node) + "\n").collect()
}

fn line(number: usize, node: &CassandraNode) -> String {
    let state = match node.state() {
        NodeState::Down => "down",
        NodeState::Silent => "starting, or does not answer",
        NodeState::Stopped => "stopped",
        NodeState::Up => "up",
    };
    let pid = node.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let mib = node.data_bytes().div_ceil(1 << 20);
    format!("node {number}  pid {pid:<8} {:<16} {mib:>6} MiB  {state}", node.address().to_string())
}
