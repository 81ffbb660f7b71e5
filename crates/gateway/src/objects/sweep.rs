//! Removing what failures left behind: bytes nobody names, parts of ended uploads, uploads of deleted buckets.

use super::{Objects, Result};

/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Blobs removed.
    pub blobs: u64,
    /// Parts and manifests removed.
    pub rows: u64,
    /// Uploads ended.
    pub uploads: u64,
}

impl Objects {
    /// Looks at everything once. Safe beside any traffic, of this gateway and of others.
    ///
    /// # Errors
    /// What the store answers; what was removed until then stays removed.
    pub async fn sweep(&self) -> Result<Sweep> {
        unimplemented!()
    }
}
