//! Settings of the S3 side.

use std::sync::Arc;
use std::time::Duration;

use larder_rows::limits::{PART_BYTES_MAX, PART_BYTES_MIN};

use larder_encryption::key_ring::KeyRing;

/// Settings of the S3 side.
#[derive(Debug, Clone)]
pub struct ObjectsConfig {
    /// Name of the region for clients.
    pub region: String,
    /// Most buckets of a user.
    pub buckets_max: usize,
    /// Largest body of one put or one part in bytes.
    pub put_bytes_max: u64,
    /// Largest object in bytes.
    pub object_bytes_max: u64,
    /// Least length of a part that is not the last, in bytes.
    pub part_bytes_min: u64,
    /// Time after which a running completion counts as abandoned.
    pub completing_max: Duration,
    /// Whether this is the only process over its store: completions begun by an earlier run are then abandoned.
    pub single_process: bool,
    /// The master keys of encryption by the server.
    pub key_ring: Arc<KeyRing>,
}

impl Default for ObjectsConfig {
    fn default() -> Self {
        Self {
            region: "us-east-1".into(),
            buckets_max: 100,
            put_bytes_max: PART_BYTES_MAX,
            object_bytes_max: 5 << 40,
            part_bytes_min: PART_BYTES_MIN,
            completing_max: Duration::from_secs(90),
            single_process: true,
            key_ring: Arc::new(KeyRing::in_memory()),
        }
    }
}
