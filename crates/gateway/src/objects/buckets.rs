//! Buckets and their configurations: rows of the catalogue.

mod delete;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larder_model::objects::bucket::is_valid_bucket_name;
use larder_model::objects::{Bucket, BucketId, BucketState};
use larder_model::rows::CatalogueKey;

use super::acl::AclChoice;
use super::{Caller, Error, Objects, Result};
use crate::types::CatalogueEdit;

/// The region in which creating an own bucket again succeeds.
const LENIENT_REGION: &str = "us-east-1";

/// A page of buckets.
#[derive(Debug, Clone)]
pub struct BucketsPage {
    /// The buckets, by name.
    pub buckets: Vec<Arc<Bucket>>,
    /// The name after which the next page begins; `None` at the end.
    pub next: Option<String>,
}

impl Objects {
    /// Creates a bucket owned by the caller. As in AWS, creating an own bucket of us-east-1 again replaces its ACL.
    ///
    /// # Errors
    /// `AccessDenied` for an anonymous caller, `InvalidBucketName`, `BucketExists`, `TooManyBuckets`,
    /// `OperationAborted` while a bucket of this name is being deleted, and the refusals of an ACL choice.
    pub async fn create_bucket(
        &self,
        caller: &Caller,
        name: &str,
        acl: AclChoice,
        location: Option<String>,
    ) -> Result<()> {
        let user = caller.require_user()?;
        if !is_valid_bucket_name(name) {
            return Err(Error::InvalidBucketName(name.to_owned()));
        }
        let acl = self.resolve_acl(&acl, &user.id, &user.id).await?.unwrap_or_default();
        self.settle_closing(name).await?;
        let id = BucketId::new(self.gateway.issuer.issue().await?, self.gateway.core.ports.actor);
        let location = location.filter(|location| *location != self.config.region);
        let bucket = Bucket { acl, location, ..Bucket::new(name, id, &user.id, self.gateway.core.now()) };
        let created = self.gateway.catalogue.change(|catalogue| {
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
            Ok(CatalogueEdit::Write(key_of(name), bucket.to_json()))
        });
        created.await.map(|_| ())
    }

    /// The region of a bucket for its clients.
    #[must_use]
    pub fn location<'a>(&'a self, bucket: &'a Bucket) -> &'a str {
        bucket.location.as_deref().unwrap_or(&self.config.region)
    }

    /// The bucket, if the caller has permission for its action on it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn bucket_for(&self, caller: &Caller, name: &str) -> Result<Arc<Bucket>> {
        let bucket = self.bucket(name).await?;
        caller.check(&bucket, &caller.action()?.on_bucket())?;
        Ok(bucket)
    }

    /// The caller's buckets after `after` whose names begin with `prefix`, at most `max`.
    ///
    /// # Errors
    /// `AccessDenied` for an anonymous caller.
    pub async fn list_buckets(&self, caller: &Caller, prefix: &str, after: &str, max: usize) -> Result<BucketsPage> {
        let user = caller.require_user()?;
        self.gateway.catalogue.refresh().await?;
        let catalogue = self.gateway.catalogue.fresh().await?;
        let following = catalogue.s3_buckets_from(prefix.max(after)).filter(|bucket| bucket.name.as_str() > after);
        let named = following.take_while(|bucket| bucket.name.starts_with(prefix));
        let mut own = named.filter(|bucket| bucket.owner == user.id && bucket.state == BucketState::Active);
        let buckets: Vec<_> = own.by_ref().take(max).map(Arc::clone).collect();
        let next = own.next().and(buckets.last()).map(|last| last.name.clone());
        Ok(BucketsPage { buckets, next })
    }

    /// Changes the configuration of a bucket. When this returns, every live gateway applies it. `change` may run more
    /// than once, each time on the current bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied` (also by its public access block), and the errors of `change`.
    pub async fn configure(
        &self,
        caller: &Caller,
        name: &str,
        change: impl Fn(&mut Bucket) -> Result<()> + Send + Sync,
    ) -> Result<()> {
        let edit = self.gateway.catalogue.change::<Error>(|catalogue| {
            let found = catalogue.s3_bucket(name).filter(|bucket| bucket.state == BucketState::Active);
            let before = found.ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
            caller.check(before, &caller.action()?.on_bucket())?;
            let mut bucket = Bucket::clone(before);
            change(&mut bucket)?;
            refuse_public(before, &bucket)?;
            Ok(if bucket == **before {
                CatalogueEdit::Nothing
            } else {
                CatalogueEdit::Write(key_of(name), bucket.to_json())
            })
        });
        // Race: a write under the old configuration ends before this returns, since its gateway advertises the old version.
        let number = edit.await?;
        Ok(self.gateway.members.await_propagation(number).await?)
    }
}

/// The existing bucket with the ACL of the requested one.
fn regrant(found: &Bucket, wanted: &Bucket) -> Result<CatalogueEdit> {
    let again = Bucket { acl: wanted.acl.clone(), ..found.clone() };
    refuse_public(found, &again)?;
    Ok(if again == *found {
        CatalogueEdit::Nothing
    } else {
        CatalogueEdit::Write(key_of(&found.name), again.to_json())
    })
}

/// The catalogue key of a bucket.
fn key_of(name: &str) -> CatalogueKey {
    CatalogueKey::S3Bucket(name.to_owned().into())
}

/// Refuses new public grants that the public access block, after the change, does not allow.
fn refuse_public(before: &Bucket, bucket: &Bucket) -> Result<()> {
    let Some(block) = bucket.public_access else { return Ok(()) };
    let acl = bucket.acl != before.acl && block.refuses_acl(&bucket.acl);
    let policy = bucket.policy.as_ref().filter(|_| bucket.policy != before.policy);
    if acl || policy.is_some_and(|policy| block.refuses_policy(policy)) {
        return Err(Error::AccessDenied);
    }
    Ok(())
}
