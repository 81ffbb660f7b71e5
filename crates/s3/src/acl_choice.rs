//! The access control list that a request asks for.

use larder_rows::limits::ACL_GRANTS_MAX;

use crate::rules::{Acl, Bucket, Grant, Grantee, Permission};
use crate::users::Users;
use crate::{Error, RequestArgument, Result};

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
    /// The ACL of an entity in `bucket` with this stored owner.
    pub(crate) fn new(bucket: &Bucket, owner: &str, acl: &Acl) -> Self {
        let owner = bucket.effective_owner(owner);
        let none = Acl::default();
        let acl = if bucket.has_acls() { acl } else { &none };
        Self { owner: owner.to_owned(), acl: Acl { grants: acl.effective_grants(owner) } }
    }
}

/// The canned list that gives the owner of the bucket full control.
const OWNER_CONTROL: &str = "bucket-owner-full-control";

impl AclChoice {
    /// Whether it is the canned list by which a writer gives a new object to the owner of the bucket.
    pub(crate) fn gives_control(&self) -> bool {
        matches!(self, Self::Canned(name) if name == OWNER_CONTROL)
    }

    /// The ACL of this choice, for an entity owned by `owner` in a bucket owned by `bucket_owner`.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown canned list, id or group; `UnknownEmail`; `InvalidRequest` above 100 grants.
    pub(crate) async fn resolve(&self, users: &Users, owner: &str, bucket_owner: &str) -> Result<Option<Acl>> {
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
            Self::Id(id) => match users.find_by_id(id).await? {
                Some(user) => Grantee::User(user.id.clone()),
                None => return Err(invalid_argument(RequestArgument::GranteeId, id, "No user has this id.")),
            },
            // A stranger may have registered the address of the one that the grant means.
            Self::Email(email) => match users.find_by_email(email).await?.filter(|user| !user.self_registered) {
                Some(user) => Grantee::User(user.id.clone()),
                None => return Err(Error::UnknownEmail(email.clone())),
            },
            Self::Group(uri) => Grantee::from_uri(uri).ok_or_else(|| {
                invalid_argument(RequestArgument::GroupUri, uri, "There is no group of this address.")
            })?,
        })
    }
}

/// Refuses the ACL of a new object in a bucket without ACLs, unless it gives the owner full control and nothing else.
pub(crate) fn check_owner_control(bucket: &Bucket, choice: &AclChoice, acl: Option<&Acl>) -> Result<()> {
    let is_control = match (choice, acl) {
        (AclChoice::Private, _) => true,
        (AclChoice::Canned(_), _) => choice.gives_control(),
        (AclChoice::Grants(_), Some(acl)) => {
            let full = |grant: &Grant| grant.permission == Permission::FullControl;
            acl.grants.iter().all(full) && !acl.has_others(&bucket.owner)
        }
        (AclChoice::Grants(_), None) => false,
    };
    if bucket.has_acls() || is_control { Ok(()) } else { Err(Error::AclsNotSupported) }
}

/// Refuses a change of an ACL in a bucket without ACLs.
pub(crate) fn check_has_acls(bucket: &Bucket) -> Result<()> {
    if bucket.has_acls() { Ok(()) } else { Err(Error::AclsNotSupported) }
}

/// Refuses public grants where the bucket's public access block does.
pub(crate) fn check_public_acl(bucket: &Bucket, acl: Option<&Acl>) -> Result<()> {
    let refused = bucket.public_access.zip(acl).is_some_and(|(access, acl)| access.refuses_acl(acl));
    if refused { Err(Error::AccessDenied) } else { Ok(()) }
}

/// Refuses a change of the owner.
pub(crate) fn check_owner(given: Option<&str>, owner: &str) -> Result<()> {
    if given.is_some_and(|given| given != owner) { Err(Error::AccessDenied) } else { Ok(()) }
}

fn invalid_argument(argument: RequestArgument, value: &str, message: &str) -> Error {
    Error::InvalidArgument { argument, value: value.to_owned(), message: message.to_owned() }
}
