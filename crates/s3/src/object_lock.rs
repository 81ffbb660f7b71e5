//! Object lock: retention and legal hold of versions.
//!
//! A lock is a field of its version and changes by the compare-and-set of its key, as everything else does. A removal of a version
//! passes one gate, in that same compare-and-set (`commit/versions.rs`): so a lock that was acknowledged before the
//! removal was decided holds, whichever gateways took the two requests.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_rows::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::commit::HeadStore;
use super::events::ChangeCause;
use super::object_location::VersionSpec;
use super::{Caller, Configuration, Error, Objects, RequestArgument, Result};
use crate::rules::notification::EventAction;
use crate::rules::{Bucket, Object, ObjectLock, Retention, S3Action, Version};

const NO_LOCK: &str = "Bucket is missing Object Lock Configuration";
pub(super) const NO_LOCK_FOR_NEW: &str = "Bucket is missing ObjectLockConfiguration";
const PAST: &str = "The retain until date must be in the future!";

/// Whether a request asks to bypass governance retentions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GovernanceBypass {
    /// It does not.
    #[default]
    Absent,
    /// It does, which takes a permission.
    Requested,
}

impl GovernanceBypass {
    /// Whether the request bypasses governance retentions of this key. In a bucket without object lock there are none: clients that
    /// delete whatever they find ask for a bypass in every bucket.
    ///
    /// # Errors
    /// `AccessDenied` without the permission.
    pub(super) fn resolve(self, caller: &Caller, bucket: &Bucket, key: &[u8]) -> Result<bool> {
        if self == Self::Absent || bucket.object_lock.is_none() {
            return Ok(false);
        }
        caller.check(bucket, &S3Action::BypassGovernanceRetention.on_key(key))?;
        Ok(true)
    }
}

impl Objects {
    /// The retention of a version, which may have ended.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `InvalidRequest` in a bucket without object lock, `NoConfiguration` when there never was a
    /// retention, and those of a version that is not there.
    pub async fn retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
    ) -> Result<Retention> {
        self.lock(caller, bucket, key, version)
            .await?
            .retention
            .ok_or(Error::NoConfiguration(Configuration::VersionLock))
    }

    /// Whether the legal hold of a version is on.
    ///
    /// # Errors
    /// As [`Self::retention`].
    pub async fn legal_hold(&self, caller: &Caller, bucket: &str, key: &Bytes, version: &VersionSpec) -> Result<bool> {
        self.lock(caller, bucket, key, version)
            .await?
            .legal_hold
            .ok_or(Error::NoConfiguration(Configuration::VersionLock))
    }

    /// Sets or, with `None`, lifts the retention of a version.
    ///
    /// # Errors
    /// As [`Self::retention`] without `NoConfiguration`; `InvalidArgument` for an end in the past; `Locked` for a change that the
    /// present retention refuses; the errors of a commit.
    #[expect(clippy::too_many_arguments, reason = "what the request names, as for every other call on a version")]
    pub async fn put_retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        next: Option<Retention>,
        bypass: GovernanceBypass,
    ) -> Result<()> {
        let bucket = self.locked_bucket(caller, bucket, key).await?;
        let bypass = bypass.resolve(caller, &bucket, key)?;
        self.locate(caller, &bucket.name, key, version).await?;
        let moment = self.heads.lock_clock.read().await?;
        if let Some(retention) = next {
            check_future(retention, moment.begins, RequestArgument::RetainUntilDate)?;
        }
        let cause = ChangeCause::request(EventAction::PutRetention, caller);
        let change = |object: &mut Object| {
            let lock = &mut object.lock;
            if lock.retention.is_some_and(|present| !present.may_become(next, moment.ended, bypass)) {
                return Err(Error::Locked);
            }
            lock.retention = next;
            Ok(())
        };
        self.change_object(&bucket, key, version, cause, change).await.map(drop)
    }

    /// Puts a version under legal hold, or releases it.
    ///
    /// # Errors
    /// As [`Self::legal_hold`] without `NoConfiguration`, and the errors of a commit.
    pub async fn put_legal_hold(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        is_on: bool,
    ) -> Result<()> {
        let bucket = self.locked_bucket(caller, bucket, key).await?;
        self.locate(caller, &bucket.name, key, version).await?;
        let cause = ChangeCause::request(EventAction::PutLegalHold, caller);
        let change = |object: &mut Object| {
            object.lock.legal_hold = Some(is_on);
            Ok(())
        };
        self.change_object(&bucket, key, version, cause, change).await.map(drop)
    }

    async fn lock(&self, caller: &Caller, bucket: &str, key: &Bytes, version: &VersionSpec) -> Result<ObjectLock> {
        let bucket = self.locked_bucket(caller, bucket, key).await?;
        Ok(self.locate(caller, &bucket.name, key, version).await?.version.lock())
    }

    /// The bucket, if it has object lock and the caller has permission for its action on the key.
    async fn locked_bucket(&self, caller: &Caller, bucket: &str, key: &Bytes) -> Result<Arc<Bucket>> {
        let bucket = self.buckets.find(bucket).await?;
        caller.check(&bucket, &caller.action()?.on_key(key))?;
        if bucket.object_lock.is_none() {
            return Err(Error::InvalidRequest(NO_LOCK.to_owned()));
        }
        Ok(bucket)
    }
}

