//! Access control lists: grants, canned lists, groups, and the headers that grant.

use larder_rows::limits::ACL_GRANTS_MAX;
use serde::{Deserialize, Serialize};

/// The grants beside the owner's full control.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Acl {
    /// The grants, in the order given.
    pub grants: Vec<Grant>,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The user or group.
    pub grantee: Grantee,
    /// The permission.
    pub permission: Permission,
}

/// A user or a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grantee {
    /// A user, by canonical id.
    User(String),
    /// All callers, anonymous ones included.
    AllUsers,
    /// All callers who sign.
    AuthenticatedUsers,
    /// The log delivery service of AWS, which does not exist here.
    LogDelivery,
}

/// A permission that can be granted. Its number is in stored rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permission {
    /// All of the others.
    FullControl = 0,
    /// List a bucket, get an object.
    Read = 1,
    /// Put and delete objects of a bucket.
    Write = 2,
    /// Read the list of grants.
    ReadAcp = 3,
    /// Change the list of grants.
    WriteAcp = 4,
}

/// Permissions, their names in documents, and the headers that grant them.
const PERMISSIONS: &[(Permission, &str, &str)] = &[
    (Permission::FullControl, "FULL_CONTROL", "x-amz-grant-full-control"),
    (Permission::Read, "READ", "x-amz-grant-read"),
    (Permission::Write, "WRITE", "x-amz-grant-write"),
    (Permission::ReadAcp, "READ_ACP", "x-amz-grant-read-acp"),
    (Permission::WriteAcp, "WRITE_ACP", "x-amz-grant-write-acp"),
];

/// Groups and their URIs.
const GROUPS: &[(Grantee, &str)] = &[
    (Grantee::AllUsers, "http://acs.amazonaws.com/groups/global/AllUsers"),
    (Grantee::AuthenticatedUsers, "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"),
    (Grantee::LogDelivery, "http://acs.amazonaws.com/groups/s3/LogDelivery"),
];

/// Canned lists and their grants beside the owner's full control.
const CANNED: &[(&str, &[(CannedGrantee, Permission)])] = &[
    ("private", &[]),
    ("public-read", &[(CannedGrantee::All, Permission::Read)]),
    ("public-read-write", &[(CannedGrantee::All, Permission::Read), (CannedGrantee::All, Permission::Write)]),
    ("authenticated-read", &[(CannedGrantee::Authenticated, Permission::Read)]),
    ("bucket-owner-read", &[(CannedGrantee::BucketOwner, Permission::Read)]),
    ("bucket-owner-full-control", &[(CannedGrantee::BucketOwner, Permission::FullControl)]),
    // Its grantee is a service of AWS, which does not exist here.
    ("aws-exec-read", &[]),
    (
        "log-delivery-write",
        &[(CannedGrantee::LogDelivery, Permission::Write), (CannedGrantee::LogDelivery, Permission::ReadAcp)],
    ),
];

/// The grantee of a canned list.
#[derive(Clone, Copy)]
enum CannedGrantee {
    All,
    Authenticated,
    LogDelivery,
    BucketOwner,
}

impl Acl {
    /// The canned list of this name, for an object of `owner` in a bucket of `bucket_owner` or for that bucket itself. Both
    /// are canonical ids. `None` for an unknown name.
    #[must_use]
    pub fn canned(name: &str, owner: &str, bucket_owner: &str) -> Option<Self> {
        let (_, grants) = CANNED.iter().find(|(canned, _)| *canned == name)?;
        let grants = grants.iter().filter_map(|(to, permission)| {
            let grantee = match to {
                CannedGrantee::All => Grantee::AllUsers,
                CannedGrantee::Authenticated => Grantee::AuthenticatedUsers,
                CannedGrantee::LogDelivery => Grantee::LogDelivery,
                // The owner has full control anyway.
                CannedGrantee::BucketOwner if owner == bucket_owner => return None,
                CannedGrantee::BucketOwner => Grantee::User(bucket_owner.to_owned()),
            };
            Some(Grant { grantee, permission: *permission })
        });
        Some(Self { grants: grants.collect() })
    }

    /// A list of these grants.
    ///
    /// # Errors
    /// [`AclError`] for more than [`ACL_GRANTS_MAX`] grants.
    pub fn new(grants: Vec<Grant>) -> Result<Self, AclError> {
        if grants.len() > ACL_GRANTS_MAX {
            return Err(AclError { message: format!("A list may have at most {ACL_GRANTS_MAX} grants.") });
        }
        Ok(Self { grants })
    }

