//! One state of the catalogue: types, own properties and epochs of buckets, S3 buckets, security. Pure: a change makes another state.

use larder_model::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_model::address::BucketAddress;
use larder_model::objects::{Bucket, BucketState, StorageQuota};
use larder_model::props::value::Value as PropValue;
use larder_model::props::{EffectiveProps, Hook, Overrides, TypeRecord, TypeState};
use larder_model::rows::{BucketEpochs, CatalogueKey, CatalogueRow, Row};
use larder_model::security::{AccessRules, SecurityEdit, SecurityKey};
use serde::Deserialize as _;
use serde_json::Value;

use super::shared_map::SharedMap;
use crate::{Error, Result};

/// The change of one catalogue row.
pub(crate) enum CatalogueEdit {
    /// Writes it.
    Write(CatalogueKey, Value),
    /// Removes it.
    Remove(CatalogueKey),
    /// Changes rows of security, all at once.
    Security(SecurityEdit),
    /// None: the wanted state holds already.
    Nothing,
}

/// One state of the catalogue.
#[derive(Debug, Clone)]
pub(crate) struct Catalogue {
    number: Timestamp,
    types: SharedMap<Bytes, CatalogueType>,
    buckets: SharedMap<BucketAddress, BucketOverrides>,
    /// Of buckets with more than one.
    epochs: SharedMap<BucketAddress, BucketEpochs>,
    s3_buckets: SharedMap<String, S3Bucket>,
    /// S3 buckets that are being deleted, each with the number of the change that closed it.
    s3_closing: BTreeMap<String, Timestamp>,
    /// Number of S3 buckets of each user.
    s3_owned: SharedMap<String, usize>,
    /// Quotas of S3 users, by canonical id.
    s3_quotas: SharedMap<String, StorageQuota>,
    security: Arc<AccessRules>,
    default: EffectiveProps,
}

/// A type, with the number of the change that last wrote it.
#[derive(Debug, Clone)]
pub(crate) struct CatalogueType {
    pub(crate) record: Arc<TypeRecord>,
    pub(crate) number: Timestamp,
    effective: EffectiveProps,
}

/// Own properties of a bucket.
#[derive(Debug, Clone)]
struct BucketOverrides {
    overrides: Arc<Overrides>,
    /// The number of the change that last wrote them.
    number: Timestamp,
    /// The effective properties under the type that the change of this number wrote; 0: without a type.
    effective: (Timestamp, EffectiveProps),
}

/// An S3 bucket, with the number of the change that last wrote it.
#[derive(Debug, Clone)]
struct S3Bucket {
    bucket: Arc<Bucket>,
    number: Timestamp,
}

impl Catalogue {
    /// The state of a gateway before its first read.
    pub(crate) fn empty() -> Self {
        Self {
            number: Timestamp::ZERO,
            types: SharedMap::default(),
            buckets: SharedMap::default(),
            epochs: SharedMap::default(),
            s3_buckets: SharedMap::default(),
            s3_closing: BTreeMap::new(),
            s3_owned: SharedMap::default(),
            s3_quotas: SharedMap::default(),
            security: Arc::default(),
            default: TypeRecord::effective(None, &Overrides::EMPTY),
        }
    }

    /// Its number: the stamp of the head.
    pub(crate) fn number(&self) -> Timestamp {
        self.number
    }

    /// The types, `default` not among them, by name.
    pub(crate) fn types(&self) -> &SharedMap<Bytes, CatalogueType> {
        &self.types
    }

    /// The record of an active type; `Some(None)` for type `default`, `None` for one that serves no request.
    pub(crate) fn active(&self, bucket_type: &[u8]) -> Option<Option<&Arc<TypeRecord>>> {
        if bucket_type == larder_model::address::DEFAULT_TYPE {
            return Some(None);
        }
        let found = self.types.get(bucket_type)?;
        (found.record.state == TypeState::Active).then_some(Some(&found.record))
    }

