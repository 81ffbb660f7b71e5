//! The caller of a request, its action and its permissions.

use std::sync::Arc;

use super::conditions::WriteConditions;
use super::get::VersionSpec;
use super::{Error, Result};
use crate::rules::access::{AccessContext, AccessRequest, is_allowed, is_denied};
use crate::rules::encryption::EncryptionKind;
use crate::rules::policy::{CallerPolicies, PolicyDecision, PolicyWork};
use crate::rules::{Bucket, S3Action, User, Version};

const VERSION_ID: &str = "s3:VersionId";
const PREFIX: &str = "s3:prefix";
const DELIMITER: &str = "s3:delimiter";
const ENCRYPTION: &str = "s3:x-amz-server-side-encryption";
const CUSTOMER_ALGORITHM: &str = "s3:x-amz-server-side-encryption-customer-algorithm";
const MAX_KEYS: &str = "s3:max-keys";

/// Policies of a caller whose work for each key is permitted beside that of the bucket's.
const POLICIES_WORKED_MAX: usize = 10;

/// The caller of a request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The user whose signature was checked; `None` for an anonymous caller.
    pub user: Option<Arc<User>>,
    /// The action of the request, which the caller needs permission for; `None` has permission for nothing in a bucket.
    pub action: Option<S3Action>,
    /// The policies attached to the user, and those of its key and its session; `None` without any.
    pub policies: Option<Arc<CallerPolicies>>,
    /// The request attributes that policy conditions test.
    pub access_context: AccessContext,
    /// The id of the request, for the events of what it changes.
    pub request_id: Arc<str>,
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

    /// Refuses a write on condition of these entity tags by a caller who may not read the version: as on AWS, since the answers
    /// would tell the tag of a guessed content.
    pub(super) fn check_tag_reader(
        &self,
        bucket: &Bucket,
        key: &[u8],
        spec: &VersionSpec,
        version: Option<&Version>,
    ) -> Result<()> {
        self.with_version(spec).check(bucket, &spec.action(S3Action::GetObject).on_version(key, version))
    }

    /// Checks the conditions of a write on the current version of its key.
    ///
    /// # Errors
    /// `AccessDenied` to a caller who may not know an entity tag that they ask for; `PreconditionFailed`, `NoSuchKey`.
    pub(super) fn check_conditions(
        &self,
        bucket: &Bucket,
        key: &[u8],
        current: Option<&Version>,
        conditions: &WriteConditions,
    ) -> Result<()> {
        if conditions.ask_for_tags() {
            self.check_tag_reader(bucket, key, &VersionSpec::Current, current)?;
        }
        conditions.check(current)
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
        let attached = self.attached_decision(&bucket.name, asked);
        let allowed = is_allowed(bucket, self.user.as_deref(), attached, asked, &self.access_context);
        if allowed && self.is_within_limits(&bucket.name, asked) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// As [`Self::check`], for an upload that the caller began: that is permission enough, unless a policy denies it.
    pub(super) fn check_own(&self, bucket: &Bucket, asked: &AccessRequest<'_>) -> Result<()> {
        let attached = self.attached_decision(&bucket.name, asked);
        let denied = is_denied(bucket, self.user.as_deref(), attached, asked, &self.access_context);
        if denied || !self.is_within_limits(&bucket.name, asked) { Err(Error::AccessDenied) } else { Ok(()) }
    }

    /// Whether the caller may do this where no bucket decides: with a name that may be free. A user without policies may.
    pub(super) fn is_permitted(&self, bucket: &str, asked: &AccessRequest<'_>) -> bool {
        let is_admin = self.user.as_ref().is_some_and(|user| user.admin);
        let attached = self.attached_decision(bucket, asked).filter(|_| !is_admin);
        attached.is_none_or(|decision| decision == PolicyDecision::Allow) && self.is_within_limits(bucket, asked)
    }

    /// Whether the policies attached to the caller, if there are any, deny the request, which no bucket decides.
    #[must_use]
    pub fn is_denied(&self, asked: &AccessRequest<'_>) -> bool {
        self.attached_decision("", asked) == Some(PolicyDecision::Deny)
    }

    /// The decision of the policies that are attached to the caller; `None` without any.
    pub(super) fn attached_decision(&self, bucket: &str, asked: &AccessRequest<'_>) -> Option<PolicyDecision> {
        let policies = self.policies.as_ref()?;
        policies.attached_decision(bucket, self.user.as_deref(), asked, &self.access_context)
    }

    /// Whether the limits of the caller's key and the policy of its session permit the request, an administrator's too.
    pub(super) fn is_within_limits(&self, bucket: &str, asked: &AccessRequest<'_>) -> bool {
        let permits =
            |policies: &Arc<CallerPolicies>| policies.permit(bucket, self.user.as_deref(), asked, &self.access_context);
        self.policies.as_ref().is_none_or(permits)
    }

    /// Whether policies give the caller its rights: attached ones, or that of a session.
    pub(super) fn is_governed(&self) -> bool {
        self.access_context.is_session || self.policies.as_ref().is_some_and(|policies| policies.attached.is_some())
    }

    /// Whether a list of buckets shows this one to the caller: its own, or one that its policies let it list or locate.
    pub(super) fn sees(&self, bucket: &Bucket) -> bool {
        const SHOWING: [S3Action; 3] = [S3Action::ListAllMyBuckets, S3Action::ListBucket, S3Action::GetBucketLocation];
        let is_admin = self.user.as_ref().is_some_and(|user| user.admin);
        let shows = |action: S3Action| {
            let asked = action.on_bucket();
            let attached = self.attached_decision(&bucket.name, &asked).filter(|_| !is_admin);
            attached.map_or(self.id() == bucket.owner, |decision| decision == PolicyDecision::Allow)
                && self.is_within_limits(&bucket.name, &asked)
        };
        SHOWING.into_iter().any(shows)
    }

    /// The same caller, whose policies may do the work for so many keys or buckets.
    #[must_use]
    pub fn with_work(&self, targets: usize) -> Self {
        // Bound: a user may have a hundred policies, and a request must not take the time of all of them for each key.
        let policies = self.policies.as_ref().map_or(0, |policies| policies.len()).min(POLICIES_WORKED_MAX);
        let work = PolicyWork::from_keys(targets.saturating_mul(1 + policies));
        Self { access_context: AccessContext { work, ..self.access_context.clone() }, ..self.clone() }
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
