//! Options of a connection to a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use larder_store::Clock;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement as Text;
use tokio::time::{Instant, timeout_at};

use crate::statements::SETTINGS;

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

/// The settings of the node that answered; empty if it has no settings table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeSettings(BTreeMap<String, String>);

impl NodeSettings {
    /// Reads the settings of a node. After any failure they are empty, and nothing is promised.
    pub(crate) async fn read(session: &Session, deadline: Instant) -> Self {
        let mut text = Text::new(SETTINGS);
        text.set_consistency(Consistency::One);
        let Ok(Ok(answer)) = timeout_at(deadline, session.query_unpaged(text, ())).await else {
            return Self::default();
        };
        let Ok(answer) = answer.into_rows_result() else { return Self::default() };
        let Ok(rows) = answer.rows::<(String, Option<String>)>() else { return Self::default() };
        let rows = rows.flatten().filter(|(name, _)| name.starts_with("commitlog_sync"));
        Self(rows.map(|(name, value)| (name, value.unwrap_or_default())).collect())
    }

    /// Whether a node syncs a write before it answers.
    pub(crate) fn syncs(&self) -> bool {
        // Race: with `periodic` a power cut of all nodes takes writes that were answered before the sync [invariant 25].
        matches!(self.0.get("commitlog_sync").map(String::as_str), Some("batch" | "group"))
    }

    /// A note for the operator.
    pub(crate) fn note(&self) -> Option<String> {
        let text = match self.0.get("commitlog_sync").map(String::as_str) {
            Some("batch" | "group") => return None,
            Some("periodic") => {
                let period = ["commitlog_sync_period", "commitlog_sync_period_in_ms"].map(|name| self.0.get(name));
                let period = period.into_iter().flatten().next().map_or("10 seconds", String::as_str);
                format!(
                    "the nodes sync their commit log every {period} (commitlog_sync: periodic): a power cut of a node takes \
                     the writes that it answered within that time, its death those of the last tenth of a second"
                )
            }
            _ => "the nodes do not tell when they sync their commit log: the last writes that a node answered may be lost \
                  when it fails"
                .into(),
        };
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> NodeSettings {
        NodeSettings(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn only_a_commit_log_synced_before_the_answer_counts() {
        for mode in ["batch", "group"] {
            let settings = settings(&[("commitlog_sync", mode)]);
            assert!(settings.syncs() && settings.note().is_none(), "{mode}");
        }
        let periodic = settings(&[("commitlog_sync", "periodic"), ("commitlog_sync_period", "10000ms")]);
        assert!(!periodic.syncs() && periodic.note().unwrap().contains("every 10000ms"));
        let unknown = settings(&[]);
        assert!(!unknown.syncs() && unknown.note().unwrap().contains("do not tell"));
    }
}
