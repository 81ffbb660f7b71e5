//! The catalogue's part that a transfer needs: the number of copies of each bucket type, and when epochs of buckets changed.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_core::rules::catalogue_row::{CatalogueKey, CatalogueRow};
use larder_core::rules::props::TypeRecord;
use larder_rows::address::BucketAddress;
use larder_rows::codec::DecodeError;
use larder_rows::{BucketEpochs, Timestamp};
use larder_store::{Partition, ReadQuery, Row, Stopped};

use crate::retry::read;
use crate::{Error, Result, StorePair};

const PAGE_ROWS: usize = 256;

/// The n_val of each type, and whether the type was created with one. Without one a type takes the engine's number of copies.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypeCatalogue(pub(crate) BTreeMap<Bytes, (u8, bool)>);

/// A bucket whose epochs changed after `begun`, or still change, if there is one.
///
/// # Errors
/// As [`TypeCatalogue::read`].
pub(crate) async fn bucket_split_since(stores: &StorePair, begun: Timestamp) -> Result<Option<BucketAddress>> {
    let mut split_bucket = None;
    for_each_row(stores, |key, row| {
        if let CatalogueKey::Epochs(bucket) = key {
            let epochs = BucketEpochs::from_json(&CatalogueRow::decode(row.value)?.0)?;
            if row.stamp >= begun || epochs.in_next_stage().is_some() {
                split_bucket = Some(bucket);
            }
        }
        Ok(())
    })
    .await?;
    Ok(split_bucket)
}

/// Reads the catalogue, row by row.
async fn for_each_row(
    stores: &StorePair,
    mut take: impl FnMut(CatalogueKey, Row) -> std::result::Result<(), DecodeError> + Send,
) -> Result<()> {
    let unreadable = |error: DecodeError| Error::unreadable("reading the catalogue of bucket types", error);
    let mut after: Option<Bytes> = None;
    loop {
        let query = ReadQuery::after(after.as_ref(), PAGE_ROWS);
        let page = read(stores, &Partition::catalogue(), &query).await?;
        after = page.rows.last().map(|row| row.name.clone());
        for row in page.rows.into_iter().filter(|row| !row.name.is_empty()) {
            let key = CatalogueKey::decode(&row.name).map_err(unreadable)?;
            take(key, row).map_err(unreadable)?;
        }
        if page.stopped == Stopped::End || after.is_none() {
            return Ok(());
        }
    }
}

impl TypeCatalogue {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// An error of the store, or a row of the catalogue that cannot be decoded.
    pub(crate) async fn read(stores: &StorePair) -> Result<Self> {
        let mut copies = BTreeMap::new();
        for_each_row(stores, |key, row| {
            if let CatalogueKey::Type(name) = key {
                let CatalogueRow(json) = CatalogueRow::decode(row.value)?;
                let record = TypeRecord::from_json(&json).map_err(|_| DecodeError::Invalid("bucket type"))?;
                copies.insert(name, (record.copies, record.overrides.get("n_val").is_some()));
            }
            Ok(())
        })
        .await?;
        Ok(Self(copies))
    }

    /// The partition with its type's number of copies, which an engine on one machine does not know.
    pub(crate) fn with_copies(&self, partition: Partition) -> Partition {
        let Some(bucket_type) = partition.bucket_type() else { return partition };
        let copies = self.0.get(&bucket_type).map_or(partition.copies, |(copies, _)| *copies);
        Partition { copies, ..partition }
    }
}
