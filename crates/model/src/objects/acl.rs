//! Access control lists: canned ones, groups, and the headers that grant.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::ACL_GRANTS_MAX;

/// Who was granted what, beside the owner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Acl {
    /// The grants, in the order given.
    pub grants: Vec<Grant>,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// To whom.
    pub grantee: Grantee,
    /// What.
    pub permission: Permission,
}

/// Somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grantee {
    /// A user, by canonical id.
    User(String),
    /// Everybody.
    AllUsers,
    /// Everybody who signs.
    AuthenticatedUsers,
    /// Who delivers logs: nobody here.
    LogDelivery,
}

/// What may be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permission {
    /// All of the others.
    FullControl,
    /// List a bucket, get an object.
    Read,
    /// Put and delete objects of a bucket.
    Write,
    /// Read the list of grants.
    ReadAcp,
    /// Change the list of grants.
    WriteAcp,
}

/// Permissions, as documents name them, and the headers that grant them.
const PERMISSIONS: &[(Permission, &str, &str)] = &[
    (Permission::FullControl, "FULL_CONTROL", "x-amz-grant-full-control"),
    (Permission::Read, "READ", "x-amz-grant-read"),
    (Permission::Write, "WRITE", "x-amz-grant-write"),
    (Permission::ReadAcp, "READ_ACP", "x-amz-grant-read-acp"),
    (Permission::WriteAcp, "WRITE_ACP", "x-amz-grant-write-acp"),
];

/// Groups, and the addresses that name them.
const GROUPS: &[(Grantee, &str)] = &[
    (Grantee::AllUsers, "http://acs.amazonaws.com/groups/global/AllUsers"),
    (Grantee::AuthenticatedUsers, "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"),
    (Grantee::LogDelivery, "http://acs.amazonaws.com/groups/s3/LogDelivery"),
];

/// Canned lists, and what they grant beside the owner's full control.
const CANNED: &[(&str, &[(To, Permission)])] = &[
    ("private", &[]),
    ("public-read", &[(To::All, Permission::Read)]),
    ("public-read-write", &[(To::All, Permission::Read), (To::All, Permission::Write)]),
    ("authenticated-read", &[(To::Authenticated, Permission::Read)]),
    ("bucket-owner-read", &[(To::BucketOwner, Permission::Read)]),
    ("bucket-owner-full-control", &[(To::BucketOwner, Permission::FullControl)]),
    // It would grant a service of AWS, which is not here.
    ("aws-exec-read", &[]),
    ("log-delivery-write", &[(To::LogDelivery, Permission::Write), (To::LogDelivery, Permission::ReadAcp)]),
];

/// Whom a canned list means.
#[derive(Clone, Copy)]
enum To {
    All,
    Authenticated,
    LogDelivery,
    BucketOwner,
}

impl Acl {
    /// The canned list of this name for something of `owner` in (or being) a bucket of `bucket_owner`, both canonical ids;
    /// `None` when there is no such list.
    #[must_use]
    pub fn canned(name: &str, owner: &str, bucket_owner: &str) -> Option<Self> {
        let (_, grants) = CANNED.iter().find(|(canned, _)| *canned == name)?;
        let grants = grants.iter().filter_map(|(to, permission)| {
            let grantee = match to {
                To::All => Grantee::AllUsers,
                To::Authenticated => Grantee::AuthenticatedUsers,
                To::LogDelivery => Grantee::LogDelivery,
                // The owner has full control anyway.
                To::BucketOwner if owner == bucket_owner => return None,
                To::BucketOwner => Grantee::User(bucket_owner.to_owned()),
            };
            Some(Grant { grantee, permission: *permission })
        });
        Some(Self { grants: grants.collect() })
    }

    /// A list of these grants.
    ///
    /// # Errors
    /// [`BadAcl`] for more than [`ACL_GRANTS_MAX`].
    pub fn new(grants: Vec<Grant>) -> Result<Self, BadAcl> {
        if grants.len() > ACL_GRANTS_MAX {
            return Err(BadAcl { message: format!("A list may have at most {ACL_GRANTS_MAX} grants.") });
        }
        Ok(Self { grants })
    }

    /// What there is to show of a list: its grants, and before them the owner's full control unless it is listed.
    #[must_use]
    pub fn effective_grants(&self, owner: &str) -> Vec<Grant> {
        let own = Grant { grantee: Grantee::User(owner.to_owned()), permission: Permission::FullControl };
        let first = (!self.grants.contains(&own)).then_some(own);
        first.into_iter().chain(self.grants.iter().cloned()).collect()
    }

    /// Whether anything is granted to people unknown: to everybody, or to everybody who signs.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| grant.grantee.is_public())
    }

    /// Whether `user` (a canonical id; nobody: anonymous) was granted `asked`; grants to the public count if `public`.
    #[must_use]
    pub fn grants(&self, user: Option<&str>, asked: Permission, public: bool) -> bool {
        let counted = self.grants.iter().filter(|grant| public || !grant.grantee.is_public());
        counted.filter(|grant| grant.grantee.is(user)).any(|grant| grant.permission.covers(asked))
    }
}

