//! What the catalogue says that a copy needs to know: how many copies the types have.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_model::props::TypeRecord;
use larder_model::rows::{CatalogueKey, CatalogueRow};
use larder_store::{Partition, ReadQuery, Stopped};

use crate::calls::read;
use crate::{Ends, Error, Result};

const PAGE_ROWS: usize = 256;

/// Copies of what is in each type, and whether it was created with an n_val of its own: otherwise it takes as many as there
/// are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Copies(pub(crate) BTreeMap<Bytes, (u8, bool)>);

impl Copies {
    /// Reads them.
    ///
    /// # Errors
    /// What the store answers; a catalogue that cannot be read.
    pub(crate) async fn read(ends: &Ends) -> Result<Self> {
        let what = "reading the catalogue of bucket types";
        let unreadable = |error: &dyn std::fmt::Display| Error::unreadable(what, error);
        let mut copies = BTreeMap::new();
        let mut after: Option<Bytes> = None;
        loop {
            let query = ReadQuery::after(after.as_ref(), PAGE_ROWS);
            let page = read(ends, &Partition::catalogue(), &query).await?;
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

    /// The partition with the number of copies it has: an engine on one machine does not know it.
    pub(crate) fn place(&self, partition: Partition) -> Partition {
        let Some(bucket_type) = partition.bucket_type() else { return partition };
        let n_val = self.0.get(&bucket_type).map_or(partition.n_val, |(copies, _)| *copies);
        Partition { n_val, ..partition }
    }
}
