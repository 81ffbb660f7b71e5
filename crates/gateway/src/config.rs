//! What a gateway is told at its start.

use std::time::Duration;

/// What remains of a deleted object, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMode {
    /// Its tombstone stays.
    Keep,
    /// Its tombstone goes after this time.
    After(Duration),
}

/// A gateway's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Node name, such as `larder@127.0.0.1`: shown as claimant, in `/stats` and in status.
    pub node: String,
    /// Where its HTTP listener is, for other members.
    pub address: String,
    /// Whether writes with dw > 0 wait for the disk.
    pub durable: bool,
    /// Largest object body in bytes.
    pub object_bytes_max: u64,
    /// Most siblings of a key.
    pub siblings_max: usize,
    /// What remains of deleted objects.
    pub delete_mode: DeleteMode,
    /// Deadline of a request that names none.
    pub timeout: Duration,
    /// Most requests at once; more are told to come again.
    pub requests_max: usize,
    /// Whether no other gateway can be running on this store: the directory lock proves it. It then keeps a clock mark, and
    /// drops what dead processes left; otherwise its node name must be its own among those that run.
    pub alone: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: "larder@127.0.0.1".into(),
            address: "127.0.0.1:8098".into(),
            durable: true,
            object_bytes_max: larder_model::limits::OBJECT_BYTES_MAX,
            siblings_max: larder_model::limits::SIBLINGS_MAX,
            delete_mode: DeleteMode::After(Duration::from_secs(3)),
            timeout: Duration::from_secs(60),
            requests_max: 4096,
            alone: true,
        }
    }
}
