//! The public access block of a bucket.

use serde::{Deserialize, Serialize};

use super::acl::Acl;
use super::policy::BucketPolicy;

/// The four switches of a public access block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PublicAccessBlock {
    /// `BlockPublicAcls`: refuse ACLs with public grants.
    pub block_acls: bool,
    /// `IgnorePublicAcls`: ignore public grants.
    pub ignore_acls: bool,
    /// `BlockPublicPolicy`: refuse public policies.
    pub block_policy: bool,
    /// `RestrictPublicBuckets`: let a public policy allow only the bucket's owner.
    pub restrict_buckets: bool,
}

impl PublicAccessBlock {
    /// Whether a put of this ACL is refused.
    #[must_use]
    pub fn refuses_acl(&self, acl: &Acl) -> bool {
        self.block_acls && acl.is_public()
    }

    /// Whether a put of this policy is refused.
    #[must_use]
    pub fn refuses_policy(&self, policy: &BucketPolicy) -> bool {
        self.block_policy && policy.is_public()
    }
}
