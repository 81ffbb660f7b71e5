//! Nodes of Apache Cassandra on this machine, for tests and for trying: `cargo xtask cassandra`, the product tests and the
//! load generator all start them here.
//!
//! ```text
//! Java      which one runs them
//! jars      Cassandra itself, through Maven, kept in the working copy
//! Node      one of them: its files, its process, what state it is in
//! Cluster   one to three of them on 127.0.0.1 to 127.0.0.3, started one after the other
//! Cql       a connection that speaks just enough of the protocol to ask whether a node answers, and to tidy up
//! ```
//!
//! Every wait has a deadline. A process is ended by its id, and only when it is the one that was started here.

#![allow(
    clippy::disallowed_methods,
    reason = "tools for tests: they run in real time, and find Java as the environment says"
)]

mod cluster;
mod cql;
mod files;
mod jars;
mod java;
mod node;
mod ports;
mod process;

use std::fmt;
use std::io;
use std::path::Path;

pub use cluster::{Cluster, Life, Lock, Options};
pub use cql::{Cql, Row};
pub use java::Java;
pub use node::{Node, State};
pub use ports::Ports;

/// Most nodes of a cluster here.
pub const NODES_MAX: usize = 3;

/// Why there is no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// This machine cannot run Cassandra: no Java, no Maven, or Maven cannot get it. Whoever tests says so and skips.
    Unavailable(String),
    /// It should have worked.
    Failed(String),
}

/// What is done here, or why it is not.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn failed(what: impl fmt::Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// Something with a file did not work.
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
