//! Object ownership: who owns the objects that others put into a bucket, and whether ACLs count there.

use serde::{Deserialize, Serialize};

use super::acl::{Acl, Grantee};
use super::bucket::Bucket;

/// The setting of a bucket's ownership controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectOwnership {
    /// Every object is the bucket owner's, and no ACL counts.
    BucketOwnerEnforced,
    /// An object is the bucket owner's if its writer gives the owner full control, else its writer's.
    BucketOwnerPreferred,
    /// An object is its writer's, as in a bucket without ownership controls.
    ObjectWriter,
}

impl ObjectOwnership {
    /// All settings.
    pub const ALL: [Self; 3] = [Self::BucketOwnerEnforced, Self::BucketOwnerPreferred, Self::ObjectWriter];

    /// Its name in headers and documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BucketOwnerEnforced => "BucketOwnerEnforced",
            Self::BucketOwnerPreferred => "BucketOwnerPreferred",
            Self::ObjectWriter => "ObjectWriter",
        }
    }

    /// The setting of this name; case counts.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ownership| ownership.name() == name)
    }
}

impl Bucket {
    /// Whether ACLs of the bucket and of its objects count, and may be set.
    #[must_use]
    pub fn has_acls(&self) -> bool {
        self.ownership != Some(ObjectOwnership::BucketOwnerEnforced)
    }

    /// The owner of a version or an upload whose stored owner is `stored`. What others own is theirs again when the bucket's
    /// setting changes.
    #[must_use]
    pub fn effective_owner<'a>(&'a self, stored: &'a str) -> &'a str {
        if self.has_acls() { stored } else { &self.owner }
    }

    /// The owner of a new object of `writer`, who gives the bucket's owner full control or not.
    #[must_use]
    pub fn new_object_owner<'a>(&'a self, writer: &'a str, gives_control: bool) -> &'a str {
        match self.ownership {
            Some(ObjectOwnership::BucketOwnerEnforced) => &self.owner,
            Some(ObjectOwnership::BucketOwnerPreferred) if gives_control => &self.owner,
            Some(ObjectOwnership::BucketOwnerPreferred | ObjectOwnership::ObjectWriter) | None => writer,
        }
    }

    /// Whether its own ACL grants others something although no ACL counts.
    #[must_use]
    pub fn has_refused_acl(&self) -> bool {
        !self.has_acls() && self.acl.has_others(&self.owner)
    }
}

impl Acl {
    /// Whether it has a grant to anybody besides this user.
    #[must_use]
    pub fn has_others(&self, user: &str) -> bool {
        self.grants.iter().any(|grant| !matches!(&grant.grantee, Grantee::User(id) if id == user))
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use larder_rows::ids::BucketId;

    use super::*;
    use crate::acl::{Grant, Permission};

    fn bucket(ownership: Option<ObjectOwnership>) -> Bucket {
        Bucket { ownership, ..Bucket::new("tea", BucketId([1; 16]), "owner", Timestamp(1)) }
    }

    #[test]
    fn settings_are_found_by_their_names() {
        for ownership in ObjectOwnership::ALL {
            assert_eq!(ObjectOwnership::named(ownership.name()), Some(ownership));
            assert_eq!(serde_json::to_value(ownership).unwrap(), ownership.name(), "the stored form");
        }
        for name in ["", "objectwriter", "BucketOwner"] {
            assert_eq!(ObjectOwnership::named(name), None, "{name}");
        }
    }

    #[test]
    fn the_setting_chooses_the_owner_of_what_others_put() {
        use ObjectOwnership::{BucketOwnerEnforced, BucketOwnerPreferred, ObjectWriter};
        for (setting, plain, with_control) in [
            (None, "writer", "writer"),
            (Some(ObjectWriter), "writer", "writer"),
            (Some(BucketOwnerPreferred), "writer", "owner"),
            (Some(BucketOwnerEnforced), "owner", "owner"),
        ] {
            let bucket = bucket(setting);
            assert_eq!(bucket.new_object_owner("writer", false), plain, "{setting:?}");
            assert_eq!(bucket.new_object_owner("writer", true), with_control, "{setting:?}");
            let enforced = setting == Some(BucketOwnerEnforced);
            assert_eq!(bucket.has_acls(), !enforced);
            assert_eq!(bucket.effective_owner("writer"), if enforced { "owner" } else { "writer" });
        }
    }

    #[test]
    fn a_grant_to_the_owner_alone_is_no_acl() {
        let grant = |grantee| Grant { grantee, permission: Permission::FullControl };
        let of = |grants: Vec<Grantee>| {
            let acl = Acl { grants: grants.into_iter().map(grant).collect() };
            Bucket { acl, ..bucket(Some(ObjectOwnership::BucketOwnerEnforced)) }.has_refused_acl()
        };
        let owner = || Grantee::User("owner".into());
        assert_eq!([of(vec![]), of(vec![owner()])], [false; 2]);
        for other in [Grantee::AllUsers, Grantee::LogDelivery, Grantee::User("writer".into())] {
            assert!(of(vec![owner(), other.clone()]), "{other:?}");
        }
    }
}
