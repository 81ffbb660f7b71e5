//! The rows of the catalogue that belong to one product: a gateway keeps them fresh, and the product decodes them.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use larder_rows::Timestamp;
use serde_json::Value;

use crate::rules::catalogue_row::{CatalogueKey, CatalogueRow};
use crate::{Error, Result};

/// A row of a product.
#[derive(Debug)]
pub struct ProductRow {
    /// Its key.
    pub key: CatalogueKey,
    /// The number of the change that last wrote it.
    pub number: Timestamp,
    /// Its content; see [`decode_catalogue_json`].
    pub value: Bytes,
}

/// One state of a product's rows, decoded. A change makes another state.
pub trait ProductRows: Any + std::fmt::Debug + Send + Sync {
    /// The state in these rows, which are all of them. Entries unchanged since `self` may be taken from there.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    fn replaced(&self, rows: Vec<ProductRow>) -> Result<Arc<dyn ProductRows>>;

    /// The state after the change of this number: the row has this content now, or is gone.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    fn changed(&self, number: Timestamp, key: &CatalogueKey, json: Option<&Value>) -> Result<Arc<dyn ProductRows>>;

    /// Whether a bucket of the product sends events to the target with this name.
    fn has_event_target(&self, _bucket: &[u8], _target: &str) -> bool {
        false
    }
}

/// No product: its rows stay in the store, and none is read.
#[derive(Debug)]
pub struct NoProductRows;

impl ProductRows for NoProductRows {
    fn replaced(&self, _rows: Vec<ProductRow>) -> Result<Arc<dyn ProductRows>> {
        Ok(Arc::new(Self))
    }

    fn changed(&self, _number: Timestamp, _key: &CatalogueKey, _json: Option<&Value>) -> Result<Arc<dyn ProductRows>> {
        Ok(Arc::new(Self))
    }
}

/// The JSON of a catalogue row.
///
/// # Errors
/// [`Error::Damaged`].
pub fn decode_catalogue_json(value: Bytes) -> Result<Value> {
    CatalogueRow::decode(value).map(|CatalogueRow(json)| json).map_err(|error| damaged_catalogue(&error))
}

/// The error of a catalogue row that does not hold.
pub fn damaged_catalogue(error: &dyn std::fmt::Display) -> Error {
    Error::Damaged(format!("the catalogue: {error}"))
}