    /// The grants as documents show them: the owner's full control first, unless it is among the grants.
    #[must_use]
    pub fn effective_grants(&self, owner: &str) -> Vec<Grant> {
        let owner_grant = Grant { grantee: Grantee::User(owner.to_owned()), permission: Permission::FullControl };
        let first = (!self.grants.contains(&owner_grant)).then_some(owner_grant);
        first.into_iter().chain(self.grants.iter().cloned()).collect()
    }

    /// Whether it has a grant to all callers or to all who sign.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| grant.grantee.is_public())
    }

    /// Whether `user` (a canonical id; `None`: anonymous) has `permission`. Public grants count if `public`.
    #[must_use]
    pub fn has_grant(&self, user: Option<&str>, permission: Permission, public: bool) -> bool {
        // Public grants stay stored while the bucket ignores them.
        let counted = self.grants.iter().filter(|grant| public || !grant.grantee.is_public());
        counted.filter(|grant| grant.grantee.includes(user)).any(|grant| grant.permission.implies(permission))
    }
}

impl Grantee {
    /// The URI of a group; `None` for a user.
    #[must_use]
    pub fn uri(&self) -> Option<&'static str> {
        GROUPS.iter().find(|(group, _)| group == self).map(|(_, uri)| *uri)
    }

    /// The group of this URI.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        GROUPS.iter().find(|(_, known)| *known == uri).map(|(group, _)| group.clone())
    }

    /// Whether the grantee is all callers or all who sign.
    #[must_use]
    pub fn is_public(&self) -> bool {
        matches!(self, Self::AllUsers | Self::AuthenticatedUsers)
    }

    fn includes(&self, user: Option<&str>) -> bool {
        match self {
            Self::User(id) => user == Some(id),
            Self::AllUsers => true,
            Self::AuthenticatedUsers => user.is_some(),
            Self::LogDelivery => false,
        }
    }
}

impl Permission {
    /// Its name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        PERMISSIONS.iter().find(|(permission, ..)| *permission == self).map_or("", |(_, name, _)| name)
    }

    /// The permission of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PERMISSIONS.iter().find(|(_, known, _)| *known == name).map(|(permission, ..)| *permission)
    }

    /// Every header that grants, in lower case, with its permission.
    pub fn headers() -> impl Iterator<Item = (&'static str, Self)> {
        PERMISSIONS.iter().map(|(permission, _, header)| (*header, *permission))
    }

    /// Whether a grant of this permission includes `other`.
    #[must_use]
    pub fn implies(self, other: Self) -> bool {
        self == other || self == Self::FullControl
    }
}

/// A grantee as a header or document names it, not looked up yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawGrantee {
    /// A user by canonical id.
    Id(String),
    /// A user by e-mail address.
    Email(String),
    /// A group by its URI.
    Uri(String),
}

/// Makes a grantee of its name.
type MakeGrantee = fn(String) -> RawGrantee;

/// The kinds of names of grantees in a header.
const NAMES: &[(&str, MakeGrantee)] =
    &[("id", RawGrantee::Id), ("emailAddress", RawGrantee::Email), ("uri", RawGrantee::Uri)];

/// Reads the value of a header that grants: `id="…", emailAddress="…", uri="…"`, quotes optional, at least one.
///
/// # Errors
/// [`AclError`] for another form, or for more than [`ACL_GRANTS_MAX`] grantees.
pub fn parse_grantees(value: &str) -> Result<Vec<RawGrantee>, AclError> {
    let mut grantees = Vec::new();
    let mut rest = value.trim();
    loop {
        let (grantee, tail) = parse_grantee(rest)?;
        grantees.push(grantee);
        // Bound: the header is not trusted to be short.
        if grantees.len() > ACL_GRANTS_MAX {
            return Err(AclError { message: format!("A list may have at most {ACL_GRANTS_MAX} grants.") });
        }
        if tail.is_empty() {
            return Ok(grantees);
        }
        rest = tail.strip_prefix(',').ok_or_else(|| bad_grantee(tail))?.trim_start();
    }
}

/// The first grantee of a list, and the rest of the text.
fn parse_grantee(text: &str) -> Result<(RawGrantee, &str), AclError> {
    let (kind, value) = text.split_once('=').ok_or_else(|| bad_grantee(text))?;
    let value = value.trim_start();
    let (value, rest) = match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or_else(|| bad_grantee(text))?,
        None => value.split_at(value.find(',').unwrap_or(value.len())),
    };
    let value = value.trim();
    if value.is_empty() {
        return Err(bad_grantee(text));
    }
    let (_, make) =
        NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(kind.trim())).ok_or_else(|| bad_grantee(text))?;
    Ok((make(value.to_owned()), rest.trim_start()))
}

