//! Buckets and their configurations: rows of the catalogue.

mod acl;
mod delete;

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_core::rules::catalogue_row::CatalogueKey;
use larder_core::types::{Catalogue, CatalogueEdit};
use larder_rows::ActorId;
use larder_rows::limits::S3_KEY_BYTES_MAX;
use tokio::time::timeout;

use super::acl_choice::AclChoice;
use super::users::Users;
use super::{Caller, Error, ObjectsConfig, Result};
use crate::catalogue::S3Catalogue;
use crate::rules::bucket::is_valid_bucket_name;
use crate::rules::ownership::ObjectOwnership;
use crate::rules::{Bucket, BucketId, BucketLock, BucketState, ObjectLock, S3Action, Tag, Versioning};

/// The region in which creating an own bucket again succeeds.
const LENIENT_REGION: &str = "us-east-1";

/// The configuration that a new bucket begins with.
#[derive(Debug, Clone, Default)]
pub struct NewBucket {
    /// Its ACL.
    pub acl: AclChoice,
    /// The region that its creator asks for; `None`: the server's own.
    pub location: Option<String>,
    /// Its ownership controls.
    pub ownership: Option<ObjectOwnership>,
    /// Its tags, checked by the edge.
    pub tags: Vec<Tag>,
    /// Whether it has object lock, and with it versioning.
    pub has_lock: bool,
}

/// A page of buckets.
#[derive(Debug, Clone, Default)]
pub struct BucketsPage {
    /// The buckets, by name.
    pub buckets: Vec<Arc<Bucket>>,
    /// The name after which the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// The buckets of the S3 interface.
pub struct Buckets {
    pub(super) gateway: Arc<Core>,
    pub(super) users: Arc<Users>,
    pub(super) config: Arc<ObjectsConfig>,
}

impl Buckets {
    /// Creates a bucket with an ACL and a location.
    ///
    /// # Errors
    /// As [`Self::create_with`].
    pub async fn create(&self, caller: &Caller, name: &str, acl: AclChoice, location: Option<String>) -> Result<()> {
        self.create_with(caller, name, NewBucket { acl, location, ..NewBucket::default() }).await
    }

    /// Creates a bucket owned by the caller. As in AWS, creating an own bucket of us-east-1 again replaces its ACL, but nothing
    /// else: with tags or other ownership controls it is refused.
    ///
    /// # Errors
    /// `AccessDenied` for an anonymous caller, `InvalidBucketName`, `BucketExists` (also for an own bucket that lacks the
    /// object lock asked for), `TooManyBuckets`,
    /// `OperationAborted` while a bucket of this name is being deleted, the refusals of an ACL choice, and
    /// `AclUnderEnforcedOwnership`.
    pub async fn create_with(&self, caller: &Caller, name: &str, new: NewBucket) -> Result<()> {
        let NewBucket { acl, location, ownership, tags, has_lock } = new;
        let user = caller.require_user()?;
        let needs = [
            (S3Action::CreateBucket, true),
            (S3Action::PutBucketObjectLockConfiguration, has_lock),
            (S3Action::PutBucketVersioning, has_lock),
            (S3Action::PutBucketOwnershipControls, ownership.is_some()),
            (S3Action::PutBucketTagging, !tags.is_empty()),
        ];
        let is_permitted = |action: S3Action| caller.is_permitted(name, &action.on_bucket());
        if !needs.into_iter().all(|(action, is_needed)| !is_needed || is_permitted(action)) {
            return Err(Error::AccessDenied);
        }
        if !is_valid_bucket_name(name) {
            return Err(Error::InvalidBucketName(name.to_owned()));
        }
        let acl = acl.resolve(&self.users, &user.id, &user.id).await?;
        let grants = is_permitted(S3Action::PutBucketAcl);
        if acl.is_some() && !grants {
            return Err(Error::AccessDenied);
        }
        let acl = acl.unwrap_or_default();
        // Crash: a deleter that died holds the name; its deletion is finished first.
        self.settle_closing(name).await?;
        // A new id: rows that a deleted bucket of this name left never show up in this one [invariant 64].
        let id = BucketId::new(self.gateway.issuer().issue().await?, self.gateway.context().ports.actor);
        let location = location.filter(|location| *location != self.config.region);
        let bare = Bucket::new(name, id, &user.id, self.gateway.context().now());
        let mut bucket = Bucket { acl, location, ownership, tags, ..bare };
        if has_lock {
            bucket.versioning = Versioning::Enabled;
            bucket.object_lock = Some(BucketLock::default());
        }
        check_ownership(&bucket)?;
        let created = self.gateway.catalogue().change(|catalogue| {
            if let Some(existing_bucket) = S3Catalogue::within(catalogue).bucket(name) {
                let is_owned = existing_bucket.owner == user.id;
                return match existing_bucket.state {
                    BucketState::Closing => Err(Error::OperationAborted),
                    // A lock that is not there must not look as if it had been made.
                    BucketState::Active if has_lock && existing_bucket.object_lock.is_none() => {
                        Err(Error::BucketExists { own: is_owned })
                    }
                    BucketState::Active
                        if is_owned
                            && (grants || bucket.acl == existing_bucket.acl)
                            && self.location(existing_bucket) == LENIENT_REGION
                            && bucket.tags.is_empty()
                            && (bucket.ownership.is_none() || bucket.ownership == existing_bucket.ownership) =>
                    {
                        catalogue_edit(
                            existing_bucket,
                            &Bucket { acl: bucket.acl.clone(), ..Bucket::clone(existing_bucket) },
                        )
                    }
                    BucketState::Active => Err(Error::BucketExists { own: is_owned }),
                };
            }
            // Race: counted in the state that the compare-and-set expects, so two creations cannot both pass the limit.
            let current = S3Catalogue::within(catalogue).owned(&user.id);
            let allowed = self.config.buckets_max;
            if !user.admin && current >= allowed {
                return Err(Error::TooManyBuckets { current, allowed });
            }
            Ok(CatalogueEdit::Write(catalogue_key(name), bucket.to_json()))
        });
        // No wait for the other gateways: each checks the catalogue before it answers that a bucket is missing.
        created.await.map(|_| ())
    }

