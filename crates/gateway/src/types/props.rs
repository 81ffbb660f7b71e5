//! Properties as clients ask for them: a type's, and a bucket's own.

use std::sync::Arc;

use bytes::Bytes;
use larder_model::address::BucketAddress;
use larder_model::props::display::{self, List};
use larder_model::props::{Overrides, TypeRecord, validate};
use larder_model::rows::CatalogueKey;
use serde_json::{Map, Value};

use super::{Catalogue, Edit};
use crate::metrics::Op;
use crate::{Error, Gateway, Result};

impl Gateway {
    /// Properties of an active type.
    ///
    /// # Errors
    /// [`Error::UnknownType`] when it does not exist or is not active.
    pub async fn type_props(&self, name: &Bytes) -> Result<List> {
        let work = async {
            let catalogue = self.knowing(name).await?;
            Ok(display::of_type(record(&catalogue, name)?))
        };
        self.measured(Op::Props, work).await
    }

    /// Properties of a bucket as they take effect.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub async fn bucket_props(&self, bucket: &BucketAddress) -> Result<List> {
        let work = async {
            let catalogue = self.knowing(&bucket.bucket_type).await?;
            let record = record(&catalogue, &bucket.bucket_type)?;
            let name = String::from_utf8_lossy(&bucket.bucket);
            Ok(display::of_bucket(&name, record, &catalogue.own(bucket)))
        };
        self.measured(Op::Props, work).await
    }

    /// Sets own properties of a bucket; those not named keep their value. Every running node sees them once this answers.
    ///
    /// # Errors
    /// [`Error::UnknownType`], or [`Error::Refused`] with each reason.
    pub async fn set_bucket_props(&self, bucket: &BucketAddress, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            self.knowing(&bucket.bucket_type).await?;
            let edit = |catalogue: &Catalogue| {
                let record = record(catalogue, &bucket.bucket_type)?;
                let merged = validate::bucket(record, &catalogue.own(bucket), props)
                    .map_err(larder_model::props::Refused::from)?;
                Ok(own_row(bucket, &merged))
            };
            let number = self.change(edit).await?;
            self.seen_by_all(number).await
        };
        self.measured(Op::Props, work).await
    }

    /// Takes a bucket's own properties back: its type's hold again.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub async fn reset_bucket_props(&self, bucket: &BucketAddress) -> Result<()> {
        let work = async {
            self.knowing(&bucket.bucket_type).await?;
            let edit = |catalogue: &Catalogue| {
                record(catalogue, &bucket.bucket_type)?;
                let has_own = !catalogue.own(bucket).is_empty();
                Ok(if has_own { own_row(bucket, &Overrides::EMPTY) } else { Edit::Nothing })
            };
            let number = self.change(edit).await?;
            self.seen_by_all(number).await
        };
        self.measured(Op::Props, work).await
    }

    /// A catalogue in which the type is active: an unknown type causes one look at the store.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub(crate) async fn knowing(&self, bucket_type: &Bytes) -> Result<Arc<Catalogue>> {
        let catalogue = self.fresh().await?;
        if catalogue.active(bucket_type).is_some() {
            return Ok(catalogue);
        }
        self.refresh().await?;
        let catalogue = self.catalogue.load_full();
        if catalogue.active(bucket_type).is_some() { Ok(catalogue) } else { Err(unknown(bucket_type)) }
    }
}

fn record<'a>(catalogue: &'a Catalogue, bucket_type: &Bytes) -> Result<Option<&'a TypeRecord>> {
    let active = catalogue.active(bucket_type).ok_or_else(|| unknown(bucket_type))?;
    Ok(active.map(AsRef::as_ref))
}

fn unknown(bucket_type: &Bytes) -> Error {
    Error::UnknownType(bucket_type.clone())
}

fn own_row(bucket: &BucketAddress, overrides: &Overrides) -> Edit {
    let key = CatalogueKey::Bucket(bucket.clone());
    if overrides.is_empty() { Edit::Remove(key) } else { Edit::Write(key, Value::Object(overrides.to_json())) }
}
