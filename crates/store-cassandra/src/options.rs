//! How to reach a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use larder_store::Clock;

/// How to reach a cluster, and where in it Larder's rows are.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Nodes to ask first, each `host:port`; the others are found through them.
    pub contact_points: Vec<String>,
    /// Beginning of the names of the keyspaces: behind it stands `_n` and the number of copies.
    pub keyspace: String,
    /// Where the copies are.
    pub replication: Replication,
    /// User name and password, where the cluster asks for them.
    pub credentials: Option<Credentials>,
    /// Encrypts the connections, where the cluster does.
    pub tls: Option<TlsOptions>,
    /// Judges expiry; `None`: the cluster's own clock.
    pub clock: Option<Arc<dyn Clock>>,
}

/// Where the copies of a partition are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// `n_val` copies somewhere in the cluster: one datacenter.
    Simple,
    /// `n_val` copies in each of these datacenters; plain tables are read and written in the local one.
    Datacenters {
        /// The one this gateway is in.
        local: String,
        /// All of them, the local one included.
        all: Vec<String>,
    },
}

/// Who this gateway is to the cluster.
#[derive(Clone)]
pub struct Credentials {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

/// Whom to trust, and how to prove who this is.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Certificates of those who sign the nodes' certificates, PEM.
    pub ca: PathBuf,
    /// This gateway's certificate and key, PEM, where the cluster asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Replication {
    /// The datacenter whose nodes this gateway counts; `None`: all nodes.
    pub(crate) fn local(&self) -> Option<&str> {
        match self {
            Self::Simple => None,
            Self::Datacenters { local, .. } => Some(local),
        }
    }
}
