//! Access control lists.

use serde::{Deserialize, Serialize};

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
