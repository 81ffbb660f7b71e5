//! Properties of types and buckets, as clients read and set them.

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use serde_json::{Map, Value};

use super::{Catalogue, CatalogueEdit, Types};
use crate::metrics::KvOp;
use crate::rules::catalogue_row::CatalogueKey;
use crate::rules::props::display::{self, PropList};
use crate::rules::props::{Overrides, TypeRecord, validate};
use crate::{Error, Result};

impl Types {
    /// Properties of an active type.
    ///
    /// # Errors
    /// [`Error::UnknownType`] when it does not exist or is not active.
    pub async fn props(&self, name: &Bytes) -> Result<PropList> {
        let work = async {
            let catalogue = self.catalogue.for_type(name).await?;
            Ok(display::type_props(record(&catalogue, name)?))
        };
        self.core.admit_and_measure(KvOp::Props, work).await
    }

    /// Effective properties of a bucket.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub async fn bucket_props(&self, bucket: &BucketAddress) -> Result<PropList> {
        let work = async {
            let catalogue = self.catalogue.for_type(&bucket.bucket_type).await?;
            let record = record(&catalogue, &bucket.bucket_type)?;
            let name = String::from_utf8_lossy(&bucket.bucket);
            Ok(display::bucket_props(&name, record, &catalogue.own(bucket)))
        };
        self.core.admit_and_measure(KvOp::Props, work).await
    }

    /// Sets own properties of a bucket; others keep their value. After the answer, every running node serves with them.
    ///
    /// # Errors
    /// [`Error::UnknownType`], or [`Error::Refused`] with each reason.
    pub async fn set_bucket_props(&self, bucket: &BucketAddress, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            self.catalogue.for_type(&bucket.bucket_type).await?;
            self.check_schemas(&bucket.to_string(), props).await?;
            self.check_webhooks(props)?;
            let edit = |catalogue: &Catalogue| {
                let record = record(catalogue, &bucket.bucket_type)?;
                let merged = validate::update_bucket(record, &catalogue.own(bucket), props)
                    .map_err(crate::rules::props::PropsError::from)?;
                Ok(own_row(bucket, &merged))
            };
            self.change(edit).await
        };
        self.core.admit_and_measure(KvOp::Props, work).await
    }

    /// Removes a bucket's own properties: its type's take effect again.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub async fn reset_bucket_props(&self, bucket: &BucketAddress) -> Result<()> {
        let work = async {
            self.catalogue.for_type(&bucket.bucket_type).await?;
            let edit = |catalogue: &Catalogue| {
                record(catalogue, &bucket.bucket_type)?;
                let has_own = !catalogue.own(bucket).is_empty();
                Ok(if has_own { own_row(bucket, &Overrides::EMPTY) } else { CatalogueEdit::Nothing })
            };
            self.change(edit).await
        };
        self.core.admit_and_measure(KvOp::Props, work).await
    }
}

fn record<'a>(catalogue: &'a Catalogue, bucket_type: &Bytes) -> Result<Option<&'a TypeRecord>> {
    let active = catalogue.active(bucket_type).ok_or_else(|| unknown(bucket_type))?;
    Ok(active.map(AsRef::as_ref))
}

fn unknown(bucket_type: &Bytes) -> Error {
    Error::UnknownType(bucket_type.clone())
}

fn own_row(bucket: &BucketAddress, overrides: &Overrides) -> CatalogueEdit {
    let key = CatalogueKey::Bucket(bucket.clone());
    if overrides.is_empty() {
        CatalogueEdit::Remove(key)
    } else {
        CatalogueEdit::Write(key, Value::Object(overrides.to_json()))
    }
}
