//! Access control lists: choices of requests, and the lists of objects.

use bytes::Bytes;
use larder_model::limits::ACL_GRANTS_MAX;

use super::commit::{ObjectLocation, version_id_text};
use super::get::{LocatedVersion, VersionSpec};
use super::users::Users;
use super::{Caller, Error, Objects, RequestArgument, Result};
use crate::rules::{Acl, Bucket, Grant, Grantee, Permission};

#[cfg(test)]
mod tests;

/// The ACL a request asks for.
#[derive(Debug, Clone, Default)]
pub enum AclChoice {
    /// No header: `private`.
    #[default]
    Private,
    /// A canned ACL, by its name.
    Canned(String),
    /// Explicit grants.
    Grants(Vec<(Permission, GranteeRef)>),
}

/// A grantee as clients name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GranteeRef {
    /// By canonical id.
    Id(String),
    /// By e-mail address.
    Email(String),
    /// A group, by its URI.
    Group(String),
}

/// An ACL for display.
#[derive(Debug, Clone)]
pub struct ShownAcl {
    /// Canonical id of the owner.
    pub owner: String,
    /// The grants, the owner's included.
    pub acl: Acl,
}

impl ShownAcl {
    pub(super) fn of(owner: &str, acl: &Acl) -> Self {
        Self { owner: owner.to_owned(), acl: Acl { grants: acl.effective_grants(owner) } }
    }
}

impl AclChoice {
    /// The ACL of this choice, for an entity owned by `owner` in a bucket owned by `bucket_owner`.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown canned list, id or group; `UnknownEmail`; `InvalidRequest` above 100 grants.
    pub(super) async fn resolve(&self, users: &Users, owner: &str, bucket_owner: &str) -> Result<Option<Acl>> {
        let acl = match self {
            Self::Private => return Ok(None),
            Self::Canned(name) => Acl::canned(name, owner, bucket_owner).ok_or_else(|| {
                let message = "There is no canned access control list of this name.";
                invalid_argument(RequestArgument::CannedAcl, name, message)
            })?,
            Self::Grants(given) if given.len() > ACL_GRANTS_MAX => {
                let message = format!("An access control list has at most {ACL_GRANTS_MAX} grants.");
                return Err(Error::InvalidRequest(message));
            }
            Self::Grants(given) => {
                let mut grants = Vec::with_capacity(given.len());
                for (permission, to) in given {
                    grants.push(Grant { grantee: to.resolve(users, owner).await?, permission: *permission });
                }
                Acl { grants }
            }
        };
        Ok(Some(acl).filter(|acl| !acl.grants.is_empty()))
    }
}

impl GranteeRef {
    async fn resolve(&self, users: &Users, owner: &str) -> Result<Grantee> {
        Ok(match self {
            Self::Id(id) if id == owner => Grantee::User(id.clone()),
            Self::Id(id) => match users.of_id(id).await? {
                Some(user) => Grantee::User(user.id.clone()),
                None => return Err(invalid_argument(RequestArgument::GranteeId, id, "No user has this id.")),
            },
            // A stranger may have registered the address of the one that the grant means.
            Self::Email(email) => match users.of_email(email).await?.filter(|user| !user.self_registered) {
                Some(user) => Grantee::User(user.id.clone()),
                None => return Err(Error::UnknownEmail(email.clone())),
            },
            Self::Group(uri) => Grantee::from_uri(uri).ok_or_else(|| {
                invalid_argument(RequestArgument::GroupUri, uri, "There is no group of this address.")
            })?,
        })
    }
}

impl Objects {
    /// The ACL of a version.
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
        let LocatedVersion { version, .. } = self.locate(caller, bucket, key, version).await?;
        let acl = version.object.and_then(|object| object.acl).unwrap_or_default();
        Ok(ShownAcl::of(&version.owner, &acl))
    }

    /// Replaces the ACL of a version.
    ///
    /// # Errors
    /// As a get of the object, and the refusals of an ACL choice.
    #[expect(clippy::too_many_arguments, reason = "what the request names, as for every other call on a version")]
    pub async fn put_object_acl(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        owner: Option<&str>,
        acl: AclChoice,
    ) -> Result<()> {
        let LocatedVersion { bucket, version, .. } = self.locate(caller, bucket, key, version).await?;
        check_owner(owner, &version.owner)?;
        let acl = acl.resolve(&self.users, &version.owner, &bucket.owner).await?;
        let (location, named) = (ObjectLocation::of(&bucket, key), VersionSpec::Id(version_id_text(&version)));
        let mut cas = self.heads.cas_loop(&location, None);
        loop {
            let attempt = cas.next_attempt().await?;
            refuse_public(attempt.bucket(), acl.as_ref())?;
            let found = attempt.find(&named).await?.filter(|found| found.id == version.id);
            let Some(mut found) = found else {
                // Race: another writer removed the version. The result equals an ACL change just before that.
                return Ok(());
            };
            if let Some(object) = &mut found.object {
                object.acl.clone_from(&acl);
            }
            let next = attempt.rewrite(found);
            if attempt.commit(next).await? {
                return Ok(());
            }
        }
    }
}

/// Refuses public grants where the bucket's public access block does.
pub(super) fn refuse_public(bucket: &Bucket, acl: Option<&Acl>) -> Result<()> {
    let refused = bucket.public_access.zip(acl).is_some_and(|(access, acl)| access.refuses_acl(acl));
    if refused { Err(Error::AccessDenied) } else { Ok(()) }
}

/// Refuses a change of the owner.
pub(super) fn check_owner(given: Option<&str>, owner: &str) -> Result<()> {
    if given.is_some_and(|given| given != owner) { Err(Error::AccessDenied) } else { Ok(()) }
}

fn invalid_argument(argument: RequestArgument, value: &str, message: &str) -> Error {
    Error::InvalidArgument { argument, value: value.to_owned(), message: message.to_owned() }
}