    /// The region of a bucket for its clients.
    #[must_use]
    pub fn location<'a>(&'a self, bucket: &'a Bucket) -> &'a str {
        bucket.location.as_deref().unwrap_or(&self.config.region)
    }

    /// An active bucket, by name.
    ///
    /// # Errors
    /// `NoSuchBucket`, and `TimedOut` when the catalogue cannot be checked in the time of a request.
    pub async fn find(&self, name: &str) -> Result<Arc<Bucket>> {
        let copy = self.gateway.catalogue();
        let search = async {
            if let Some(bucket) = active(&*copy.fresh().await?, name) {
                return Ok(Arc::clone(bucket));
            }
            // Race: another gateway may have created it a moment ago.
            copy.refresh().await?;
            active(&*copy.fresh().await?, name).map(Arc::clone).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))
        };
        timeout(self.gateway.context().config.timeout, search).await.map_err(|_| larder_core::Error::TimedOut)?
    }

    /// All active buckets, by name.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn all(&self) -> Result<Vec<Arc<Bucket>>> {
        let catalogue = self.gateway.catalogue().refreshed().await?;
        Ok(S3Catalogue::within(&catalogue)
            .buckets()
            .filter(|bucket| bucket.state == BucketState::Active)
            .cloned()
            .collect())
    }

    /// The bucket, if the caller has permission for its action on it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn find_for(&self, caller: &Caller, name: &str) -> Result<Arc<Bucket>> {
        let bucket = self.find(name).await?;
        caller.check(&bucket, &caller.action()?.on_bucket())?;
        Ok(bucket)
    }

    /// The bucket, if the caller may put this key with these tags and this lock into it.
    ///
    /// # Errors
    /// `KeyTooLong`, `NoSuchBucket`, `AccessDenied`.
    pub async fn find_for_put(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        tags: &[Tag],
        lock: &ObjectLock,
    ) -> Result<Arc<Bucket>> {
        if key.len() > S3_KEY_BYTES_MAX {
            return Err(Error::KeyTooLong(key.len()));
        }
        let bucket = self.find(bucket).await?;
        caller.check(&bucket, &caller.action()?.on_key(key))?;
        if !tags.is_empty() {
            caller.check(&bucket, &S3Action::NewObjectTags.on_key(key))?;
        }
        if lock.retention.is_some() {
            caller.check(&bucket, &S3Action::PutObjectRetention.on_key(key))?;
        }
        if lock.legal_hold.is_some() {
            caller.check(&bucket, &S3Action::PutObjectLegalHold.on_key(key))?;
        }
        Ok(bucket)
    }

    /// The buckets that the caller sees, after `after` and with names that begin with `prefix`, at most `max`: its own ones, or
    /// those that its policies let it list or locate.
    ///
    /// # Errors
    /// `AccessDenied` for an anonymous caller, and for one whose policies show it no bucket, nor that there is none.
    pub async fn list(&self, caller: &Caller, prefix: &str, after: &str, max: usize) -> Result<BucketsPage> {
        caller.require_user()?;
        // Race: the caller may have created a bucket through another gateway just now.
        let catalogue = self.gateway.catalogue().refreshed().await?;
        let catalogue = S3Catalogue::within(&catalogue);
        let with_work;
        let caller = match caller.policies {
            None => caller,
            Some(_) => {
                with_work = caller.with_work(catalogue.buckets().count());
                &with_work
            }
        };
        let sees = |bucket: &&Arc<Bucket>| bucket.state == BucketState::Active && caller.sees(bucket);
        let following = catalogue.buckets_from(prefix.max(after)).filter(|bucket| bucket.name.as_str() > after);
        let mut seen = following.take_while(|bucket| bucket.name.starts_with(prefix)).filter(sees);
        let buckets: Vec<_> = seen.by_ref().take(max).map(Arc::clone).collect();
        let next = seen.next().and(buckets.last()).map(|last| last.name.clone());
        let may_list = || caller.is_permitted("", &S3Action::ListAllMyBuckets.on_bucket());
        if buckets.is_empty() && caller.is_governed() && !may_list() && !catalogue.buckets().any(|bucket| sees(&bucket))
        {
            return Err(Error::AccessDenied);
        }
        Ok(BucketsPage { buckets, next })
    }

    /// Says which move brings the keys of a bucket, by its actor; `None`: none does. When this returns, every live gateway knows it.
    ///
    /// # Errors
    /// `NoSuchBucket`, and any error of the store.
    pub async fn set_moving(&self, name: &str, moving: Option<ActorId>) -> Result<()> {
        let number = self.gateway.catalogue().change::<Error>(|catalogue| {
            let before = active(catalogue, name).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
            catalogue_edit(before, &Bucket { moving, ..Bucket::clone(before) })
        });
        Ok(self.gateway.members().await_propagation(number.await?).await?)
    }

    /// Changes the configuration of a bucket. When this returns, every live gateway applies it. `change` may run more
    /// than once, each time on the current bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied` (also by its public access block), `AclUnderEnforcedOwnership`, `InvalidBucketState` for a change
    /// that its object lock does not permit, and the errors of `change`.
    pub async fn configure(
        &self,
        caller: &Caller,
        name: &str,
        change: impl Fn(&mut Bucket) -> Result<()> + Send + Sync,
    ) -> Result<()> {
        let edit = self.gateway.catalogue().change::<Error>(|catalogue| {
            let before = active(catalogue, name).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
            caller.check(before, &caller.action()?.on_bucket())?;
            let mut bucket = Bucket::clone(before);
            change(&mut bucket)?;
            catalogue_edit(before, &bucket)
        });
        // Race: a write under the old configuration ends before this returns, since its gateway advertises the old version.
        let number = edit.await?;
        Ok(self.gateway.members().await_propagation(number).await?)
    }
}

