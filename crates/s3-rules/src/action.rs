//! The actions that need permission: the one table of their names in policies and of the ACL permissions that grant them.

use super::acl::Permission;

/// The kind of resource that an action is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActionScope {
    /// A user's buckets: no policy of a bucket can name the action.
    Account,
    /// A bucket.
    Bucket,
    /// An object, or an upload of one.
    Object,
}

macro_rules! actions {
    ($($scope:ident { $($action:ident $($permission:ident)? $(/ $versioned:ident)? $(= $name:literal)?;)* })*) => {
        /// An action for which a caller needs permission.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum S3Action {
            $($(
                #[doc = concat!("`", actions!(@name $action $($name)?), "`")]
                $action,
                $(#[doc = concat!("`", actions!(@name $versioned), "`")] $versioned,)?
            )*)*
        }

        impl S3Action {
            /// All actions, in the order of the table.
            pub(super) const ALL: &[Self] = &[$($(Self::$action, $(Self::$versioned,)?)*)*];

            /// The name in policies.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(
                        Self::$action => actions!(@name $action $($name)?),
                        $(Self::$versioned => actions!(@name $versioned),)?
                    )*)*
                }
            }

            /// The kind of resource that it is on.
            pub(super) fn scope(self) -> ActionScope {
                match self {
                    $($(Self::$action $(| Self::$versioned)? => ActionScope::$scope,)*)*
                }
            }

            /// The ACL permission that grants the action; `None` when only the bucket's owner or a policy can allow it.
            #[must_use]
            pub fn permission(self) -> Option<Permission> {
                // A grant to write adds delete markers, but no version goes for good by it.
                if self == Self::DeleteObjectVersion {
                    return None;
                }
                match self {
                    $($(Self::$action $(| Self::$versioned)? => actions!(@permission $($permission)?),)*)*
                }
            }

            /// The action on a version that the request names by its id.
            #[must_use]
            pub fn versioned(self) -> Self {
                match self {
                    $($($(Self::$action => Self::$versioned,)?)*)*
                    other => other,
                }
            }
        }
    };
    (@name $action:ident) => { concat!("s3:", stringify!($action)) };
    (@name $action:ident $name:literal) => { $name };
    (@permission) => { None };
    (@permission $permission:ident) => { Some(Permission::$permission) };
}

// Action, the permission that grants it / the action on a version by its id = the name in policies, if it is another.
actions! {
    Account {
        ListAllMyBuckets;
        CreateBucket;
        // Every user may have temporary credentials of its own rights, unless a policy denies it.
        AssumeRole = "sts:AssumeRole";
    }

    Bucket {
        DeleteBucket;
        ListBucket Read;
        ListBucketVersions Read;
        ListBucketMultipartUploads Read;
        GetBucketLocation;
        GetBucketVersioning;
        PutBucketVersioning;
        GetBucketAcl ReadAcp;
        PutBucketAcl WriteAcp;
        GetBucketPolicy;
        PutBucketPolicy;
        DeleteBucketPolicy;
        GetBucketPolicyStatus;
        GetBucketCORS;
        PutBucketCORS;
        GetLifecycleConfiguration;
        PutLifecycleConfiguration;
        GetBucketTagging;
        PutBucketTagging;
        GetBucketPublicAccessBlock;
        PutBucketPublicAccessBlock;
        GetBucketLogging;
        PutBucketLogging;
        GetBucketNotification;
        PutBucketNotification;
        GetBucketRequestPayment;
        PutBucketRequestPayment;
        GetAccelerateConfiguration;
        PutAccelerateConfiguration;
        GetBucketWebsite;
        PutBucketWebsite;
        DeleteBucketWebsite;
        GetReplicationConfiguration;
        PutReplicationConfiguration;
        GetEncryptionConfiguration;
        PutEncryptionConfiguration;
        GetBucketOwnershipControls;
        PutBucketOwnershipControls;
        GetInventoryConfiguration;
        PutInventoryConfiguration;
        GetAnalyticsConfiguration;
        PutAnalyticsConfiguration;
        GetMetricsConfiguration;
        PutMetricsConfiguration;
        GetIntelligentTieringConfiguration;
        PutIntelligentTieringConfiguration;
        GetBucketObjectLockConfiguration;
        PutBucketObjectLockConfiguration;
        CreateSession;
    }

    Object {
        GetObject Read / GetObjectVersion;
        GetObjectAttributes Read / GetObjectVersionAttributes;
        PutObject Write;
        // The tags and the ACL of an object that the same request puts: permission to write the object includes them.
        NewObjectTags Write = "s3:PutObjectTagging";
        NewObjectAcl Write = "s3:PutObjectAcl";
        DeleteObject Write / DeleteObjectVersion;
        GetObjectAcl ReadAcp / GetObjectVersionAcl;
        PutObjectAcl WriteAcp / PutObjectVersionAcl;
        GetObjectTagging / GetObjectVersionTagging;
        PutObjectTagging / PutObjectVersionTagging;
        DeleteObjectTagging / DeleteObjectVersionTagging;
        ListMultipartUploadParts;
        AbortMultipartUpload;
        GetObjectRetention;
        PutObjectRetention;
        GetObjectLegalHold;
        PutObjectLegalHold;
        BypassGovernanceRetention;
        GetObjectTorrent;
        RestoreObject;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn policies_tell_all_actions_apart_but_those_on_new_objects() {
        let names: HashSet<_> = S3Action::ALL.iter().map(|action| action.name()).collect();
        assert_eq!(names.len() + 2, S3Action::ALL.len());
        assert_eq!(S3Action::NewObjectTags.name(), S3Action::PutObjectTagging.name());
        assert_eq!(S3Action::NewObjectAcl.name(), S3Action::PutObjectAcl.name());
        assert_eq!(S3Action::GetBucketCORS.name(), "s3:GetBucketCORS");
    }

    #[test]
    fn an_action_on_a_version_needs_the_permission_of_the_action_but_no_grant_deletes_versions() {
        for action in S3Action::ALL {
            let versioned = action.versioned();
            let expected = action.permission().filter(|_| *action != S3Action::DeleteObject);
            assert_eq!(versioned.permission(), expected, "{action:?}");
            assert_eq!(versioned.versioned(), versioned, "{action:?}");
            assert!(versioned == *action || versioned.name().replace("Version", "") == action.name(), "{action:?}");
        }
        assert_eq!(S3Action::DeleteObjectTagging.versioned().name(), "s3:DeleteObjectVersionTagging");
        assert_eq!(S3Action::PutObject.versioned(), S3Action::PutObject);
    }
}
