//! The store that the rest of Larder uses.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::limits::BATCH_BYTES_MAX;
use larder_store::derived_rows::DerivedRowStore;
use larder_store::upkeep::NodeUpkeep;
use larder_store::{
    Batch, CallOptions, CasResult, Change, Clock, EngineLimits, HeadWrite, Partition, PartitionPage, ReadQuery, Result,
    RowPage, Store, Table, Timestamp,
};

use crate::client::{ClusterClient, check_deadline};
use crate::connect::{ConnectError, connect};
use crate::metrics::CassandraMetrics;
use crate::options::ConnectOptions;
use crate::session::ClusterSession;

/// Largest body inside a row: the row, its derived rows and a removal fit into Cassandra's smallest default limits.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Rows in a cluster of Cassandra or ScyllaDB. Cheap to clone.
#[derive(Clone)]
pub struct CassandraStore {
    cluster: Arc<ClusterClient>,
    rows: Arc<dyn Store>,
    notes: Arc<[String]>,
}

impl CassandraStore {
    /// Connects to a cluster and creates missing keyspaces and tables.
    ///
    /// # Errors
    /// [`ConnectError`], within half a minute; within three minutes if tables are created.
    pub async fn connect(options: ConnectOptions) -> std::result::Result<Self, ConnectError> {
        let (cluster, notes) = connect(options).await?;
        let cluster = Arc::new(cluster);
        let rows = Arc::new(DerivedRowStore::new(Arc::clone(&cluster)));
        Ok(Self { cluster, rows, notes: notes.into() })
    }

    /// The rows with their derived rows.
    #[must_use]
    pub fn rows(&self) -> &Arc<dyn Store> {
        &self.rows
    }

    /// The connections, for blobs.
    #[must_use]
    pub fn session(&self) -> &ClusterSession {
        &self.cluster.session
    }

    /// Name of the keyspace of a number of copies.
    #[must_use]
    pub fn keyspace(&self, n_val: u8) -> String {
        self.cluster.keyspace(n_val)
    }

    /// The clock that decides expiry.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.cluster.clock.clone()
    }

    /// Notes for the operator, a line each: fewer copies than requested, writes that are not on disk.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.to_vec()
    }

    /// The nodes of the local datacenter, or of the cluster if none is named, by address, and whether each is
    /// connected and answers.
    #[must_use]
    pub fn node_states(&self) -> Vec<(String, bool)> {
        self.cluster.session.node_states(self.cluster.replication.local())
    }

    /// Number of nodes of [`node_states`](Self::node_states) that answer.
    #[must_use]
    pub fn nodes_up(&self) -> u32 {
        let up = self.node_states().into_iter().filter(|(_, up)| *up).count();
        u32::try_from(up).unwrap_or(u32::MAX)
    }

    /// What the nodes need of their operator. It asks them all, for ten seconds at most.
    pub async fn upkeep(&self) -> NodeUpkeep {
        self.cluster.upkeep().await
    }

    /// Counts since the start of the process.
    #[must_use]
    pub fn metrics(&self) -> CassandraMetrics {
        let session = &self.cluster.session;
        self.cluster.counters.read(session.requests(), &session.driver().get_metrics())
    }
}

/// The rows without derived rows.
#[async_trait]
impl Store for ClusterClient {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        self.page(partition, query, options).await
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        self.write(&batch, options).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        self.compare_and_set(partition, expected, &head.row, &changes, options).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        self.list(table, after, limit, options).await
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        check_deadline(options, "the time")?;
        Ok(self.clock.now())
    }

    fn limits(&self) -> EngineLimits {
        let nodes = self.session.node_count(self.replication.local());
        EngineLimits {
            inline_max: INLINE_BYTES_MAX,
            batch_max: BATCH_BYTES_MAX,
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            replicated: true,
            syncs: self.syncs,
            tombstones_slow_reads: true,
            large_partitions_burden: true,
        }
    }

    fn is_ready(&self) -> bool {
        self.session.node_states(None).iter().any(|(_, up)| *up)
    }
}
