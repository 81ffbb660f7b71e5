//! The verdict: may this caller do this?

use std::net::IpAddr;

use crate::rows::Micros;

use super::acl::{Acl, Permission};
use super::bucket::Bucket;
use super::policy::Verdict;
use super::tags::Tag;
use super::user::User;
use super::version::Version;

/// What a policy knows of a request beside who asks and for what.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Where it came from.
    pub source: Option<IpAddr>,
    /// Whether it came over TLS.
    pub secure: bool,
    /// When it came.
    pub now: Micros,
    /// Condition keys with their values: `aws:Referer`, `aws:UserAgent`, `s3:prefix`, `s3:delimiter`, `s3:max-keys`,
    /// `s3:x-amz-acl`, `s3:VersionId` and so on, as far as the request has them.
    pub keys: Vec<(&'static str, String)>,
    /// The tags the request brings: `s3:RequestObjectTag/…` and `s3:RequestObjectTagKeys`.
    pub request_tags: Vec<Tag>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The action as policies name it, such as `s3:GetObject`.
    pub action: &'static str,
    /// What an ACL has to grant; `None` when no ACL can (the bucket's owner alone, or a policy).
    pub permission: Option<Permission>,
    /// Whether it is about an object of the bucket, and then which key; a bucket's own actions have none.
    pub key: Option<&'a [u8]>,
    /// The object's version, when reading it or its ACL: its owner and its grants decide. Without one there is nothing
    /// to read, and the answer only says whether the caller may learn that.
    pub version: Option<&'a Version>,
}

/// Operations that an explicit deny never takes from the owner, who could not mend the policy otherwise.
const POLICY_ACTIONS: &[&str] = &["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"];

/// Whether `user` (nobody: anonymous) may do what is `asked` in `bucket`.
///
/// An admin may. Then the policy is asked: what it denies is refused, but for the policy itself to the bucket's owner; what
/// it allows is granted, unless it is for the public and the bucket is restricted to its owner. Then owners may: the
/// bucket's all but read what others own, an object's read it and its grants and change these. Last the grants count.
#[must_use]
pub fn allows(bucket: &Bucket, user: Option<&User>, asked: &Asked<'_>, circumstances: &Circumstances) -> bool {
    if user.is_some_and(|user| user.admin) {
        return true;
    }
    let owner = user.is_some_and(|user| user.id == bucket.owner);
    if owner && POLICY_ACTIONS.contains(&asked.action) {
        return true;
    }
    let policy = bucket.policy.as_ref();
    match policy.map_or(Verdict::Neutral, |policy| policy.verdict(&bucket.name, user, asked, circumstances)) {
        Verdict::Deny => false,
        Verdict::Allow if owner || !is_restricted(bucket) => true,
        Verdict::Allow | Verdict::Neutral => owned(owner, user, asked) || granted(bucket, user, asked),
    }
}

/// Whether what the policy allows counts for the bucket's owner only.
fn is_restricted(bucket: &Bucket) -> bool {
    bucket.public_access.is_some_and(|access| access.restrict_buckets)
        && bucket.policy.as_ref().is_some_and(|policy| policy.is_public())
}

/// Whether this is the owner's to do. What others own in a bucket its owner may delete, but neither read nor grant.
fn owned(bucket_owner: bool, user: Option<&User>, asked: &Asked<'_>) -> bool {
    match object_asked(asked) {
        Some((version, _)) => user.is_some_and(|user| user.id == version.owner),
        None => bucket_owner,
    }
}

/// Whether a list of grants allows it: the object's where it is about an object that is there, or the bucket's.
fn granted(bucket: &Bucket, user: Option<&User>, asked: &Asked<'_>) -> bool {
    let Some(permission) = asked.permission else { return false };
    let id = user.map(|user| user.id.as_str());
    let public = bucket.counts_public_acls();
    match object_asked(asked) {
        Some((_, acl)) => acl.is_some_and(|acl| acl.grants(id, permission, public)),
        // Who may list the bucket sees as much as by asking for the grants of an object that is not there.
        None if asked.key.is_some() && permission != Permission::Write => {
            bucket.acl.grants(id, Permission::Read, public)
        }
        None => bucket.acl.grants(id, permission, public),
    }
}

/// The version, with its list of grants, that alone decides: it is there, and the object's grants are about such a thing.
fn object_asked<'a>(asked: &Asked<'a>) -> Option<(&'a Version, Option<&'a Acl>)> {
    let version = asked.version?;
    let object = version.object.as_ref()?;
    let decides = matches!(asked.permission, Some(Permission::Read | Permission::ReadAcp | Permission::WriteAcp));
    decides.then_some((version, object.acl.as_ref()))
}

#[cfg(test)]
mod tests;