    /// Effective properties of a bucket; `None` when its type serves no request.
    pub(crate) fn effective(&self, bucket: &BucketAddress) -> Option<EffectiveProps> {
        let of_type = match bucket.is_default_type() {
            true => None,
            false => Some(self.types.get(&bucket.bucket_type).filter(|found| found.record.state == TypeState::Active)?),
        };
        match self.buckets.get(bucket) {
            None => Some(of_type.map_or(self.default, |found| found.effective)),
            Some(own) => Some(own.effective_with(of_type)),
        }
    }

    /// The commit hooks in this property of a bucket: its own, else those of its type.
    pub(crate) fn hooks(&self, bucket: &BucketAddress, name: &str) -> Vec<Hook> {
        let own = self.buckets.get(bucket).and_then(|own| own.overrides.get(name));
        match own.or_else(|| self.types.get(&bucket.bucket_type)?.record.overrides.get(name)) {
            Some(PropValue::Hooks(hooks)) => hooks.clone(),
            _ => Vec::new(),
        }
    }

    /// Number of copies of a type's data; that of `default` for an unknown type.
    pub(crate) fn copies(&self, bucket_type: &[u8]) -> u8 {
        self.types.get(bucket_type).map_or(self.default.copies, |found| found.effective.copies)
    }

    /// The bucket's own properties.
    pub(crate) fn own(&self, bucket: &BucketAddress) -> Arc<Overrides> {
        self.buckets.get(bucket).map_or_else(|| Arc::new(Overrides::EMPTY), |own| Arc::clone(&own.overrides))
    }

    /// The epochs of a bucket.
    pub(crate) fn epochs(&self, bucket: &BucketAddress) -> BucketEpochs {
        self.epochs.get(bucket).copied().unwrap_or_default()
    }

    /// The buckets with more than one epoch, by name.
    pub(crate) fn split_buckets(&self) -> impl Iterator<Item = (&BucketAddress, &BucketEpochs)> {
        self.epochs.iter()
    }

    /// An S3 bucket in any state.
    pub(crate) fn s3_bucket(&self, name: &str) -> Option<&Arc<Bucket>> {
        self.s3_buckets.get(name).map(|found| &found.bucket)
    }

    /// The S3 buckets, by name.
    pub(crate) fn s3_buckets(&self) -> impl Iterator<Item = &Arc<Bucket>> {
        self.s3_buckets.values().map(|found| &found.bucket)
    }

    /// The S3 buckets from this name on, by name.
    pub(crate) fn s3_buckets_from(&self, name: &str) -> impl Iterator<Item = &Arc<Bucket>> {
        self.s3_buckets.values_from(name).map(|found| &found.bucket)
    }

    /// Number of S3 buckets of a user.
    pub(crate) fn s3_owned(&self, owner: &str) -> usize {
        self.s3_owned.get(owner).copied().unwrap_or(0)
    }

    /// The quota of all S3 buckets of a user; the default without one.
    pub(crate) fn s3_quota(&self, owner: &str) -> StorageQuota {
        self.s3_quotas.get(owner).copied().unwrap_or_default()
    }

    /// The S3 users with a quota, by canonical id.
    pub(crate) fn s3_quotas(&self) -> impl Iterator<Item = (&String, &StorageQuota)> {
        self.s3_quotas.iter()
    }

    /// S3 buckets that are being deleted, by name, each with the number of the change that closed it.
    pub(crate) fn s3_closing(&self) -> &BTreeMap<String, Timestamp> {
        &self.s3_closing
    }

    /// The rules of security.
    pub(crate) fn security(&self) -> &Arc<AccessRules> {
        &self.security
    }

