//! What of a bucket's grants to the public counts.

use serde::{Deserialize, Serialize};

use super::acl::Acl;
use super::policy::Policy;

/// The four switches of a public access block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
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

impl PublicAccess {
    /// Whether this list of grants may not be put.
    #[must_use]
    pub fn refuses_acl(&self, acl: &Acl) -> bool {
        self.block_acls && acl.is_public()
    }

    /// Whether this policy may not be put.
    #[must_use]
    pub fn refuses_policy(&self, policy: &Policy) -> bool {
        self.block_policy && policy.is_public()
    }
}
