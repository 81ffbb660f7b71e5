//! One to three nodes on this machine.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::ports::Ports;
use crate::{Error, Java, NODES_MAX, Result, jars};

/// How long nodes may take to know each other once they answer.
const MEET: Duration = Duration::from_secs(60);
/// How often they are asked.
const STEP: Duration = Duration::from_millis(200);
/// The file that says what a cluster consists of, for whoever comes later.
const NOTE: &str = "cluster";

/// How long nodes live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// As long as the value that stands for them: they end with it, and with its process, in whatever way that ends.
    Bound,
    /// Until they are ended: by [`Cluster::open`] and [`Cluster::down`], also from another process.
    Detached,
}

/// What a cluster consists of.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its data is: a folder for each node is made there.
    pub dir: PathBuf,
    /// How many nodes, 1 to [`NODES_MAX`].
    pub nodes: usize,
    /// Its ports.
    pub ports: Ports,
    /// Heap of each node, in MiB: 512 is enough for one that only tests use.
    pub heap_mib: u32,
    /// How long it lives.
    pub life: Life,
    /// Whether a change of the schema is synced to disk. Without, tables are made far faster, and a node that is killed
    /// loses those it made last: for one that is started once and thrown away.
    pub keeps_schema: bool,
    /// How many datacenters, `dc1` and so on: the nodes are in them in turn.
    pub datacenters: usize,
    /// Whom its nodes let in; `None`: everybody.
    pub lock: Option<Lock>,
}

/// Nodes that let in, in TLS alone, who shows a certificate and says [`Lock::USER`] and [`Lock::PASSWORD`], and check what
/// other users are allowed. Of one node: several could not be asked whether they know each other.
#[derive(Debug, Clone)]
pub struct Lock {
    /// The key of the nodes and their certificate, PEM.
    pub identity: PathBuf,
    /// Who signs the certificates of clients, PEM.
    pub trusted: PathBuf,
}

impl Lock {
    /// The user that a new cluster has.
    pub const USER: &str = "cassandra";
    /// Its password.
    pub const PASSWORD: &str = "cassandra";
}

impl Options {
    /// A cluster on free ports that ends with its value: what tests use. One of several nodes may be killed and started
    /// again; of one node alone, that loses the tables it made last.
    ///
    /// # Errors
    /// When no ports are free.
    pub fn bound(dir: impl Into<PathBuf>, nodes: usize, heap_mib: u32) -> Result<Self> {
        let detached = Self::detached(dir, nodes, Ports::free()?, heap_mib);
        Ok(Self { life: Life::Bound, keeps_schema: nodes > 1, ..detached })
    }

    /// What `cargo xtask cassandra` starts: it stays.
    #[must_use]
    pub fn detached(dir: impl Into<PathBuf>, nodes: usize, ports: Ports, heap_mib: u32) -> Self {
        let (dir, life) = (dir.into(), Life::Detached);
        Self { dir, nodes, ports, heap_mib, life, keeps_schema: true, datacenters: 1, lock: None }
    }
}

/// A cluster on 127.0.0.1 and the addresses behind it. Its methods may be called from several threads.
#[derive(Debug)]
pub struct Cluster {
    options: Options,
    nodes: Vec<Node>,
}

/// Where the jars are, and the nodes of `cargo xtask cassandra`: below what cargo builds.
#[must_use]
pub(crate) fn home() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).join("target/cassandra")
}

impl Cluster {
    /// Where the cluster of `cargo xtask cassandra` is.
    #[must_use]
    pub fn home() -> PathBuf {
        home()
    }

    /// Whether Cassandra is there already.
    #[must_use]
    pub fn is_prepared() -> bool {
        jars::are_in(&home())
    }

    /// Gets what is needed to start nodes, if it is not there: the first time on a machine it takes a minute.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is no Java or no Maven, or Maven cannot get Cassandra.
    pub fn prepare() -> Result<()> {
        Java::find()?;
        jars::fetch(&home()).map(drop)
    }

    /// A cluster that is not started yet.
    ///
    /// # Errors
    /// [`Error::Failed`] when it is to have none or too many nodes.
    pub fn new(options: Options) -> Result<Self> {
        let count = options.nodes;
        if !(1..=NODES_MAX).contains(&count) {
            return Err(Error::failed(format!("{count} nodes: 1 to {NODES_MAX} can be had")));
        }
        let nodes = (1..=count).map(|number| Node::new(number, &options)).collect();
        Ok(Self { options, nodes })
    }

    /// The detached cluster that was started on `dir`, running or not.
    ///
    /// # Errors
    /// [`Error::Failed`] when none ever was.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(NOTE);
        let text = fs::read_to_string(&path).map_err(|_| Error::failed("there is no cluster: `up` makes one"))?;
        let mut numbers = text.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(nodes)), Some(Ok(base)), Some(Ok(heap_mib))) = (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(Error::failed(format!("{}: not what `up` writes", path.display())));
        };
        let ports = Ports::at(u16::try_from(base).unwrap_or(u16::MAX))?;
        let nodes = usize::try_from(nodes).unwrap_or(usize::MAX);
        Self::new(Options::detached(dir, nodes, ports, heap_mib))
    }

    /// Starts the nodes that do not run, one after the other, and returns when all answer and know each other.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn up(&self) -> Result<()> {
        self.up_with(|_| ())
    }

    /// As [`Self::up`], and tells about each node when it is up.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn up_with(&self, mut told: impl FnMut(&Node)) -> Result<()> {
        let dir = &self.options.dir;
        fs::create_dir_all(dir).map_err(|error| Error::file(dir, &error))?;
        let note = dir.join(NOTE);
        let text = format!("{} {} {}\n", self.nodes.len(), self.options.ports.base(), self.options.heap_mib);
        fs::write(&note, text).map_err(|error| Error::file(&note, &error))?;
        for node in &self.nodes {
            node.start()?;
            told(node);
        }
        self.nodes.iter().try_for_each(|node| self.wait_until_met(node))
    }

    /// Its nodes, the first one first.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Node `number`, counted from 1.
    ///
    /// # Errors
    /// [`Error::Failed`] when there is none of this number.
    pub fn node(&self, number: usize) -> Result<&Node> {
        let node = number.checked_sub(1).and_then(|index| self.nodes.get(index));
        node.ok_or_else(|| Error::failed(format!("there is no node {number}")))
    }

    /// What it consists of.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Where its nodes answer clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// The addresses as the server's setting `--cassandra` wants them.
    #[must_use]
    pub fn contact_points(&self) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// Asks all nodes to end, and waits. Their data stays.
    ///
    /// # Errors
    /// As [`Node::end`].
    pub fn down(&self) -> Result<()> {
        self.nodes.iter().try_for_each(Node::ask_to_end)?;
        self.nodes.iter().try_for_each(Node::end)
    }

    fn wait_until_met(&self, node: &Node) -> Result<()> {
        let (others, deadline) = (self.nodes.len() - 1, Instant::now() + MEET);
        loop {
            // One that is alone is not asked: it may be locked.
            let known = if others > 0 { node.peers()? } else { 0 };
            if known >= others {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::failed(format!("node {} knows only {known} others", node.number())));
            }
            thread::sleep(STEP);
        }
    }
}
