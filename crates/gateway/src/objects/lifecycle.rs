//! The worker that removes what is old by the rules of its bucket.

use super::{Objects, Result};

/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LifecyclePass {
    /// Current versions that expired.
    pub expired: u64,
    /// Versions removed that were not current, delete markers included.
    pub removed: u64,
    /// Uploads given up.
    pub aborted: u64,
}

impl Objects {
    /// Looks at every bucket with rules once.
    ///
    /// # Errors
    /// What the store answers; what was done until then stays.
    pub async fn run_lifecycle(&self) -> Result<LifecyclePass> {
        unimplemented!()
    }
}
