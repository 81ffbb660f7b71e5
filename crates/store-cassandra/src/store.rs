//! The store, as the rest of Larder knows it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use scylla::client::session::Session;
use tokio::time::Instant;

use larder_model::limits::BATCH_BYTES_MAX;
use larder_store::shadows::Shadowed;
use larder_store::{
    Batch, Change, Clock, EngineLimits, Head, Micros, Options, Page, Partition, PartitionPage, ReadQuery, Result,
    Stamp, Store, Swap, Table,
};

use crate::cluster::{Cluster, in_time};
use crate::connect::{ConnectError, connect};
use crate::figures::Figures;
use crate::options::ConnectOptions;

/// Bodies up to this many bytes are kept inside their row: so that a row, what is derived from it and a removal fit into the
/// smallest limits that Cassandra has by default.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Rows in a cluster of Cassandra or ScyllaDB. Cheap to clone.
#[derive(Clone)]
pub struct CassandraStore {
    cluster: Arc<Cluster>,
    rows: Arc<dyn Store>,
    notes: Arc<[String]>,
}

impl CassandraStore {
    /// Connects to a cluster and makes there what is missing.
    ///
    /// # Errors
    /// [`ConnectError`], within half a minute, or three where tables are to be made.
    pub async fn connect(options: ConnectOptions) -> std::result::Result<Self, ConnectError> {
        let (cluster, notes) = connect(options).await?;
        let cluster = Arc::new(cluster);
        let rows = Arc::new(Shadowed::new(Arc::clone(&cluster)));
        Ok(Self { cluster, rows, notes: notes.into() })
    }

    /// The rows, as the rest of Larder knows them: with their shadows.
    #[must_use]
    pub fn rows(&self) -> &Arc<dyn Store> {
        &self.rows
    }

    /// The connections, for blobs.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        &self.cluster.session
    }

    /// Name of the keyspace of a number of copies.
    #[must_use]
    pub fn keyspace(&self, n_val: u8) -> String {
        self.cluster.keyspace(n_val)
    }

    /// What expiry is judged by.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.cluster.clock.clone()
    }

    /// What an operator should know, a line each: fewer copies than asked for, writes that are not on disk.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.to_vec()
    }

    /// Nodes of the local datacenter, or of the cluster where none is named: those that are connected, and all.
    #[must_use]
    pub fn nodes(&self) -> (usize, usize) {
        self.cluster.nodes(self.cluster.replication.local())
    }

    /// The nodes of the local datacenter, or of the cluster where none is named, by address: whether each is connected.
    #[must_use]
    pub fn node_states(&self) -> Vec<(String, bool)> {
        self.cluster.node_states(self.cluster.replication.local())
    }

    /// What happened since the start.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.cluster.counters.read(&self.cluster.session.get_metrics())
    }

    /// Makes the keyspace of a number of copies if it is not there. The first call that needs it does so too.
    ///
    /// # Errors
    /// `TimedOut`, `Unavailable`, `Io`.
    pub async fn ensure(&self, n_val: u8, deadline: Instant) -> Result<()> {
        self.cluster.ensure_keyspace(n_val, deadline).await
    }
}

/// The rows without shadows.
#[async_trait]
impl Store for Cluster {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        self.page(partition, query, options).await
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        self.write(&batch, options).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        self.swap(partition, expected, &head.row, &changes, options).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        self.list(table, after, limit, options).await
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        in_time(options, "the time")?;
        Ok(self.clock.now())
    }

    fn limits(&self) -> EngineLimits {
        let (up, _) = self.nodes(self.replication.local());
        EngineLimits {
            inline_max: INLINE_BYTES_MAX,
            batch_max: BATCH_BYTES_MAX,
            nodes: u32::try_from(up).unwrap_or(u32::MAX),
            replicated: true,
            syncs: self.syncs,
            keeps_tombstones: true,
        }
    }

    fn is_ready(&self) -> bool {
        self.nodes(None).0 > 0
    }
}
