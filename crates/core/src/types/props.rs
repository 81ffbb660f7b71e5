//! Properties of types and buckets, as clients read and set them.

use std::time::Duration;

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{Catalogue, CatalogueEdit, Types};
use crate::metrics::KvOp;
use crate::rules::catalogue_row::CatalogueKey;
use crate::rules::props::display::{self, PropList};
use crate::rules::props::{
    InvalidProp, InvalidReason, Overrides, PropsError, TypeRecord, schemas_in, validate, webhooks_in,
};
use crate::{Error, Result, ScriptArguments, ScriptCall, ScriptError, ScriptFunction};

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
        self.context.admit_and_measure(KvOp::Props, work).await
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
        self.context.admit_and_measure(KvOp::Props, work).await
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
        self.context.admit_and_measure(KvOp::Props, work).await
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
        self.context.admit_and_measure(KvOp::Props, work).await
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

/// The property with the hooks that have schemas.
const SCHEMA_PROP: &str = "precommit";
/// The property with the webhooks.
const WEBHOOK_PROP: &str = "postcommit";
/// The script that names the fault of a schema. In a worker, since a schema may take memory or time without end.
const SCHEMA_FUNCTION: &str = "Larder.schemaError";

/// How long a check may wait for a worker.
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);

impl Types {
    /// Checks the schemas in properties that a client sets for this type or bucket.
    ///
    /// # Errors
    /// [`Error::Refused`]: the argument of a hook is no schema. [`Error::Overloaded`]: no worker can check it now.
    pub(super) async fn check_schemas(&self, client: &str, props: &Map<String, Value>) -> Result<()> {
        // Without scripts no hook of this kind runs: each put says so.
        let Some(scripts) = &self.context.ports.scripts else { return Ok(()) };
        for schema in props.get(SCHEMA_PROP).map(schemas_in).unwrap_or_default() {
            let function = ScriptFunction::Named(SCHEMA_FUNCTION.into());
            let deadline = Instant::now() + WORKER_TIMEOUT;
            let arguments = ScriptArguments::new(&[schema.into()]);
            let reason = match scripts.call(ScriptCall { client: client.into(), function, arguments, deadline }).await {
                Ok(Value::String(reason)) => reason,
                Ok(_) => continue,
                Err(ScriptError::Unavailable) => return Err(Error::Overloaded { retry_after: 1 }),
                Err(error) => error.to_string(),
            };
            let refused = InvalidProp { prop: SCHEMA_PROP.into(), reason: InvalidReason::not_a_schema(reason) };
            return Err(PropsError::Props(vec![refused]).into());
        }
        Ok(())
    }
}

impl Types {
    /// Checks the hosts of the webhooks in properties that a client sets.
    ///
    /// # Errors
    /// [`crate::Error::Refused`]: the setting does not name the host.
    pub(super) fn check_webhooks(&self, props: &Map<String, Value>) -> Result<()> {
        let allowed = &self.context.config.webhook_hosts;
        let webhooks = props.get(WEBHOOK_PROP).map(webhooks_in).unwrap_or_default();
        match webhooks.iter().find(|url| !allowed.contains(url.host())) {
            None => Ok(()),
            Some(url) => {
                let reason = InvalidReason::host_not_allowed(url.host().clone());
                Err(PropsError::Props(vec![InvalidProp { prop: WEBHOOK_PROP.into(), reason }]).into())
            }
        }
    }
}
