//! The engine of many machines: it is connected here.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use larder_core::{EngineNode, EngineSample, EngineStatus};
use larder_rows::ActorId;
use larder_store::upkeep::NodeUpkeep;
use larder_store::{Clock, Partition, Store};
use larder_store_cassandra::blobs::{self, BlobOptions, CassandraBlobs};
use larder_store_cassandra::{CassandraStore, ConnectOptions, Credentials};

use crate::failure::ServerFailure;
use crate::settings::CassandraSettings;

/// A connected cluster.
pub(crate) struct OpenedCluster {
    /// The rows.
    pub(crate) store: Arc<dyn Store>,
    /// The large bodies.
    pub(crate) blobs: Arc<CassandraBlobs>,
    /// The engine's view for operators.
    pub(crate) view: Arc<dyn EngineStatus>,
    /// The place of the data, in a line of the banner.
    pub(crate) description: String,
    /// Notes for the operator.
    pub(crate) notes: Vec<String>,
}

/// Connects to the cluster; creates missing keyspaces and tables.
///
/// # Errors
/// A line that says why the cluster cannot be used.
pub(crate) async fn open(
    settings: &CassandraSettings,
    clock: &Arc<dyn Clock>,
    actor: ActorId,
) -> Result<OpenedCluster, ServerFailure> {
    let nodes = settings.nodes.join(",");
    tracing::info!(nodes, "connecting to the cluster; a first start makes tables there, which takes some 20 seconds");
    let store = CassandraStore::connect(options(settings)?).await;
    let store = store.map_err(|error| ServerFailure(format!("cannot use the engine cassandra: {error}")))?;
    let (grace, lease) = (blobs::GRACE, blobs::LEASE);
    let options = BlobOptions { grace, lease, clock: Arc::clone(clock), process: actor.0 };
    let blobs =
        CassandraBlobs::open(store.session().clone(), &store.keyspace(Partition::DEFAULT_COPIES), options).await;
    let blobs =
        blobs.map_err(|error| ServerFailure(format!("cannot open the blobs in the cluster at {nodes}: {error}")))?;
    let blobs = Arc::new(blobs);
    let up = node_count(store.nodes_up());
    Ok(OpenedCluster {
        description: format!("{nodes} (engine cassandra, keyspaces {}_n3 and others, {up} up)", settings.keyspace),
        notes: store.notes(),
        view: Arc::new(ClusterMetrics { store: store.clone(), blobs: Arc::clone(&blobs) }),
        store: Arc::clone(store.rows()),
        blobs,
    })
}

fn node_count(nodes: u32) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn options(settings: &CassandraSettings) -> Result<ConnectOptions, ServerFailure> {
    let credentials = match &settings.login {
        Some((user, file)) => Some(Credentials { user: user.clone(), password: password(file)? }),
        None => None,
    };
    Ok(ConnectOptions {
        contact_points: settings.nodes.clone(),
        keyspace: settings.keyspace.clone(),
        replication: settings.replication.clone(),
        credentials,
        tls: settings.tls.clone(),
        // The cluster's own clock decides expiry: gateways with different clocks must agree.
        clock: None,
    })
}

/// The first line of the password file.
fn password(file: &Path) -> Result<String, ServerFailure> {
    let text = fs::read_to_string(file).map_err(|error| {
        ServerFailure(format!("cannot read the password of the cluster in {}: {error}", file.display()))
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(ServerFailure(format!("the password of the cluster in {} is empty", file.display()))),
    }
}

/// The engine's view for operators; it reads the driver's counters on each call.
struct ClusterMetrics {
    store: CassandraStore,
    blobs: Arc<CassandraBlobs>,
}

#[async_trait]
impl EngineStatus for ClusterMetrics {
    fn name(&self) -> &'static str {
        "cassandra"
    }

    #[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
    fn samples(&self) -> Vec<EngineSample> {
        let (seen, limits) = (self.store.metrics(), self.store.rows().limits());
        let damaged = self.blobs.damaged_blocks();
        [
            ("larder_cassandra_nodes_up", self.store.nodes_up().into()),
            ("larder_cassandra_sync_before_answer", limits.syncs.into()),
            ("larder_cassandra_requests_total", seen.requests),
            ("larder_cassandra_retries_total", seen.retries),
            ("larder_cassandra_cas_in_doubt_total", seen.cas_in_doubt),
            ("larder_cassandra_cas_found_applied_total", seen.cas_found_applied),
            ("larder_cassandra_cas_repeated_total", seen.cas_repeated),
            ("larder_cassandra_heads_looked_up_total", seen.heads_looked_up),
            ("larder_cassandra_ranges_bisected_total", seen.ranges_bisected),
            ("larder_cassandra_batches_split_total", seen.batches_split),
            ("larder_cassandra_damaged_blocks_total", damaged),
        ]
        .map(|(name, value): (_, u64)| (name, value as f64))
        .into()
    }

    async fn upkeep(&self) -> Option<NodeUpkeep> {
        Some(self.store.upkeep().await)
    }

    fn nodes(&self) -> Vec<EngineNode> {
        let nodes = self.store.node_states().into_iter();
        nodes.map(|(address, up)| EngineNode { address, up }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        assert!(password(&file).unwrap_err().to_string().contains("cannot read the password"));
        fs::write(&file, "\n").unwrap();
        assert!(password(&file).unwrap_err().to_string().contains("is empty"));
        fs::write(&file, "se cret\nnot this\n").unwrap();
        assert_eq!(password(&file).as_deref(), Ok("se cret"));
    }

    #[test]
    fn node_counts_have_singular_and_plural() {
        assert_eq!([node_count(0), node_count(1), node_count(3)], ["0 nodes", "1 node", "3 nodes"]);
    }
}
