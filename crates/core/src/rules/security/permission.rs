//! The table of permissions, and sets of them.

use std::collections::HashMap;

use larder_rows::address::BucketAddress;

use super::SecurityRefusal;
use super::record::{GrantTarget, RoleGrant};

macro_rules! permissions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A permission that can be granted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum KvPermission {
            $($(#[$doc])* $variant,)*
        }

        impl KvPermission {
            /// All permissions, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Riak's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

permissions! {
    /// Reads objects and data types.
    Get = "riak_kv.get";
    /// Writes objects and data types.
    Put = "riak_kv.put";
    /// Deletes objects.
    Delete = "riak_kv.delete";
    /// Lists the keys of a bucket.
    ListKeys = "riak_kv.list_keys";
    /// Lists the buckets of a type.
    ListBuckets = "riak_kv.list_buckets";
    /// Takes a bucket as an input of a job.
    MapReduce = "riak_kv.mapreduce";
    /// Queries secondary indexes.
    Index = "riak_kv.index";
    /// Asks for the nodes of a key.
    GetPreflist = "riak_kv.get_preflist";
    /// Reads the properties of a bucket.
    GetBucket = "riak_core.get_bucket";
    /// Changes the properties of a bucket.
    SetBucket = "riak_core.set_bucket";
    /// Reads the properties of a bucket type.
    GetBucketType = "riak_core.get_bucket_type";
    /// Changes the properties of a bucket type.
    SetBucketType = "riak_core.set_bucket_type";
    /// Administers search. There is no search: the permission is kept for scripts.
    SearchAdmin = "search.admin";
    /// Searches. There is no search: the permission is kept for scripts.
    SearchQuery = "search.query";
}

impl KvPermission {
    /// The permission of this name.
    ///
    /// # Errors
    /// [`SecurityRefusal::UnknownPermission`].
    pub fn parse(name: &str) -> Result<Self, SecurityRefusal> {
        let permission = Self::ALL.iter().find(|permission| permission.name() == name).copied();
        permission.ok_or_else(|| SecurityRefusal::UnknownPermission(name.to_owned()))
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A set of permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PermissionSet(u32);

impl PermissionSet {
    /// Whether the permission is in it.
    #[must_use]
    pub fn has(self, permission: KvPermission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The permissions of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The permissions of this one that the other lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The permissions, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = KvPermission> {
        KvPermission::ALL.iter().copied().filter(move |permission| self.has(*permission))
    }

    /// The set of these names.
    ///
    /// # Errors
    /// [`SecurityRefusal::UnknownPermission`] with the first name that is none.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, SecurityRefusal> {
        names.into_iter().map(KvPermission::parse).collect()
    }
}

impl FromIterator<KvPermission> for PermissionSet {
    fn from_iter<I: IntoIterator<Item = KvPermission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |set, permission| set | permission.bit()))
    }
}

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
                AccessScope::Type(name) => of_type(name).is_some_and(|type_grants| type_grants.whole.has(permission)),
                AccessScope::Bucket(bucket) => of_type(&bucket.bucket_type).is_some_and(|type_grants| {
                    let bucket_set = type_grants.buckets.get(&bucket.bucket[..]);
                    type_grants.whole.has(permission) || bucket_set.is_some_and(|set| set.has(permission))
                }),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_permissions() {
        for permission in KvPermission::ALL {
            assert_eq!(KvPermission::parse(permission.name()), Ok(*permission));
        }
        let unknown = SecurityRefusal::UnknownPermission("riak_kv.*".into());
        assert_eq!(PermissionSet::parse(["riak_kv.get", "riak_kv.*"]), Err(unknown));
    }

    #[test]
    fn sets_hold_what_they_were_given() {
        let set = PermissionSet::parse(["search.query", "riak_kv.get"]).unwrap();
        assert_eq!(set.iter().map(KvPermission::name).collect::<Vec<_>>(), ["riak_kv.get", "search.query"]);
        let remaining = set.without([KvPermission::Get].into_iter().collect());
        assert!(remaining.has(KvPermission::SearchQuery) && !remaining.has(KvPermission::Get) && !remaining.is_empty());
        assert_eq!(remaining.with(set), set);
    }
}