fn bad_grantee(text: &str) -> AclError {
    let shown: String = text.chars().take(100).collect();
    AclError { message: format!("A grantee is id=\"…\", emailAddress=\"…\" or uri=\"…\"; this is none: {shown}") }
}

/// Why grants are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AclError {
    /// The reason, for the client.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(grantee: Grantee, permission: Permission) -> Grant {
        Grant { grantee, permission }
    }

    #[test]
    fn canned_lists_grant_what_aws_documents() {
        let canned = |name| Acl::canned(name, "o", "b").map(|acl| acl.grants);
        let bucket_owner = || Grantee::User("b".into());
        assert_eq!(canned("private"), Some(vec![]));
        assert_eq!(canned("aws-exec-read"), Some(vec![]));
        assert_eq!(canned("public-read"), Some(vec![grant(Grantee::AllUsers, Permission::Read)]));
        assert_eq!(canned("authenticated-read"), Some(vec![grant(Grantee::AuthenticatedUsers, Permission::Read)]));
        assert_eq!(canned("bucket-owner-read"), Some(vec![grant(bucket_owner(), Permission::Read)]));
        assert_eq!(canned("bucket-owner-full-control"), Some(vec![grant(bucket_owner(), Permission::FullControl)]));
        assert_eq!(canned("public-read-write").map(|grants| grants.len()), Some(2));
        assert_eq!(canned("log-delivery-write").map(|grants| grants.len()), Some(2));
        assert_eq!(Acl::canned("bucket-owner-read", "o", "o"), Some(Acl::default()));
        assert_eq!(canned("Private"), None);
        assert_eq!(canned(""), None);
    }

    #[test]
    fn the_owner_is_shown_first_and_once() {
        let owner_grant = grant(Grantee::User("o".into()), Permission::FullControl);
        let other = grant(Grantee::AllUsers, Permission::Read);
        assert_eq!(Acl::default().effective_grants("o"), std::slice::from_ref(&owner_grant));
        let acl = Acl { grants: vec![other.clone()] };
        assert_eq!(acl.effective_grants("o"), [owner_grant.clone(), other.clone()]);
        let acl = Acl { grants: vec![other.clone(), owner_grant.clone()] };
        assert_eq!(acl.effective_grants("o"), [other, owner_grant]);
    }

    #[test]
    fn names_and_uris_map_back_to_their_values() {
        for (permission, name, _) in PERMISSIONS {
            assert_eq!((permission.name(), Permission::named(name)), (*name, Some(*permission)));
        }
        for (group, uri) in GROUPS {
            assert_eq!((group.uri(), Grantee::from_uri(uri)), (Some(*uri), Some(group.clone())));
        }
        assert_eq!(Grantee::User("x".into()).uri(), None);
        assert_eq!(Grantee::from_uri("http://elsewhere"), None);
        assert_eq!(Permission::named("read"), None);
        assert_eq!(Permission::headers().count(), 5);
    }

    #[test]
    fn a_grant_to_all_or_to_all_who_sign_is_public() {
        let public = |name| Acl::canned(name, "o", "b").unwrap().is_public();
        assert!(public("public-read") && public("public-read-write") && public("authenticated-read"));
        assert!(!public("private") && !public("bucket-owner-read") && !public("log-delivery-write"));
    }

    #[test]
    fn grant_headers_parse_or_are_refused() {
        let id = |id: &str| RawGrantee::Id(id.into());
        assert_eq!(parse_grantees(r#"id="1f", id="2""#), Ok(vec![id("1f"), id("2")]));
        assert_eq!(parse_grantees("id=1f,ID=2"), Ok(vec![id("1f"), id("2")]));
        assert_eq!(
            parse_grantees(r#" emailAddress="a,b=c@d" , uri = "http://x/y?z=1" "#),
            Ok(vec![RawGrantee::Email("a,b=c@d".into()), RawGrantee::Uri("http://x/y?z=1".into())])
        );
        for bad in ["", ",", "id", "id=", "id=\"\"", "id=\"1", "name=\"1\"", "id=\"1\" id=\"2\"", "id=\"1\",", "=1"] {
            assert!(parse_grantees(bad).is_err(), "{bad}");
        }
        let many = |count: usize| vec!["id=1"; count].join(",");
        assert_eq!(parse_grantees(&many(100)).map(|list| list.len()), Ok(100));
        assert!(parse_grantees(&many(101)).is_err());
    }

    #[test]
    fn more_than_a_hundred_grants_are_refused() {
        let grants = |count| vec![grant(Grantee::AllUsers, Permission::Read); count];
        assert!(Acl::new(grants(100)).is_ok());
        assert!(Acl::new(grants(101)).is_err());
    }
}
