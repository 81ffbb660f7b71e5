//! A cluster of Apache Cassandra on this machine, for trying: it goes on after this program. What tests use is in `stage`.

pub(crate) mod stage;

use larder_cassandra_nodes::{Cluster, NODES_MAX, Node, Options, Ports, State};

use crate::shell::Result;

/// Heap of a node unless told otherwise, in MiB.
const HEAP_MIB: u32 = 768;

/// What is done with the cluster.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum What {
    /// Start its nodes, or those of them that do not run, and wait until they answer.
    Up(Up),
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
    /// Show every node: its process, what it is doing, where it answers, how much it holds.
    Status,
}

/// What is started.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Up {
    /// How many nodes, on 127.0.0.1 to 127.0.0.3; as many as there were, else one.
    #[arg(value_parser = clap::value_parser!(u8).range(1..=3))]
    nodes: Option<u8>,
    /// Added to Cassandra's own port numbers, of which 9042 is the one for clients.
    #[arg(long, env = "LARDER_CASSANDRA_PORT_BASE", value_name = "NUMBER")]
    port_base: Option<u16>,
    /// Heap of each node in MiB, 768 unless told otherwise.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..=65_536))]
    heap: Option<u32>,
}

/// Does it.
///
/// # Errors
/// When Cassandra cannot be run here, or a node does not do what it is told.
pub(crate) fn cassandra(what: &What) -> Result<()> {
    let done = match what {
        What::Up(told) => return up(told),
        What::Down => Cluster::open(&Cluster::home()).and_then(|cluster| cluster.down()),
        What::Kill { node } => with(*node, Node::kill),
        What::Stop { node } => with(*node, Node::stop),
        What::Cont { node } => with(*node, Node::cont),
        What::Status => Cluster::open(&Cluster::home()).map(|cluster| print!("{}", status(&cluster))),
    };
    done.map_err(|error| error.to_string())
}

fn with(number: usize, act: fn(&Node) -> larder_cassandra_nodes::Result<()>) -> larder_cassandra_nodes::Result<()> {
    act(Cluster::open(&Cluster::home())?.node(number)?)
}

/// What is not said is as it was the last time.
fn up(told: &Up) -> Result<()> {
    let text = |error: larder_cassandra_nodes::Error| error.to_string();
    let before = Cluster::open(&Cluster::home()).ok();
    let options = options(told, before.as_ref()).map_err(text)?;
    if let Some(before) = before.as_ref().map(|before| before.options().nodes).filter(|before| *before > options.nodes)
    {
        return Err(fewer(options.nodes, before));
    }
    if before.is_some_and(|before| before.options().ports != options.ports && before.nodes().iter().any(runs)) {
        return Err("it runs on other ports: `down` ends it".to_owned());
    }
    if !Cluster::is_prepared() {
        println!("getting Cassandra through Maven: this once it takes a minute");
    }
    Cluster::prepare().map_err(text)?;
    let cluster = Cluster::new(options).map_err(text)?;
    cluster.up_with(|node| println!("node {} answers on {}", node.number(), node.address())).map_err(text)?;
    println!("try:  larder --engine cassandra --cassandra {}", cluster.contact_points());
    Ok(())
}

/// A cluster does not forget its nodes: those that are not started count as down.
fn fewer(wanted: usize, before: usize) -> String {
    let home = Cluster::home();
    format!("a cluster of {before} nodes is in {}: `up {before}`, or remove its node* for {wanted} new", home.display())
}

fn runs(node: &Node) -> bool {
    node.pid().is_some()
}

fn options(told: &Up, before: Option<&Cluster>) -> larder_cassandra_nodes::Result<Options> {
    let before = before.map(Cluster::options);
    let ports = match (told.port_base, before) {
        (Some(base), _) => Ports::at(base)?,
        (None, Some(before)) => before.ports,
        (None, None) => Ports::at(0)?,
    };
    let had = before.map_or(1, |before| before.nodes);
    let nodes = told.nodes.map_or(had, usize::from).min(NODES_MAX);
    let heap_mib = told.heap.or(before.map(|before| before.heap_mib)).unwrap_or(HEAP_MIB);
    Ok(Options::detached(Cluster::home(), nodes, ports, heap_mib))
}

/// A line for each node.
fn status(cluster: &Cluster) -> String {
    cluster.nodes().iter().map(|node| line(node.number(), node) + "\n").collect()
}

fn line(number: usize, node: &Node) -> String {
    let state = match node.state() {
        State::Down => "down",
        State::Silent => "starting, or does not answer",
        State::Stopped => "stopped",
        State::Up => "up",
    };
    let pid = node.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let mib = node.data_bytes().div_ceil(1 << 20);
    format!("node {number}  pid {pid:<8} {:<16} {mib:>6} MiB  {state}", node.address().to_string())
}