impl Grantee {
    /// The address that names a group; users have none.
    #[must_use]
    pub fn uri(&self) -> Option<&'static str> {
        GROUPS.iter().find(|(group, _)| group == self).map(|(_, uri)| *uri)
    }

    /// The group of this address.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        GROUPS.iter().find(|(_, known)| *known == uri).map(|(group, _)| group.clone())
    }

    /// Whether these are people unknown.
    #[must_use]
    pub fn is_public(&self) -> bool {
        matches!(self, Self::AllUsers | Self::AuthenticatedUsers)
    }

    fn is(&self, user: Option<&str>) -> bool {
        match self {
            Self::User(id) => user == Some(id),
            Self::AllUsers => true,
            Self::AuthenticatedUsers => user.is_some(),
            Self::LogDelivery => false,
        }
    }
}

impl Permission {
    /// As documents name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        PERMISSIONS.iter().find(|(permission, ..)| *permission == self).map_or("", |(_, name, _)| name)
    }

    /// The permission of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PERMISSIONS.iter().find(|(_, known, _)| *known == name).map(|(permission, ..)| *permission)
    }

    /// Every header that grants, in lower case, with what it grants.
    pub fn headers() -> impl Iterator<Item = (&'static str, Self)> {
        PERMISSIONS.iter().map(|(permission, _, header)| (*header, *permission))
    }

    /// Whether who has this has `other` too.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self == other || self == Self::FullControl
    }
}

/// Somebody as a header or document names them: who it is has still to be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawGrantee {
    /// By canonical id.
    Id(String),
    /// By e-mail address.
    Email(String),
    /// A group, by its address.
    Uri(String),
}

/// Makes somebody of their name.
type Make = fn(String) -> RawGrantee;

/// The ways to name somebody in a header.
const NAMES: &[(&str, Make)] = &[("id", RawGrantee::Id), ("emailAddress", RawGrantee::Email), ("uri", RawGrantee::Uri)];

/// Reads the value of a header that grants: `id="…", emailAddress="…", uri="…"`, quotes optional, at least one.
///
/// # Errors
/// [`BadAcl`] when it has another shape, or names more than [`ACL_GRANTS_MAX`].
pub fn parse_grantees(value: &str) -> Result<Vec<RawGrantee>, BadAcl> {
    let mut grantees = Vec::new();
    let mut rest = value.trim();
    loop {
        let (grantee, behind) = grantee(rest)?;
        grantees.push(grantee);
        if grantees.len() > ACL_GRANTS_MAX {
            return Err(BadAcl { message: format!("A list may have at most {ACL_GRANTS_MAX} grants.") });
        }
        if behind.is_empty() {
            return Ok(grantees);
        }
        rest = behind.strip_prefix(',').ok_or_else(|| bad_grantee(behind))?.trim_start();
    }
}

/// The first of a list, and what follows it.
fn grantee(text: &str) -> Result<(RawGrantee, &str), BadAcl> {
    let (kind, behind) = text.split_once('=').ok_or_else(|| bad_grantee(text))?;
    let behind = behind.trim_start();
    let (value, rest) = match behind.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or_else(|| bad_grantee(text))?,
        None => behind.split_at(behind.find(',').unwrap_or(behind.len())),
    };
    let value = value.trim();
    if value.is_empty() {
        return Err(bad_grantee(text));
    }
    let (_, make) =
        NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(kind.trim())).ok_or_else(|| bad_grantee(text))?;
    Ok((make(value.to_owned()), rest.trim_start()))
}

fn bad_grantee(text: &str) -> BadAcl {
    let shown: String = text.chars().take(100).collect();
    BadAcl { message: format!("A grantee is id=\"…\", emailAddress=\"…\" or uri=\"…\"; this is none: {shown}") }
}

/// Why grants are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAcl {
    /// What is wrong, for the client.
    pub message: String,
}

impl fmt::Display for BadAcl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadAcl {}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(grantee: Grantee, permission: Permission) -> Grant {
        Grant { grantee, permission }
    }

    #[test]
    fn canned_lists() {
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
        let own = grant(Grantee::User("o".into()), Permission::FullControl);
        let other = grant(Grantee::AllUsers, Permission::Read);
        assert_eq!(Acl::default().effective_grants("o"), std::slice::from_ref(&own));
        let acl = Acl { grants: vec![other.clone()] };
        assert_eq!(acl.effective_grants("o"), [own.clone(), other.clone()]);
        let acl = Acl { grants: vec![other.clone(), own.clone()] };
        assert_eq!(acl.effective_grants("o"), [other, own]);
    }

    #[test]
    fn names_go_both_ways() {
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
    fn public_is_everybody_and_everybody_who_signs() {
        let public = |name| Acl::canned(name, "o", "b").unwrap().is_public();
        assert!(public("public-read") && public("public-read-write") && public("authenticated-read"));
        assert!(!public("private") && !public("bucket-owner-read") && !public("log-delivery-write"));
    }

    #[test]
    fn grant_headers() {
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
    fn a_hundred_grants_and_no_more() {
        let grants = |count| vec![grant(Grantee::AllUsers, Permission::Read); count];
        assert!(Acl::new(grants(100)).is_ok());
        assert!(Acl::new(grants(101)).is_err());
    }
}
