//! A request, as the decision on it sees it.

use std::net::IpAddr;

use larder_rows::Timestamp;

use super::action::S3Action;
use super::policy::PolicyWork;
use super::tags::Tag;
use super::version::Version;

/// The properties of a request that the conditions of a policy test, beside the caller and the action.
#[derive(Debug, Clone, Default)]
pub struct AccessContext {
    /// The address of the client.
    pub source: Option<IpAddr>,
    /// Whether the request came over TLS.
    pub secure: bool,
    /// The time of the request.
    pub now: Timestamp,
    /// Whether temporary credentials signed it.
    pub is_session: bool,
    /// The condition keys of headers and parameters that the request has, with their values.
    pub keys: Vec<(&'static str, String)>,
    /// The tags in the request: `s3:RequestObjectTag/…` and `s3:RequestObjectTagKeys`.
    pub request_tags: Vec<Tag>,
    /// The work that policies may make for it.
    pub work: PolicyWork,
}

/// The action and its target, for which a caller needs permission.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// The action.
    pub action: S3Action,
    /// The key of the object; `None` for an action on the bucket itself.
    pub key: Option<&'a [u8]>,
    /// The object's version, when the action reads it or its ACL: its owner and its grants decide. `None` when there is no such
    /// version; the decision is then whether the caller may learn that.
    pub version: Option<&'a Version>,
}

impl S3Action {
    /// This action on a bucket itself.
    #[must_use]
    pub fn on_bucket(self) -> AccessRequest<'static> {
        AccessRequest { action: self, key: None, version: None }
    }

    /// This action on a key, whatever version it has.
    #[must_use]
    pub fn on_key(self, key: &[u8]) -> AccessRequest<'_> {
        AccessRequest { action: self, key: Some(key), version: None }
    }

    /// This action on a version of a key; `None`: there is no such version.
    #[must_use]
    pub fn on_version<'a>(self, key: &'a [u8], version: Option<&'a Version>) -> AccessRequest<'a> {
        AccessRequest { action: self, key: Some(key), version }
    }
}
