//! The catalogue's part that a transfer needs: the number of copies of each bucket type.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_model::props::TypeRecord;
use larder_model::rows::{CatalogueKey, CatalogueRow};
use larder_store::{Partition, ReadQuery, Stopped};

use crate::retry::read;
use crate::{Error, Result, StorePair};

const PAGE_ROWS: usize = 256;

/// The n_val of each type, and whether the type was created with one. Without one a type takes the engine's number of copies.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypeCatalogue(pub(crate) BTreeMap<Bytes, (u8, bool)>);

impl TypeCatalogue {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// An error of the store, or a row of the catalogue that cannot be decoded.
    pub(crate) async fn read(stores: &StorePair) -> Result<Self> {
        let what = "reading the catalogue of bucket types";
        let unreadable = |error: &dyn std::fmt::Display| Error::unreadable(what, error);
        let mut copies = BTreeMap::new();
        let mut after: Option<Bytes> = None;
        loop {
            let query = ReadQuery::after(after.as_ref(), PAGE_ROWS);
            let page = read(stores, &Partition::catalogue(), &query).await?;
            for row in &page.rows {
                if row.name.is_empty() {
                    continue;
                }
                if let CatalogueKey::Type(name) = CatalogueKey::decode(&row.name).map_err(|error| unreadable(&error))? {
                    let CatalogueRow(json) =
                        CatalogueRow::decode(row.value.clone()).map_err(|error| unreadable(&error))?;
                    let record = TypeRecord::from_json(&json).map_err(|error| unreadable(&error))?;
                    copies.insert(name, (record.copies, record.overrides.get("n_val").is_some()));
                }
            }
            after = page.rows.last().map(|row| row.name.clone());
            if page.stopped == Stopped::End || after.is_none() {
                return Ok(Self(copies));
            }
        }
    }

    /// The partition with its type's number of copies, which an engine on one machine does not know.
    pub(crate) fn with_copies(&self, partition: Partition) -> Partition {
        let Some(bucket_type) = partition.bucket_type() else { return partition };
        let copies = self.0.get(&bucket_type).map_or(partition.copies, |(copies, _)| *copies);
        Partition { copies, ..partition }
    }
}
