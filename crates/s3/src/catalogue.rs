//! The S3 rows of the catalogue, decoded: buckets, and quotas of users. Pure: a change makes another state.
//!
//! Catalogue guards: a write holds one while it relies on the catalogue's entry of its bucket, as a reader holds an epoch
//! in RCU.
//!
//! A heartbeat advertises the oldest guarded catalogue version. So once every live gateway advertises a change, no write
//! that predates the change is still running [invariant 64] [invariant 65]. The other gateways do not wait for one whose
//! heartbeat expired, so a guarded write ends before that ([`larder_core::Members::await_lease`]).

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use larder_core::node_context::internal_options;
use larder_core::rules::catalogue_row::CatalogueKey;
use larder_core::types::{Catalogue, ProductRow, ProductRows, SharedMap, damaged_catalogue, decode_catalogue_json};
use larder_core::{Core, Result};
use larder_rows::Timestamp;
use larder_store::{ConsistencyLevel, Partition};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::Instant;

use super::Error;
use super::commit::read_head_row;
use crate::rules::notification::TargetArn;
use crate::rules::{Bucket, BucketId, BucketState, StorageQuota};

/// One state of the buckets and the quotas of users.
#[derive(Debug, Clone, Default)]
pub struct S3Catalogue {
    buckets: SharedMap<String, CataloguedBucket>,
    /// Buckets that are being deleted, each with the number of the change that closed it.
    closing: BTreeMap<String, Timestamp>,
    /// Number of buckets of each user.
    owned: SharedMap<String, usize>,
    /// Quotas of users, by canonical id.
    quotas: SharedMap<String, StorageQuota>,
}

/// A bucket, with the number of the change that last wrote it.
#[derive(Debug, Clone)]
struct CataloguedBucket {
    bucket: Arc<Bucket>,
    number: Timestamp,
}

impl S3Catalogue {
    /// No rows: a gateway begins with them.
    #[must_use]
    pub fn empty() -> Arc<dyn ProductRows> {
        Arc::new(Self::default())
    }

    /// Whether a state of the catalogue has S3's rows, decoded.
    pub(super) fn is_in(catalogue: &Catalogue) -> bool {
        let rows: &dyn Any = catalogue.product();
        rows.is::<Self>()
    }

    /// The S3 rows of a state of the catalogue, which has them: [`Objects::new`](crate::Objects::new) has checked it.
    pub(super) fn within(catalogue: &Catalogue) -> &Self {
        static NONE: LazyLock<S3Catalogue> = LazyLock::new(S3Catalogue::default);
        let rows: &dyn Any = catalogue.product();
        rows.downcast_ref().unwrap_or(&NONE)
    }

    /// A bucket in any state.
    pub(super) fn bucket(&self, name: &str) -> Option<&Arc<Bucket>> {
        self.buckets.get(name).map(|entry| &entry.bucket)
    }

    /// The buckets, by name.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Arc<Bucket>> {
        self.buckets.values().map(|entry| &entry.bucket)
    }

    /// The buckets from this name on, by name.
    pub(super) fn buckets_from(&self, name: &str) -> impl Iterator<Item = &Arc<Bucket>> {
        self.buckets.values_from(name).map(|entry| &entry.bucket)
    }

    /// Number of buckets of a user.
    pub(super) fn owned(&self, owner: &str) -> usize {
        self.owned.get(owner).copied().unwrap_or(0)
    }

    /// The quota of all buckets of a user; the default without one.
    pub(super) fn quota(&self, owner: &str) -> StorageQuota {
        self.quotas.get(owner).copied().unwrap_or_default()
    }

    /// The users with a quota, by canonical id.
    pub(super) fn quotas(&self) -> impl Iterator<Item = (&String, &StorageQuota)> {
        self.quotas.iter()
    }

    /// Buckets that are being deleted, by name, each with the number of the change that closed it.
    pub(super) fn closing(&self) -> &BTreeMap<String, Timestamp> {
        &self.closing
    }

    fn set_bucket(&mut self, name: String, entry: Option<CataloguedBucket>) {
        let owner = |entry: &CataloguedBucket| entry.bucket.owner.clone();
        let (was, is) = (self.buckets.get(&name).map(owner), entry.as_ref().map(owner));
        if let Some(owner) = was {
            let count = self.owned(&owner).saturating_sub(1);
            self.owned.set(owner, Some(count).filter(|count| *count > 0));
        }
        if let Some(owner) = is {
            let count = self.owned(&owner) + 1;
            self.owned.set(owner, Some(count));
        }
        match entry.as_ref().filter(|entry| entry.is_closing()) {
            Some(entry) => self.closing.insert(name.clone(), entry.number),
            None => self.closing.remove(&name),
        };
        self.buckets.set(name, entry);
    }
}

