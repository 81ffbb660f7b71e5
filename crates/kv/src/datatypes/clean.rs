//! Removes the rows that a marker covers, a page at a time between the batches of the key, and then the marker.

use bytes::Bytes;
use larder_core::Result;
use larder_core::gateway_core::internal_options;
use larder_rows::codec::{name_after, prefix_successor};
use larder_rows::limits::DATATYPE_PAGE_ROWS;
use larder_rows::{Batch, Change, Row};
use larder_store::{ConsistencyLevel, ReadQuery};

use super::commit::ReadLimit;
use super::reader::read_head;
use super::writers::{DatatypeKey, DatatypeWriters};
use crate::rules::datatypes::{DatatypeError, DatatypeHead, DatatypeRowName, RemovalMarker};

impl DatatypeWriters {
    /// Cleans one page below the first marker; whether there is more to clean.
    ///
    /// # Errors
    /// The store's; markers stay, and hide what they cover.
    pub(super) async fn clean_page(&self, key: &DatatypeKey) -> Result<bool> {
        let options = internal_options(ConsistencyLevel::Quorum);
        let head = read_head(&self.core, &key.partition, &options).await?;
        let Some(marker) = head.markers.first() else { return Ok(false) };
        let mut range = ReadQuery::prefix(marker.path.prefix(), DATATYPE_PAGE_ROWS).range;
        loop {
            let rows = self.read_range(key, range.clone(), ReadLimit::rows(DATATYPE_PAGE_ROWS), &options).await?;
            let ended = rows.len() < DATATYPE_PAGE_ROWS;
            let last = rows.last().map(|row| row.name.clone());
            let mut changes = covered(&head, marker, rows)?;
            // Crash: the marker goes with the last page, or rows that it hid would be seen again [invariant 114].
            if ended {
                let name = DatatypeRowName::Marker(marker.path.clone(), marker.remover).encode();
                changes.push(Change::Remove { name, stamp: marker.stamp });
            }
            if !changes.is_empty() {
                self.core.apply_at_quorum(Batch::single(key.partition.clone(), changes)).await?;
                return Ok(!ended || head.markers.len() > 1);
            }
            // A page of live rows only: updates since the marker.
            range.from = last.map(|last| next_name(marker, &last));
        }
    }
}

/// The name to go on with after this one. Ids of requests expire by themselves, and a day may have left any number.
fn next_name(marker: &RemovalMarker, last: &Bytes) -> Bytes {
    let requests = marker.path.requests_prefix();
    let behind = prefix_successor(&requests).filter(|_| last.starts_with(&requests));
    behind.unwrap_or_else(|| name_after(last))
}

/// The removals of the rows that the marker covers.
fn covered(head: &DatatypeHead, marker: &RemovalMarker, rows: Vec<Row>) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for row in rows {
        let name = DatatypeRowName::decode(&row.name).map_err(DatatypeError::from)?;
        let DatatypeRowName::Data(path, leaf) = name else { continue };
        if marker.path.contains(&path) && head.is_dead(&path, &leaf, row.stamp) {
            changes.push(Change::Remove { name: row.name, stamp: row.stamp });
        }
    }
    Ok(changes)
}
