//! The verdict: may this caller do this?

use std::net::IpAddr;

use crate::rows::Micros;

use super::acl::Permission;
use super::bucket::Bucket;
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
    /// The object's version, when reading it or its ACL: its owner and its grants decide.
    pub version: Option<&'a Version>,
}

/// Whether `user` (nobody: anonymous) may do what is `asked` in `bucket`.
#[must_use]
pub fn allows(bucket: &Bucket, user: Option<&User>, asked: &Asked<'_>, circumstances: &Circumstances) -> bool {
    let _ = (asked, circumstances);
    user.is_some_and(|user| user.admin || user.id == bucket.owner)
}
