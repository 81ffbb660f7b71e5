//! Settings of a gateway.

use std::time::Duration;

use crate::rules::event_target::EventTarget;
use crate::rules::props::WebhookHost;

/// How long the tombstone of a deleted object stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMode {
    /// For ever.
    Keep,
    /// This long.
    After(Duration),
}

/// A gateway's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Node name, such as `larder@127.0.0.1`: shown as claimant, in `/stats` and in status.
    pub node: String,
    /// Address of its HTTP listener, for other members.
    pub address: String,
    /// Whether writes with dw > 0 wait for the disk.
    pub durable: bool,
    /// Largest object body in bytes.
    pub object_bytes_max: u64,
    /// Most siblings of a key.
    pub siblings_max: usize,
    /// How long tombstones stay.
    pub delete_mode: DeleteMode,
    /// Deadline of a request that names none.
    pub timeout: Duration,
    /// Most requests at once; further ones are refused as overload.
    pub requests_max: usize,
    /// Whether clients of Riak's protocols can encrypt: security refuses all others.
    pub offers_tls: bool,
    /// Whether the directory lock proves that no other gateway runs on this store. A single gateway stores a clock mark and
    /// deletes heartbeats of dead processes; otherwise its node name must be unique among those that run.
    pub single_process: bool,
    /// The hosts that webhooks may name.
    pub webhook_hosts: Vec<WebhookHost>,
    /// The targets of S3 events.
    pub event_targets: Vec<EventTarget>,
    /// When the indexes of a bucket are split.
    pub index_splitting: IndexSplitting,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: "larder@127.0.0.1".into(),
            address: "127.0.0.1:8098".into(),
            durable: true,
            object_bytes_max: larder_rows::limits::OBJECT_BYTES_MAX,
            siblings_max: larder_rows::limits::SIBLINGS_MAX,
            delete_mode: DeleteMode::After(Duration::from_secs(3)),
            timeout: Duration::from_secs(60),
            requests_max: 4096,
            offers_tls: false,
            single_process: true,
            webhook_hosts: Vec::new(),
            event_targets: Vec::new(),
            index_splitting: IndexSplitting::default(),
        }
    }
}

/// When the indexes of a bucket are split, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSplitting {
    /// Rows of a shard above which its bucket opens an epoch; 0: never. `None`:
    /// [`larder_rows::limits::SHARD_ROWS_MAX`] where large partitions are a burden to the engine, else never.
    pub shard_rows: Option<u64>,
    /// Least time of a stage beyond its propagation, longer than a catalogue is served from. A single gateway needs none.
    pub stage: Duration,
    /// Pause between two pages of a count.
    pub pause: Duration,
}

impl Default for IndexSplitting {
    fn default() -> Self {
        Self { shard_rows: None, stage: Duration::from_secs(10), pause: Duration::from_millis(20) }
    }
}