/// The bucket of this name, if it is active.
pub(super) fn active<'a>(catalogue: &'a Catalogue, name: &str) -> Option<&'a Arc<Bucket>> {
    S3Catalogue::within(catalogue).bucket(name).filter(|bucket| bucket.state == BucketState::Active)
}

/// The change of a bucket, if its public access block, its ownership controls and its object lock allow it.
pub(super) fn catalogue_edit(before: &Bucket, bucket: &Bucket) -> Result<CatalogueEdit> {
    check_public_access(before, bucket)?;
    check_ownership(bucket)?;
    before.check_lock_kept(bucket).map_err(Error::InvalidBucketState)?;
    let write = || CatalogueEdit::Write(catalogue_key(&bucket.name), bucket.to_json());
    Ok(if bucket == before { CatalogueEdit::Nothing } else { write() })
}

/// The catalogue key of a bucket.
fn catalogue_key(name: &str) -> CatalogueKey {
    CatalogueKey::S3Bucket(name.to_owned().into())
}

/// Refuses grants to others in a bucket whose ownership controls end all ACLs.
fn check_ownership(bucket: &Bucket) -> Result<()> {
    if bucket.has_refused_acl() { Err(Error::AclUnderEnforcedOwnership) } else { Ok(()) }
}

/// Refuses new public grants that the public access block, after the change, does not allow.
fn check_public_access(before: &Bucket, bucket: &Bucket) -> Result<()> {
    let Some(block) = bucket.public_access else { return Ok(()) };
    let acl = bucket.acl != before.acl && block.refuses_acl(&bucket.acl);
    let policy = bucket.policy.as_ref().filter(|_| bucket.policy != before.policy);
    if acl || policy.is_some_and(|policy| block.refuses_policy(policy)) {
        return Err(Error::AccessDenied);
    }
    Ok(())
}
