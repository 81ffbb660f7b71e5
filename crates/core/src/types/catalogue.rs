//! One state of the catalogue: types, own properties and epochs of buckets, security, rows of a product. Pure: a change makes another state.

use std::sync::Arc;

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use larder_rows::{BucketEpochs, Row, Timestamp};
use serde_json::Value;

use super::product_rows::{ProductRow, ProductRows, damaged_catalogue, decode_catalogue_json};
use super::shared_map::SharedMap;
use crate::Result;
use crate::rules::catalogue_row::CatalogueKey;
use crate::rules::props::value::Value as PropValue;
use crate::rules::props::{EffectiveProps, Hook, Overrides, TypeRecord, TypeState};
use crate::rules::security::{AccessRules, SecurityEdit, SecurityKey};

/// The change of one catalogue row.
pub enum CatalogueEdit {
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
pub struct Catalogue {
    number: Timestamp,
    types: SharedMap<Bytes, CatalogueType>,
    buckets: SharedMap<BucketAddress, BucketOverrides>,
    /// Of buckets with more than one.
    epochs: SharedMap<BucketAddress, BucketEpochs>,
    product: Arc<dyn ProductRows>,
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

impl Catalogue {
    /// The state of a gateway before its first read.
    pub(crate) fn empty(product: Arc<dyn ProductRows>) -> Self {
        Self {
            number: Timestamp::ZERO,
            types: SharedMap::default(),
            buckets: SharedMap::default(),
            epochs: SharedMap::default(),
            product,
            security: Arc::default(),
            default: TypeRecord::effective(None, &Overrides::EMPTY),
        }
    }

    /// Its number: the stamp of the head.
    #[inline]
    pub fn number(&self) -> Timestamp {
        self.number
    }

    /// The types, `default` not among them, by name.
    pub(crate) fn types(&self) -> &SharedMap<Bytes, CatalogueType> {
        &self.types
    }

    /// The record of an active type; `Some(None)` for type `default`, `None` for one that serves no request.
    pub(crate) fn active(&self, bucket_type: &[u8]) -> Option<Option<&Arc<TypeRecord>>> {
        if bucket_type == larder_rows::address::DEFAULT_TYPE {
            return Some(None);
        }
        let catalogue_type = self.types.get(bucket_type)?;
        (catalogue_type.record.state == TypeState::Active).then_some(Some(&catalogue_type.record))
    }

    /// Effective properties of a bucket; `None` when its type serves no request.
    #[inline]
    pub fn effective(&self, bucket: &BucketAddress) -> Option<EffectiveProps> {
        let of_type = match bucket.is_default_type() {
            true => None,
            false => Some(
                self.types
                    .get(&bucket.bucket_type)
                    .filter(|catalogue_type| catalogue_type.record.state == TypeState::Active)?,
            ),
        };
        match self.buckets.get(bucket) {
            None => Some(of_type.map_or(self.default, |catalogue_type| catalogue_type.effective)),
            Some(overrides) => Some(overrides.effective_with(of_type)),
        }
    }

    /// The commit hooks in this property of a bucket: its own, else those of its type.
    pub fn hooks(&self, bucket: &BucketAddress, name: &str) -> Vec<Hook> {
        let bucket_hooks = self.buckets.get(bucket).and_then(|overrides| overrides.overrides.get(name));
        match bucket_hooks.or_else(|| self.types.get(&bucket.bucket_type)?.record.overrides.get(name)) {
            Some(PropValue::Hooks(hooks)) => hooks.clone(),
            _ => Vec::new(),
        }
    }

    /// Number of copies of a type's data; that of `default` for an unknown type.
    pub(crate) fn copies(&self, bucket_type: &[u8]) -> u8 {
        self.types.get(bucket_type).map_or(self.default.copies, |catalogue_type| catalogue_type.effective.copies)
    }

    /// The bucket's own properties.
    pub(crate) fn own(&self, bucket: &BucketAddress) -> Arc<Overrides> {
        self.buckets
            .get(bucket)
            .map_or_else(|| Arc::new(Overrides::EMPTY), |overrides| Arc::clone(&overrides.overrides))
    }

    /// The epochs of a bucket.
    #[inline]
    pub fn epochs(&self, bucket: &BucketAddress) -> BucketEpochs {
        self.epochs.get(bucket).copied().unwrap_or_default()
    }

    /// The buckets with more than one epoch, by name.
    pub fn split_buckets(&self) -> impl Iterator<Item = (&BucketAddress, &BucketEpochs)> {
        self.epochs.iter()
    }

    /// The rows of the product beside key-value.
    #[inline]
    pub fn product(&self) -> &dyn ProductRows {
        &*self.product
    }

    /// The rules of security.
    pub(crate) fn security(&self) -> &Arc<AccessRules> {
        &self.security
    }

