//! The engine that holds the data of the servers under test.
//!
//! By default each server has the embedded engine in its own directory. With `LARDER_TEST_ENGINE=cassandra` and
//! `LARDER_CASSANDRA=host:port` it is a gateway over that cluster, and its data is in keyspaces that are its own while its
//! [`Home`](crate::harness::Home) lives. Keyspaces take seconds to make, so tests use them again: a lock file marks those that are taken,
//! and a test empties the keyspaces that it takes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use larder_cassandra_nodes::{CqlConnection, CqlRow};

use crate::harness::home::Home;
use crate::harness::node::LarderNode;

/// How long the cluster has to empty a table.
const ANSWER: Duration = Duration::from_secs(60);
/// The most copies of a type in a test.
const COPIES_MAX: u8 = 5;
/// The most servers at a time; a test that starts more has an error.
const KEYSPACES_MAX: usize = 64;

/// The engine of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestEngine {
    /// The embedded engine.
    Local,
    /// A cluster; gateways contact this node first.
    Cassandra(SocketAddr),
}

impl TestEngine {
    /// The engine of this run, from the environment.
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

    /// Whether the servers under test hold their data themselves. A test of the embedded engine calls this first and ends
    /// when they do not; `why` names the subject of the test.
    #[must_use]
    pub fn is_local_for(why: &str) -> bool {
        let local = Self::current() == Self::Local;
        if !local {
            eprintln!("does not apply to gateways over Cassandra: {why}");
        }
        local
    }

    /// A node of the cluster under the gateways of this run. Where the servers hold their data themselves it is `None`, with a
    /// line on stderr: a test of gateways ends there.
    #[must_use]
    pub fn cluster() -> Option<SocketAddr> {
        let Self::Cassandra(node) = Self::current() else {
            eprintln!("skipped: needs LARDER_TEST_ENGINE=cassandra and LARDER_CASSANDRA=host:port");
            return None;
        };
        Some(node)
    }

    /// One of two values: a cluster on the same machine takes a multiple of the time and disk for the same bytes.
    #[must_use]
    pub fn scaled<T>(local: T, cassandra: T) -> T {
        match Self::current() {
            Self::Local => local,
            Self::Cassandra(_) => cassandra,
        }
    }

    /// A text with an n_val of 2; over a cluster, which has one node, the n_val is 1.
    #[must_use]
    pub fn with_n_val(text: &str) -> String {
        let fewer = || text.replace("\"n_val\":2", "\"n_val\":1").replace("n_val: 2", "n_val: 1");
        Self::scaled(text.to_owned(), fewer())
    }
}

/// The arguments of a gateway: the nodes that it contacts (`host:port,…`) and the prefix of its keyspaces.
pub(crate) fn gateway_args<'a>(nodes: &'a str, prefix: &'a str) -> [&'a str; 6] {
    ["--engine", "cassandra", "--cassandra", nodes, "--cassandra-keyspace", prefix]
}

/// Keyspaces under a name of the test's own. A server of [`start`](Self::start) makes them, and they are dropped with this
/// value.
#[derive(Debug)]
pub struct NamedKeyspaces {
    cluster: SocketAddr,
    prefix: String,
}

impl NamedKeyspaces {
    /// Keyspaces of this cluster; their names begin with `purpose`.
    #[must_use]
    pub fn new(cluster: SocketAddr, purpose: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { cluster, prefix: format!("{purpose}{}_{number}", std::process::id()) }
    }

    /// The keyspace for this number of copies.
    #[must_use]
    pub fn of(&self, copies: u8) -> String {
        format!("{}_n{copies}", self.prefix)
    }

    /// Starts a server over them with these additional arguments.
    #[must_use]
    pub fn start(&self, home: Home, args: &[&str]) -> LarderNode {
        LarderNode::start_in(home, &[&gateway_args(&self.cluster.to_string(), &self.prefix), args].concat())
    }
}

impl Drop for NamedKeyspaces {
    fn drop(&mut self) {
        let Ok(mut cql) = CqlConnection::connect(self.cluster, ANSWER) else { return };
        for copies in 1..=COPIES_MAX {
            let _ = cql.query(&format!("DROP KEYSPACE IF EXISTS {}", self.of(copies)));
        }
    }
}

/// Keyspaces of a cluster that no other test uses while this value lives.
#[derive(Debug)]
pub(crate) struct KeyspaceLease {
    /// The prefix of their names.
    pub(crate) prefix: String,
    /// The lock file, locked.
    _lock: File,
}

impl KeyspaceLease {
    /// Takes the first free keyspaces of the cluster and empties them.
    pub(crate) fn take(node: SocketAddr) -> Self {
        let dir = std::env::temp_dir().join(format!("larder-keyspaces-{}-{}", node.ip(), node.port()));
        fs::create_dir_all(&dir).expect("a directory for locks");
        for number in 0..KEYSPACES_MAX {
            let file = File::create(dir.join(number.to_string())).expect("a lock file");
            match file.try_lock() {
                Ok(()) => {
                    let prefix = format!("test{number}");
                    empty(node, &prefix).expect("rows of an earlier test can be removed");
                    return Self { prefix, _lock: file };
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
    let mut cql = CqlConnection::connect(node, ANSWER)?;
    let tables = cql.query("SELECT keyspace_name, table_name FROM system_schema.tables")?;
    for table in tables.iter().filter_map(|row| table_of_prefix(row, prefix)) {
        if !cql.query(&format!("SELECT * FROM {table} LIMIT 1"))?.is_empty() {
            cql.query(&format!("TRUNCATE {table}"))?;
        }
    }
    Ok(())
}

/// The full name of a table, when its keyspace is this prefix, `_n` and a number. It is quoted because some names are words
/// of CQL.
fn table_of_prefix(row: &CqlRow, prefix: &str) -> Option<String> {
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
    fn keyspaces_of_other_tests_are_not_emptied() {
        let row = |keyspace: &str| vec![Some(keyspace.as_bytes().to_vec()), Some(b"rows".to_vec())];
        assert_eq!(table_of_prefix(&row("test1_n3"), "test1").as_deref(), Some("\"test1_n3\".\"rows\""));
        for other in ["test11_n3", "test1_n", "test1_nx", "test1", "larder_n3", "system"] {
            assert_eq!(table_of_prefix(&row(other), "test1"), None, "{other}");
        }
    }
}
