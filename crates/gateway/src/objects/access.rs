//! The caller of a request, its action and its permissions.

use std::sync::Arc;

use larder_model::objects::access::{AccessContext, AccessRequest, is_allowed, is_denied};
use larder_model::objects::{Bucket, S3Action, User};

use super::{Error, Result};

/// The caller of a request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The user whose signature was checked; `None` for an anonymous caller.
    pub user: Option<Arc<User>>,
    /// The action of the request, which the caller needs permission for; `None` has permission for nothing in a bucket.
    pub action: Option<S3Action>,
    /// The request attributes that policy conditions test.
    pub access_context: AccessContext,
}

impl Caller {
    /// The same caller for another action, which the request needs besides its own.
    #[must_use]
    pub fn with_action(&self, action: S3Action) -> Self {
        Self { action: Some(action), ..self.clone() }
    }

    /// The action of the request.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] without one.
    pub(super) fn action(&self) -> Result<S3Action> {
        self.action.ok_or(Error::AccessDenied)
    }

    /// Refuses an action the caller has no permission for: that of the request, or another one that it needs.
    pub(super) fn check(&self, bucket: &Bucket, asked: &AccessRequest<'_>) -> Result<()> {
        let allowed = is_allowed(bucket, self.user.as_deref(), asked, &self.access_context);
        if allowed { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// As [`Self::check`], for an upload that the caller began: that is permission enough, unless the policy denies it.
    pub(super) fn check_own(&self, bucket: &Bucket, asked: &AccessRequest<'_>) -> Result<()> {
        let denied = is_denied(bucket, self.user.as_deref(), asked, &self.access_context);
        if denied { Err(Error::AccessDenied) } else { Ok(()) }
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
