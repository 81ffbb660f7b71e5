//! The S3 rows of the catalogue, decoded: buckets, and quotas of users. Pure: a change makes another state.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use larder_core::Result;
use larder_core::rules::catalogue_row::CatalogueKey;
use larder_core::types::{Catalogue, ProductRow, ProductRows, SharedMap, damaged_catalogue, decode_catalogue_json};
use larder_rows::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::rules::{Bucket, BucketState, StorageQuota};

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
        self.buckets.get(name).map(|found| &found.bucket)
    }

    /// The buckets, by name.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Arc<Bucket>> {
        self.buckets.values().map(|found| &found.bucket)
    }

    /// The buckets from this name on, by name.
    pub(super) fn buckets_from(&self, name: &str) -> impl Iterator<Item = &Arc<Bucket>> {
        self.buckets.values_from(name).map(|found| &found.bucket)
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

    fn set_bucket(&mut self, name: String, found: Option<CataloguedBucket>) {
        let owner = |found: &CataloguedBucket| found.bucket.owner.clone();
        let (was, is) = (self.buckets.get(&name).map(owner), found.as_ref().map(owner));
        if let Some(owner) = was {
            let count = self.owned(&owner).saturating_sub(1);
            self.owned.set(owner, Some(count).filter(|count| *count > 0));
        }
        if let Some(owner) = is {
            let count = self.owned(&owner) + 1;
            self.owned.set(owner, Some(count));
        }
        match found.as_ref().filter(|found| found.is_closing()) {
            Some(found) => self.closing.insert(name.clone(), found.number),
            None => self.closing.remove(&name),
        };
        self.buckets.set(name, found);
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
                    let found = known.map_or_else(parse, Ok)?;
                    *owned.entry(found.bucket.owner.clone()).or_default() += 1;
                    if found.is_closing() {
                        closing.insert(name.clone(), number);
                    }
                    buckets.push((name, found));
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
