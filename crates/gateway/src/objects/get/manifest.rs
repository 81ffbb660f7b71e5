//! Finding parts in the manifest of an object: rows of many parts, named by the offset of their first byte.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::objects::part::decode_manifest_row;
use larder_model::objects::{ManifestPart, VersionId};
use larder_store::{Level, Order, Partition, Range as Names, ReadQuery};

use crate::Gateway;
use crate::objects::Result;

/// Bytes of an object, and the blob they are in.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) bytes: Range<u64>,
    pub(super) blob: BlobId,
}

/// Goes through a manifest, a row at a time.
#[derive(Debug)]
pub(in crate::objects) struct Walk {
    partition: Partition,
    /// The last row that was read; at first the one before all offsets, which says whose the manifest is.
    last: Bytes,
    /// What is left of it: offset and part.
    parts: VecDeque<(u64, ManifestPart)>,
}

impl Walk {
    /// From the first part.
    pub(in crate::objects) fn new(manifest: VersionId) -> Self {
        Self { partition: Partition::manifest(manifest), last: Bytes::new(), parts: VecDeque::new() }
    }

    /// From a part at or before `offset`: the row with the greatest name that is not greater.
    ///
    /// # Errors
    /// What the store answers.
    pub(super) async fn at(gateway: &Gateway, manifest: VersionId, offset: u64) -> Result<Self> {
        let mut walk = Self::new(manifest);
        let behind = offset.checked_add(1).map(|behind| Bytes::copy_from_slice(&behind.to_be_bytes()));
        let first = Some(Bytes::from_static(&[0]));
        let query = ReadQuery { range: Names { from: first, to: behind }, limit: 1, order: Order::Reverse };
        walk.read(gateway, &query).await?;
        Ok(walk)
    }

    /// The next part with its offset; `None` behind the last one.
    ///
    /// # Errors
    /// What the store answers; `Damaged`.
    pub(in crate::objects) async fn next(&mut self, gateway: &Gateway) -> Result<Option<(u64, ManifestPart)>> {
        while self.parts.is_empty() {
            let query = ReadQuery::after(Some(&self.last), 1);
            if !self.read(gateway, &query).await? {
                return Ok(None);
            }
        }
        Ok(self.parts.pop_front())
    }

    /// The next part that has bytes.
    ///
    /// # Errors
    /// What the store answers; `Damaged`.
    pub(super) async fn next_piece(&mut self, gateway: &Gateway) -> Result<Option<Piece>> {
        while let Some((offset, part)) = self.next(gateway).await? {
            if let Some(blob) = part.blob {
                return Ok(Some(Piece { bytes: offset..offset.saturating_add(part.length), blob }));
            }
        }
        Ok(None)
    }

    /// Reads one row; `false`: there is none.
    async fn read(&mut self, gateway: &Gateway, query: &ReadQuery) -> Result<bool> {
        let page = gateway.ports.store.read(&self.partition, query, &gateway.own(Level::Quorum)).await?;
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

/// The bytes of the part with this index, from 0, and the digest of its checksum; `None`: it is not there.
///
/// # Errors
/// What the store answers; `Damaged`.
pub(super) async fn part(
    gateway: &Gateway,
    manifest: VersionId,
    index: u32,
) -> Result<Option<(Range<u64>, Option<Bytes>)>> {
    let mut walk = Walk::new(manifest);
    for _ in 0..index {
        if walk.next(gateway).await?.is_none() {
            return Ok(None);
        }
    }
    let found = walk.next(gateway).await?;
    Ok(found.map(|(offset, part)| (offset..offset.saturating_add(part.length), part.checksum)))
}
