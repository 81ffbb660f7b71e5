//! One to three nodes on this machine.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::node::CassandraNode;
use crate::ports::CassandraPorts;
use crate::{Error, Java, NODES_MAX, Result, jars};

/// How long nodes may take to know each other once they answer.
const PEERS_WAIT_MAX: Duration = Duration::from_secs(60);
/// Time between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The file that describes a cluster for later commands.
const DESCRIPTION_FILE: &str = "cluster";

/// Lifetime of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeLifetime {
    /// As long as the value of the cluster: they end with it, and with its process, in whatever way that ends.
    Bound,
    /// Until [`CassandraCluster::down`], also of a cluster opened by another process.
    Detached,
}

/// Options of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Directory of the data, with a folder for each node.
    pub dir: PathBuf,
    /// Number of nodes, 1 to [`NODES_MAX`].
    pub nodes: usize,
    /// The ports.
    pub ports: CassandraPorts,
    /// Heap of each node, in MiB: 512 is enough for tests.
    pub heap_mib: u32,
    /// Lifetime of the nodes.
    pub life: NodeLifetime,
    /// Whether schema changes are synced to disk. Without syncs tables are created far faster, and a killed node loses
    /// its last ones: for a cluster that is started once and thrown away.
    pub syncs_schema: bool,
    /// Whether nodes sync each write before they answer. Otherwise a node that is killed loses what it answered in its last
    /// tenth of a second.
    pub syncs_writes: bool,
    /// Whether Java compiles each method once and quickly: a start takes a third less of a processor, long work more.
    pub compiles_once: bool,
    /// Number of datacenters, `dc1` and so on: the nodes are in them in turn.
    pub datacenters: usize,
    /// Authentication of clients; `None` for none.
    pub auth: Option<ClientAuth>,
}

/// Nodes that accept only TLS clients with a certificate, [`ClientAuth::USER`] and [`ClientAuth::PASSWORD`], and check
/// the permissions of other users. For one node only: the peers of several could not be read.
#[derive(Debug, Clone)]
pub struct ClientAuth {
    /// The key and certificate of the nodes, PEM.
    pub identity: PathBuf,
    /// The CA of client certificates, PEM.
    pub trusted: PathBuf,
}

impl ClientAuth {
    /// The user of a new cluster.
    pub const USER: &str = "cassandra";
    /// The password of that user.
    pub const PASSWORD: &str = "cassandra";
}

impl ClusterOptions {
    /// A cluster on free ports that ends with its value, for tests. A node of several may be killed and started again;
    /// a single node then loses its last tables.
    ///
    /// # Errors
    /// When no ports are free.
    pub fn bound(dir: impl Into<PathBuf>, nodes: usize, heap_mib: u32) -> Result<Self> {
        let detached = Self::detached(dir, nodes, CassandraPorts::free()?, heap_mib);
        Ok(Self { life: NodeLifetime::Bound, syncs_schema: nodes > 1, compiles_once: nodes > 1, ..detached })
    }

    /// The cluster of `cargo xtask cassandra`: it stays.
    #[must_use]
    pub fn detached(dir: impl Into<PathBuf>, nodes: usize, ports: CassandraPorts, heap_mib: u32) -> Self {
        let (dir, life) = (dir.into(), NodeLifetime::Detached);
        let (syncs_schema, compiles_once) = (true, false);
        // Several nodes are there to be killed, a single one to be fast.
        let syncs_writes = nodes > 1;
        let (datacenters, auth) = (1, None);
        Self { dir, nodes, ports, heap_mib, life, syncs_schema, syncs_writes, compiles_once, datacenters, auth }
    }
}

/// A cluster on 127.0.0.1 and the following addresses. Its methods may be called from several threads.
#[derive(Debug)]
pub struct CassandraCluster {
    options: ClusterOptions,
    nodes: Vec<CassandraNode>,
}

/// Directory of the jars and of the nodes of `cargo xtask cassandra`: below cargo's target directory.
#[must_use]
pub(crate) fn home() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).join("target/cassandra")
}

impl CassandraCluster {
    /// Directory of the cluster of `cargo xtask cassandra`.
    #[must_use]
    pub fn home() -> PathBuf {
        home()
    }

