//! Buckets and their configurations: rows of the catalogue.

mod delete;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larder_model::objects::access::Asked;
use larder_model::objects::bucket::valid_name;
use larder_model::objects::{Bucket, BucketId, BucketState, Permission};
use larder_model::rows::CatalogueKey;

use super::acl::AclChoice;
use super::{Caller, Error, Objects, Result};
use crate::types::Edit;

/// What an ACL has to grant for an action on a bucket. All others are its owner's, unless a policy allows them.
const GRANTED: &[(&str, Permission)] = &[
    ("s3:ListBucket", Permission::Read),
    ("s3:ListBucketVersions", Permission::Read),
    ("s3:ListBucketMultipartUploads", Permission::Read),
    ("s3:GetBucketAcl", Permission::ReadAcp),
    ("s3:PutBucketAcl", Permission::WriteAcp),
];

/// Where an own bucket may be created again.
const LENIENT_REGION: &str = "us-east-1";

/// A page of buckets.
#[derive(Debug, Clone)]
pub struct BucketsPage {
    /// The buckets, by name.
    pub buckets: Vec<Arc<Bucket>>,
    /// The name behind which the next page begins; `None` at the end.
    pub next: Option<String>,
}

impl Objects {
    /// Creates a bucket; its caller owns it. As in AWS, who creates an own bucket of us-east-1 again sets its grants anew.
    ///
    /// # Errors
    /// `AccessDenied` for nobody, `InvalidBucketName`, `BucketExists`, `TooManyBuckets`, `OperationAborted` while one of this
    /// name is being deleted, and what a list of grants may be refused for.
    pub async fn create_bucket(
        &self,
        caller: &Caller,
        name: &str,
        acl: AclChoice,
        location: Option<String>,
    ) -> Result<()> {
        let user = caller.signed()?;
        if !valid_name(name) {
            return Err(Error::InvalidBucketName(name.to_owned()));
        }
        let acl = self.resolve_acl(&acl, &user.id, &user.id).await?.unwrap_or_default();
        self.settle_closing(name).await?;
        let id = BucketId::new(self.gateway.issue().await?, self.gateway.actor);
        let location = location.filter(|location| *location != self.config.region);
        let bucket = Bucket { acl, location, ..Bucket::new(name, id, &user.id, self.gateway.now()) };
        let created = self.gateway.change_as(|catalogue| {
            if let Some(found) = catalogue.s3_bucket(name) {
                let own = found.owner == user.id;
                return match found.state {
                    BucketState::Closing => Err(Error::OperationAborted),
                    BucketState::Active if own && self.location(found) == LENIENT_REGION => regrant(found, &bucket),
                    BucketState::Active => Err(Error::BucketExists { own }),
                };
            }
            let current = catalogue.s3_owned(&user.id);
            let allowed = self.config.buckets_max;
            if !user.admin && current >= allowed {
                return Err(Error::TooManyBuckets { current, allowed });
            }
            Ok(Edit::Write(key_of(name), bucket.to_json()))
        });
        created.await.map(|_| ())
    }

    /// The region that a bucket is in, as its clients are told.
    #[must_use]
    pub fn location<'a>(&'a self, bucket: &'a Bucket) -> &'a str {
        bucket.location.as_deref().unwrap_or(&self.config.region)
    }

    /// The bucket, if the caller may do `action` (as policies name it) on it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn bucket_for(&self, caller: &Caller, name: &str, action: &'static str) -> Result<Arc<Bucket>> {
        let bucket = self.bucket(name).await?;
        check(caller, &bucket, action)?;
        Ok(bucket)
    }

    /// The caller's buckets behind `after` whose names begin with `prefix`, at most `max`.
    ///
    /// # Errors
    /// `AccessDenied` for nobody.
    pub async fn list_buckets(&self, caller: &Caller, prefix: &str, after: &str, max: usize) -> Result<BucketsPage> {
        let user = caller.signed()?;
        self.gateway.refresh().await?;
        let catalogue = self.gateway.fresh().await?;
        let behind = catalogue.s3_buckets_from(prefix.max(after)).filter(|bucket| bucket.name.as_str() > after);
        let named = behind.take_while(|bucket| bucket.name.starts_with(prefix));
        let mut own = named.filter(|bucket| bucket.owner == user.id && bucket.state == BucketState::Active);
        let buckets: Vec<_> = own.by_ref().take(max).map(Arc::clone).collect();
        let next = own.next().and(buckets.last()).map(|last| last.name.clone());
        Ok(BucketsPage { buckets, next })
    }

    /// Changes the configuration of a bucket; holds on every running gateway once this is answered. `change` may be called
    /// more than once, each time with what is there.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied` (also for what its public access block refuses), and what `change` answers.
    pub async fn configure(
        &self,
        caller: &Caller,
        name: &str,
        action: &'static str,
        change: impl Fn(&mut Bucket) -> Result<()> + Send + Sync,
    ) -> Result<()> {
        let edit = self.gateway.change_as::<Error>(|catalogue| {
            let found = catalogue.s3_bucket(name).filter(|bucket| bucket.state == BucketState::Active);
            let before = found.ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
            check(caller, before, action)?;
            let mut bucket = Bucket::clone(before);
            change(&mut bucket)?;
            refuse_public(before, &bucket)?;
            Ok(if bucket == **before { Edit::Nothing } else { Edit::Write(key_of(name), bucket.to_json()) })
        });
        let number = edit.await?;
        Ok(self.gateway.seen_by_all(number).await?)
    }
}

/// The bucket as it is, with the grants of one that would be made.
fn regrant(found: &Bucket, wanted: &Bucket) -> Result<Edit> {
    let again = Bucket { acl: wanted.acl.clone(), ..found.clone() };
    refuse_public(found, &again)?;
    Ok(if again == *found { Edit::Nothing } else { Edit::Write(key_of(&found.name), again.to_json()) })
}

/// Row of a bucket.
fn key_of(name: &str) -> CatalogueKey {
    CatalogueKey::S3Bucket(name.to_owned().into())
}

/// Refuses what the caller may not do on a bucket.
fn check(caller: &Caller, bucket: &Bucket, action: &'static str) -> Result<()> {
    let permission = GRANTED.iter().find(|(granted, _)| *granted == action).map(|(_, permission)| *permission);
    caller.check(bucket, &Asked { action, permission, key: None, version: None })
}

/// Refuses new grants to the public that the public access block, as it will be, does not let in.
fn refuse_public(before: &Bucket, bucket: &Bucket) -> Result<()> {
    let Some(block) = bucket.public_access else { return Ok(()) };
    let acl = bucket.acl != before.acl && block.refuses_acl(&bucket.acl);
    let policy = bucket.policy.as_ref().filter(|_| bucket.policy != before.policy);
    if acl || policy.is_some_and(|policy| block.refuses_policy(policy)) {
        return Err(Error::AccessDenied);
    }
    Ok(())
}
