//! A bucket with all of its configuration: one row of the catalogue.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::rows::Micros;

use super::acl::Acl;
use super::cors::Cors;
use super::ids::BucketId;
use super::lifecycle::Lifecycle;
use super::policy::Policy;
use super::public_access::PublicAccess;
use super::tags::Tag;

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: BucketId,
    /// Canonical id of its owner.
    pub owner: String,
    /// When it was created.
    pub created: Micros,
    /// Whether it takes requests.
    pub state: BucketState,
    /// Whether versions are kept.
    pub versioning: Versioning,
    /// Who may, beside its owner.
    pub acl: Acl,
    /// Its policy.
    pub policy: Option<Arc<Policy>>,
    /// Its rules for browsers.
    pub cors: Option<Cors>,
    /// Its rules for old objects and uploads.
    pub lifecycle: Option<Lifecycle>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// What of its grants to the public counts.
    pub public_access: Option<PublicAccess>,
}

/// Whether a bucket takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum BucketState {
    /// It does.
    #[default]
    Active,
    /// It is being deleted, unless it turns out not to be empty.
    Closing,
}

/// Whether a bucket keeps versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Versioning {
    /// It never did.
    #[default]
    Off,
    /// Every put adds a version.
    Enabled,
    /// Puts replace the version `null`.
    Suspended,
}
