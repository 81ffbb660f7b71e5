//! Nodes of Apache Cassandra on this machine: `cargo xtask cassandra`, the product tests and the load generator start
//! them here.
//!
//! ```text
//! Java               the Java that runs them
//! jars               Cassandra itself, fetched by Maven into the working copy
//! CassandraNode      one node: its files, its process, its state
//! CassandraCluster   one to three nodes on 127.0.0.1 to 127.0.0.3, started one after the other
//! CqlConnection      a connection with just enough of the protocol to check that a node answers, and to clean up
//! ```
//!
//! Every wait has a deadline. A process is killed by its id, and only if it is the one that was started here.

#![allow(clippy::disallowed_methods, reason = "tools for tests: they run in real time, and the environment names Java")]

mod cluster;
mod config;
mod cql;
mod jars;
mod java;
mod node;
mod ports;
mod process;

use std::fmt;
use std::io;
use std::path::Path;

pub use cluster::{CassandraCluster, ClientAuth, ClusterOptions, NodeLifetime};
pub use cql::{CqlConnection, CqlRow};
pub use java::Java;
pub use node::{CassandraNode, NodeState};
pub use ports::CassandraPorts;

/// Most nodes of a cluster.
pub const NODES_MAX: usize = 3;

/// Why a node does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// This machine cannot run Cassandra: Java or Maven is missing, or Maven cannot fetch it. A test reports this and
    /// skips.
    Unavailable(String),
    /// An operation failed on a machine that can run Cassandra.
    Failed(String),
}

/// Result of an operation on nodes.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn failed(what: impl fmt::Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// The error of a file operation.
    fn file(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) | Self::Failed(why) => out.write_str(why),
        }
    }
}

impl std::error::Error for Error {}
