//! The ACL of a bucket, and those of the new objects in it.

use bytes::Bytes;

use super::super::acl_choice::{
    AclChoice, ShownAcl, check_has_acls, check_owner, check_owner_control, check_public_acl,
};
use super::super::{Caller, Error, Result};
use super::Buckets;
use crate::rules::{Acl, Bucket, S3Action};

impl Buckets {
    /// The ACL of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn acl(&self, caller: &Caller, bucket: &str) -> Result<ShownAcl> {
        let bucket = self.find_for(caller, bucket).await?;
        Ok(ShownAcl::new(&bucket, &bucket.owner, &bucket.acl))
    }

    /// Replaces the ACL of a bucket. A given `owner` must be the bucket's owner.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `AclsNotSupported`, and the refusals of an ACL choice.
    pub async fn put_acl(&self, caller: &Caller, bucket: &str, owner: Option<&str>, acl: AclChoice) -> Result<()> {
        let current_bucket = self.find_for(caller, bucket).await?;
        check_has_acls(&current_bucket)?;
        check_owner(owner, &current_bucket.owner)?;
        let acl = acl.resolve(&self.users, &current_bucket.owner, &current_bucket.owner).await?.unwrap_or_default();
        let change = |changed: &mut Bucket| {
            if changed.id != current_bucket.id {
                return Err(Error::NoSuchBucket(bucket.to_owned()));
            }
            check_has_acls(changed)?;
            // Also a list that the bucket has already: its owner must not believe that a public grant was accepted.
            check_public_acl(changed, Some(&acl))?;
            changed.acl = acl.clone();
            Ok(())
        };
        self.configure(caller, bucket, change).await
    }

    /// The ACL of a new object.
    ///
    /// # Errors
    /// The refusals of an ACL choice; `AclsNotSupported`; `AccessDenied` without permission to set an ACL, and for public grants the bucket
    /// blocks.
    pub(crate) async fn new_object_acl(
        &self,
        caller: &Caller,
        bucket: &Bucket,
        key: &Bytes,
        choice: &AclChoice,
        owner: &str,
    ) -> Result<Option<Acl>> {
        let acl = choice.resolve(&self.users, owner, &bucket.owner).await?;
        if acl.is_some() {
            caller.check(bucket, &S3Action::NewObjectAcl.on_key(key))?;
        }
        check_owner_control(bucket, choice, acl.as_ref())?;
        check_public_acl(bucket, acl.as_ref())?;
        Ok(acl)
    }
}
