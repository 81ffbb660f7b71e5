//! Access control lists of buckets and objects.

use bytes::Bytes;
use larder_model::objects::{Acl, Bucket, Permission};

use super::get::VersionSpec;
use super::{Caller, Objects, Result};

/// The list of grants a request asks for.
#[derive(Debug, Clone, Default)]
pub enum AclChoice {
    /// None: `private`.
    #[default]
    Private,
    /// A canned one, by the name in `x-amz-acl`.
    Canned(String),
    /// Grants.
    Grants(Vec<(Permission, GranteeRef)>),
}

/// Somebody as clients name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GranteeRef {
    /// By canonical id.
    Id(String),
    /// By e-mail address.
    Email(String),
    /// A group, by its URI.
    Group(String),
}

/// A list of grants as it is shown.
#[derive(Debug, Clone)]
pub struct ShownAcl {
    /// Canonical id of the owner.
    pub owner: String,
    /// The grants, those of the owner included.
    pub acl: Acl,
}

impl Objects {
    /// The list of grants a choice means, for something owned by `owner` in a bucket owned by `bucket_owner`.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown canned list, id or group; `UnknownEmail`; `InvalidRequest` above 100 grants.
    pub(super) async fn resolve_acl(&self, choice: &AclChoice, owner: &str, bucket_owner: &str) -> Result<Option<Acl>> {
        unimplemented!()
    }

    /// The grants of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn bucket_acl(&self, caller: &Caller, bucket: &str) -> Result<ShownAcl> {
        unimplemented!()
    }

    /// Replaces the grants of a bucket. `owner`, when given in the document, must be its owner.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, and what a choice may be refused for.
    pub async fn put_bucket_acl(
        &self,
        caller: &Caller,
        bucket: &str,
        owner: Option<&str>,
        acl: AclChoice,
    ) -> Result<()> {
        unimplemented!()
    }

    /// The grants of a version.
    ///
    /// # Errors
    /// As a get of the object.
    pub async fn object_acl(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
    ) -> Result<ShownAcl> {
        unimplemented!()
    }

    /// Replaces the grants of a version.
    ///
    /// # Errors
    /// As a get of the object, and what a choice may be refused for.
    pub async fn put_object_acl(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        owner: Option<&str>,
        acl: AclChoice,
    ) -> Result<()> {
        unimplemented!()
    }
}