    /// The state in these rows. Entries unchanged since `before` are taken from there: parsing the properties, policies and
    /// rules of many buckets is expensive.
    pub(super) fn of(rows: Vec<Row>, before: &Self) -> Result<Self> {
        let mut catalogue = Self::empty();
        let (mut types, mut buckets, mut epochs, mut s3_buckets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut s3_quotas, mut security) = (Vec::new(), Vec::new());
        for row in rows {
            if row.name.is_empty() {
                catalogue.number = row.stamp;
                continue;
            }
            let number = row.stamp;
            match key_of(&row.name)? {
                CatalogueKey::Type(name) => {
                    let found = before.types.get(&name).filter(|found| found.number == number).cloned();
                    let found = found.map_or_else(|| CatalogueType::of(&json_of(row.value)?, number), Ok)?;
                    types.push((name, found));
                }
                CatalogueKey::Bucket(bucket) => {
                    let found = before.buckets.get(&bucket).filter(|found| found.number == number).cloned();
                    let found = found.map_or_else(|| BucketOverrides::of(&json_of(row.value)?, number), Ok)?;
                    buckets.push((bucket, found));
                }
                CatalogueKey::S3Bucket(name) => {
                    let name = s3_name(name)?;
                    let found = before.s3_buckets.get(&name).filter(|found| found.number == number).cloned();
                    let found = found.map_or_else(|| S3Bucket::of(&name, &json_of(row.value)?, number), Ok)?;
                    s3_buckets.push((name, found));
                }
                CatalogueKey::Epochs(bucket) => epochs.push((bucket, epochs_of(&json_of(row.value)?)?)),
                CatalogueKey::S3UserQuota(user) => s3_quotas.push((user, quota_of(&json_of(row.value)?)?)),
                CatalogueKey::Security(key) => security.push((key, number, row.value)),
            }
        }
        catalogue.security = security_of(security, &before.security)?;
        catalogue.types = types.into_iter().collect();
        catalogue.epochs = epochs.into_iter().collect();
        catalogue.s3_quotas = s3_quotas.into_iter().collect();
        catalogue.buckets =
            buckets.into_iter().map(|(bucket, own)| (bucket.clone(), own.within(&catalogue.types, &bucket))).collect();
        catalogue.add_s3_buckets(s3_buckets);
        Ok(catalogue)
    }

    /// The state after one change of this number, which must have been decided on this state.
    pub(super) fn changed(&self, number: Timestamp, edit: &CatalogueEdit) -> Result<Self> {
        let mut after = self.clone();
        after.number = number;
        let (key, json) = match edit {
            CatalogueEdit::Write(key, json) => (key, Some(json)),
            CatalogueEdit::Remove(key) => (key, None),
            CatalogueEdit::Security(edit) => {
                let rules = after.security.changed(number, edit.iter().cloned()).map_err(|error| damaged(&error))?;
                after.security = Arc::new(rules);
                return Ok(after);
            }
            CatalogueEdit::Nothing => return Ok(after),
        };
        match key {
            CatalogueKey::Type(name) => {
                after.types.set(name.clone(), json.map(|json| CatalogueType::of(json, number)).transpose()?);
            }
            CatalogueKey::Bucket(bucket) => {
                let own = json.map(|json| BucketOverrides::of(json, number)).transpose()?;
                let own = own.map(|own| own.within(&after.types, bucket));
                after.buckets.set(bucket.clone(), own);
            }
            CatalogueKey::S3Bucket(name) => {
                let name = s3_name(name.clone())?;
                let bucket = json.map(|json| S3Bucket::of(&name, json, number)).transpose()?;
                after.set_s3_bucket(name, bucket);
            }
            CatalogueKey::Epochs(bucket) => {
                after.epochs.set(bucket.clone(), json.map(epochs_of).transpose()?);
            }
            CatalogueKey::S3UserQuota(user) => {
                after.s3_quotas.set(user.clone(), json.map(quota_of).transpose()?);
            }
            CatalogueKey::Security(key) => {
                let edit = [(key.clone(), json.cloned())];
                let rules = after.security.changed(number, edit).map_err(|error| damaged(&error))?;
                after.security = Arc::new(rules);
            }
        }
        Ok(after)
    }

    fn add_s3_buckets(&mut self, buckets: Vec<(String, S3Bucket)>) {
        let mut owned: BTreeMap<String, usize> = BTreeMap::new();
        for (name, found) in &buckets {
            *owned.entry(found.bucket.owner.clone()).or_default() += 1;
            if found.is_closing() {
                self.s3_closing.insert(name.clone(), found.number);
            }
        }
        self.s3_buckets = buckets.into_iter().collect();
        self.s3_owned = owned.into_iter().collect();
    }

