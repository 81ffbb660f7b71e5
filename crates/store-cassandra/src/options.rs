//! Options of a connection to a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use larder_store::Clock;

/// Options of a connection: the cluster, and the location of Larder's rows in it.
#[derive(Clone)]
pub struct ConnectOptions {
    /// First nodes to contact, each `host:port`; the driver finds the others through them.
    pub contact_points: Vec<String>,
    /// Prefix of the keyspace names, followed by `_n` and the number of copies.
    pub keyspace: String,
    /// Placement of the copies.
    pub replication: Replication,
    /// User name and password, if the cluster requires them.
    pub credentials: Option<Credentials>,
    /// TLS options, if the cluster encrypts connections.
    pub tls: Option<TlsOptions>,
    /// Clock that decides expiry; `None` for the cluster's own clock.
    pub clock: Option<Arc<dyn Clock>>,
}

/// Placement of the copies of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// `n_val` copies anywhere in a cluster of one datacenter.
    Simple,
    /// `n_val` copies in each of these datacenters; plain tables are read and written in the local one.
    Datacenters {
        /// The datacenter of this gateway.
        local: String,
        /// All datacenters, including the local one.
        all: Vec<String>,
    },
}

/// User name and password of this gateway.
#[derive(Clone)]
pub struct Credentials {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

/// Trusted certificates, and the certificate of this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// CA certificates of the nodes, PEM.
    pub ca: PathBuf,
    /// This gateway's certificate and key, PEM, if the cluster requires them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Replication {
    /// The datacenter whose nodes this gateway counts; `None` for all nodes.
    pub(crate) fn local(&self) -> Option<&str> {
        match self {
            Self::Simple => None,
            Self::Datacenters { local, .. } => Some(local),
        }
    }
}
