//! The caller of a request and its permissions.

use std::sync::Arc;

use larder_model::objects::access::{AccessContext, AccessRequest, is_allowed};
use larder_model::objects::{Bucket, User};

use super::{Error, Result};

/// The caller of a request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The user whose signature was checked; `None` for an anonymous caller.
    pub user: Option<Arc<User>>,
    /// The request attributes that policy conditions test.
    pub access_context: AccessContext,
}

impl Caller {
    /// Refuses an action the caller has no permission for.
    pub(super) fn check(&self, bucket: &Bucket, asked: &AccessRequest<'_>) -> Result<()> {
        if self.is_allowed(bucket, asked) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Whether the caller has permission for an action.
    pub(super) fn is_allowed(&self, bucket: &Bucket, asked: &AccessRequest<'_>) -> bool {
        is_allowed(bucket, self.user.as_deref(), asked, &self.access_context)
    }

    /// Canonical id; empty for an anonymous caller.
    #[must_use]
    pub fn id(&self) -> &str {
        self.user.as_ref().map_or("", |user| &user.id)
    }

    /// The signed user.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] for an anonymous caller.
    pub fn require_user(&self) -> Result<&Arc<User>> {
        self.user.as_ref().ok_or(Error::AccessDenied)
    }
}