impl HeadStore {
    /// Refuses a lock that a new object cannot have.
    ///
    /// # Errors
    /// `InvalidRequest` in a bucket without object lock, `InvalidArgument` for an end in the past.
    pub(super) async fn check_new_lock(&self, bucket: &Bucket, lock: &ObjectLock) -> Result<()> {
        if lock.is_empty() {
            return Ok(());
        }
        if bucket.object_lock.is_none() {
            return Err(Error::InvalidRequest(NO_LOCK_FOR_NEW.to_owned()));
        }
        match lock.retention {
            Some(retention) => {
                check_future(retention, self.lock_clock.read().await?.begins, RequestArgument::RetainUntilHeader)
            }
            None => Ok(()),
        }
    }

    /// Whether a lock forbids to remove this version now.
    ///
    /// # Errors
    /// Any error of the store.
    pub(super) async fn is_locked(&self, version: &Version, bypass: bool) -> Result<bool> {
        let lock = version.lock();
        if lock.is_empty() {
            return Ok(false);
        }
        Ok(!lock.permits_removal(self.lock_clock.read().await?.ended, bypass))
    }
}

/// The parts of a version's lock that the caller may see.
pub(super) fn visible_lock(caller: &Caller, bucket: &Bucket, key: &[u8], version: &Version) -> ObjectLock {
    let lock = version.lock();
    if lock.is_empty() {
        return lock;
    }
    let may = |action: S3Action| caller.check(bucket, &action.on_version(key, Some(version))).is_ok();
    ObjectLock {
        retention: lock.retention.filter(|_| may(S3Action::GetObjectRetention)),
        legal_hold: lock.legal_hold.filter(|_| may(S3Action::GetObjectLegalHold)),
    }
}

fn check_future(retention: Retention, now: Timestamp, argument: RequestArgument) -> Result<()> {
    if retention.is_active(now) {
        return Ok(());
    }
    let seconds = i64::try_from(retention.until.as_secs()).unwrap_or(i64::MAX);
    let shown = OffsetDateTime::from_unix_timestamp(seconds).ok();
    let text = shown.and_then(|shown| shown.format(&Rfc3339).ok());
    Err(invalid_argument(argument, &text.unwrap_or_default(), PAST))
}

fn invalid_argument(argument: RequestArgument, value: &str, message: &str) -> Error {
    Error::InvalidArgument { argument, value: value.to_owned(), message: message.to_owned() }
}
