//! Finds parts in the manifest of an object. Each row has many parts and is named by the offset of its first byte.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use larder_core::Core;
use larder_rows::content::BlobId;
use larder_store::{Partition, Range as Names, ReadOrder, ReadQuery};

use crate::Result;
use crate::rules::part::decode_manifest_row;
use crate::rules::{ManifestPart, VersionId};

/// A byte range of an object, and its blob.
#[derive(Debug, Clone)]
pub(super) struct PartRange {
    pub(super) bytes: Range<u64>,
    pub(super) blob: BlobId,
}

/// Iterates over a manifest, one row per read.
#[derive(Debug)]
pub(crate) struct ManifestCursor {
    partition: Partition,
    /// The last row read; at first the owner row, which sorts before all offsets.
    last: Bytes,
    /// The rest of that row: offset and part.
    parts: VecDeque<(u64, ManifestPart)>,
}

impl ManifestCursor {
    /// Starts at the first part.
    pub(crate) fn new(manifest: VersionId) -> Self {
        Self { partition: Partition::manifest(manifest), last: Bytes::new(), parts: VecDeque::new() }
    }

    /// Starts at a part at or before `offset`: in the row with the greatest name up to it.
    ///
    /// # Errors
    /// Any error of the store.
    pub(super) async fn at(gateway: &Core, manifest: VersionId, offset: u64) -> Result<Self> {
        let mut cursor = Self::new(manifest);
        let end = offset.checked_add(1).map(|end| Bytes::copy_from_slice(&end.to_be_bytes()));
        // This begins after the owner row, whose name is empty, and before the offset 0.
        let first = Some(Bytes::from_static(&[0]));
        let query = ReadQuery { range: Names { from: first, to: end }, limit: 1, order: ReadOrder::Reverse };
        cursor.read(gateway, &query).await?;
        Ok(cursor)
    }

    /// The next part with its offset; `None` after the last one.
    ///
    /// # Errors
    /// Any error of the store; `Damaged`.
    pub(crate) async fn next(&mut self, gateway: &Core) -> Result<Option<(u64, ManifestPart)>> {
        while self.parts.is_empty() {
            let query = ReadQuery::after(Some(&self.last), 1);
            if !self.read(gateway, &query).await? {
                return Ok(None);
            }
        }
        Ok(self.parts.pop_front())
    }

    /// The next part that is not empty.
    ///
    /// # Errors
    /// Any error of the store; `Damaged`.
    pub(super) async fn next_range(&mut self, gateway: &Core) -> Result<Option<PartRange>> {
        while let Some((offset, part)) = self.next(gateway).await? {
            if let Some(blob) = part.blob {
                return Ok(Some(PartRange { bytes: offset..offset.saturating_add(part.length), blob }));
            }
        }
        Ok(None)
    }

    /// Reads one row; `false` when there is none.
    async fn read(&mut self, gateway: &Core, query: &ReadQuery) -> Result<bool> {
        let page = gateway.core.read_at_quorum(&self.partition, query).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(false) };
        let (mut offset, _, parts) = decode_manifest_row(&row.name, row.value)?;
        self.last = row.name;
        self.parts.extend(parts.into_iter().map(|part| {
            let at = offset;
            offset = offset.saturating_add(part.length);
            (at, part)
        }));
        Ok(true)
    }
}

/// The bytes of the part with this index, from 0, and the digest of its checksum; `None` if there is no such part.
///
/// # Errors
/// Any error of the store; `Damaged`.
pub(super) async fn part(
    gateway: &Core,
    manifest: VersionId,
    index: u32,
) -> Result<Option<(Range<u64>, Option<Bytes>)>> {
    let mut cursor = ManifestCursor::new(manifest);
    // Rows are named by offset, so only counting finds the part of an index.
    for _ in 0..index {
        if cursor.next(gateway).await?.is_none() {
            return Ok(None);
        }
    }
    let found = cursor.next(gateway).await?;
    Ok(found.map(|(offset, part)| (offset..offset.saturating_add(part.length), part.checksum)))
}
