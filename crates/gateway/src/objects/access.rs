//! Who asks, and whether they may.

use std::sync::Arc;

use larder_model::objects::access::{Asked, Circumstances, allows};
use larder_model::objects::{Bucket, User};

use super::{Error, Result};

/// Who asks. What they ask for is in each call.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The user whose signature was checked; nobody: anonymous.
    pub user: Option<Arc<User>>,
    /// What policies may look at.
    pub circumstances: Circumstances,
}

impl Caller {
    /// Refuses what the caller may not do.
    pub(super) fn check(&self, bucket: &Bucket, asked: &Asked<'_>) -> Result<()> {
        if self.may(bucket, asked) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Whether the caller may.
    pub(super) fn may(&self, bucket: &Bucket, asked: &Asked<'_>) -> bool {
        allows(bucket, self.user.as_deref(), asked, &self.circumstances)
    }

    /// Canonical id; empty for nobody.
    #[must_use]
    pub fn id(&self) -> &str {
        self.user.as_ref().map_or("", |user| &user.id)
    }

    /// The user.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] for nobody.
    pub fn signed(&self) -> Result<&Arc<User>> {
        self.user.as_ref().ok_or(Error::AccessDenied)
    }
}
