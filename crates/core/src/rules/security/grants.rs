//! Lookups of grants: of one role, and the scopes that requests have.

use std::collections::HashMap;

use larder_rows::address::BucketAddress;

use super::permission::{KvPermission, PermissionSet};
use super::record::{GrantTarget, RoleGrant};

/// The part of the data that a request needs a permission on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessScope<'a> {
    /// Everything.
    Any,
    /// A bucket type.
    Type(&'a [u8]),
    /// A bucket.
    Bucket(&'a BucketAddress),
}

impl std::fmt::Display for AccessScope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Type(of_type) => f.write_str(&String::from_utf8_lossy(of_type)),
            Self::Bucket(bucket) => {
                let [of_type, name] = [&bucket.bucket_type, &bucket.bucket].map(|name| String::from_utf8_lossy(name));
                write!(f, "{of_type}/{name}")
            }
        }
    }
}

/// The grants of one role, by target.
#[derive(Debug, Default)]
pub(super) struct GrantLookup {
    any: PermissionSet,
    types: HashMap<Vec<u8>, TypeGrants>,
}

/// The grants of one role on a type, and on buckets of it.
#[derive(Debug, Default)]
struct TypeGrants {
    whole: PermissionSet,
    buckets: HashMap<Vec<u8>, PermissionSet>,
}

impl GrantLookup {
    pub(super) fn new(grants: &[RoleGrant]) -> Self {
        let mut lookup = Self::default();
        for RoleGrant { target, permissions } in grants {
            let set = match target {
                GrantTarget::Any => &mut lookup.any,
                GrantTarget::Type(of_type) => &mut lookup.types.entry(of_type.clone().into()).or_default().whole,
                GrantTarget::Bucket(of_type, bucket) => {
                    let of_type = lookup.types.entry(of_type.clone().into()).or_default();
                    of_type.buckets.entry(bucket.clone().into()).or_default()
                }
            };
            *set = set.with(*permissions);
        }
        lookup
    }

    /// Whether the permission is granted on this scope, or on one around it.
    pub(super) fn has(&self, permission: KvPermission, scope: AccessScope<'_>) -> bool {
        let of_type = |name: &[u8]| self.types.get(name);
        self.any.has(permission)
            || match scope {
                AccessScope::Any => false,
                AccessScope::Type(name) => of_type(name).is_some_and(|found| found.whole.has(permission)),
                AccessScope::Bucket(bucket) => of_type(&bucket.bucket_type).is_some_and(|found| {
                    let own = found.buckets.get(&bucket.bucket[..]);
                    found.whole.has(permission) || own.is_some_and(|set| set.has(permission))
                }),
            }
    }
}