    /// The state in these rows. Entries unchanged since `before` are taken from there: parsing the properties, policies and
    /// rules of many buckets is expensive.
    pub(super) fn from_rows(rows: Vec<Row>, before: &Self) -> Result<Self> {
        let mut catalogue = Self::empty(Arc::clone(&before.product));
        let (mut types, mut buckets, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut security, mut product) = (Vec::new(), Vec::new());
        for row in rows {
            if row.name.is_empty() {
                catalogue.number = row.stamp;
                continue;
            }
            let number = row.stamp;
            match decode_key(&row.name)? {
                CatalogueKey::Type(name) => {
                    let known = before.types.get(&name).filter(|known| known.number == number).cloned();
                    let catalogue_type =
                        known.map_or_else(|| CatalogueType::parse(&decode_catalogue_json(row.value)?, number), Ok)?;
                    types.push((name, catalogue_type));
                }
                CatalogueKey::Bucket(bucket) => {
                    let known = before.buckets.get(&bucket).filter(|known| known.number == number).cloned();
                    let overrides =
                        known.map_or_else(|| BucketOverrides::parse(&decode_catalogue_json(row.value)?, number), Ok)?;
                    buckets.push((bucket, overrides));
                }
                CatalogueKey::Epochs(bucket) => {
                    epochs.push((bucket, decode_epochs(&decode_catalogue_json(row.value)?)?))
                }
                CatalogueKey::Security(key) => security.push((key, number, row.value)),
                key @ (CatalogueKey::S3Bucket(_) | CatalogueKey::S3UserQuota(_)) => {
                    product.push(ProductRow { key, number, value: row.value });
                }
            }
        }
        catalogue.security = rows_security(security, &before.security)?;
        catalogue.types = types.into_iter().collect();
        catalogue.epochs = epochs.into_iter().collect();
        catalogue.product = before.product.replaced(product)?;
        catalogue.buckets = buckets
            .into_iter()
            .map(|(bucket, overrides)| (bucket.clone(), overrides.within(&catalogue.types, &bucket)))
            .collect();
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
                let rules =
                    after.security.changed(number, edit.iter().cloned()).map_err(|error| damaged_catalogue(&error))?;
                after.security = Arc::new(rules);
                return Ok(after);
            }
            CatalogueEdit::Nothing => return Ok(after),
        };
        match key {
            CatalogueKey::Type(name) => {
                after.types.set(name.clone(), json.map(|json| CatalogueType::parse(json, number)).transpose()?);
            }
            CatalogueKey::Bucket(bucket) => {
                let overrides = json.map(|json| BucketOverrides::parse(json, number)).transpose()?;
                let overrides = overrides.map(|parsed| parsed.within(&after.types, bucket));
                after.buckets.set(bucket.clone(), overrides);
            }
            CatalogueKey::Epochs(bucket) => {
                after.epochs.set(bucket.clone(), json.map(decode_epochs).transpose()?);
            }
            CatalogueKey::S3Bucket(_) | CatalogueKey::S3UserQuota(_) => {
                after.product = self.product.changed(number, key, json)?;
            }
            CatalogueKey::Security(key) => {
                let edit = [(key.clone(), json.cloned())];
                let rules = after.security.changed(number, edit).map_err(|error| damaged_catalogue(&error))?;
                after.security = Arc::new(rules);
            }
        }
        Ok(after)
    }
}

impl CatalogueType {
    fn parse(json: &Value, number: Timestamp) -> Result<Self> {
        let record = TypeRecord::from_json(json).map_err(|error| damaged_catalogue(&error))?;
        let effective = TypeRecord::effective(Some(&record), &Overrides::EMPTY);
        Ok(Self { record: Arc::new(record), number, effective })
    }
}

impl BucketOverrides {
    fn parse(json: &Value, number: Timestamp) -> Result<Self> {
        let map = json.as_object().ok_or_else(|| damaged_catalogue(&"bucket properties are no object"))?;
        let overrides = Overrides::from_json(map).map_err(|_| damaged_catalogue(&"bucket properties do not hold"))?;
        let effective = (Timestamp::ZERO, TypeRecord::effective(None, &overrides));
        Ok(Self { overrides: Arc::new(overrides), number, effective })
    }

    /// The same, with the effective properties under the bucket's current type.
    fn within(self, types: &SharedMap<Bytes, CatalogueType>, bucket: &BucketAddress) -> Self {
        let of_type = types.get(&bucket.bucket_type);
        let effective =
            (of_type.map_or(Timestamp::ZERO, |catalogue_type| catalogue_type.number), self.effective_with(of_type));
        Self { effective, ..self }
    }

    /// Effective properties of the bucket. If the type changed since, they are computed on each call: so a change of a type
    /// does not touch all its buckets.
    fn effective_with(&self, of_type: Option<&CatalogueType>) -> EffectiveProps {
        let (number, effective) = self.effective;
        match of_type {
            Some(catalogue_type) if catalogue_type.number != number => {
                TypeRecord::effective(Some(&catalogue_type.record), &self.overrides)
            }
            None if number != Timestamp::ZERO => TypeRecord::effective(None, &self.overrides),
            _ => effective,
        }
    }
}

/// The rules in these rows; those of before, if no row changed.
fn rows_security(rows: Vec<(SecurityKey, Timestamp, Bytes)>, before: &Arc<AccessRules>) -> Result<Arc<AccessRules>> {
    if before.rows_hold(rows.iter().map(|(key, number, _)| (key, *number))) {
        return Ok(Arc::clone(before));
    }
    let parsed: Result<Vec<_>> =
        rows.into_iter().map(|(key, number, value)| Ok((key, number, decode_catalogue_json(value)?))).collect();
    AccessRules::from_rows(parsed?).map(Arc::new).map_err(|error| damaged_catalogue(&error))
}

fn decode_key(name: &[u8]) -> Result<CatalogueKey> {
    CatalogueKey::decode(name).map_err(|error| damaged_catalogue(&error))
}

fn decode_epochs(json: &Value) -> Result<BucketEpochs> {
    BucketEpochs::from_json(json).map_err(|error| damaged_catalogue(&error))
}
