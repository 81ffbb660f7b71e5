//! Rows of the parts of an upload.
//!
//! ```text
//! row <number>          the part of this number that was stored last
//! row ff ff <blob id>   a blob of the upload: of a part, or of a replaced part
//! ```
//! One batch writes both. So a part is replaced without a read, and the end of the upload finds every blob that may have to
//! go.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_rows::{Batch, Change, Row, Timestamp};
use larder_store::{Partition, Range, ReadOrder, ReadQuery, Stopped};

use super::Result;
use super::commit::HeadStore;
use super::uploads::Uploads;
use crate::rules::part::PART_NUMBER_MAX;
use crate::rules::{Part, UploadId};

/// Prefix of the names of blob rows: after all numbers.
const BLOB_ROW: [u8; 2] = [0xff; 2];
/// The value of a blob row: a version byte.
const BLOB_VALUE: &[u8] = &[1];

/// The rows of parts with numbers above `after`.
fn part_rows(after: u16, limit: usize) -> ReadQuery {
    let from = Some(Part::row_name(after.saturating_add(1)));
    let range = Range { from, to: Some(Bytes::from_static(&BLOB_ROW)) };
    ReadQuery { range, limit, order: ReadOrder::Forward }
}

/// The blob rows after the one named `after`.
pub(super) fn blob_rows(after: Option<&Bytes>, limit: usize) -> ReadQuery {
    match after {
        Some(after) => ReadQuery::after(Some(after), limit),
        None => ReadQuery::prefix(Bytes::from_static(&BLOB_ROW), limit),
    }
}

/// The blob of the row with this name.
pub(super) fn blob_of_row(name: &[u8]) -> Option<BlobId> {
    let id = name.strip_prefix(&BLOB_ROW)?;
    Some(BlobId(id.try_into().ok()?))
}

fn blob_row_name(blob: BlobId) -> Bytes {
    [&BLOB_ROW[..], &blob.0].concat().into()
}

impl HeadStore {
    /// Parts with numbers above `after`, at most `limit`, in one read.
    pub(super) async fn read_parts(&self, upload: UploadId, after: u16, limit: usize) -> Result<(Vec<Part>, Stopped)> {
        let (partition, query) = (Partition::parts(upload), part_rows(after, limit));
        let page = self.gateway.core.ports.store.read(&partition, &query, &self.options()).await?;
        let parts = page.rows.into_iter().map(|row| Part::decode(&row.name, row.value));
        Ok((parts.collect::<std::result::Result<_, _>>()?, page.stopped))
    }

    /// All parts by their numbers, at most 10,000.
    pub(super) async fn all_parts(&self, upload: UploadId) -> Result<BTreeMap<u16, Part>> {
        let (mut all, mut after) = (BTreeMap::new(), 0);
        while after < PART_NUMBER_MAX {
            let (parts, stopped) = self.read_parts(upload, after, LISTING_PAGE_ROWS).await?;
            after = parts.last().map_or(PART_NUMBER_MAX, |part| part.number);
            all.extend(parts.into_iter().map(|part| (part.number, part)));
            if stopped == Stopped::End {
                break;
            }
        }
        Ok(all)
    }
}

impl Uploads {
    /// Writes a part: it replaces the part of its number, unless that one has a greater stamp.
    pub(super) async fn write_part(&self, upload: UploadId, part: &Part, stamp: Timestamp) -> Result<()> {
        let put = |name, value| Change::Put(Row { name, value, stamp, expires: None });
        // Crash: one batch, so the end of the upload finds the bytes of each part, also of a replaced one.
        let mut changes = vec![put(Part::row_name(part.number), part.encode())];
        changes.extend(part.blob.map(|blob| put(blob_row_name(blob), Bytes::from_static(BLOB_VALUE))));
        Ok(self
            .gateway
            .core
            .ports
            .store
            .apply(Batch::single(Partition::parts(upload), changes), &self.heads.options())
            .await?)
    }

    /// Removes a part written with this stamp.
    pub(super) async fn remove_part(&self, upload: UploadId, part: &Part, stamp: Timestamp) -> Result<()> {
        let remove = |name| Change::Remove { name, stamp };
        let mut changes = vec![remove(Part::row_name(part.number))];
        changes.extend(part.blob.map(|blob| remove(blob_row_name(blob))));
        let (batch, options) = (Batch::single(Partition::parts(upload), changes), self.heads.options().reclaiming());
        Ok(self.gateway.core.ports.store.apply(batch, &options).await?)
    }
}
