//! The caller of a request, its action and its permissions.

use std::sync::Arc;

use super::get::VersionSpec;
use super::{Error, Result};
use crate::rules::access::{AccessContext, AccessRequest, is_allowed, is_denied};
use crate::rules::encryption::EncryptionKind;
use crate::rules::policy::KeyPolicy;
use crate::rules::{Bucket, S3Action, User};

const VERSION_ID: &str = "s3:VersionId";
const PREFIX: &str = "s3:prefix";
const DELIMITER: &str = "s3:delimiter";
const ENCRYPTION: &str = "s3:x-amz-server-side-encryption";
const CUSTOMER_ALGORITHM: &str = "s3:x-amz-server-side-encryption-customer-algorithm";
const MAX_KEYS: &str = "s3:max-keys";

/// The caller of a request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The user whose signature was checked; `None` for an anonymous caller.
    pub user: Option<Arc<User>>,
    /// The action of the request, which the caller needs permission for; `None` has permission for nothing in a bucket.
    pub action: Option<S3Action>,
    /// The policy of the key that signed, unless it is its user's first one: it narrows what the user may do.
    pub key_policy: Option<Arc<KeyPolicy>>,
    /// The request attributes that policy conditions test.
    pub access_context: AccessContext,
    /// Whether a caller who may read a key if it exists may learn that it does not, without permission to list. Where an existing
    /// key is 200, any other answer tells that it is missing.
    pub learns_absence: bool,
}

impl Caller {
    /// The same caller for another action, which the request needs besides its own.
    #[must_use]
    pub fn with_action(&self, action: S3Action) -> Self {
        Self { action: Some(action), ..self.clone() }
    }

    /// The same caller for this version, whatever version the parameters of its request name: a copy and a DeleteObjects
    /// name theirs elsewhere.
    pub(super) fn with_version(&self, version: &VersionSpec) -> Self {
        let id = match version {
            VersionSpec::Current => None,
            VersionSpec::Id(id) => Some(id.clone()),
        };
        self.with_keys(&[(VERSION_ID, id)])
    }

    /// Refuses a caller who may not learn that a key is missing: one who may not list the keys that begin with it.
    pub(super) fn check_listing(&self, bucket: &Bucket, key: &[u8]) -> Result<()> {
        if self.learns_absence {
            return Ok(());
        }
        let prefix = Some(String::from_utf8_lossy(key).into_owned());
        let caller = self.with_keys(&[(PREFIX, prefix), (DELIMITER, None), (MAX_KEYS, None)]);
        caller.check(bucket, &S3Action::ListBucket.on_bucket())
    }

    /// The same caller, whose request is encrypted in this way: parts and the end of an upload name none, and have that of their
    /// upload.
    pub(super) fn with_encryption(&self, kind: Option<EncryptionKind>) -> Self {
        let value = |of| (kind == Some(of)).then(|| "AES256".to_owned());
        self.with_keys(&[
            (ENCRYPTION, value(EncryptionKind::Server)),
            (CUSTOMER_ALGORITHM, value(EncryptionKind::Customer)),
        ])
    }

    /// The same caller with these values of condition keys; `None`: without the key.
    fn with_keys(&self, values: &[(&'static str, Option<String>)]) -> Self {
        let mut caller = self.clone();
        caller.access_context.work.set_own(values.iter().map(|(name, _)| *name));
        let keys = &mut caller.access_context.keys;
        keys.retain(|(name, _)| !values.iter().any(|(other, _)| other == name));
        keys.extend(values.iter().filter_map(|(name, value)| Some((*name, value.clone()?))));
        caller
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
        if allowed && self.key_permits(&bucket.name, asked) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// As [`Self::check`], for an upload that the caller began: that is permission enough, unless the policy denies it.
    pub(super) fn check_own(&self, bucket: &Bucket, asked: &AccessRequest<'_>) -> Result<()> {
        let denied = is_denied(bucket, self.user.as_deref(), asked, &self.access_context);
        if denied || !self.key_permits(&bucket.name, asked) { Err(Error::AccessDenied) } else { Ok(()) }
    }

    /// Whether the limits of the caller's key permit the request, an administrator's too.
    pub(super) fn key_permits(&self, bucket: &str, asked: &AccessRequest<'_>) -> bool {
        let permits =
            |policy: &Arc<KeyPolicy>| policy.permits(bucket, self.user.as_deref(), asked, &self.access_context);
        self.key_policy.as_ref().is_none_or(permits)
    }

    /// The owner of an object that the caller puts, who gives the bucket's owner full control of it or not: the caller, unless it
    /// is anonymous or the bucket's ownership controls choose the bucket's owner.
    pub(super) fn object_owner(&self, bucket: &Bucket, gives_control: bool) -> String {
        let writer = self.user.as_ref().map_or(&bucket.owner, |user| &user.id);
        bucket.new_object_owner(writer, gives_control).to_owned()
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
