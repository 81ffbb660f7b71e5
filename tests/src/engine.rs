//! Which engine the servers under test keep their data in.
//!
//! Unless told otherwise each server has the embedded engine in its own directory. With `LARDER_TEST_ENGINE=cassandra` and
//! `LARDER_CASSANDRA=host:port` it is a gateway over that cluster, and its data is in keyspaces that are its own while its
//! [`Home`](crate::Home) lives. To make keyspaces takes seconds, so they are used again: a lock file says which are taken, and
//! whoever takes one empties what was left in it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use larder_cassandra_nodes::{Cql, Row};

use crate::node::{Home, Node};

/// How long the cluster has to empty a table.
const ANSWER: Duration = Duration::from_secs(60);
/// Most copies that a type of a test has.
const COPIES_MAX: u8 = 5;
/// More servers than this at a time are a mistake in a test.
const KEYSPACES_MAX: usize = 64;

/// An engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// The embedded one.
    Local,
    /// A cluster, of which this node is asked first.
    Cassandra(SocketAddr),
}

impl Engine {
    /// The one that this run is told to use.
    #[must_use]
    pub fn current() -> Self {
        match std::env::var("LARDER_TEST_ENGINE").as_deref() {
            Err(_) | Ok("local") => Self::Local,
            Ok("cassandra") => {
                let node = std::env::var("LARDER_CASSANDRA").expect("LARDER_CASSANDRA says where the cluster is");
                Self::Cassandra(node.parse().expect("LARDER_CASSANDRA is an address with a port"))
            }
            Ok(other) => panic!("LARDER_TEST_ENGINE is local or cassandra, not {other}"),
        }
    }

    /// Whether the servers under test keep their data themselves. A test that is about how they do that asks first, and
    /// ends when they do not: `why` is what it would have been about.
    #[must_use]
    pub fn is_local_for(why: &str) -> bool {
        let local = Self::current() == Self::Local;
        if !local {
            eprintln!("does not apply to gateways over Cassandra: {why}");
        }
        local
    }

    /// A node of the cluster that the servers under test are gateways over. `None`, and a line that says so, where they keep
    /// their data themselves: a test that is about gateways ends there.
    #[must_use]
    pub fn cluster() -> Option<SocketAddr> {
        let Self::Cassandra(node) = Self::current() else {
            eprintln!("skipped: needs LARDER_TEST_ENGINE=cassandra and LARDER_CASSANDRA=host:port");
            return None;
        };
        Some(node)
    }

    /// One of two numbers: a cluster on the same machine takes a multiple of the time and disk for the same bytes.
    #[must_use]
    pub fn scaled<T>(local: T, cassandra: T) -> T {
        match Self::current() {
            Self::Local => local,
            Self::Cassandra(_) => cassandra,
        }
    }

    /// Properties, or what is shown of them, that say an n_val of 2: over a cluster, which has one node, they say 1.
    #[must_use]
    pub fn with_n_val(text: &str) -> String {
        let fewer = || text.replace("\"n_val\":2", "\"n_val\":1").replace("n_val: 2", "n_val: 1");
        Self::scaled(text.to_owned(), fewer())
    }
}

/// What a gateway is told of its cluster: nodes to ask (`host:port,…`), and the beginning of the names of its keyspaces.
pub(crate) fn gateway_args<'a>(nodes: &'a str, prefix: &'a str) -> [&'a str; 6] {
    ["--engine", "cassandra", "--cassandra", nodes, "--cassandra-keyspace", prefix]
}

/// Keyspaces that a test names itself, where it is about what becomes of them. They are not there before a server of
/// [`start`](Self::start) makes them, and are dropped with this value.
#[derive(Debug)]
pub struct OwnKeyspaces {
    cluster: SocketAddr,
    prefix: String,
}

impl OwnKeyspaces {
    /// Keyspaces of this cluster; `what` they are for is the beginning of their names.
    #[must_use]
    pub fn new(cluster: SocketAddr, what: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { cluster, prefix: format!("{what}{}_{number}", std::process::id()) }
    }

    /// The keyspace of a number of copies.
    #[must_use]
    pub fn of(&self, copies: u8) -> String {
        format!("{}_n{copies}", self.prefix)
    }

    /// A server over them, with these arguments besides.
    #[must_use]
    pub fn start(&self, home: Home, args: &[&str]) -> Node {
        Node::start_in(home, &[&gateway_args(&self.cluster.to_string(), &self.prefix), args].concat())
    }
}

impl Drop for OwnKeyspaces {
    fn drop(&mut self) {
        let Ok(mut cql) = Cql::connect(self.cluster, ANSWER) else { return };
        for copies in 1..=COPIES_MAX {
            let _ = cql.query(&format!("DROP KEYSPACE IF EXISTS {}", self.of(copies)));
        }
    }
}

/// Keyspaces of a cluster that nobody else uses as long as this value lives.
#[derive(Debug)]
pub(crate) struct Keyspaces {
    /// Beginning of their names.
    pub(crate) prefix: String,
    /// Locked.
    _taken: File,
}

impl Keyspaces {
    /// Takes some of the cluster, empty.
    pub(crate) fn take(node: SocketAddr) -> Self {
        let dir = std::env::temp_dir().join(format!("larder-keyspaces-{}-{}", node.ip(), node.port()));
        fs::create_dir_all(&dir).expect("a directory for locks");
        for number in 0..KEYSPACES_MAX {
            let file = File::create(dir.join(number.to_string())).expect("a lock file");
            match file.try_lock() {
                Ok(()) => {
                    let prefix = format!("test{number}");
                    empty(node, &prefix).expect("what was left can be removed");
                    return Self { prefix, _taken: file };
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => panic!("{}: {error}", dir.display()),
            }
        }
        panic!("{KEYSPACES_MAX} servers over one cluster");
    }
}

/// Removes every row of the keyspaces of this prefix.
fn empty(node: SocketAddr, prefix: &str) -> io::Result<()> {
    let mut cql = Cql::connect(node, ANSWER)?;
    let tables = cql.query("SELECT keyspace_name, table_name FROM system_schema.tables")?;
    for table in tables.iter().filter_map(|row| named(row, prefix)) {
        if !cql.query(&format!("SELECT * FROM {table} LIMIT 1"))?.is_empty() {
            cql.query(&format!("TRUNCATE {table}"))?;
        }
    }
    Ok(())
}

/// The full name of a table, quoted because some are words of the language, when it is in a keyspace of this prefix: behind
/// it stands `_n` and a number.
fn named(row: &Row, prefix: &str) -> Option<String> {
    let text = |column: usize| row.get(column)?.as_deref().map(String::from_utf8_lossy);
    let (keyspace, table) = (text(0)?, text(1)?);
    let copies = keyspace.strip_prefix(prefix)?.strip_prefix("_n")?;
    (!copies.is_empty() && copies.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| format!("\"{keyspace}\".\"{table}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspaces_of_others_are_left_alone() {
        let row = |keyspace: &str| vec![Some(keyspace.as_bytes().to_vec()), Some(b"rows".to_vec())];
        assert_eq!(named(&row("test1_n3"), "test1").as_deref(), Some("\"test1_n3\".\"rows\""));
        for other in ["test11_n3", "test1_n", "test1_nx", "test1", "larder_n3", "system"] {
            assert_eq!(named(&row(other), "test1"), None, "{other}");
        }
    }
}