impl ProductRows for S3Catalogue {
    fn replaced(&self, rows: Vec<ProductRow>) -> Result<Arc<dyn ProductRows>> {
        let (mut buckets, mut quotas) = (Vec::new(), Vec::new());
        let (mut closing, mut owned) = (BTreeMap::new(), BTreeMap::<String, usize>::new());
        for ProductRow { key, number, value } in rows {
            match key {
                CatalogueKey::S3Bucket(name) => {
                    let name = bucket_name(&name)?;
                    // Parsing the policies and rules of many buckets is expensive.
                    let known = self.buckets.get(&name).filter(|known| known.number == number).cloned();
                    let parse = || CataloguedBucket::parse(&name, &decode_catalogue_json(value)?, number);
                    let entry = known.map_or_else(parse, Ok)?;
                    *owned.entry(entry.bucket.owner.clone()).or_default() += 1;
                    if entry.is_closing() {
                        closing.insert(name.clone(), number);
                    }
                    buckets.push((name, entry));
                }
                CatalogueKey::S3UserQuota(user) => quotas.push((user, parse_quota(&decode_catalogue_json(value)?)?)),
                _ => {}
            }
        }
        let (buckets, owned) = (buckets.into_iter().collect(), owned.into_iter().collect());
        Ok(Arc::new(Self { buckets, closing, owned, quotas: quotas.into_iter().collect() }))
    }

    fn changed(&self, number: Timestamp, key: &CatalogueKey, json: Option<&Value>) -> Result<Arc<dyn ProductRows>> {
        let mut after = self.clone();
        match key {
            CatalogueKey::S3Bucket(name) => {
                let name = bucket_name(name)?;
                let bucket = json.map(|json| CataloguedBucket::parse(&name, json, number)).transpose()?;
                after.set_bucket(name, bucket);
            }
            CatalogueKey::S3UserQuota(user) => {
                after.quotas.set(user.clone(), json.map(parse_quota).transpose()?);
            }
            _ => {}
        }
        Ok(Arc::new(after))
    }

    fn has_event_target(&self, bucket: &[u8], target: &str) -> bool {
        let bucket = std::str::from_utf8(bucket).ok().and_then(|name| self.bucket(name));
        let config = bucket.and_then(|bucket| bucket.notification.as_ref());
        let id = TargetArn::parse(target).and_then(|arn| arn.webhook);
        config.zip(id).is_some_and(|(config, id)| config.has_webhook(id))
    }
}

impl CataloguedBucket {
    fn parse(name: &str, json: &Value, number: Timestamp) -> Result<Self> {
        let bucket = Bucket::from_json(name, json).map_err(|error| damaged_catalogue(&error))?;
        Ok(Self { bucket: Arc::new(bucket), number })
    }

    fn is_closing(&self) -> bool {
        self.bucket.state == BucketState::Closing
    }
}

fn bucket_name(name: &[u8]) -> Result<String> {
    String::from_utf8(name.to_vec()).map_err(|error| damaged_catalogue(&error))
}

fn parse_quota(json: &Value) -> Result<StorageQuota> {
    StorageQuota::deserialize(json).map_err(|error| damaged_catalogue(&error))
}

/// Pause between two reads of a head whose write is in doubt.
const DECIDE_PAUSE: Duration = Duration::from_secs(1);
/// The longest time after which the store may still apply a write whose answer was lost.
const DECISION_WAIT: Duration = Duration::from_secs(300);

/// Guards the catalogue version a write relies on until dropped. Keep it short: receive the body before.
pub(super) struct CatalogueGuard<'a> {
    gateway: &'a Core,
    number: Timestamp,
    /// Whether a background task releases the guard instead of `drop`.
    is_detached: bool,
    /// The end of the membership lease: the other gateways may not wait for a write that ends later.
    pub(super) deadline: Option<Instant>,
    /// The bucket at the time of the guard.
    pub(super) bucket: Arc<Bucket>,
}

impl<'a> CatalogueGuard<'a> {
    /// Guards the catalogue for a write to the bucket `id`, which had the name `name`.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`] when the bucket is gone, closing, or replaced by another of its name; `NotReady` while heartbeats
    /// fail.
    pub(super) async fn take(gateway: &'a Core, name: &str, id: BucketId) -> crate::Result<Self> {
        // Race: the others wait for the guard below only while this gateway's heartbeat lives [invariant 81].
        let deadline = gateway.members().await_lease().await?;
        let copy = gateway.catalogue();
        // Race: from here on no heartbeat shows a newer version, so a change of the bucket waits [invariant 64] [invariant 65].
        let catalogue = copy.guards.take(|| copy.current());
        let number = catalogue.number();
        // Race: another bucket may have taken the name, and must not get this object [invariant 64].
        let bucket = S3Catalogue::within(&catalogue)
            .bucket(name)
            .filter(|bucket| bucket.id == id && bucket.state == BucketState::Active);
        if let Some(bucket) = bucket {
            return Ok(Self { gateway, number, is_detached: false, deadline, bucket: Arc::clone(bucket) });
        }
        gateway.catalogue().guards.release(number);
        Err(Error::NoSuchBucket(name.to_owned()))
    }

    /// Keeps the guard in a background task until the head can be read: the write that timed out may still reach the
    /// store, and a change of the bucket must wait for it.
    pub(super) fn hold_until_decided(mut self, gateway: Arc<Core>, head: Partition) {
        self.is_detached = true;
        let number = self.number;
        tokio::spawn(async move {
            // Bound: no store applies the write after five minutes, and changes of the bucket must not wait for ever.
            let end = Instant::now() + DECISION_WAIT;
            while Instant::now() < end
                && read_head_row(&gateway, &head, &internal_options(ConsistencyLevel::Quorum)).await.is_err()
            {
                tokio::time::sleep(DECIDE_PAUSE).await;
            }
            gateway.catalogue().guards.release(number);
        });
    }
}

impl Drop for CatalogueGuard<'_> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.gateway.catalogue().guards.release(self.number);
        }
    }
}
