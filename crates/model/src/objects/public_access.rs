//! What of a bucket's grants to the public counts.

use serde::{Deserialize, Serialize};

/// The four switches of a public access block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PublicAccess {
    /// Refuse lists of grants that grant to the public.
    pub block_acls: bool,
    /// Count no grant to the public.
    pub ignore_acls: bool,
    /// Refuse policies that allow the public.
    pub block_policy: bool,
    /// Let a policy that allows the public allow only the bucket's owner.
    pub restrict_buckets: bool,
}