    fn set_s3_bucket(&mut self, name: String, found: Option<S3Bucket>) {
        let owner = |found: &S3Bucket| found.bucket.owner.clone();
        let (was, is) = (self.s3_buckets.get(&name).map(owner), found.as_ref().map(owner));
        if let Some(owner) = was {
            let count = self.s3_owned(&owner).saturating_sub(1);
            self.s3_owned.set(owner, Some(count).filter(|count| *count > 0));
        }
        if let Some(owner) = is {
            let count = self.s3_owned(&owner) + 1;
            self.s3_owned.set(owner, Some(count));
        }
        match found.as_ref().filter(|found| found.is_closing()) {
            Some(found) => self.s3_closing.insert(name.clone(), found.number),
            None => self.s3_closing.remove(&name),
        };
        self.s3_buckets.set(name, found);
    }
}

impl CatalogueType {
    fn of(json: &Value, number: Timestamp) -> Result<Self> {
        let record = TypeRecord::from_json(json).map_err(|error| damaged(&error))?;
        let effective = TypeRecord::effective(Some(&record), &Overrides::EMPTY);
        Ok(Self { record: Arc::new(record), number, effective })
    }
}

impl BucketOverrides {
    fn of(json: &Value, number: Timestamp) -> Result<Self> {
        let map = json.as_object().ok_or_else(|| damaged(&"bucket properties are no object"))?;
        let overrides = Overrides::from_json(map).map_err(|_| damaged(&"bucket properties do not hold"))?;
        let effective = (Timestamp::ZERO, TypeRecord::effective(None, &overrides));
        Ok(Self { overrides: Arc::new(overrides), number, effective })
    }

    /// The same, with the effective properties under the bucket's current type.
    fn within(self, types: &SharedMap<Bytes, CatalogueType>, bucket: &BucketAddress) -> Self {
        let of_type = types.get(&bucket.bucket_type);
        let effective = (of_type.map_or(Timestamp::ZERO, |found| found.number), self.effective_with(of_type));
        Self { effective, ..self }
    }

    /// Effective properties of the bucket. If the type changed since, they are computed on each call: so a change of a type
    /// does not touch all its buckets.
    fn effective_with(&self, of_type: Option<&CatalogueType>) -> EffectiveProps {
        let (number, effective) = self.effective;
        match of_type {
            Some(found) if found.number != number => TypeRecord::effective(Some(&found.record), &self.overrides),
            None if number != Timestamp::ZERO => TypeRecord::effective(None, &self.overrides),
            _ => effective,
        }
    }
}

impl S3Bucket {
    fn of(name: &str, json: &Value, number: Timestamp) -> Result<Self> {
        let bucket = Bucket::from_json(name, json).map_err(|error| damaged(&error))?;
        Ok(Self { bucket: Arc::new(bucket), number })
    }

    fn is_closing(&self) -> bool {
        self.bucket.state == BucketState::Closing
    }
}

/// The rules in these rows; those of before, if no row changed.
fn security_of(rows: Vec<(SecurityKey, Timestamp, Bytes)>, before: &Arc<AccessRules>) -> Result<Arc<AccessRules>> {
    if before.is_of(rows.iter().map(|(key, number, _)| (key, *number))) {
        return Ok(Arc::clone(before));
    }
    let parsed: Result<Vec<_>> =
        rows.into_iter().map(|(key, number, value)| Ok((key, number, json_of(value)?))).collect();
    AccessRules::of(parsed?).map(Arc::new).map_err(|error| damaged(&error))
}

fn key_of(name: &[u8]) -> Result<CatalogueKey> {
    CatalogueKey::decode(name).map_err(|error| damaged(&error))
}

fn s3_name(name: Bytes) -> Result<String> {
    String::from_utf8(name.into()).map_err(|error| damaged(&error))
}

fn json_of(value: Bytes) -> Result<Value> {
    CatalogueRow::decode(value).map(|CatalogueRow(json)| json).map_err(|error| damaged(&error))
}

fn epochs_of(json: &Value) -> Result<BucketEpochs> {
    BucketEpochs::from_json(json).map_err(|error| damaged(&error))
}

fn quota_of(json: &Value) -> Result<StorageQuota> {
    StorageQuota::deserialize(json).map_err(|error| damaged(&error))
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::Damaged(format!("the catalogue: {error}"))
}