    /// Whether Cassandra's jars are present.
    #[must_use]
    pub fn is_prepared() -> bool {
        jars::is_fetched(&home())
    }

    /// Fetches what nodes need, if it is missing: about a minute on a new machine.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Java or Maven is missing, or Maven cannot fetch Cassandra.
    pub fn prepare() -> Result<()> {
        Java::find()?;
        jars::fetch(&home()).map(drop)
    }

    /// A cluster; nothing is started.
    ///
    /// # Errors
    /// [`Error::Failed`] for a number of nodes out of range.
    pub fn new(options: ClusterOptions) -> Result<Self> {
        let count = options.nodes;
        if !(1..=NODES_MAX).contains(&count) {
            return Err(Error::failed(format!("{count} nodes: 1 to {NODES_MAX} are possible")));
        }
        let nodes = (1..=count).map(|number| CassandraNode::new(number, &options)).collect();
        Ok(Self { options, nodes })
    }

    /// The detached cluster in `dir`, running or not.
    ///
    /// # Errors
    /// [`Error::Failed`] when `dir` has no cluster.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(DESCRIPTION_FILE);
        let text = fs::read_to_string(&path).map_err(|_| Error::failed("there is no cluster: `up` makes one"))?;
        let mut numbers = text.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(nodes)), Some(Ok(base)), Some(Ok(heap_mib))) = (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(Error::failed(format!("{}: not what `up` writes", path.display())));
        };
        let ports = CassandraPorts::at(u16::try_from(base).unwrap_or(u16::MAX))?;
        let nodes = usize::try_from(nodes).unwrap_or(usize::MAX);
        Self::new(ClusterOptions::detached(dir, nodes, ports, heap_mib))
    }

    /// Starts the nodes that do not run, one after the other. Returns when all answer and know each other.
    ///
    /// # Errors
    /// As [`CassandraNode::start`].
    pub fn up(&self) -> Result<()> {
        self.up_with(|_| ())
    }

    /// As [`Self::up`], and calls `on_up` for each node that is up.
    ///
    /// # Errors
    /// As [`CassandraNode::start`].
    pub fn up_with(&self, mut on_up: impl FnMut(&CassandraNode)) -> Result<()> {
        let dir = &self.options.dir;
        fs::create_dir_all(dir).map_err(|error| Error::file(dir, &error))?;
        let note = dir.join(DESCRIPTION_FILE);
        let text = format!("{} {} {}\n", self.nodes.len(), self.options.ports.base(), self.options.heap_mib);
        // Written before the first node starts: a later command can stop a cluster whose start failed half way.
        fs::write(&note, text).map_err(|error| Error::file(&note, &error))?;
        for node in &self.nodes {
            node.start()?;
            on_up(node);
        }
        self.nodes.iter().try_for_each(|node| self.wait_until_peers_known(node))
    }

    /// The nodes, in the order of their numbers.
    #[must_use]
    pub fn nodes(&self) -> &[CassandraNode] {
        &self.nodes
    }

    /// Node `number`, counted from 1.
    ///
    /// # Errors
    /// [`Error::Failed`] when there is no node of this number.
    pub fn node(&self, number: usize) -> Result<&CassandraNode> {
        let node = number.checked_sub(1).and_then(|index| self.nodes.get(index));
        node.ok_or_else(|| Error::failed(format!("there is no node {number}")))
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// The addresses for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(CassandraNode::address).collect()
    }

    /// The addresses in the form of the server's setting `--cassandra`.
    #[must_use]
    pub fn contact_points(&self) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// Stops all nodes in order, and waits. Their data stays.
    ///
    /// # Errors
    /// As [`CassandraNode::end`].
    pub fn down(&self) -> Result<()> {
        self.nodes.iter().try_for_each(CassandraNode::ask_to_end)?;
        self.nodes.iter().try_for_each(CassandraNode::end)
    }

    fn wait_until_peers_known(&self, node: &CassandraNode) -> Result<()> {
        let (others, deadline) = (self.nodes.len() - 1, Instant::now() + PEERS_WAIT_MAX);
        loop {
            // A single node is not queried: it may require authentication.
            let known = if others > 0 { node.peers()? } else { 0 };
            if known >= others {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::failed(format!("node {} knows only {known} others", node.number())));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}
