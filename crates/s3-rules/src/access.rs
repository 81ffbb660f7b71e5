//! The decision whether a caller may carry out a request.

use super::acl::{Acl, Permission};
use super::action::S3Action;
use super::bucket::Bucket;
use super::policy::{BucketPolicy, PolicyDecision};
use super::user::User;
use super::version::Version;

pub use super::access_request::{AccessContext, AccessRequest};

/// Actions that an explicit deny never takes from the owner, who could not correct the policy otherwise.
const POLICY_ACTIONS: &[S3Action] =
    &[S3Action::GetBucketPolicy, S3Action::PutBucketPolicy, S3Action::DeleteBucketPolicy];

/// Whether `user` (`None`: anonymous) may carry out `request` in `bucket`. `attached` is the decision of the policies that are
/// attached to the user and its groups; `None`: there are none.
///
/// The first rule that applies decides:
/// 1. An admin may do anything.
/// 2. A deny of an attached policy refuses. The bucket's owner may always read and change the bucket's policy, where an attached
///    one allows it or there is none.
/// 3. A deny of the bucket's policy refuses. An allow of an attached policy permits; so does one of the bucket's, unless that is
///    public and the bucket restricted to its owner.
/// 4. Without attached policies, the owner of an object may read it, and read and change its grants, and everything else in the
///    bucket is its owner's. Attached policies take the place of these rights.
/// 5. The grants of the object or of the bucket permit, unless the bucket's ownership controls end all ACLs.
#[must_use]
pub fn is_allowed(
    bucket: &Bucket,
    user: Option<&User>,
    attached: Option<PolicyDecision>,
    request: &AccessRequest<'_>,
    context: &AccessContext,
) -> bool {
    if user.is_some_and(|user| user.admin) {
        return true;
    }
    if attached == Some(PolicyDecision::Deny) {
        return false;
    }
    let owner = user.is_some_and(|user| user.id == bucket.owner);
    let is_permitted = attached == Some(PolicyDecision::Allow);
    // A policy that denies its owner everything could otherwise never be removed.
    if owner && (is_permitted || attached.is_none()) && POLICY_ACTIONS.contains(&request.action) {
        return true;
    }
    let policy = bucket.policy.as_ref();
    match policy.map_or(PolicyDecision::Neutral, |policy| policy.evaluate(&bucket.name, user, request, context)) {
        // A deny is final, also for the owner of the bucket.
        PolicyDecision::Deny => false,
        _ if is_permitted => true,
        PolicyDecision::Allow if owner || !is_restricted(bucket) => true,
        PolicyDecision::Allow | PolicyDecision::Neutral => match attached {
            None => is_allowed_as_owner(bucket, user, request) || is_granted(bucket, user, request, false),
            Some(_) => is_granted(bucket, user, request, true),
        },
    }
}

/// Whether an attached policy or that of the bucket denies the request. An admin is denied nothing.
#[must_use]
pub fn is_denied(
    bucket: &Bucket,
    user: Option<&User>,
    attached: Option<PolicyDecision>,
    request: &AccessRequest<'_>,
    context: &AccessContext,
) -> bool {
    let decision = |policy: &BucketPolicy| policy.evaluate(&bucket.name, user, request, context);
    !user.is_some_and(|user| user.admin)
        && (attached == Some(PolicyDecision::Deny)
            || bucket.policy.as_deref().is_some_and(|policy| decision(policy) == PolicyDecision::Deny))
}

/// Whether an allow of the policy counts for the bucket's owner only.
fn is_restricted(bucket: &Bucket) -> bool {
    bucket.public_access.is_some_and(|access| access.restrict_buckets)
        && bucket.policy.as_ref().is_some_and(|policy| policy.is_public())
}

/// Whether ownership allows the request. A bucket's owner may delete the objects of others, but neither read nor grant them.
fn is_allowed_as_owner(bucket: &Bucket, user: Option<&User>, request: &AccessRequest<'_>) -> bool {
    let owner = match deciding_version(request) {
        // An object may belong to its writer, also in the bucket of another user.
        Some((version, _)) => bucket.effective_owner(&version.owner),
        None => &bucket.owner,
    };
    user.is_some_and(|user| user.id == owner)
}

/// Whether an ACL grants the request: that of the object when its version decides, else that of the bucket. `to_others`: a grant
/// to its owner by name does not count, since it is no more than ownership, which clients write into the lists they send back.
fn is_granted(bucket: &Bucket, user: Option<&User>, request: &AccessRequest<'_>, to_others: bool) -> bool {
    /// The canonical id of no user, who is signed in nevertheless.
    const NOBODY: &str = "";
    let Some(permission) = request.action.permission().filter(|_| bucket.has_acls()) else { return false };
    let is_ignored = to_others && is_allowed_as_owner(bucket, user, request);
    let id = user.map(|user| if is_ignored { NOBODY } else { user.id.as_str() });
    let public = bucket.honours_public_acls();
    match deciding_version(request) {
        Some((_, acl)) => acl.is_some_and(|acl| acl.has_grant(id, permission, public)),
        // A caller who may list the bucket can learn from the listing that an object does not exist.
        None if request.key.is_some() && permission != Permission::Write => {
            bucket.acl.has_grant(id, Permission::Read, public)
        }
        None => bucket.acl.has_grant(id, permission, public),
    }
}

/// The version whose owner and ACL decide instead of the bucket's: it exists, and an object's ACL can grant the permission.
fn deciding_version<'a>(request: &AccessRequest<'a>) -> Option<(&'a Version, Option<&'a Acl>)> {
    let version = request.version?;
    let object = version.object.as_ref()?;
    let decides =
        matches!(request.action.permission(), Some(Permission::Read | Permission::ReadAcp | Permission::WriteAcp));
    decides.then_some((version, object.acl.as_ref()))
}

#[cfg(test)]
mod tests;
